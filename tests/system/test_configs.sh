# configs/, each file by name: it resolves, it is planned, and what a CPU can do in seconds runs, small, for
# two steps; then the example of docs/config.md. In these runs every key of a job file has a value other than
# its default at least once, and the run ends well. The lists below name the exceptions.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh

# What each file is run with in addition to the settings of small(): options and key=value. plan: it is for machines
# that are not here.
small_model="model.dim=64 train.batch=2"
declare -A how=(
  [elastic-batch]="--nproc-per-node 4 model.dim=64"
  [fsdp2]="$small_model"
  [gpt2-124m]="--nproc-per-node 2 model.layers=2 model.dim=64 model.heads=2 model.vocab=256 model.seq=32 train.global_batch=4 optimizer.warmup_steps=1"
  [groups]="$small_model"
  [hybrid]="$small_model"
  [init-only]="--nproc-per-node 2 model.dim=48 model.seq=32 train.steps=0"
  [offload]="model.layers=2 $small_model"
  [plan-70b]=plan
  [plan-7b]=plan
  [plan-gpt2-1558m]=plan
  [quickstart]="$small_model optimizer.warmup_steps=1"
  [sgd]="--nproc-per-node 2 $small_model optimizer.warmup_steps=1"
  [tensor-parallel]="$small_model model.seq=32"
  [transformer]="model.layers=2 $small_model parallel.float8_gather=true"
)
# Keys that no run here can change, and the script that does.
declare -A elsewhere=([launch.nnodes]=tests/system/test_two_nodes_train.sh [checkpoint.dir]=tests/system/test_checkpoint_dir.sh
  [checkpoint.replicas]=tests/system/test_replicas.sh)

# arguments NAME WORD...: the command line of a run, one word a line; words with = are settings, later ones
# win.
arguments() {
  local name=$1 word; shift
  for word in "data.path=$SOURCE/tests/parity/excerpt.txt" train.steps=2 run.log_every=1 checkpoint.every=1 "run.dir=$WORK/runs" "run.name=$name" "$@"; do
    case $word in *=*) printf '%s\n' --set "$word" ;; *) printf '%s\n' "$word" ;; esac
  done
}
# trains NAME FILE STEPS WORD...: runs to its end with STEPS logged, after a look at what it resolves to.
trains() {
  local name=$1 file=$2 steps=$3 args; shift 3
  mapfile -t args < <(arguments "$name" "$@")
  "$BIN/fsdprun" "$file" "${args[@]}" --dry-run > "$WORK/$name.resolved" 2> "$WORK/$name.log" &&
    run_job "$WORK/$name.log" "$file" "${args[@]}" && mv "$WORK/$name.resolved" "$WORK/$name.ran" &&
    [ "$(figures "$WORK/runs/$name" | wc -l)" -eq "$steps" ] || { tail -n 5 "$WORK/$name.log"; return 1; }
}

if [ "$(stat -f -c %T "$WORK")" = tmpfs ]; then
  skip "configs/offload.yaml as it is" "the tests' directory is in memory (tmpfs)"
  how[offload]+=" parallel.offload=cpu"
  elsewhere[parallel.offload_dir]=tests/system/test_offload.sh
else
  how[offload]+=" parallel.offload_dir=$WORK/disk"
fi

