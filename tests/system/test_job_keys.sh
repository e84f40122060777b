# Keys of a job that shape a step: training honours them, and so does the plan. That each rule reaches its
# groups is held by the unit tests sharding, and what it changes there by those of engine and parity.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
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
# holds NAME TENSOR: is it in any shard of the last checkpoint?
holds() { grep -qa "\"$2\"" "$WORK/runs/$1"/checkpoints/step-*/shard-*.safetensors; }
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
for setting in activation_checkpoint=full activation_checkpoint=selective recompute=none recompute=cheap; do
  unchanged "$setting" "parallel.$setting"
done
unchanged every-second parallel.activation_checkpoint=full parallel.activation_checkpoint_every=2
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

# Frozen parameters have no state, and what is ignored as well is the same run.
check "frozen parameters train around" run frozen "model.frozen=[\"layers.0.*\", \"*.bias\"]"
check "they have no state" eval '! holds frozen optimizer.exp_avg.layers.0.attention.wq.weight'
check "the rest has" holds frozen optimizer.exp_avg.layers.1.attention.wq.weight
check "ignored ones too" run ignored "model.frozen=[\"layers.0.*\", \"*.bias\"]" "parallel.ignored=[\"layers.0.*norm*\", \"*w1.bias\"]"
same_run "ignored and frozen: the same bits as frozen" frozen ignored

# Half of the steps cut along columns, and the rest, at another world size, along rows.
check "half a run cut along columns" run turned \
  "parallel.placement=[{parameters: \"*.w2.weight\", dim: 1}]" train.steps=3 checkpoint.every=3
check "goes on cut along rows, over three ranks" run_job "$WORK/turned.log" "$WORK/job.yaml" \
  --nproc-per-node 3 --set train.steps=6 --set model.layers=3 --set run.name=turned
check "placement: a run that changes its cut is the same run" close_figures "$WORK/runs/base" "$WORK/runs/turned" 1 1e-5

half=parallel.param_dtype=bfloat16
check "bfloat16 trains" run half $half
check "it is not the same run" test "$(norm base 1)" != "$(norm half 1)"
# Rounded by draws as they are gathered: another run, near it, and the same one however it is gathered, and
# when it goes on.
drawn=parallel.stochastic_rounding=true
check "weights rounded stochastically train" run drawn $half $drawn
check "it is not the run that rounds to nearest" test "$(norm half 1)" != "$(norm drawn 1)"
check "but near it" close_figures "$WORK/runs/half" "$WORK/runs/drawn" 1 0.02
check "half of the steps" run drawn-halves $half $drawn train.steps=3 checkpoint.every=3
check "and the rest" run drawn-halves $half $drawn
same_run "a run that goes on draws what it would have drawn" drawn drawn-halves

# The plan of each.
plan() {
  local args=()
  for setting in "$@"; do
    args+=(--set "$setting")
  done
  "$BIN/fsdprun" plan --json "$WORK/job.yaml" "${args[@]}"
}
of() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"; }
kept=parallel.recompute=none full=parallel.activation_checkpoint=full
# Of each row the class of memory, or the traffic, is less with the first settings than with the second.
while IFS='|' read -r title class less more; do
  IFS=';' read -ra less <<< "$less"
  IFS=';' read -ra more <<< "$more"
  check "$title" test "$(plan "${less[@]}" | of "$class")" -lt "$(plan "${more[@]}" | of "$class")"
done << END
frozen parameters need no gradients|gradients|model.frozen=layers.*|
and no state|optimizer|model.frozen=layers.*|
ignored ones are whole on every rank|parameters||model.frozen=layers.*;parallel.ignored=layers.*
groups gathered ahead need memory|gather|model.layers=6|model.layers=6;parallel.forward_prefetch=4
so do buffers of gradients|reduce|model.layers=6|model.layers=6;parallel.reduce_scatter_max_input_buffers=4
what backward does not read is gathered once|all_gather|parallel.groups=[{modules: tok_embeddings, unshard_in_backward: false, reshard_after_forward: true}]|parallel.groups=[{modules: tok_embeddings, reshard_after_forward: true}]
outputs in float32 take more than in bfloat16|activations|model.layers=6;$half|model.layers=6;$half;parallel.output_dtype=float32
what is cheap made again needs less|activations|parallel.recompute=cheap|$kept
so does every second block|activations|$kept;$full;parallel.activation_checkpoint_every=2|$kept
and every block|activations|$kept;$full|$kept;$full;parallel.activation_checkpoint_every=2
and a selection|activations|$kept;parallel.activation_checkpoint=selective|$kept
rules that recompute need less|activations|model.layers=6;parallel.groups=[{modules: layers.*, activation_checkpoint: full}]|model.layers=6
END
