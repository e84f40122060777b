# fsdprun plan: what it says, in words and as JSON; on cuda too. (test_plan_memory.sh holds it against what a
# run takes.)
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
cat > "$WORK/job.yaml" << EOF
run:        {name: planned, dir: $WORK/runs, log_every: 1}
launch:     {nproc_per_node: 2}
data:       {path: $SOURCE/tests/parity/excerpt.txt}
model:      {layers: 8, dim: 512, heads: 8, vocab: 256, seq: 64}
train:      {steps: 2, batch: 16}
checkpoint: {every: 0}
EOF
plan() { "$BIN/fsdprun" plan --json "$WORK/job.yaml" "$@"; }

check_status "a plan needs no data, no run directory and no device" 0 "$BIN/fsdprun" plan "$WORK/job.yaml" --set data.path=/nowhere
check_match "it says the parameters, the memory and the traffic" 'parameters on 2 ranks' "$(cat "$WORK/out")"
check_status "without saving there are no snapshots" 0 "$BIN/fsdprun" plan --json "$WORK/job.yaml"
check_match "which is 0" '"snapshot": 0,' "$(cat "$WORK/out")"
plan --set checkpoint.every=1 > "$WORK/saves.json"
check_eq "with it, two copies of the rows and their state" $((2 * ($(number parameters < "$WORK/saves.json") + $(number optimizer < "$WORK/saves.json")))) \
  "$(number snapshot < "$WORK/saves.json")"
plan > "$WORK/no-saves.json"
# The baseline is measured: it is a page more or less each time.
apart_from_baseline() { echo $(($(number total < "$WORK/$1.json") - $(number baseline < "$WORK/$1.json"))); }
check_eq "a rank's total is the same" "$(apart_from_baseline no-saves)" "$(apart_from_baseline saves)"
check_eq "saves that wait for the disk need none" 0 "$(plan --set checkpoint.every=1 --set checkpoint.async=false | number snapshot)"
plan --set checkpoint.every=1 --set checkpoint.replicas=1 --nnodes 2 > "$WORK/copies.json"
check_eq "with replicas on two nodes, each holds as much for the other" "$(number snapshot < "$WORK/copies.json")" \
  "$(number copies < "$WORK/copies.json")"
check "... which is something" test "$(number copies < "$WORK/copies.json")" -gt 0
check_eq "... and on one node nothing" 0 "$(plan --set checkpoint.every=1 --set checkpoint.replicas=1 | number copies)"
check_status "replicas without anything to copy are refused" 78 plan --set checkpoint.replicas=1
check_match "... in words" 'checkpoint.replicas: has nothing to copy' "$(cat "$WORK/out" "$WORK/err" 2> /dev/null)"
total=$(number total < "$WORK/saves.json")
check_match "it says if they do not fit" 'snapshots do not fit in addition to the rest' \
  "$("$BIN/fsdprun" plan "$WORK/job.yaml" --set checkpoint.every=1 --memory $((total + (1 << 20))))"
check "nothing was made" test ! -e "$WORK/runs"
plan > "$WORK/plan.json"
check "the JSON is JSON" "$TOY/json_check" "$WORK/plan.json"
check_match "without a size nobody says whether it fits" '"fits": null' "$(cat "$WORK/plan.json")"
n=[0-9]+
check_match "it has the contract's classes" \
  "\"parameters\": $n, \"gradients\": $n, \"optimizer\": $n, \"gather\": $n, \"reduce\": $n, \"activations\": $n" \
  "$(grep -o '"per_rank": {.*' "$WORK/plan.json")"
check_match "... all of them" '"snapshot": 0, "copies": 0, "shared": [1-9][0-9]*,.*"baseline": [0-9]+, "total": [0-9]+\}, "traffic_per_step"' \
  "$(cat "$WORK/plan.json")"
check_match "and what a step sends" "\"traffic_per_step\": \{\"all_gather\": $n, \"reduce_scatter\": $n, \"all_reduce\": 0\}" \
  "$(cat "$WORK/plan.json")"

# An evaluation in addition to training is one arena more, on cuda a batch and logits too; what training takes is the
# same.
plan --evaluation 8 > "$WORK/evaluation.json"; plan --evaluation 16 > "$WORK/evaluation16.json"
check_eq "nothing is evaluated unless it is said" 0 "$(number evaluation < "$WORK/plan.json")"
check "one of more sequences more" test "$(number evaluation < "$WORK/evaluation.json")" -lt "$(number evaluation < "$WORK/evaluation16.json")"
check_match "for people too" '^  evaluation  ' "$("$BIN/fsdprun" plan "$WORK/job.yaml" --evaluation=8)"
check_status "a number is wanted" 2 "$BIN/fsdprun" plan "$WORK/job.yaml" --evaluation

