#!/usr/bin/env bash
# What the death of a rank on the GPU costs, from the run's own events: teardown (until the failure is known, until the others are stopped and
# new ones spawned), the processes' own start, the device's context, NCCL, the load, the first step. At 1 rank, with NCCL
# where it is found, and at 2 ranks on one GPU with staged collectives, and with NCCL where it takes two ranks on one (2.30). Milliseconds, rank 0's where ranks differ. NCCL makes its connections when they are first used: in the first step.
set -u
cd "$(dirname "$0")/../../.." || exit 1
BUILD=${BUILD:-$PWD/build}
. scripts/gpu-env.sh
[ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || gpu_here || { echo "restart: no GPU here" >&2; exit 69; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
WORK=$work
. tests/gpu/gpu.sh
# seen PATTERN FILE: within 30 s
seen() {
  local end=$((SECONDS + 30))
  until grep -q "$1" "$2" 2> /dev/null; do
    [ "$SECONDS" -lt "$end" ] || return 1
    read -r -t 0.05 <> <(:) || :
  done
}
# restart RANKS COLLECTIVES: a run whose last rank is killed after its first checkpoint
restart() {
  local n=$1 collectives=$2 dir=$work/$1-$2 job victim killed events
  events=$dir/r/events.jsonl
  mkdir -p "$dir"
  cat > "$dir/job.yaml" <<JOB
run: {name: r, dir: $dir, log_every: 1}
data: {path: $PWD/tests/parity/excerpt.txt}
model: {kind: transformer, layers: ${LAYERS:-8}, dim: ${DIM:-512}, heads: 8, vocab: 256, seq: ${SEQ:-64}}
train: {steps: ${STEPS:-400}, batch: 2}
checkpoint: {every: 5}
launch: {max_restarts: 1}
JOB
  echo "restart at $n rank(s), FSDP_COLLECTIVES=$collectives"
  FSDP_DEVICE=cuda FSDP_COLLECTIVES=$collectives timeout --foreground -k 3 "${FSDP_GPU_LIMIT_S:-60}" "$BUILD/bin/fsdprun" --nproc-per-node "$n" "$dir/job.yaml" > "$dir/log" 2>&1 & job=$!
  seen '"event": "checkpoint"' "$events"
  victim=$(sed -n 's/.*"event": "spawn".*"rank": '$((n - 1))', "pid": \([0-9]*\).*/\1/p' "$events" | tail -n 1)
  killed=$(date +%s.%N)
  kill -9 "$victim" || { tail -n 3 "$dir/log" >&2; return 1; }
  seen '"event": "first_step", "generation": 1' "$events"
  kill -TERM $job; wait $job # what comes after is of no interest; where there was no first step awk says so
  awk -v killed="$killed" '
    function number(name) { return match($0, "\"" name "\": [0-9.]+") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0 : -1 }
    function tell(what, ms) { printf "%-44s %8.1f ms\n", what, ms }
    { now = number("time"); match($0, /"event": "[a-z_]*"/); event = substr($0, RSTART + 10, RLENGTH - 11); again = number("generation") == 1 }
    event == "failure" && !known { known = now; tell("teardown: killed -> known", (known - killed) * 1000) }
    event == "spawn" && again && !spawned { spawned = now; tell("teardown: known -> new ones spawned", (spawned - known) * 1000) }
    event == "resume" && again && !resumed {
      resumed = now; context = number("context_ms"); collectives = number("collectives_ms"); load = number("load_ms")
      if (context < 0 || collectives < 0 || load < 0) exit 1
      tell("process start, joining, model", (resumed - spawned) * 1000 - context - collectives - load)
      tell("context", context); tell("collectives init", collectives); tell("load", load)
    }
    event == "first_step" && again && resumed { tell("first step", (now - resumed) * 1000); tell("whole: killed -> first step done", (now - killed) * 1000); done = 1; exit }
    END { exit !done }' "$events" || { tail -n 3 "$dir/log" >&2; return 1; }
}
status=0
restart 1 "$alone" || status=1
restart 2 cpu || status=1
if why=$(nccl_shares); then
  export NCCL_MULTI_RANK_GPU_ENABLE=1
  restart 2 nccl || status=1
else
  echo "skip - restart at 2 ranks of NCCL on one GPU: $why"
fi
exit $status
