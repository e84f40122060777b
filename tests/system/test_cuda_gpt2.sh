# GPT-2 on "cuda" without a GPU: heads of 64, q, k and v in one row, GELU by tanh, biases and a tied head, as
# its presets have, in little. And how much work a step gives the device: one launch for a group, epilogues
# where cuBLASLt has them.
# Nightly: cuda
. tests/support/shell/harness.sh
. tests/support/shell/cuda_emulated.sh
sed -i 's/^model:.*/model: {kind: gpt2, layers: 2, dim: 128, heads: 2, vocab: 256, seq: 40}/; s/^train:.*/train: {steps: 3, batch: 1, clip_norm: 1.0}/' job.yaml
like "gpt2" 1e-5 gpt2
like "gpt2, bfloat16" 1e-2 gpt2-bf16 --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32
like "gpt2, dropout, recomputing" 1e-5 gpt2-dropout --set model.dropout=0.1 --set parallel.activation_checkpoint=full
like "gpt2, accumulation, norms not decayed" 1e-5 gpt2-accumulate --set train.grad_accumulation=2 --set optimizer.decay=matrices

# count NAME WHAT: how often the run's ranks queued it together
count() {
  awk -v what="$2" '{ n = $NF; $NF = ""; sub(/ $/, "") } $0 == what { sum += n } END { print sum + 0 }' "$1.tally"
}
counted() { # NAME OPTIONS...: a run of two ranks with its tally, no checkpoints
  local name=$1; shift
  FSDP_EMULATED_TALLY=$WORK/$name.tally train "$name" cuda 2 --set checkpoint.every=0 "$@"
}
FSDP_CUDA_EPILOGUES=all check "a run is counted" counted counted
same "and is the cpu's" cpu-gpt2 counted
check_eq "an update of all parameters is one launch a step and rank" 6 "$(count counted adamw_chunks)"
# Three groups: each is unpacked before forward, two of them before backward again, each packed; a step and
# rank.
check_eq "the copies of a group are one launch" $((8 * 6)) "$(count counted cast_chunks)"
check_eq "the norm of all gradients is one launch" 6 "$(count counted power_chunks)"
check_eq "the other bias gradients come with the products of the weights'" $((6 * 6)) "$(count counted 'product with sums')"
check_eq "and none is summed apart" 0 "$(count counted column_chunks)"
# Two blocks of two sums: behind a block's first comes its second norm, behind its last what unpacks the next
# unit. The five norms are made again for backward.
check_eq "a residual sum is one pass with the norm behind it" "$((2 * 6)) $((10 * 6))" "$(count counted add_elems) $(count counted layer_norm_rows)"
check_eq "GELU comes with the product before it" $((2 * 6)) "$(count counted 'product with gelu')"
check_eq "its backward with the product behind it, and the gradient of the bias before it" "$((2 * 6)) 0" \
  "$(count counted 'product back through gelu with sums') $(count counted activation_gradient)"

FSDP_EMULATED_LT=plain check "where cuBLASLt knows no such epilogues" counted plain
same "the run is the same" cpu-gpt2 plain
check_eq "by our kernels" "0 0" "$(count plain 'product with sums') $(count plain 'product with gelu')"
FSDP_CUDA_EPILOGUES=bias check "where they are not wanted" counted unwanted
check_eq "it has the bits of that" "$(losses plain)" "$(losses unwanted)"
check_eq "and the same work" "$(sort plain.tally)" "$(sort unwanted.tally)"
FSDP_CUDA_EPILOGUES=all check "the same again" counted again
check_eq "has the same bits" "$(losses counted)" "$(losses again)"

check "unless asked for," counted default
check_eq "sums beside a float32 product, or behind a GELU, are made by our kernel" "0 0 $((8 * 6))" \
  "$(count default 'product with sums') $(count default 'product back through gelu with sums') $(count default column_chunks)"

# The head with a vocabulary that is no multiple of anything: rows of 317 logits are 320 apart. In bfloat16
# each logit is moved five times, 2 bytes each: written by the product, read and replaced by the loss, read by
# the two products of backward.
like "a head of 317 columns, bfloat16" 1e-2 head-bf16 --set model.vocab=317 --set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32
like "a head of 317 columns" 1e-5 head --set model.vocab=317
check "its logits and gradients are the cpu's, element by element" "$BUILD/test/cuda_head"
moved() { # NAME: bytes of the logits
  echo $(($(count "$1" 'ld 320 read') + $(count "$1" 'ld 320 written') + $(count "$1" 'loss_rows read') + $(count "$1" 'loss_rows written')))
}
check "a head of 317 columns is counted" counted head --set model.vocab=317 --set parallel.param_dtype=bfloat16
check_eq "in bfloat16 bias gradients come with the products of the weights'" $((8 * 6)) "$(count head 'product with sums')"
check "at most 10 bytes a padded logit" test "$(moved head)" -le $((10 * 320 * 40 * 6))
check "at least 10 bytes a logit" test "$(moved head)" -ge $((10 * 317 * 40 * 6))

# What is not built is refused.
train tensor cpu 2 --set parallel.tensor=2
check_match "tensor parallelism of gpt2 is refused in a line" 'gpt2' "$(cat tensor.out)"
