#!/usr/bin/env bash
# Keys of a job that shape a step: training honours each of them, and so does the plan.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
tiny_job "$WORK/job.yaml"

# run NAME SETTING...: six steps; its directory is $WORK/runs/NAME.
run() {
  local name=$1 setting args=(); shift
  for setting in "$@"; do args+=(--set "$setting"); done
  run_job "$WORK/$name.log" "$WORK/job.yaml" --set train.steps=6 --set model.layers=3 --set checkpoint.every=6 --set "run.name=$name" "${args[@]}" ||
    { tail -n 3 "$WORK/$name.log"; return 1; }
}
# norm NAME STEP: the text of its gradient norm, and of its loss
norm() { figures "$WORK/runs/$1" | awk -v step="$2" '$1 == step { print $3 }'; }
# tensor NAME TENSOR: a checksum of this rank-by-rank tensor in the last checkpoint; empty when it is in none.
tensor() {
  local file header place from to
  for file in "$WORK/runs/$1"/checkpoints/step-*/shard-*.safetensors; do
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    place=$(head -c $((header + 8)) "$file" | tail -c "$header" | grep -ao "\"$2\": *{[^}]*\"data_offsets\": *\[[0-9]*, *[0-9]*\]" | grep -o '[0-9]*, *[0-9]*\]$' | tr -d ' ]')
    [ -n "$place" ] || continue
    from=${place%,*} to=${place#*,}
    echo "$(basename "$file") $(tail -c +$((header + 9 + from)) "$file" | head -c $((to - from)) | cksum)"
  done
}
same_run() { check_eq "$1" "$(figures "$WORK/runs/$2")" "$(figures "$WORK/runs/$3")"; }

check "the job as it is trains" run base
check "$(figures "$WORK/runs/base" | wc -l) steps are logged" test "$(figures "$WORK/runs/base" | wc -l)" -eq 6

# What moves gathers and reductions about, and changes no bit.
unchanged() {
  local name=$1; shift
  check "$name trains" run "$name" "$@"
  same_run "$name: the same bits" base "$name"
  check_eq "$name: the same weights" "$(payloads "$WORK/runs/base/checkpoints/step-00000006")" "$(payloads "$WORK/runs/$name/checkpoints/step-00000006")"
}
unchanged ahead parallel.forward_prefetch=2 parallel.backward_prefetch=2
unchanged named "parallel.groups=[{modules: layers.0, modules_to_forward_prefetch: [layers.1, layers.2]}, {modules: \"layers.[12]\", modules_to_backward_prefetch: layers.0}]"
unchanged buffers parallel.reduce_scatter_max_input_buffers=3
unchanged separate parallel.separate_reduce_scatter_group=true parallel.overlap=true
unchanged kept-out "parallel.groups=[{modules: layers.*}, {modules: pos_embeddings, unshard_in_backward: false}, {modules: tok_embeddings, unshard_in_backward: false}]"
unchanged summed parallel.force_sum_reduction=true
unchanged recomputed "parallel.groups=[{modules: layers.0, activation_checkpoint: full}, {modules: \"layers.[12]\", activation_checkpoint: selective}]"

check_status "a unit whose backward reads its weights must gather them" 78 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=wrong \
  --set "parallel.groups=[{modules: layers.*, unshard_in_backward: false}]"
check_match "and is named" 'the backward of "layers\.[0-9]' "$(cat "$WORK/out" "$WORK/err")"
check_status "its plan is refused alike" 78 "$BIN/fsdprun" plan "$WORK/job.yaml" --set "parallel.groups=[{modules: layers.*, unshard_in_backward: false}]"

# Divided by twice the ranks, gradients are half of what they are: exactly, for halves are exact.
check "a divide factor trains" run divided parallel.gradient_divide_factor=4.0
check_eq "the first gradient is half of what it was" "$(awk -v n="$(norm base 1)" 'BEGIN { printf "%.7g", n / 2 }')" \
  "$(awk -v n="$(norm divided 1)" 'BEGIN { printf "%.7g", n }')"
check "summed and divided behind it trains" run divided-summed parallel.gradient_divide_factor=4.0 parallel.force_sum_reduction=true
check_eq "forced sums: the same first gradient" "$(norm divided 1)" "$(norm divided-summed 1)"
# Over copies the factor stands for all ranks, four here, however they are summed.
copies=(launch.nproc_per_node=4 parallel.replicate=2)
check "two copies train" run copies "${copies[@]}"
check "divided by twice the ranks they train" run copies-divided "${copies[@]}" parallel.gradient_divide_factor=8
check "and with forced sums" run copies-summed "${copies[@]}" parallel.gradient_divide_factor=8 parallel.force_sum_reduction=true
for name in copies-divided copies-summed; do
  check_eq "$name: the first gradient is half of what it was" "$(awk -v n="$(norm copies 1)" 'BEGIN { printf "%.7g", n / 2 }')" \
    "$(awk -v n="$(norm "$name" 1)" 'BEGIN { printf "%.7g", n }')"
done
check "of one group alone" run divided-root "parallel.groups=[{modules: layers.*, gradient_divide_factor: 2}]" parallel.gradient_divide_factor=4
check "is less" awk -v all="$(norm divided 1)" -v some="$(norm divided-root 1)" -v none="$(norm base 1)" 'BEGIN { exit !(all < some && some < none) }'

# Where the CPU has no AMX, oneDNN told so or not, high is highest, and the run says it.
if grep -q 'bfloat16 native\|bfloat16 by float32' "$WORK/base.log"; then
  export DNNL_MAX_CPU_ISA=AVX2
  check "without AMX it trains" run highest
  check "and with products that may be less exact" run high train.matmul_precision=high
  unset DNNL_MAX_CPU_ISA
  same_run "matmul_precision high without AMX: the same bits" highest high
  check_match "which it says" 'matmul_precision high without effect: no AMX' "$(cat "$WORK/high.log")"
  check_status "and not unasked" 1 grep -q matmul_precision "$WORK/highest.log"
else
  skip "matmul_precision high without AMX" "a build without oneDNN"
fi

# Norms: the largest element is at most the Euclidean norm, and that at most the sum.
for p in inf 1 3; do check "norm $p trains" run "norm-$p" "train.clip_norm_type=$p" train.clip_norm=0.01; done
check "the norms are ordered as norms are" awk -v inf="$(norm norm-inf 1)" -v three="$(norm norm-3 1)" -v two="$(norm base 1)" -v one="$(norm norm-1 1)" \
  'BEGIN { exit !(0 < inf && inf < three && three < two && two < one) }'
check "and clip differently" test "$(norm norm-1 6)" != "$(norm norm-inf 6)"

check "without clipping it trains" run plain train.clip_norm=0
check "the optimizer in backward trains" run early train.clip_norm=0 optimizer.in_backward=true
same_run "the optimizer in backward: the same bits" plain early
check_eq "and the same weights" "$(payloads "$WORK/runs/plain/checkpoints/step-00000006")" "$(payloads "$WORK/runs/early/checkpoints/step-00000006")"

# Frozen parameters stay as they began, have no state, and are no part of the norm.
check "frozen parameters train around" run frozen "model.frozen=[\"layers.0.*\", \"*.bias\"]"
check "their beginning" run begun "model.frozen=[\"layers.0.*\", \"*.bias\"]" train.steps=0
for name in layers.0.attention.wq.weight layers.1.feed_forward.w1.bias; do
  check_eq "$name stays" "$(tensor begun "$name")" "$(tensor frozen "$name")"
  check_eq "$name has no state" "" "$(tensor frozen "optimizer.exp_avg.$name")"
done
check "the rest learns" test "$(tensor begun layers.1.attention.wq.weight)" != "$(tensor frozen layers.1.attention.wq.weight)"
check "and has state" test -n "$(tensor frozen optimizer.exp_avg.layers.1.attention.wq.weight)"
check "ignored ones too" run ignored "model.frozen=[\"layers.0.*\", \"*.bias\"]" "parallel.ignored=[\"layers.0.*norm*\", \"*w1.bias\"]"
same_run "ignored and frozen: the same bits as frozen" frozen ignored
check_match "an ignored parameter is in one rank's shard alone" '^shard-00001[^ ]* [0-9 ]*$' "$(tensor ignored layers.0.ffn_norm.weight)"
check_status "ignored ones that learn are refused" 78 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=wrong --set parallel.ignored=norm.bias
check_match "with the reason" 'parallel.ignored: norm.bias learns' "$(cat "$WORK/err")"

# Cut along another dimension: the same sums of the same elements.
check "placement trains" run placed "parallel.placement=[{parameters: [\"*.w1.weight\", \"*.w2.weight\"], dim: 1}]"
check "placement: the same losses and norms" close_figures "$WORK/runs/base" "$WORK/runs/placed" 1 1e-6
check "its shards are cut there" test "$(grep -ao '"layers.0.feed_forward.w2.weight": *{[^}]*"shape": *\[[0-9, ]*\]' "$WORK/runs/placed/checkpoints/step-00000006/shard-00002"* | grep -o '[^:]*$' | tr -d ' ')" = "[14,28]"
# Half the steps cut one way, and the rest, at another world size, another way and back to rows.
half() { run "$@" "parallel.placement=[{parameters: \"*.w2.weight\", dim: 1}]" train.steps=3 checkpoint.every=3; }
check "half a run cut along columns" half turned
check "goes on cut along rows, over three ranks" run_job "$WORK/turned.log" "$WORK/job.yaml" --nproc-per-node 3 --set train.steps=6 --set model.layers=3 --set run.name=turned
check "placement: a run that changes its cut is the same run" close_figures "$WORK/runs/base" "$WORK/runs/turned" 1 1e-5
check "half a run cut along rows" run straight train.steps=3 checkpoint.every=3
check "goes on cut along columns" run straight "parallel.placement=[{parameters: \"*.w?.weight\", dim: 1}]"
check "and is the same run too" close_figures "$WORK/runs/base" "$WORK/runs/straight" 1 1e-5
check_status "three ranks cannot divide it" 78 "$BIN/fsdprun" --nproc-per-node 3 "$WORK/job.yaml" --set run.name=wrong --set checkpoint.every=0 \
  --set "parallel.placement=[{parameters: \"*.w2.weight\", dim: 1}, {parameters: \"*.w1.weight\", dim: 1}]"

# What a group's input and output are cast to. Where all is bfloat16 nothing is to be cast.
half=parallel.param_dtype=bfloat16
check "bfloat16 trains" run half $half
check "it is not the same run" test "$(norm base 1)" != "$(norm half 1)"
check "without casts of inputs it trains" run uncast $half parallel.cast_forward_inputs=false
same_run "inputs that need no cast: the same bits" half uncast
# Rounded by draws as they are gathered: another run, near it, and the same one however it is gathered, and when it goes on.
drawn=parallel.stochastic_rounding=true
check "weights rounded stochastically train" run drawn $half $drawn
check "it is not the run that rounds to nearest" test "$(norm half 1)" != "$(norm drawn 1)"
check "but near it" close_figures "$WORK/runs/half" "$WORK/runs/drawn" 1 0.02
check "weights kept for backward train" run drawn-kept $half $drawn parallel.reshard_after_forward=false
same_run "backward's gather draws what forward's did" drawn drawn-kept
check "half of the steps" run drawn-halves $half $drawn train.steps=3 checkpoint.every=3
check "and the rest" run drawn-halves $half $drawn
same_run "a run that goes on draws what it would have drawn" drawn drawn-halves
check "over a tensor group it trains" run drawn-split $half $drawn parallel.tensor=2 launch.nproc_per_node=4
check "and is near" close_figures "$WORK/runs/drawn" "$WORK/runs/drawn-split" 1 0.02
check_status "what is gathered in float32 is not drawn" 78 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=wrong --set $drawn
check_match "with the key" 'parallel\.stochastic_rounding: needs param_dtype: bfloat16' "$(cat "$WORK/out" "$WORK/err")"
check_status "nor is a float8 gather" 78 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=wrong --set $half --set $drawn --set parallel.float8_gather=true
check_match "with the other key" 'parallel\.stochastic_rounding: is not supported with float8_gather' "$(cat "$WORK/out" "$WORK/err")"
# Of a plan the process's own size is measured, so that two plans of one job may differ in it, and in the total.
computed() { sed -E 's/"(baseline|total|host_total)": [0-9]+/"\1": MEASURED/g'; }
check_eq "its plan is that of rounding to nearest" "$("$BIN/fsdprun" plan --json "$WORK/job.yaml" --set $half | computed)" \
  "$("$BIN/fsdprun" plan --json "$WORK/job.yaml" --set $half --set $drawn | computed)"
blocks="parallel.groups=[{modules: layers.*, param_dtype: bfloat16}]"
check "blocks alone in bfloat16 train" run blocks "$blocks"
check "they are not the same run either" test "$(norm base 1)" != "$(norm blocks 1)"
check_status "whose input nobody casts are refused" 78 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=wrong \
  --set "parallel.groups=[{modules: layers.*, param_dtype: bfloat16, cast_forward_inputs: false}]"
check_match "with the key" 'layers\.0.* is given float32 where its parameters are bfloat16: cast_forward_inputs' "$(cat "$WORK/out" "$WORK/err")"
check "outputs in float32 train" run wide $half parallel.output_dtype=float32
check "outputs in float32: as near as bfloat16 is" close_figures "$WORK/runs/half" "$WORK/runs/wide" 1 0.01
check "outputs in bfloat16 of float32 blocks train" run narrow parallel.output_dtype=bfloat16
check "outputs in bfloat16: near" close_figures "$WORK/runs/base" "$WORK/runs/narrow" 1 0.02
check "outputs in bfloat16: rounded" test "$(norm base 1)" != "$(norm narrow 1)"

# The plan of each.
plan() { local args=(); for setting in "$@"; do args+=(--set "$setting"); done; "$BIN/fsdprun" plan --json "$WORK/job.yaml" "${args[@]}"; }
of() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"; }
base=$(plan)
check "frozen parameters need no gradients" test "$(plan "model.frozen=layers.*" | of gradients)" -lt "$(of gradients <<< "$base")"
check "and no state" test "$(plan "model.frozen=layers.*" | of optimizer)" -lt "$(of optimizer <<< "$base")"
check "ignored ones are whole on every rank" test "$(plan "model.frozen=layers.*" "parallel.ignored=layers.*" | of parameters)" -gt "$(of parameters <<< "$base")"
check "groups gathered ahead need memory" test "$(plan model.layers=6 parallel.forward_prefetch=4 | of gather)" -gt "$(plan model.layers=6 | of gather)"
check "so do buffers of gradients" test "$(plan model.layers=6 parallel.reduce_scatter_max_input_buffers=4 | of reduce)" -gt "$(plan model.layers=6 | of reduce)"
check "what backward does not read is gathered once" test \
  "$(plan "parallel.groups=[{modules: tok_embeddings, unshard_in_backward: false, reshard_after_forward: true}]" | of all_gather)" -lt \
  "$(plan "parallel.groups=[{modules: tok_embeddings, reshard_after_forward: true}]" | of all_gather)"
check "outputs in float32 take more than in bfloat16" test \
  "$(plan model.layers=6 $half parallel.output_dtype=float32 | of activations)" -gt "$(plan model.layers=6 $half | of activations)"
check "rules that recompute need less" test \
  "$(plan model.layers=6 "parallel.groups=[{modules: layers.*, activation_checkpoint: full}]" | of activations)" -lt "$(plan model.layers=6 | of activations)"
[ "$n_failed" -eq 0 ]
