# model.weights: a run that begins with the weights of another one.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
job=("$WORK/job.yaml" --set train.steps=4 --set checkpoint.every=0)
run_job "$WORK/plain.log" "${job[@]}" --set run.name=plain
run_job "$WORK/from.log" "$WORK/job.yaml" --set run.name=from --set train.steps=0
check_eq "weights of a step are saved" 0 $?
weights=$WORK/runs/from/checkpoints/step-00000000
run_job "$WORK/same.log" "${job[@]}" --set run.name=same --set "model.weights=$weights" --nproc-per-node 3
check_eq "a run begins with them" 0 $?
check_match "and says so" 'initial weights from ' "$(cat "$WORK/same.log")"
check "at another world size its figures are those of a run that began so itself" close_figures "$WORK/runs/plain" "$WORK/runs/same" 1 2e-6
run_job "$WORK/other.log" "$WORK/job.yaml" --set run.name=other --set train.steps=0 --set run.seed=99
run_job "$WORK/changed.log" "${job[@]}" --set run.name=changed --set "model.weights=$WORK/runs/other/checkpoints/step-00000000"
check "other weights give other figures" test "$(figures "$WORK/runs/changed" | head -1)" != "$(figures "$WORK/runs/plain" | head -1)"

# What is refused, and which links are followed: the unit tests weights.
check_status "a part of a larger model, where that is wanted" 0 "$BIN/fsdprun" "${job[@]}" --set run.name=more \
  --set "model.weights=$weights" --set model.layers=3 --set model.weights_strict=false
check_status "a file that is not there" 66 "$BIN/fsdprun" "${job[@]}" --set run.name=none --set model.weights=/nowhere.safetensors
check_match "is named" '/nowhere.safetensors is not there' "$(cat "$WORK/out" "$WORK/err")"
mkdir "$WORK/sub" && cp "$WORK/job.yaml" "$WORK/sub/job.yaml"
sed -i 's|^model:      {|model:      {weights: ../runs/from/checkpoints/step-00000000, |' "$WORK/sub/job.yaml"
check_status "in a job file the path is relative to it" 0 "$BIN/fsdprun" "$WORK/sub/job.yaml" --set train.steps=1 --set checkpoint.every=0 --set run.name=sub

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  theirs=$WORK/theirs
  mkdir "$theirs"
  check_status "PyTorch saves the model" 0 env PATH="$(dirname "$FSDP_TEST_PYTHON"):$PATH" \
    "$BIN/fsdprun" --nproc-per-node 3 tests/support/workers/save_by_pytorch.py "$weights" "$theirs"
  for path in plain.safetensors whole whole/model-00001-of-00001.safetensors whole/model.safetensors.index.json \
    files files/model.safetensors.index.json sharded consolidated consolidated/sharded \
    hub/snapshots/4f2a hub/snapshots/4f2a/model.safetensors; do
    run_job "$WORK/theirs.log" "${job[@]}" --set "run.name=theirs-${path//\//-}" --set "model.weights=$theirs/$path"
    check_eq "$path, which PyTorch saved: the same bits" "$(figures "$WORK/runs/plain")" "$(figures "$WORK/runs/theirs-${path//\//-}")"
  done
  for name in half half32; do
    run_job "$WORK/$name.log" "${job[@]}" --set "run.name=$name" --set "model.weights=$theirs/$name.safetensors"
  done
  check "float16 weights are read" test -s "$WORK/runs/half/metrics.jsonl"
  check_eq "and are PyTorch's float32 of them" "$(figures "$WORK/runs/half32")" "$(figures "$WORK/runs/half")"
else
  skip "files that PyTorch wrote" "FSDP_TEST_PYTHON is not set"
fi
