# --summary FILE: what it says of runs that end well, restart or fail, and where it cannot be written.
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
F=$BIN/fsdprun
S=$WORK/summary.json
# key EXPRESSION...: of the summary, for jq
key() { jq -r "[$(printf '(%s), ' "$@") empty] | map(tostring) | join(\" \")" "$S"; }
adds_up() { [ "$(key '(.seconds_by | add) - .seconds | fabs <= 0.0005')" = true ]; }

# A worker that takes TERM and stays: each restart waits a second for it.
check_status "a program fails in each of three generations" 3 "$F" --nproc-per-node 2 --max-restarts 2 --shutdown-timeout 1 \
  -r 3 --log-dir "$WORK/logs" --summary "$S" "$TOY/toy" rank=0 "catch=15:$WORK/term" rank=0 "touch=$WORK/up" rank=0 hang \
  gen=0 "lines=1:$WORK/up" gen=1 "lines=2:$WORK/up" gen=2 "lines=3:$WORK/up" exit=3
check_eq "its status, generations, restarts and cause" "3 3 2 exit 1 3 2" \
  "$(key '.status' '.generations' '.restarts' '.first_cause.class' '.first_cause.rank' '.first_cause.exit_code' '.first_cause.generation')"
check_eq "and its run directory" "$(echo "$WORK"/logs/*)" "$(key '.run_dir')"
check_eq "two restarts took two seconds at least, and nodes were not waited for" "true true" \
  "$(key '.seconds_by.restarting >= 2' '.seconds_by.waiting == 0')"
check "the parts add up" adds_up
check_eq "a program has no steps" false "$(key '.steps != null')"
# A program ends in silence, unless it was restarted: then with one line, above the first cause and its files.
dir=$(key '.run_dir')
check_match "it ends with what its restarts cost, and where its files are" "^fsdprun: 2 restarts cost [0-9:]+; logs: $dir$" \
  "$(tail -n 3 "$WORK/err" | head -n 1)"
check_eq "which is two seconds at least" "" "$(grep 'cost 0:0[01]' "$WORK/err")"
check_match "its logs are there" 'stdout.log$' "$(find "$dir" -name stdout.log)"
check_status "a program that is well after a restart" 0 "$F" --max-restarts 1 "$TOY/toy" gen=0 exit=3
check_match "whose output is not kept has no path" "^fsdprun: 1 restart cost [0-9:]+$" "$(tail -n 1 "$WORK/err")"
check_status "none with --quiet" 0 "$F" --quiet --max-restarts 1 "$TOY/toy" gen=0 exit=3
check_eq "... says nothing" "" "$(cat "$WORK/err")"
check_status "nor one that was not restarted" 0 "$F" --max-restarts 1 "$TOY/toy"
check_eq "... says anything" "" "$(cat "$WORK/err")"

tiny_job "$WORK/job.yaml"
same=("$F" --summary "$S" "$WORK/job.yaml" --set checkpoint.every=10 --set checkpoint.async=false)
"${same[@]}" --set train.steps=1000000 > "$WORK/stopped" 2>&1 & job=$!
has_saved() { grep -qs "\"checkpoint\", \"generation\": $1, \"step\": [2-9]" "$WORK/runs/tiny/events.jsonl"; } # twice or more
wait_until 60 has_saved 0
kill -KILL "$(sed -n 's/.*"spawn", "generation": 0, "rank": 1, "pid": \([0-9]*\).*/\1/p' "$WORK/runs/tiny/events.jsonl")"
wait_until 60 has_saved 1
# The agent looks at the ranks four times a second, and knows their pace once it has seen two steps.
trained_2_s() {
  sed -n 's/.*"generation": 1, "time": \([0-9.]*\)}$/\1/p' "$WORK/runs/tiny/metrics.jsonl" |
    awk 'NR == 1 { first = $1 } END { exit !($1 > first + 2) }'
}
wait_until 60 trained_2_s
kill -TERM $job; wait $job
check_eq "a job that restarted and was stopped" "143 143 2 1 stopped" "$? $(key '.status' '.generations' '.restarts' '.first_cause.class')"
check_eq "did steps, trained and lost time" "true true true" "$(key '.steps >= 12' '.seconds_by.training > 0' '.seconds_by.restarting > 0')"
check "the parts add up" adds_up
check_eq "saves, and the failure" "true true 1 true true" "$(key '.saves >= 2' '.seconds_by.saving > 0' '.failures' \
  '.effective < 1' '.advice.every_steps >= 1')"
