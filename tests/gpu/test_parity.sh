# On a GPU: the stored references of tests/parity on the cuda back end, at 1 rank (with NCCL where it is found) and at 2 and 4 ranks that
# share the GPU; the same bits twice. Each run has its own bound: one that hangs costs 25 s, and the others follow.
#   FSDP_GPU_CASES="short.adamw ..."     the cases
. tests/support/harness.sh
. tests/gpu/gpu.sh
cd "$WORK" || exit 1
# parity COLLECTIVES RANKS CASE: the stored case, and how far it is from it
parity() {
  local file=$SOURCE/tests/parity/reference/$3.txt setting args=()
  while read -r setting; do args+=(--set "$setting"); done < <(sed -n 's/^set //p' "$file")
  FSDP_DEVICE=cuda FSDP_COLLECTIVES=$1 at_most 25 "$BIN/fsdprun" --nproc-per-node "$2" "$SOURCE/tests/parity/parity.yaml" "${args[@]}" \
    --set "run.dir=$WORK" --set "run.name=$1.$2.$3" > "$1.$2.$3.log" 2>&1 || { echo "status $?"; tail -n 5 "$1.$2.$3.log"; return 1; }
  grep -q ', cuda ' "$1.$2.$3.log" || { echo "it did not run on cuda"; return 1; }
  "$TOY/parity_compare" steps "$file" "$1.$2.$3/metrics.jsonl"
}
for case in ${FSDP_GPU_CASES:-short.adamw short.sgd plain.adamw gpt2.adamw gpt2.sgd long.adamw}; do
  check "$case, 1 rank, collectives $alone" parity "$alone" 1 "$case"
  for n in 2 4; do check "$case, $n ranks on one GPU" parity cpu "$n" "$case"; done
done
losses() { sed -n 's/.*"loss": \([0-9.]*\), "grad_norm": \([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
mv "$alone.1.short.adamw" first; check "the same again" parity "$alone" 1 short.adamw
check_eq "has the same bits" "$(losses first)" "$(losses "$alone.1.short.adamw")"
[ "$n_failed" -eq 0 ]
