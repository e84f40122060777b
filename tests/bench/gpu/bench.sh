#!/usr/bin/env bash
# GPT-2 at sequence 1024 on one GPU, ours and PyTorch's FSDP2 in one run: tokens/s, share of the 989 TFLOP/s of bf16, peak memory beside what
# `fsdprun plan` says, and the milliseconds of a step in which the host does not wait for the GPU.
#   FSDP_BENCH_SIZES="124m:32 355m:16 1558m:4"   sizes and sequences a step; "tiny" is for trying the bench
#   FSDP_BENCH_SIDES="ours peer"                 what runs: ours first, at every size, then PyTorch
#   FSDP_BENCH_PYTHON                            a Python with PyTorch
# Each run has 300 s at most.
# The table goes to stdout, and to build/bench/gpu.json; what the runs print to stderr, as they print it.
# FSDP_TEST_EMULATED_GPU=1 tries the script itself where there is no GPU: ours on the emulated one, PyTorch on the CPU; its numbers mean nothing.
set -u
cd "$(dirname "$0")/../../.." || exit 1
export BUILD=${BUILD:-$PWD/build}
sizes=${FSDP_BENCH_SIZES:-124m:32 355m:16 1558m:4}
steps=${FSDP_BENCH_STEPS:-12}
sides=${FSDP_BENCH_SIDES:-ours peer}
python=${FSDP_BENCH_PYTHON:-python3}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
. scripts/gpu-env.sh
[ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || gpu_here || { echo "bench-gpu: no GPU here" >&2; exit 69; }
WORK=$work
. tests/gpu/gpu.sh
peer_options="--device cuda" gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
[ -z "${FSDP_TEST_EMULATED_GPU:-}" ] || { peer_options="--device cpu --no-compile"; gpu=emulated; }
out=$BUILD/bench; mkdir -p "$out"
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
LC_ALL=C awk -v n=1048576 -f tests/bench/gpu/zipf.awk > "$work/data"
# Floating-point operations of a token: 6N + 6LCT.
flops() { case $1 in tiny) echo 0.74e6 ;; 124m) echo 0.803e9 ;; 355m) echo 2.32e9 ;; 774m) echo 4.95e9 ;; 1558m) echo 9.82e9 ;; *) echo 0 ;; esac; }
model() { case $1 in tiny) echo "{kind: gpt2, layers: 2, dim: 64, heads: 2, vocab: 256, seq: 64}" ;; *) echo "{kind: gpt2, preset: $1}" ;; esac; }
# figures FILE: of the steps behind the third the median tokens/s and host milliseconds, and the peak memory in GiB: "tokens/s GiB ms"
figures() {
  awk 'function of(key) { return match($0, "\"" key "\": [-0-9.e+]*") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) : "" }
    function median(list, n,   i, j, x) { for (i = 2; i <= n; i++) { x = list[i]; for (j = i - 1; j > 0 && list[j] > x; j--) list[j + 1] = list[j]; list[j + 1] = x } return list[int((n + 1) / 2)] }
    of("step") > 3 { t[++n] = of("tokens_per_s") + 0; h[n] = of("host_s") * 1000; if (of("memory_bytes") + 0 > m) m = of("memory_bytes") + 0 }
    END { if (n) printf "%.0f %.3f %.2f\n", median(t, n), m / 1073741824, median(h, n) }' "$1"
}
ours() { # SIZE BATCH: "tokens/s GiB ms GiB-of-the-plan within|beyond": the plan may be 5 % off (memory.sh)
  printf 'run: {name: %s, dir: %s, log_every: 1}\ndata: {path: %s}\nmodel: %s\ntrain: {steps: %s, batch: %s, clip_norm: 1.0}\noptimizer: {lr: 6.0e-4}\nparallel: {param_dtype: bfloat16}\ncheckpoint: {every: 0}\n' \
    "$1" "$work" "$work/data" "$(model "$1")" "$steps" "$2" > "$work/$1.yaml"
  # A world of one: no NCCL.
  FSDP_DEVICE=cuda at_most 300 "$BUILD/bin/fsdprun" "$work/$1.yaml" >&2 || { echo "bench-gpu: $1, status $?" >&2; return 1; }
  local plan; plan=$(tests/bench/gpu/memory.sh "$work/$1.yaml" "$work/$1/metrics.jsonl" 2> "$work/plan.log")
  [ -n "$plan" ] || tail -n 1 "$work/plan.log" >&2
  read -r _ plan _ verdict <<< "$plan"
  echo "$(figures "$work/$1/metrics.jsonl") ${plan:-0} ${verdict:-unknown}"
}
theirs() { # SIZE BATCH: "tokens/s GiB ms version"; its libraries are its own
  at_most 300 env LD_LIBRARY_PATH="$FSDP_GPU_CALLER_LIBRARY_PATH" "$python" tests/bench/gpu/pytorch_fsdp2.py $peer_options --data "$work/data" --size "$1" --batch "$2" --steps "$steps"
}
# row WHAT UNIT BETTER OURS PEER LIMIT LIMIT-NAME: a line of the table, and of the JSON; 0 is what is not there
rows=""
row() {
  rows=$rows${rows:+, }$(awk -v what="$1" -v unit="$2" -v better="$3" -v ours="$4" -v peer="$5" -v limit="$6" -v name="$7" -v by="$peer_name" -v n="$((steps - 3))" '
    function or(value, none) { return value + 0 > 0 ? value : none }
    function over(a, b) { return a + 0 > 0 && b + 0 > 0 ? sprintf("%.3f", a / b) : "-" }
    BEGIN { printf "%-36s | %12s | %12s | %12s | %9s | %10s\n", what ", " unit, or(ours, "-"), or(peer, "-"), or(limit, "-"), over(ours, peer), over(ours, limit) > "/dev/stderr"
      printf "{\"what\": \"%s\", \"unit\": \"%s\", \"ours\": %s, \"peer\": %s, \"peer_name\": \"%s\", \"limit\": %s, \"limit_name\": \"%s\", \"better\": \"%s\", \"n\": %d, \"p99\": null}", what, unit, or(ours, "null"), or(peer, "null"), by, or(limit, "null"), name, better, n }' 2>&3)
}
share() { awk -v speed="$1" -v flops="$2" 'BEGIN { share = speed * flops / 989e12 * 100; printf share < 0.1 ? "%.8f" : "%.2f", share }'; }
# tell SIZE: its rows, of the sides that have run
declare -A measured=() measured_peer=()
tell() {
  local size=$1 speed gib ms plan verdict peer_speed peer_gib peer_ms peer_name
  read -r speed gib ms plan verdict <<< "${measured[$size]:-0 0 0 0 unknown}"
  read -r peer_speed peer_gib peer_ms peer_name <<< "${measured_peer[$size]:-0 0 0 none}"
  row "GPT-2 $size" tokens/s higher "$speed" "$peer_speed" "$(awk -v f="$(flops "$size")" 'BEGIN { printf "%.0f", 989e12 / f }')" "989 TFLOP/s"
  row "GPT-2 $size, share of the peak" % higher "$(share "$speed" "$(flops "$size")")" "$(share "$peer_speed" "$(flops "$size")")" 100 "989 TFLOP/s"
  row "GPT-2 $size, peak memory" GiB lower "$gib" "$peer_gib" "$plan" "fsdprun plan, $verdict 5 %"
  row "GPT-2 $size, host in a step" ms lower "$ms" "$peer_ms" 0 none
}
# After each run the file is written again: a bench that is cut off leaves what it has.
write_json() {
  local entry
  rows=""
  for entry in $sizes; do tell "${entry%:*}" 3> /dev/null; done
  printf '{"machine": {"gpu": "%s", "cpu": "%s", "cores": %s}, "rows": [%s]}\n' "$gpu" "$cpu" "$(nproc)" "$rows" > "$out/gpu.json"
}
exec 3>&1
printf '%-36s | %12s | %12s | %12s | %9s | %10s\n' what ours peer limit ours/peer ours/limit
missing=0
for side in $sides; do
  [ "$side" != peer ] || [ -n "$(pytorch_place)" ] || { echo "skip - PyTorch's side of the bench: $python has no PyTorch"; continue; }
  for entry in $sizes; do
    size=${entry%:*} batch=${entry#*:}
    case $side in
    ours) measured[$size]=$(ours "$size" "$batch") || missing=1 ;;
    peer) measured_peer[$size]=$(theirs "$size" "$batch") || missing=1 ;;
    esac
    tell "$size"
    write_json
  done
done
[ "$missing" -eq 0 ]
