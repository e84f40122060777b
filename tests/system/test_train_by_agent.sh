#!/usr/bin/env bash
# The same job through a standing agent: the same metrics, bit for bit.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
tiny_job "$WORK/job.yaml"
"$BIN/fsdp-agent" --socket "$WORK/agent.sock" > "$WORK/agent.log" 2>&1 < /dev/null &
agent=$!
at_exit() { kill -TERM "$agent" 2> /dev/null; wait "$agent" 2> /dev/null; }
if ! wait_until 30 test -S "$WORK/agent.sock"; then
  not_ok "the agent listens" "$(tail -n 5 "$WORK/agent.log")"
  exit 1
fi
run_job "$WORK/direct.log" "$WORK/job.yaml" --set run.name=direct
check_eq "a job without an agent ends with 0" 0 $?
run_job "$WORK/served.log" --agent "$WORK/agent.sock" "$WORK/job.yaml" --set run.name=served
check_eq "the same job through an agent ends with 0" 0 $?
check_eq "every figure is bit-identical" "$(figures "$WORK/runs/direct")" "$(figures "$WORK/runs/served")"
check_eq "all steps are there" 20 "$(figures "$WORK/runs/served" | wc -l)"
check_eq "and so are the final weights" "$(payloads "$WORK/runs/direct/checkpoints/step-00000020")" \
  "$(payloads "$WORK/runs/served/checkpoints/step-00000020")"
check_match "its lines reach the client" 'step 20/20' "$(cat "$WORK/served.log")"
run_job "$WORK/bad.log" --agent "$WORK/agent.sock" "$WORK/job.yaml" --set run.name=bad --set "data.path=$WORK/nowhere"
check_eq "a missing data file is status 66 through an agent too" 66 $?
[ "$n_failed" -eq 0 ]
