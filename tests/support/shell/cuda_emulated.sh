# Sourced after harness.sh by the tests that train on the emulated device: the plug-in's own sources over an
# emulated CUDA, a job for it, and what of two runs must agree.
export FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6
cd "$WORK" || exit 1
cat > job.yaml <<JOB
run: {name: run, seed: 7, log_every: 1}
data: {path: $SOURCE/tests/parity/excerpt.txt, tokenizer: byte}
model: {kind: transformer, layers: 2, dim: 32, heads: 2, vocab: 256, seq: 16, dropout: 0.0, causal: true}
train: {steps: 4, batch: 2, clip_norm: 1.0}
checkpoint: {every: 2}
launch: {max_restarts: 0}
JOB
# train NAME DEVICE RANKS OPTIONS...: a run of its own
train() {
  local name=$1 device=$2 n=$3; shift 3
  FSDP_DEVICE=$device FSDP_COLLECTIVES=${COLLECTIVES:-cpu} timeout "${TRAIN_TIMEOUT_S:-2400}" "$BIN/fsdprun" \
    --nproc-per-node "$n" --log-dir "$WORK/$name" "$@" job.yaml > "$WORK/$name.out" 2>&1
}
losses() {
  sed -n 's/.*"step": \([0-9]*\), "loss": \([0-9.]*\), "grad_norm": \([0-9.]*\),.*/\1 \2 \3/p' "$WORK/$1/run/metrics.jsonl"
}
# how_many_differ TOLERANCE A B: steps whose loss or norm are farther apart, relative; "nothing" where there
# are no steps
how_many_differ() {
  paste <(losses "$2") <(losses "$3") | awk -v t="$1" 'function far(a, b) { return a - b > t * b || b - a > t * b }
    NF != 6 || $1 != $4 || far($2, $5) || far($3, $6) { n++ } END { print (NR > 0 ? n + 0 : "nothing") }'
}
# Products sum in float32 over k, at most 128 terms here: 128 * 6e-8 at worst, 1e-5 with the steps that follow
# from it.
same() { # TITLE A B
  check_eq "$1" 0 "$(how_many_differ 1e-5 "$2" "$3")"
}
# Both devices. Bits of 8 bits of mantissa differ where a sum falls on the other side, so bfloat16 is held to
# 1e-2.
like() { # TITLE TOLERANCE NAME OPTIONS...
  local title=$1 tolerance=$2 name=$3; shift 3
  check "$title: on the cpu" train "cpu-$name" cpu 2 "$@"
  check "$title: on cuda" train "cuda-$name" cuda 2 "$@"
  check_eq "$title: the same" 0 "$(how_many_differ "$tolerance" "cpu-$name" "cuda-$name")"
}