# On cuda, planned where there is none: what a rank has of the GPU and of the host are two lists. (What runs
# there is held against it by test_cuda_emulated.sh.)
on_cuda() { plan --set run.device=cuda "$@"; }
on_cuda > "$WORK/cuda.json"; on_cuda --set parallel.offload=cpu > "$WORK/offload.json"; on_cuda --evaluation 8 > "$WORK/cuda-eval.json"
check "the JSON is JSON" "$TOY/json_check" "$WORK/cuda.json"
of() { sed -n "s/.*\"$2\": {[^}]*\"$3\": \([0-9]*\).*/\1/p" "$WORK/$1.json"; }
check_eq "the device's total is its parts" "$(of cuda per_rank total)" \
  $(($(of cuda per_rank allocated) + $(of cuda per_rank collectives) + $(of cuda per_rank baseline)))
check_eq "and what is allocated its own" "$(of cuda per_rank allocated)" "$(($(of cuda per_rank parameters) + $(of cuda per_rank gradients) +
  $(of cuda per_rank optimizer) + $(of cuda per_rank arena) + $(of cuda per_rank inputs) + $(of cuda per_rank workspace) + $(of cuda per_rank kernels)))"
check_eq "an evaluation's arena, tokens and targets are the device's" "$(of cuda-eval per_rank evaluation) 4096" \
  "$(($(of cuda-eval per_rank allocated) - $(of cuda per_rank allocated) - 4096)) $(($(of cuda-eval per_rank inputs) - $(of cuda per_rank inputs)))"
check_eq "its logits the host's" $((8 * 64 * 256 * 4)) "$(of cuda-eval per_rank_host logits)"
check_eq "no shard is in host memory" 0 $(($(of cuda per_rank_host parameters) + $(of cuda per_rank_host gradients) + $(of cuda per_rank_host optimizer)))
for class in parameters gradients optimizer; do
  check_eq "offloaded, $class are, all of them" "$(of cuda per_rank $class) 0" "$(of offload per_rank_host $class) $(of offload per_rank $class)"
done
check "which saves the device that" test "$(of offload per_rank allocated)" -lt "$(of cuda per_rank allocated)"
check "nvme keeps a window of the optimizer's state" test \
  "$(on_cuda --set parallel.offload=nvme | sed -n \
  's/.*"per_rank_host": {[^}]*"optimizer": \([0-9]*\).*/\1/p')" -lt "$(of cuda per_rank optimizer)"
check_match "one rank needs no collectives" '"collectives": 0,' "$(on_cuda --nproc-per-node 1)"
check_match "ranks that share a GPU stage through the host" '"collectives": 0,.*"staging": [1-9]' "$(on_cuda --set run.collectives=cpu)"
check_match "for people too" 'host memory of a rank' "$("$BIN/fsdprun" plan "$WORK/job.yaml" --set run.device=cuda)"

total=$(number total < "$WORK/plan.json")
check_match "it fits where there is room" '"fits": true' "$(plan --memory 80G)"
check_match "it does not where there is not" '"fits": false' "$(plan --memory "$((total - 16777216))B")"
large=(--set train.batch=32) # so large that half of it saves more than the whole gradients of two micro-steps take
"$BIN/fsdprun" plan "$WORK/job.yaml" "${large[@]}" --memory 100M > "$WORK/out"
check_match "then it says what to change" '--set train.batch=16 train.grad_accumulation=2 ' "$(cat "$WORK/out")"
# Of one plan the process's own size is measured, the rest is arithmetic.
planned() { echo $(($(number total < "$1") - $(number baseline < "$1"))); }
plan --set train.batch=16 --set train.grad_accumulation=2 > "$WORK/halved.json"
plan "${large[@]}" --memory 100M > "$WORK/small.json"
change=$(sed -n 's/.*"set": "train.batch=16 train.grad_accumulation=2", "total": \([0-9]*\).*/\1/p' "$WORK/small.json")
check_eq "what the change brings is what a plan with it says" "$(planned "$WORK/halved.json")" \
  "$((change - $(number baseline < "$WORK/small.json")))"
check "more ranks need less each" test "$(plan --nproc-per-node 8 | number total)" -lt "$total"
check_eq "--nnodes counts too" "$(plan --nproc-per-node 8 | number world_size)" "$(plan --nproc-per-node 4 --nnodes 2 | number world_size)"

for model in 7b 70b; do
  check_match "configs/plan-$model.yaml fits its devices" '"fits": true' "$("$BIN/fsdprun" plan --json --memory 80G configs/plan-$model.yaml)"
done
"$BIN/fsdprun" plan --memory 80G configs/plan-70b.yaml --set parallel.activation_checkpoint=none --set parallel.recompute=none > "$WORK/out"
check_match "the large one does not with every activation kept" 'it does not fit' "$(cat "$WORK/out")"
check_match "and the key that helps is named, with its cost" 'parallel.activation_checkpoint=full .* fits' "$(cat "$WORK/out")"

