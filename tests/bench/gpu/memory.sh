#!/usr/bin/env bash
# Peak device memory of a run against its plan, which may be 5 % off: memory.sh JOB.yaml METRICS.jsonl
# [fsdprun's options of the run].
# Prints "measured planned off within|beyond", in GiB and percent; ends with 0 within, 1 beyond, 2 where there
# is nothing to compare. What is compared is what the process allocates: a plan's `allocated`, without the
# context and NCCL's buffers, which nobody here can count.
set -u
BUILD=${BUILD:-$(cd "$(dirname "$0")/../../.." && pwd)/build}
job=$1 metrics=$2; shift 2
measured=$(sed -n 's/.*"memory_bytes": \([0-9]*\).*/\1/p' "$metrics" | sort -n | tail -n 1)
planned=$("$BUILD/bin/fsdprun" plan --json "$@" "$job" --set run.device=cuda | sed -n 's/.*"per_rank": {[^}]*"allocated": \([0-9]*\).*/\1/p')
[ -n "$measured" ] && [ -n "$planned" ] || { echo "memory: no memory_bytes in $metrics, or no plan of $job" >&2; exit 2; }
awk -v m="$measured" -v p="$planned" 'BEGIN { off = (m - p) / p * 100; far = off > 5 || off < -5
  printf "%.3f %.3f %+.2f%% %s\n", m / 1073741824, p / 1073741824, off, far ? "beyond" : "within"; exit far }'