check_match "it ends with where its time went, above the cause" \
  "fsdprun: 0:[0-9]+: training [0-9.]+ %, saving [0-9.]+ %, restarts [0-9.]+ % \(1\), starting [0-9.]+ %; effective [0-9.]+ %" \
  "$(tail -n 3 "$WORK/stopped" | grep '^fsdprun: 0:')"
check_match "which stays the last line" "^fsdprun: stopped by SIGTERM$" "$(tail -n 1 "$WORK/stopped")"

# The end of a job says what it did, where that is, and what to type next. said FILE WORDS: what follows them there
said() { sed -n "s/^fsdprun: $2//p" "$1"; }
check_match "it says its steps, its time and its pace" '^[0-9]+ of 1000000 steps done after [0-9:]+, [0-9.]+[kM]? tokens/s$' \
  "$(said "$WORK/stopped" 'at least ')"
check_eq "the steps are the summary's" "$(key '.steps')" "$(said "$WORK/stopped" 'at least ' | cut -d ' ' -f 1)"
repeated=$(key '.steps_repeated') # none, if it was killed right after a save
check_match "and what the restart cost" "^cost [0-9]+:[0-9]+$([ "$repeated" = 0 ] || echo ", and $repeated steps? w(as|ere) done again")$" \
  "$(said "$WORK/stopped" '1 restart ')"
saved=$(said "$WORK/stopped" 'checkpoint: ') step=$(said "$WORK/stopped" 'next: the same command goes on from step ')
check_eq "its checkpoint is that from which the same command goes on" "$WORK/runs/tiny/checkpoints/step-$(printf %08d "$step")" "$saved"
check "which is there" test -s "$saved/manifest.json"
check_eq "its summary" "$S" "$(said "$WORK/stopped" 'logs: .*; summary: ')"
check "its logs are there" test -s "$(said "$WORK/stopped" 'logs: ' | sed 's/; summary:.*//')/g1/rank0/stdout.log"
check_status "the same command, which is to end 20 steps later" 0 "${same[@]}" --set train.steps=$((step + 20))
# A checkpoint that was published as the job was stopped may be newer than the last that it could tell of.
check "it went on from there" [ "$(number step <<< "$(grep '"resume"' "$WORK/runs/tiny/events.jsonl" | tail -n 1)")" -ge "$step" ]
check_match "and says that it is complete" "^$((step + 20)) of $((step + 20)) steps done after [0-9:]+" "$(said "$WORK/err" '')"
next=$(said "$WORK/err" 'next: ')
check_eq "what to type next" "fsdprun plot $WORK/runs/tiny" "$next"
check_status "can be typed" 0 env PATH="$BIN:$PATH" $next
check_match "and shows the run" 'restarts .*\^' "$(cat "$WORK/out")"
check_status "a job that ends well" 0 "$F" --summary "$S" "$WORK/job.yaml" --set run.name=well --set train.steps=7
check_eq "has its steps and no cause" "0 1 0 7 null $WORK/runs/well" \
  "$(key '.status' '.generations' '.restarts' '.steps' '.first_cause' '.run_dir')"

rm "$S"
check_status "a folder that is not there" 2 "$F" --summary "$WORK/none/s" "$TOY/toy" "touch=$WORK/ran"
check_eq "is one line, and nothing runs" "fsdprun: --summary: $WORK/none/s cannot be written: No such file or directory no" \
  "$(cat "$WORK/err") $(test -e "$WORK/ran" && echo yes || echo no)"
check_status "nor is a folder written to" 2 "$F" --summary "$WORK" "$WORK/job.yaml"
check_status "a file that takes nothing: an I/O error" 74 "$F" --summary /dev/full "$TOY/toy"
check_match "in one line" "^fsdprun: --summary: write /dev/full: No space" "$(cat "$WORK/err")"
check_status "but a run that failed has its own status" 5 "$F" --summary /dev/full "$TOY/toy" exit=5

port=$(port_block)
for i in 0 1; do
  "$F" --summary "$WORK/node$i" --nnodes 2 --node-rank $i --rdzv-conf is_host=$((1 - i)) --insecure \
    --rdzv-endpoint "127.0.0.1:$port" "$TOY/toy" 2> /dev/null & nodes[i]=$!
done
wait "${nodes[@]}"
S=$WORK/node0
check_eq "of two nodes the host writes it, the time that it waited too" "0 1 true no" \
  "$(key '.status' '.generations' '.seconds_by.waiting > 0') $(test -e "$WORK/node1" && echo yes || echo no)"
