# The progress line of a job: on a terminal that only fsdprun writes to, below the lines of the ranks; nowhere
# else.
. tests/support/shell/harness.sh
cat "$SOURCE"/agent/*.c > "$WORK/text"
# A small model, a checkpoint after every step, and enough of them: slow enough to be seen on a fast machine
# too.
cat > "$WORK/job.yaml" << 'YAML'
run: {name: small, log_every: 10}
data: {path: text}
model: {layers: 1, dim: 16, heads: 2, vocab: 256, seq: 16}
launch: {threads: 1} # two would wait for each other on a busy machine, and take ten times as long
train: {steps: 600, batch: 1}
checkpoint: {every: 1, keep: 1}
YAML
: > "$WORK/now"
on_terminal() { # NAME COMMAND...: what stood on the terminal is $WORK/NAME
  "$TOY/stalled_terminal" "$WORK/now" "${@:2}" > "$WORK/$1"
}
job=("$BIN/fsdprun" --nproc-per-node 1 "$WORK/job.yaml" --log-dir)
# All at once, because they mostly wait for their checkpoints.
on_terminal tty env TERM=xterm "${job[@]}" "$WORK/run-tty" &
on_terminal grey env NO_COLOR=1 "${job[@]}" "$WORK/run-grey" &
on_terminal dumb env TERM=dumb "${job[@]}" "$WORK/run-dumb" &
# The pipe's reader writes to the same terminal, at moments of its own.
on_terminal cat sh -c '"$@" --set train.steps=60 | cat' sh "${job[@]}" "$WORK/run-cat" &
"${job[@]}" "$WORK/run-pipe" 2>&1 | cat > "$WORK/pipe" &
wait

check_match "a job runs on a terminal" "exit=0" "$(tail -n 2 "$WORK/tty")"
tr '\r' '\n' < "$WORK/tty" > "$WORK/lines"
check_match "the progress line is drawn" "step [0-9]+/600 +[0-9]+% \[" "$(cat "$WORK/lines")"
check_match "with colours" $'\033\\[32m#' "$(cat "$WORK/lines")"
check_match "loss and time left" "loss [0-9.]+  [0-9:]+ left" "$(cat "$WORK/lines")"
check_eq "no wider than the terminal" "" "$(grep 'step ' "$WORK/lines" | grep -v '^.*rank 0' | sed -E $'s/\033\\[[0-9]*[mK]//g' | awk 'length($0) > 80')"
check_eq "the lines of the rank are whole" "" "$(sed -E $'s/^\033\\[K//' "$WORK/lines" | grep 'rank 0' | grep -v '^\[rank 0\]: ')"
check_eq "every line taken away before another is written" 0 "$(grep -cE 'left.*\[rank 0\]' "$WORK/lines")"
# What stands on the screen at the end: what came after the line was last taken away.
check_eq "nothing of it stands at the end" 0 "$(tr -d '\n' < "$WORK/tty" | sed -E $'s/.*\033\\[K//' | grep -c '% \[')"

check_eq "NO_COLOR: the line without colours" "yes 0" "$(grep -q '% \[' "$WORK/grey" && echo yes) $(grep -c $'\033\\[[0-9]*m' "$WORK/grey")"
check_match "| cat on a terminal runs" "step 60/60" "$(cat "$WORK/cat")"
check_eq "| cat on a terminal: plain lines only" 0 "$(grep -c '% \[' "$WORK/cat")"
check_eq "TERM=dumb: no line at all" "0 0" "$(grep -c '% \[' "$WORK/dumb") $(grep -c $'\033' "$WORK/dumb")"
check_eq "piped: plain lines only" "0 0" "$(grep -c $'\r' "$WORK/pipe") $(grep -c $'\033' "$WORK/pipe")"
check_match "one every log_every steps" "^\[rank 0\]: .*600/600" "$(grep 'step 600/600' "$WORK/pipe")"
