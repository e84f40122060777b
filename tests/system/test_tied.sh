# model.tied of a transformer: one weight under two names, in training, in checkpoints and at every number of
# ranks.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
# job NAME W STEPS SETTING...
job() {
  local name=$1 W=$2 steps=$3 setting args=(); shift 3
  for setting in model.tied=true "$@"; do args+=(--set "$setting"); done
  run_job "$WORK/$name.log" --nproc-per-node "$W" "$WORK/job.yaml" --set "run.name=$name" --set "train.steps=$steps" "${args[@]}" ||
    { tail -n 3 "$WORK/$name.log"; return 1; }
}
step() { echo "$WORK/runs/$1/checkpoints/step-000000$2"; }
# holds NAME TENSOR: is it in any of the last checkpoint's shards?
holds() { grep -qa "\"$2\"" "$(step "$1" 20)"/shard-*.safetensors; }

check "three ranks train 20 steps" job whole 3 20
check "the loss falls" awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(NR == 20 && last < 0.8 * first) }' <(figures "$WORK/runs/whole")
check "the embedding's weight is saved" holds whole tok_embeddings.weight
check "under that name alone" eval '! holds whole output.weight'
check "with one state" eval 'holds whole optimizer.exp_avg.tok_embeddings.weight && ! holds whole optimizer.exp_avg.output.weight'
check "it is another model than the untied one" job untied 3 20 model.tied=false
check "which has a head of its own" holds untied output.weight
check "and other figures" test "$(figures "$WORK/runs/whole" | head -n 1)" != "$(figures "$WORK/runs/untied" | head -n 1)"

check_status "in two groups it is refused" 78 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=parted --set model.tied=true \
  --set "parallel.groups=[{modules: tok_embeddings}, {modules: output}]"
check_match "with both names" 'tok_embeddings.*output|output.*tok_embeddings' "$(cat "$WORK/out" "$WORK/err")"

# A checkpoint of three ranks, gone on with at others; rows that they cut elsewhere.
check "three ranks train ten steps" job half 3 10
for W in 3 2 1 4; do
  cp -r "$WORK/runs/half" "$WORK/runs/on$W"
  check "$W ranks go on from three ranks' step 10" job "on$W" "$W" 20
  check_match "$W ranks: events name the step" '"event": *"resume".*"step": *10' "$(cat "$WORK/runs/on$W/events.jsonl")"
  check "$W ranks: the uninterrupted run's losses and norms" close_figures "$WORK/runs/whole" "$WORK/runs/on$W" 11 5e-6
done
check_eq "at the same number of ranks to the bit" "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/on3")"
check_eq "and so the weights" "$(payloads "$(step whole 20)")" "$(payloads "$(step on3 20)")"
check "an untied job does not go on with it" eval '! job half 3 20 model.tied=false'
check_match "for want of its head" 'output\.weight' "$(cat "$WORK/half.log")"

# And as initial weights of another run.
check "its weights begin another run" job from 2 2 "model.weights=$(step whole 20)" checkpoint.every=0
check "and one at other ranks" job from4 4 2 "model.weights=$(step whole 20)" checkpoint.every=0
check "where it left off, alike at both" eval 'close_figures "$WORK/runs/from" "$WORK/runs/from4" 1 5e-6 &&
  awk "NR == FNR { last = \$2; next } FNR == 1 { exit !(\$2 < 1.2 * last) }" <(figures "$WORK/runs/whole") <(figures "$WORK/runs/from")'
