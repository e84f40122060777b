# One command trains: what it writes, how it stops, what it refuses.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
job() { run_job "$WORK/log" "$WORK/job.yaml" "$@"; }
RUN=$WORK/runs/tiny

# what a run leaves
job --set run.log_every=4
check_eq "a job trains" 0 $?
check_eq "the steps of run.log_every, the first and the last are logged" "1 4 8 12 16 20" \
  "$(number step < "$RUN/metrics.jsonl" | tr '\n' ' ' | sed 's/ $//')"
keys=$(head -n 1 "$RUN/metrics.jsonl" | grep -o '"[a-z_]*":' | tr -d '":' | tr '\n' ' ')
check_eq "metrics have the contract's keys" "step loss grad_norm lr tokens_per_s step_s memory_bytes generation time " "$keys"
check "the loss falls by half a nat" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first - 0.5) }' <(figures "$RUN")
check_match "one line per logged step on the console" 'step 20/20 +loss [0-9.]+ +grad norm' "$(cat "$WORK/log")"
for event in spawn first_step checkpoint exit complete; do
  check_match "events: $event" "\"event\": *\"$event\"" "$(cat "$RUN/events.jsonl")"
done
check_eq "checkpoint.keep leaves the three newest" "step-00000010 step-00000015 step-00000020" \
  "$(cd "$RUN/checkpoints" && echo step-*)"
check_match "memory is that of a process" '^[0-9]{6,}$' "$(number memory_bytes < "$RUN/metrics.jsonl" | tail -n 1)"

# text
sample() { "$BIN/fsdp-train" --sample "$@"; }
check_status "--sample writes text from a run directory" 0 sample "$RUN" --prompt "And God" --tokens 40
check_eq "the prompt and so many tokens" $((7 + 40 + 1)) "$(wc -c < "$WORK/out")"
check_match "beginning with the prompt" '^And God' "$(head -n 1 "$WORK/out" | tr -d '\000')"
cp "$WORK/out" "$WORK/once"
check_status "from a checkpoint's own directory" 0 sample "$RUN/checkpoints/step-00000020" --prompt "And God" --tokens 40
check "the same seed writes the same text" cmp "$WORK/once" "$WORK/out"
check_status "another seed writes text as well" 0 sample "$RUN" --prompt "And God" --tokens 40 --seed 2
check_status "but another text" 1 cmp "$WORK/once" "$WORK/out"
check_status "it stops where nobody reads any more" 0 \
  timeout 600 sh -c "'$BIN/fsdp-train' --sample '$RUN' --tokens 10000000 | head -c 20 > /dev/null"
check_status "no checkpoint there is status 66" 66 sample "$WORK"
check_status "no directory there is status 66" 66 sample "$WORK/nothing"
check_eq "in one line" 1 "$(wc -l < "$WORK/err")"

# no steps, no checkpoints
job --set run.name=zero --set train.steps=0
check_eq "train.steps 0 ends with 0" 0 $?
check_eq "and leaves step 0" step-00000000 "$(cd "$WORK/runs/zero/checkpoints" && echo step-*)"
job --set run.name=none --set train.steps=3 --set checkpoint.every=0
check_eq "checkpoint.every 0 trains" 0 $?
check_eq "and saves nothing" "" "$(ls "$WORK/runs/none/checkpoints" 2> /dev/null)"

# data and models that cannot be
refused() { # NAME STATUS WORDS SETTING...
  local name=$1 status=$2 words=$3; shift 3
  job --set run.name=refused "$@"
  check_eq "$name: status $status" "$status" $?
  check_match "$name: says so" "$words" "$(cat "$WORK/log")"
  check_eq "$name: by one rank" 1 "$(grep -E "$words" "$WORK/log" | grep -vc "^  ")"
}
: > "$WORK/empty"
printf 'short' > "$WORK/short"
refused "an empty data file" 66 'is empty' --set "data.path=$WORK/empty"
refused "a data file shorter than a sample" 66 'needs 17' --set "data.path=$WORK/short"
refused "a data file that is not there" 66 'nowhere' --set "data.path=$WORK/nowhere"
refused "a directory for data" 66 'a directory' --set "data.path=$WORK"
# without a launcher
sed -e 's/"name": *"[^"]*"/"name": "alone"/' -e 's/"log_every": *4/"log_every": 1/' "$RUN/job.json" > "$WORK/alone.json"
check_status "fsdp-train alone trains a job.json" 0 "$BIN/fsdp-train" "$WORK/alone.json"
check "with one rank's figures" close_figures "$WORK/runs/alone" "$RUN" 1 5e-6
check_status "alone and complete it ends with 0" 0 "$BIN/fsdp-train" "$WORK/alone.json"
check_match "and says so" 'already complete' "$(cat "$WORK/out")"
ln -s alone.json "$WORK/link.json"; mkfifo "$WORK/fifo.json"; ln -s fifo.json "$WORK/to-fifo.json"
check_status "a symbolic link to a job is the job" 0 "$BIN/fsdp-train" "$WORK/link.json"
check_match "which is complete, too" 'already complete' "$(cat "$WORK/out")"
check_status "and it is planned" 0 "$BIN/fsdp-train" --plan "$WORK/link.json"
for name in fifo.json to-fifo.json .; do
  check_status "$name is no job" 66 timeout 600 "$BIN/fsdp-train" "$WORK/$name"
  check_match "and said to be no file" "$name is not a regular file" "$(cat "$WORK/err")"
done
check_status "no job at all is refused" 78 "$BIN/fsdp-train"
check_status "bad usage is status 2" 2 "$BIN/fsdp-train" --nonsense
check_match "the help names options and their values" '--sample CHECKPOINT.*--temperature T.*--version' "$("$BIN/fsdp-train" --help | tr '\n' ' ')"
undocumented=
for option in $("$BIN/fsdp-train" --help | grep -oE '^ +--[a-z-]+' | tr -d ' '); do
  grep -qF -- "${option//-/\\-}" docs/man/fsdp-train.1 || undocumented="$undocumented $option"
done
check_eq "every option stands in the manual page" "" "$undocumented"
check_match "--version names the commit" 'fsdp-train [0-9.]+ \(commit' "$("$BIN/fsdp-train" --version)"
