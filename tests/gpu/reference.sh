# Sourced after harness.sh, gpu.sh and parity.sh: a run of a stored reference of tests/parity on the GPU, held against
# it. Each run has its own bound:
# one that hangs costs 25 s, and the others follow.
#
# The bounds. A result that went through r roundings one after the other is off by about sqrt(r) u of its
# size, as these fall to either side, and by r u at worst; u is 2^-24 in float32, 2^-11 in TF32, 2^-8 in
# bfloat16.
# Losses in float32: 2e-6 (parity_compare.c). Roundings on the way to the loss in the longest case, plain: two
# layers, dim 14, 16 positions, 256 classes. A sum of k terms counts as k, though a GPU adds them in blocks.
# In a layer: two norms, 8; products of k = dim three times and 4 dim once, 98; scores, softmax and values, 7
# + 16 + 16; GELU, biases and residual sums, 16; that is 161, twice. The head, 14; the sum of the
# exponentials, 256. r = 592, sqrt(r) u = 1.5e-6.
# Norms of gradients in float32: 5e-6. A backward pass has two products for each of the forward's: r = 3 *
# 592, sqrt(r) u = 2.5e-6; twice that, since later steps begin with parameters that earlier ones rounded.
# FSDP_CUDA_EPILOGUES=bias changes neither: a GELU behind a product is applied to the float32 that would have
# been stored, which is no rounding, and the gradient of a bias is a sum of as many terms. So the same bounds
# hold for both settings.
# bfloat16: what is stored between operations is rounded by 2^-8, and all sums are float32: at most a dozen
# such roundings in a layer on the way to the loss. PyTorch stores at the same places, so the bounds are its
# own distance from fp64 (tests/parity/README.md): 1e-3 for losses. With the bias alone GELU is given a
# rounded value: one more rounding in a layer, in PyTorch's run too.
# TF32 (FSDP_CUDA_TF32=1): only what goes into a product is rounded, to 2^-11: an eighth of bfloat16's, and in
# no more places. The gradients of step 1 are held to bfloat16's bounds. Losses are not: the first step of AdamW
# moves every element by the learning rate in the direction of its sign, and in a residual stream of 10 elements
# one gradient that is nearly zero and gets the other sign moves the losses by half a per cent.

# train_reference CASE COLLECTIVES RANKS NAME [SETTING...]
train_reference() {
  local file=$SOURCE/tests/parity/reference/$1.txt collectives=$2 n=$3 name=$4 setting args=(); shift 4
  while read -r setting; do args+=(--set "$setting"); done < <(sed -n 's/^set //p' "$file")
  for setting; do args+=(--set "$setting"); done
  FSDP_DEVICE=cuda FSDP_COLLECTIVES=$collectives at_most 25 "$BIN/fsdprun" --nproc-per-node "$n" "$SOURCE/tests/parity/parity.yaml" "${args[@]}" \
    --set "run.dir=$WORK" --set "run.name=$name" > "$name.log" 2>&1 || { echo "status $?"; tail -n 5 "$name.log"; return 1; }
  grep -q ', cuda ' "$name.log" || { echo "it did not run on cuda"; return 1; }
}
# parity COLLECTIVES RANKS CASE: in float32. Prints how far it is off, and the bound.
parity() {
  train_reference "$3" "$1" "$2" "$1.$2.$3" && "$TOY/parity_compare" steps "$SOURCE/tests/parity/reference/$3.txt" "$1.$2.$3/metrics.jsonl"
}
# parity_near NAME COLLECTIVES SHAPE [SETTING...]: by AdamW at 1 rank; losses alone, within the bound of
# bfloat16.
parity_near() {
  local name=$1 collectives=$2 shape=$3 reference=$SOURCE/tests/parity/reference/$3; shift 3
  train_reference "$shape.adamw" "$collectives" 1 "$name" "$@" &&
    "$TOY/parity_compare" bounded-losses "$reference.adamw.txt" "$name/metrics.jsonl" "$reference.bf16.txt" float32
}
# gradients_near NAME COLLECTIVES SHAPE [SETTING...]: the gradients of step 1, within the bounds of bfloat16.
gradients_near() {
  local name=$1 collectives=$2 shape=$3 reference=$SOURCE/tests/parity/reference/$3; shift 3
  train_reference "$shape.adamw" "$collectives" 1 "$name" "$@" "${first_gradient[@]}" &&
    "$TOY/parity_compare" bounded "$reference.gradients.txt" "$name/checkpoints/step-00000001" optimizer.exp_avg. \
      "$reference.bf16.txt" float32
}
losses() { sed -n 's/.*"loss": \([0-9.]*\), "grad_norm": \([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
