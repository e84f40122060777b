#!/usr/bin/env bash
# GPT-2 at sequence 1024 on one GPU, ours and PyTorch's FSDP2 in one run: tokens/s, share of the 989 TFLOP/s of bf16, peak memory (and
# how far that is from `fsdprun plan`: memory.sh), what a step costs the host. FSDP_BENCH_SIZES="124m:32 355m:16 1558m:4": sizes and sequences a step; FSDP_BENCH_PYTHON: a Python with PyTorch.
set -u
cd "$(dirname "$0")/../../.." || exit 1
BUILD=${BUILD:-$PWD/build}
sizes=${FSDP_BENCH_SIZES:-124m:32 355m:16 1558m:4}
steps=${FSDP_BENCH_STEPS:-12}
python=${FSDP_BENCH_PYTHON:-$(command -v python3)}
[ -e /dev/nvidia0 ] || { echo "bench-gpu: no GPU here" >&2; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
out=$BUILD/bench; mkdir -p "$out"
head -c 4194304 /dev/urandom > "$work/data"
# figures FILE: median tokens/s of the steps behind the third, and peak memory in GiB
figures() {
  sed -n 's/.*"step": \([0-9]*\),.*"tokens_per_s": \([0-9.]*\),.*"memory_bytes": \([0-9]*\),.*/\1 \2 \3/p' "$1" | awk '$1 > 3 { print $2, $3 }' | sort -n |
    awk '{ t[NR] = $1; if ($2 > m) m = $2 } END { if (NR) printf "%.0f %.2f\n", t[int((NR + 1) / 2)], m / 1073741824 }'
}
ours() { # SIZE BATCH
  printf 'run: {name: %s, dir: %s, log_every: 1, device: cuda, collectives: nccl}\ndata: {path: %s}\nmodel: {kind: gpt2, preset: %s}\ntrain: {steps: %s, batch: %s, clip_norm: 1.0}\noptimizer: {lr: 6.0e-4}\nparallel: {param_dtype: bfloat16}\ncheckpoint: {every: 0}\n' \
    "$1" "$work" "$work/data" "$1" "$steps" "$2" > "$work/job.yaml"
  timeout 60 "$BUILD/bin/fsdprun" "$work/job.yaml" > "$work/$1.log" 2>&1 || { tail -n 3 "$work/$1.log" >&2; return 1; }
  echo "$(figures "$work/$1/metrics.jsonl") $(tests/bench/gpu/memory.sh "$work/job.yaml" "$work/$1/metrics.jsonl" | cut -d' ' -f2-)"
}
flops() { case $1 in 124m) echo 0.803e9 ;; 355m) echo 2.32e9 ;; 1558m) echo 9.82e9 ;; esac; } # a token: 6N + 6LCT
rows=""
printf '%-28s %12s %12s %8s %10s %10s %10s %s\n' what ours peer ours/peer "ours %989T" "ours GiB" "plan GiB" "off the plan"
for entry in $sizes; do
  size=${entry%:*} batch=${entry#*:}
  mine=$(ours "$size" "$batch") || mine=""
  theirs=$(timeout 90 "$python" tests/bench/gpu/pytorch_fsdp2.py --size "$size" --batch "$batch" --steps "$steps" 2> "$work/peer.log") || theirs=""
  [ -n "$theirs" ] || tail -n 1 "$work/peer.log" >&2
  printf '%s\n' "$size $(flops "$size") ${mine:-0 0 - - -} ${theirs:-0 0 none}" |
    awk '{ printf "%-28s %12s %12s %8s %9.1f%% %10s %10s %s\n", "GPT-2 " $1 ", tokens/s", $3 ? $3 : "-", $8 ? $8 : "-", $3 && $8 ? sprintf("%.2f", $3 / $8) : "-", $3 * $2 / 989e12 * 100, $4 ? $4 : "-", $5, $6 " " $7 }'
  rows="$rows${rows:+, }$(printf '%s\n' "$size ${mine:-null null null null null} ${theirs:-null null null}" | awk '{ printf "{\"what\": \"GPT-2 %s\", \"unit\": \"tokens/s\", \"ours\": %s, \"ours_peak_gib\": %s, \"ours_planned_gib\": %s, \"within_5_percent_of_plan\": %s, \"peer\": %s, \"peer_peak_gib\": %s, \"peer_name\": \"%s\", \"better\": \"higher\", \"n\": 1}", $1, $2, $3, $4, $6 == "within" ? "true" : $6 == "beyond" ? "false" : "null", $7, $8, $9 }')"
done
printf '{"machine": {"gpu": "%s"}, "rows": [%s]}\n' "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" "$rows" > "$out/gpu.json"