for file in configs/*.yaml; do
  name=$(basename "$file" .yaml)
  check_eq "$name begins with a comment" "#" "$(head -c 1 "$file")"
  check "$name resolves" "$BIN/fsdprun" --dry-run "$file"
  check_match "$name is planned" '"total": [1-9]' "$("$BIN/fsdprun" plan --json "$file")"
  case ${how[$name]:-} in
  '') not_ok "$name is run here" "say in this script how, or that it is only planned" ;;
  plan) ;;
  *train.steps=0*) check "$name runs" trains "$name" "$file" 0 ${how[$name]} ;;
  *) check "$name trains" trains "$name" "$file" 2 ${how[$name]} ;;
  esac
done
for name in "${!how[@]}"; do
  [ -e "configs/$name.yaml" ] || not_ok "configs/$name.yaml is there"
done
check "elastic-batch goes on at three ranks, as it says" trains elastic-batch configs/elastic-batch.yaml 3 --nproc-per-node 3 model.dim=64 train.steps=3
check_match "from its checkpoint" '"event": *"resume".*"step": *2' "$(cat "$WORK/runs/elastic-batch/events.jsonl")"
check "init-only made its weights" test -e "$WORK/runs/init-only/checkpoints/step-00000000/manifest.json"
check "gpt2-124m is of its preset" grep -q '^  preset: 124m ' "$WORK/gpt2-124m.ran"

# keys that no file in configs/ changes

sed -n '/^## Example/,$ { /^```yaml$/,/^```$/ { /^```/!p } }' docs/config.md > "$WORK/example.yaml"
check "the example of docs/config.md trains" trains example "$WORK/example.yaml" 2 launch.nnodes=1 \
  model.layers=2 model.dim=64 model.heads=4 model.vocab=256 model.seq=16 train.batch=2 optimizer.warmup_steps=1
check "and is exported" test -e "$WORK/runs/example/export/step-00000002/config.json"
early='modules: "layers.[012]", reshard_after_forward: 2, reshard_after_backward: true, param_dtype: bfloat16, '
early+='stochastic_rounding: true, reduce_dtype: float32, output_dtype: bfloat16, cast_forward_inputs: true, '
early+='gradient_sync: every, all_reduce: last, gradient_divide_factor: 4, force_sum_reduction: false, '
early+='forward_prefetch: 2, backward_prefetch: 2, activation_checkpoint: full'
check "the rest of the keys" trains rest configs/init-only.yaml 2 --nproc-per-node 4 model.norm=rmsnorm model.dim=48 model.seq=32 model.causal=false \
  model.tied=true "model.weights=$WORK/runs/init-only/checkpoints/step-00000000" model.weights_strict=false \
  launch.threads=1 launch.hang_timeout_s=60 launch.max_restarts=0 checkpoint.data=ignore checkpoint.async=false checkpoint.snapshot_every=1 data.order=sequential train.batch=2 optimizer.eps=1e-7 "optimizer.betas=[0.8, 0.9]" \
  train.clip_norm=0.5 train.clip_norm_type=inf \
  parallel.replicate=2 parallel.reshard_after_forward=true parallel.reshard_after_backward=false parallel.overlap=true \
  parallel.param_dtype=bfloat16 parallel.stochastic_rounding=true parallel.reduce_dtype=bfloat16 parallel.output_dtype=float32 parallel.gradient_divide_factor=8 \
  parallel.force_sum_reduction=true \
  "parallel.groups=[{modules: layers.3, modules_to_backward_prefetch: layers.2}, {$early}, {modules: [tok_embeddings, output]}]"
check "inputs that are not cast" trains uncast configs/hybrid.yaml 2 model.dim=64 train.batch=2 parallel.cast_forward_inputs=false

# flat FILE...: of what --dry-run printed, a line "section.key VALUE" a key.
flat() {
  awk '/^[a-z]+:/ { section = $1; sub(/:.*/, ".", section); next }
       /^  [a-z_0-9]+:/ { key = $1; sub(/:/, "", key); sub(/ +# .*/, ""); sub(/^ +[a-z_0-9]+: */, ""); print section key " " $0 }' "$@"
}
# documented NAME: the first column of the tables below the headings that begin with NAME, or of all sections.
documented() {
  awk -v heading="$1" '/^## / { takes = index($0, heading) == 1; section = $2; sub(/:$/, "", section) }
       takes && /^\| `/ { key = $2; gsub(/`/, "", key); print (heading == "## " ? section "." : "") key ($0 ~ /others not yet/ ? " only" : "") }' docs/config.md
}
echo 'data: {path: d}' > "$WORK/least.yaml"
"$BIN/fsdprun" --dry-run "$WORK/least.yaml" > "$WORK/defaults"
check_eq "a job has the keys that docs/config.md lists" \
  "$(documented '## ' | sed 's/ only$//' | grep -E '^(run|launch|data|model|train|optimizer|parallel|checkpoint)\.' | sort)" \
  "$(flat "$WORK/defaults" | cut -d ' ' -f 1 | sort)"
flat "$WORK/defaults" | sort > "$WORK/default.values"
for file in "$WORK"/*.ran; do flat "$file"; done | sort -u > "$WORK/ran.values"
changed=$(comm -13 "$WORK/default.values" "$WORK/ran.values" | cut -d ' ' -f 1 | sort -u)
missing=$(for key in $(cut -d ' ' -f 1 "$WORK/default.values"); do
  grep -qxF "$key" <<< "$changed" && continue
  documented '## ' | grep -qxF "$key only" && continue # one value is all it takes yet
  script=${elsewhere[$key]:-}
  [ -n "$script" ] && grep -q "${key#*.}" "$script" && continue
  echo "$key"
done)
check_eq "every key is changed in a run" "" "$missing"
check "most of them here" test "$(wc -l <<< "$changed")" -gt 60
for rules in optimizer.groups parallel.groups parallel.placement; do
  values=$(grep "^$rules " "$WORK/ran.values")
  missing=$(for field in $(documented "## Rules of \`$rules\`"); do grep -qE "[{ ]$field:" <<< "$values" || echo "$field"; done)
  check_eq "every field of $rules is in a rule of a run" "" "$missing"
done
