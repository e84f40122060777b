# The event `timeline` of a restart: what each part of it took, in order, of a job and of a program.
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
F=$BIN/fsdprun
RUN=$WORK/runs/tiny
# key RUN GENERATION EXPRESSION...: of the timeline of that generation, for jq. Its other events are e("name"), and
# those of the generation before are before("name").
key() {
  local run=$1 generation=$2; shift 2
  jq -s -r "def at(name; g): map(select(.event == name and .generation == g)) | last; . as \$all |
    def e(name): \$all | at(name; $generation); def before(name): \$all | at(name; $generation - 1);
    def ordered: . as \$v | (\$v | all(type == \"number\")) and \$v == (\$v | sort) and \$v[0] >= 0;
    e(\"timeline\") | [$(printf '(%s), ' "$@") empty] | map(tostring) | join(\" \")" "$run/events.jsonl"
}
until_spawned='.detected_ms, .stopped_ms, .fenced_ms, .formed_ms, .spawned_ms'
job_moments="[$until_spawned, .resumed_ms, .first_step_ms] | ordered"

tiny_job "$WORK/job.yaml"
"$F" "$WORK/job.yaml" --set train.steps=100000 --set launch.hang_timeout_s=3 > "$WORK/out" 2>&1 < /dev/null & job=$!
wait_until 60 has_logged "$RUN" 0 12
kill -KILL "$(pid_of "$RUN" 0 1)"
wait_until 60 has_logged "$RUN" 1 12
kill -STOP "$(pid_of "$RUN" 1 1)"
wait_until 90 has_logged "$RUN" 2 12
kill -TERM $job; wait $job

check_eq "a rank that was killed: its timeline" "signal 1" "$(key "$RUN" 1 '.reason' '.rank')"
check_eq "every moment is there, in order" true "$(key "$RUN" 1 "$job_moments")"
check_eq "from the end of the old ranks to the first step: the time between the events" "true true" \
  "$(key "$RUN" 1 '.first_step_ms - .stopped_ms + 1 >= (e("first_step").time - e("restart").time) * 1000' \
    '.first_step_ms - .stopped_ms - 1 <= (.time - before("failure").time) * 1000')"
check_eq "it resumed from a checkpoint, and repeats the steps since" "true true true" \
  "$(key "$RUN" 1 '.resume_step == e("resume").step' '0 <= .lost_steps' '(.lost_s > 0) == (.lost_steps > 0)')"
check_match "one line says so" "fsdprun: training again after [0-9.]+ s \([0-9.]+ detected, [0-9.]+ stopped, 0.00 fenced, [0-9.]+ formed, [0-9.]+ spawned, [0-9.]+ loaded, [0-9.]+ first step\)" \
  "$(cat "$WORK/out")"
check_eq "a hang: since its last sign of life" "hang 1 true true" \
  "$(key "$RUN" 2 '.reason' '.rank' '.detected_ms >= 3000' "$job_moments")"

check_status "a program that fails twice" 0 "$F" --nproc-per-node 2 --max-restarts 2 --log-dir "$WORK/logs" \
  "$TOY/toy" rank=0 "touch=$WORK/up" before=2 rank=0 hang gen=0 "lines=1:$WORK/up" gen=1 "lines=2:$WORK/up" before=2 rank=1 exit=3
RUN=$(echo "$WORK"/logs/*)
check_eq "its second restart ends with the last worker" "exit 1 true null null null" \
  "$(key "$RUN" 2 '.reason' '.rank' "[$until_spawned] | ordered" '.resumed_ms' '.first_step_ms' '.lost_s')"
check_eq "and no line is printed" 0 "$(grep -c 'again after' "$WORK/err")"
