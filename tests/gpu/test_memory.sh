# On a GPU: what a run allocates against `fsdprun plan`, which may be 5 % off: GPT-2 in float32 and bfloat16
# at 1 rank, and at 2 ranks that share the GPU. FSDP_GPU_SMALL (124m:32) is the size and its sequences a step.
. tests/support/shell/harness.sh
. tests/gpu/gpu.sh
cd "$WORK" || exit 1
small=${FSDP_GPU_SMALL:-124m:32}
case ${small%:*} in tiny) model='{kind: gpt2, layers: 2, dim: 64, heads: 2, vocab: 256, seq: 64}' ;; *) model="{kind: gpt2, preset: ${small%:*}}" ;; esac
# memory DTYPE RANKS
memory() {
  local name=$1-$2 options=(--nproc-per-node "$2" --set run.collectives=cpu)
  printf 'run: {name: %s, dir: %s, log_every: 1}\ndata: {path: %s}\nmodel: %s\ntrain: {steps: 2, batch: 4}\nparallel: {param_dtype: %s}\ncheckpoint: {every: 0}\n' \
    "$name" "$WORK" "$SOURCE/tests/parity/excerpt.txt" "$model" "$1" > "$name.yaml"
  FSDP_DEVICE=cuda at_most 25 "$BIN/fsdprun" "${options[@]}" "$name.yaml" > "$name.log" 2>&1 || { echo "status $?"; tail -n 5 "$name.log"; return 1; }
  bash "$SOURCE/tests/bench/gpu/memory.sh" "$name.yaml" "$name/metrics.jsonl" "${options[@]}"
}
for dtype in float32 bfloat16; do
  check "memory of ${small%:*} in $dtype, 1 rank, within 5 % of its plan" memory $dtype 1
done
check "memory of ${small%:*} in bfloat16, 2 ranks on one GPU, within 5 % of its plan" memory bfloat16 2
[ "$n_failed" -eq 0 ]