check_match "it says that this changes no number" 'changes no number; forward is computed twice' "$(cat "$WORK/out")"
"$BIN/fsdprun" plan "$WORK/job.yaml" "${large[@]}" --memory 1M > "$WORK/out"
check_match "what changes rounding is said" 'changes rounding; more micro-steps' "$(cat "$WORK/out")"
check_match "what changes numerics too" 'changes numerics; products in bfloat16' "$(cat "$WORK/out")"
check_match "never more ranks than the node has CPUs" '^0$' \
  "$("$BIN/fsdprun" plan "$WORK/job.yaml" --memory 1M --nproc-per-node "$(nproc)" | grep -c nproc_per_node)"
plan > "$WORK/plan.json"
check_eq "a node takes what its ranks take, shared segments once" "$(($(number total < "$WORK/plan.json") * 2 - $(number shared < "$WORK/plan.json")))" \
  "$(number host_total < "$WORK/plan.json")"
check_match "in words" '2 ranks of a node: ' "$("$BIN/fsdprun" plan "$WORK/job.yaml")"

# The schedule. What stands in its lines is held by the unit tests layout_text and forecast.
schedule() { "$BIN/fsdprun" plan --schedule "$WORK/job.yaml" --set model.vocab=257 "$@"; }
schedule --nproc-per-node 3 > "$WORK/schedule"
check_match "its first line is the layout's" '^# layout: [0-9]+ parameters in 9 groups' "$(head -n 1 "$WORK/schedule")"
check_eq "every parameter has a line" "$(sed -n '1s/# layout: \([0-9]*\) .*/\1/p' "$WORK/schedule")" "$(sed '1d; /^$/,$d' "$WORK/schedule" | wc -l)"
sed '1,/^$/d' "$WORK/schedule" > "$WORK/order"
check_match "the order is one of a world of three" '^# world 3, 9 groups, [0-9]+ entries' "$(head -n 1 "$WORK/order")"
check_match "first the root is gathered" '^ *0 gathers gather +\(root\)' "$(sed -n 2p "$WORK/order")"
check_match "last its gradients are reduced" '^ *[0-9]+ reduces reduce +\(root\)' "$(tail -n 2 "$WORK/order" | head -n 1)"
check_eq "and the arena is the figures' one" "$(plan --set model.vocab=257 --nproc-per-node 3 |
  number arena)" "$(sed -n 's/^# arena \([0-9]*\) bytes.*/\1/p' "$WORK/order")"
check_eq "each block is reduced once, the last one first" "7 6 5 4 3 2 1 0" "$(sed -n 's/.* reduce  *layers\.\([0-9]\) .*/\1/p' "$WORK/order" | xargs)"
check_status "it has no JSON" 2 schedule --json
check_match "and says so" 'not with --json' "$(cat "$WORK/err")"
check_status "a key that cannot be used is refused here too" 78 schedule --set model.heads=7

# Sizes that are legal and absurd: an answer or a refusal, and never more planning than takes a moment. (What
# bounds it is counted, in blocks and in plans: no clock is read.)
absurd() { # NAME STATUS WORD...
  check_status "$1" "$2" timeout 3000 "$BIN/fsdprun" plan "$WORK/job.yaml" "${@:3}"
}
absurd "the most blocks that are planned" 0 --set model.layers=256
absurd "more are refused" 78 --set model.layers=257
check_eq "... by their key" "fsdp-train: model.layers: 257 blocks: at most 256 are planned" "$(cat "$WORK/err")"
absurd "ten thousand of the widest" 78 --set model.layers=10000 --set model.dim=1048576
absurd "... nor is their schedule printed" 78 --schedule --set model.layers=10000
absurd "a micro-step of 2^40 tokens" 78 --set train.batch=1048576 --set model.seq=1048576
check_match "... is refused by its keys" 'train.batch: 1048576 sequences of 1048576 tokens: a micro-step has at most 2147483647 tokens' "$(cat "$WORK/err")"
absurd "an evaluation of 2^50 tokens" 78 --set model.seq=1048576 --evaluation 1073741824
absurd "the widest model of all words" 0 --set model.dim=1048576 --set model.vocab=16777216 --memory 80G
absurd "a million ranks" 0 --nproc-per-node 4096 --nnodes 256 --insecure
absurd "changes for many blocks" 0 --set model.layers=200 --memory 1M --json
check_match "... are tried up to a bound, and that is said" '"changes_left_out": true' "$(cat "$WORK/out")"
check_match "... to people too" 'not all changes were tried' "$("$BIN/fsdprun" plan "$WORK/job.yaml" --set model.layers=200 --memory 1M)"
check_match "of few blocks all are" '"changes_left_out": false' "$(plan --memory 1M)"

check_status "a program is no job" 2 "$BIN/fsdprun" plan "$TOY/toy"
check_status "a key that cannot be used" 78 "$BIN/fsdprun" plan "$WORK/job.yaml" --set model.heads=7
check_match "is named as when it is run" 'model.heads' "$(cat "$WORK/err")"
check_status "a file that is not there" 78 "$BIN/fsdprun" plan "$WORK/none.yaml"
check_status "its help" 0 "$BIN/fsdprun" plan --help
