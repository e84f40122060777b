# Checkpoints of 1, 2, 3, 4 and 8 ranks, each gone on with at every other number of ranks: plain, replicated, tensor
# parallel, bfloat16 and tied. PyTorch's HuggingFaceStorageReader and safetensors read every one of them, and
# transformers every export of a GPT-2.
# Nightly: torch
# Long
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
worlds=(1 2 3 4 8)
# settings VARIANT W: those of the variant at W ranks; fails if it cannot have so many.
settings() {
  case $1 in
  plain) ;;
  replicated) [ $(($2 % 2)) != 0 ] || echo parallel.replicate=2 ;;
  tensor) [ $(($2 % 2)) = 0 ] && echo parallel.tensor=2 ;;
  bfloat16) echo parallel.param_dtype=bfloat16 ;;
  tied) echo model.tied=true ;;
  gpt2) printf '%s\n' model.kind=gpt2 model.vocab=256 ;;
  esac
}
# job VARIANT W NAME OPTIONS...
job() {
  local variant=$1 W=$2 name=$3 options setting args=(); shift 3
  options=$(settings "$variant" "$W") || return
  for setting in $options "$@"; do args+=(--set "$setting"); done
  run_job "$WORK/$name.log" --nproc-per-node "$W" "$WORK/job.yaml" --set "run.name=$name" --set train.global_batch=24 \
    --set checkpoint.every=2 "${args[@]}" || { tail -n 3 "$WORK/$name.log" >&2; return 1; }
}
# limit VARIANT: how far figures of other worlds may be: sums are rounded in another order
limit() { if [ "$1" = bfloat16 ]; then echo 5e-2; else echo 2e-4; fi; }

saved=()
for variant in plain replicated tensor bfloat16 tied gpt2; do
  for W in "${worlds[@]}"; do
    settings $variant $W > /dev/null || continue
    check "$variant, $W ranks: four steps, with a checkpoint after two" job $variant $W $variant-$W train.steps=4 checkpoint.keep=9
    saved+=("$WORK/runs/$variant-$W/checkpoints/step-00000002")
  done
  for from in "${worlds[@]}"; do
    settings $variant $from > /dev/null || continue
    n=0 wrong=
    for to in "${worlds[@]}"; do
      [ $to != $from ] && settings $variant $to > /dev/null || continue
      n=$((n + 1)) name=$variant-$from-$to
      mkdir -p "$WORK/runs/$name/checkpoints"
      cp -r "$WORK/runs/$variant-$from/checkpoints/step-00000002" "$WORK/runs/$name/checkpoints/"
      cp "$WORK/runs/$variant-$from/job.json" "$WORK/runs/$name/"
      job $variant $to $name train.steps=4 && grep -q 'resuming after step 2' "$WORK/$name.log" &&
        close_figures "$WORK/runs/$variant-$from" "$WORK/runs/$name" 3 "$(limit $variant)" > "$WORK/close" ||
        wrong="$wrong $to: $(tr '\n' ' ' < "$WORK/close" 2> /dev/null)"
      rm -rf "${WORK:?}/runs/$name"
    done
    check_eq "$variant saved by $from: $n other numbers of ranks go on from it, to the same figures" "" "$wrong"
  done
done

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  out=$("$FSDP_TEST_PYTHON" tests/support/oracles/read_by_pytorch.py "${saved[@]}" 2>&1)
  check_eq "PyTorch reads all of them, every tensor whole" "${#saved[@]}" "$(grep -cE '^[0-9]+ tensors, all equal$' <<< "$out")"
  if "$FSDP_TEST_PYTHON" -c 'import safetensors' 2> /dev/null; then
    check_match "safetensors reads every file of all of them" '^[0-9]+ files, all equal$' \
      "$("$FSDP_TEST_PYTHON" tests/support/oracles/read_by_safetensors.py "${saved[@]}" 2>&1 | tail -n 1)"
  else skip "safetensors reads our files" "safetensors is not installed"; fi
  if "$FSDP_TEST_PYTHON" -c 'import transformers' 2> /dev/null; then
    exports=()
    for W in "${worlds[@]}"; do
      check_status "gpt2 of $W ranks is exported" 0 "$BIN/fsdprun" ckpt export "$WORK/runs/gpt2-$W" "$WORK/export-$W"
      exports+=("$WORK/export-$W")
    done
    check_match "transformers opens each, with all weights" "^${#worlds[@]} models$" \
      "$("$FSDP_TEST_PYTHON" tests/support/oracles/read_by_transformers.py "${exports[@]}" 2>&1 | tail -n 1)"
  else skip "transformers opens the exports" "transformers is not installed"; fi
else
  skip "PyTorch reads our checkpoints" "FSDP_TEST_PYTHON names no Python with PyTorch"
fi
exit $((n_failed > 0))
