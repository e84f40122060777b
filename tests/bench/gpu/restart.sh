#!/usr/bin/env bash
# What the death of a rank on the GPU costs, from the run's own events: until the failure is known, until the new world is spawned, until its
# device, communicators and weights are there (resume), until its first step is done. Milliseconds.
set -u
cd "$(dirname "$0")/../../.." || exit 1
BUILD=${BUILD:-$PWD/build}
[ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || [ -e /dev/nvidia0 ] || { echo "restart: no GPU here" >&2; exit 69; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
WORK=$work
. tests/gpu/gpu.sh
cat > "$work/job.yaml" <<JOB
run: {name: r, dir: $work, log_every: 1}
data: {path: $PWD/tests/parity/excerpt.txt}
model: {kind: transformer, layers: ${LAYERS:-8}, dim: ${DIM:-512}, heads: 8, vocab: 256, seq: ${SEQ:-64}}
train: {steps: ${STEPS:-400}, batch: 2}
checkpoint: {every: 5}
launch: {max_restarts: 1}
JOB
events=$work/r/events.jsonl
FSDP_DEVICE=cuda FSDP_COLLECTIVES=cpu timeout 60 "$BUILD/bin/fsdprun" --nproc-per-node 2 "$work/job.yaml" > "$work/log" 2>&1 & job=$!
for _ in $(seq 600); do grep -q '"event": "checkpoint"' "$events" 2> /dev/null && break; read -r -t 0.05 < <(:) || :; done
victim=$(sed -n 's/.*"event": "spawn".*"rank": 1, "pid": \([0-9]*\).*/\1/p' "$events" | tail -n 1)
killed=$(date +%s.%N)
kill -9 "$victim" || { tail -n 3 "$work/log" >&2; exit 1; }
wait $job || { tail -n 3 "$work/log" >&2; exit 1; }
sed -n 's/.*"time": \([0-9.]*\), "event": "\([a-z_]*\)", "generation": \([0-9]*\).*/\1 \2 \3/p' "$events" | awk -v killed="$killed" '
  function tell(what, since) { printf "%-44s %8.1f ms\n", what, ($1 - since) * 1000 }
  $2 == "failure" && !f { f = $1; tell("killed -> known", killed) }
  $2 == "spawn" && $3 == 1 && !s { s = $1; tell("known -> the others stopped, new ones spawned", f) }
  $2 == "resume" && $3 == 1 && !r { r = $1; tell("spawned -> context, collectives, weights", s) }
  $2 == "first_step" && $3 == 1 { tell("weights -> first step done", r); tell("killed -> first step done", killed); done = 1 }
  END { exit !done }'
