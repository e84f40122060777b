# fsdprun ckpt: what is done with checkpoints when no job runs.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
ckpt() { "$BIN/fsdprun" ckpt "$@"; }
tiny_job "$WORK/job.yaml"
two=$WORK/runs/tiny three=$WORK/runs/three
run_job "$WORK/two.log" "$WORK/job.yaml"
run_job "$WORK/three.log" "$WORK/job.yaml" --set run.name=three --nproc-per-node 3 --set train.steps=10
step=$two/checkpoints/step-00000020
FIRST=shard-00001-model-00001-of-00001.safetensors SECOND=shard-00002-model-00001-of-00001.safetensors

# ls and show
check_eq "ls has an object for each checkpoint" "10:2:complete 15:2:complete 20:2:complete" \
  "$(ckpt ls --json "$two" | grep -o '"step":[0-9]*\|"world_size":[0-9]*\|"state":"[a-z]*"' | sed 's/.*://; s/"//g' | paste -sd '::\n' | xargs)"
check_match "and a table for a person" "^ +20 +[0-9]+s +185 KiB +2 complete +$step$" "$(ckpt ls "$two/checkpoints")"
check_status "a directory without checkpoints has none" 0 ckpt ls --json "$WORK"
check_eq "which is an empty list" "[]" "$(cat "$WORK/out")"
check_status "no directory: the status of a missing input" 66 ckpt ls "$WORK/nothing"
check_match "and a line that names it" "nothing is no directory" "$(cat "$WORK/err")"
check_match "show has the state" '"step":20,"world_size":2,"generation":0,"seed":1234,"cursor":240,"optimizer_step":20' "$(ckpt show --json "$two")"
check_match "and each tensor with its shards" '"name":"tok_embeddings.weight","dtype":"F32","shape":\[256,14\],"bytes":14336,"shards":\[\{"file":"shard-00001-[^"]*","offsets":\[0,0\],"sizes":\[128,14\],"begin":[0-9]*,"end":[0-9]*\},\{"file":"shard-00002' "$(ckpt show --json "$step")"
check_match "and a table" "^tok_embeddings.weight +F32 +256 x 14 +2 14.0 KiB" "$(ckpt show "$step")"

# verify
check_status "all checkpoints of a run are sound" 0 ckpt verify "$two"
check_eq "which is said of each" 3 "$(grep -c ': sound: step' "$WORK/out")"
cp -r "$step" "$WORK/step-00000020"
bad=$WORK/step-00000020
begin=$(ckpt show --json "$bad" | grep -o '"name":"norm.weight".*' | grep -o '"begin":[0-9]*' | sed -n 2p | tr -dc 0-9)
printf '\x5a' | dd of="$bad/$SECOND" bs=1 seek="$begin" conv=notrunc 2> /dev/null
check_status "a changed byte is found" 1 ckpt verify --json "$bad"
check_match "and named by file, tensor and bytes" "\"damage\":\[\{\"file\":\"$SECOND\",\"tensor\":\"norm.weight\",\"begin\":$begin,\"end\":$((begin + 28)),\"in_tensor\":0,\"reason\":\"a checksum does not hold\"\}\]" "$(cat "$WORK/out")"
check_match "ls --verify says so too" "damaged" "$(ckpt ls --verify "$WORK")"
rm "$bad/manifest.json"
check_status "a checkpoint without its manifest is damaged" 1 ckpt verify "$bad"
check_match "ls calls it broken" "broken" "$(ckpt ls "$WORK")"
check_status "what is no checkpoint cannot be verified" 66 ckpt verify "$WORK/job.yaml"
mv "$two/checkpoints/step-00000010" "$two/checkpoints/step-00000011"
check_status "a renamed checkpoint is damaged" 1 ckpt verify "$two/checkpoints/step-00000011"
mv "$two/checkpoints/step-00000011" "$two/checkpoints/step-00000010"

# diff
check_status "a checkpoint is equal to itself" 0 ckpt diff --json "$two" "$step"
check_eq "in all tensors" '{"equal":true,"n_equal":87,"state":[],"tensors":[]}' "$(cat "$WORK/out")"
check_status "other worlds give other bits" 1 ckpt diff --json "$two/checkpoints/step-00000010" "$three"
check "which are as close as the losses are" awk -v RS='"max_abs":' 'NR > 1 && $0 + 0 > 1e-5 { bad = 1 } END { exit bad || NR < 40 }' "$WORK/out"
check_status "other steps differ in their state" 1 ckpt diff "$two/checkpoints/step-00000010" "$step"
check_match "which is named" "step: 10 in A, 20 in B" "$(cat "$WORK/out")"

# usage
check_status "an unknown command is bad usage" 2 ckpt lst "$two"
check_match "and the one that is meant is named" "did you mean ckpt ls" "$(cat "$WORK/err")"
check_status "no command: the page, and bad usage" 2 ckpt
check_status "help has it too" 0 "$BIN/fsdprun" help ckpt

# export
run_job "$WORK/export.log" "$WORK/job.yaml" --set run.name=exported --set train.steps=4 --set checkpoint.export=huggingface
check_status "a checkpoint is exported" 0 ckpt export "$WORK/runs/exported" "$WORK/export"
check "as the job itself exports it, to the byte" diff -r "$WORK/runs/exported/export/step-00000004" "$WORK/export"
check_status "in several files" 0 ckpt export --max-size 20K "$two" "$WORK/parts"
check_match "which have an index" "model-00001-of-00003.safetensors" "$(cat "$WORK/parts/model.safetensors.index.json")"
check_match "and the tensors of the checkpoint" "^29 tensors are equal, 58 differ" "$(ckpt diff "$two" "$WORK/parts/model.safetensors.index.json")"
check_status "what is there is not replaced" 2 ckpt export "$two" "$WORK/parts"
check_status "a damaged checkpoint is not exported" 66 ckpt export "$bad" "$WORK/never"
gpt2=(--set model.kind=gpt2 --set model.vocab=300 --set model.seq=16 --set model.dim=14 --set model.heads=2)
run_job "$WORK/gpt2.log" "$WORK/job.yaml" "${gpt2[@]}" --set run.name=gpt2 --set train.steps=2
check_status "a gpt2 is exported" 0 ckpt export --max-size 20K "$WORK/runs/gpt2" "$WORK/gpt2"
check_match "with the names of transformers" '"transformer.wte.weight": "model-00001' "$(cat "$WORK/gpt2/model.safetensors.index.json")"
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  check_status "safetensors reads it, and the index is true" 0 "$FSDP_TEST_PYTHON" - "$WORK/gpt2" << 'END'
import json, os, sys
from safetensors import safe_open
folder = sys.argv[1]
index = json.load(open(os.path.join(folder, "model.safetensors.index.json")))
total = 0
for name, file in index["weight_map"].items():
    with safe_open(os.path.join(folder, file), "pt") as opened:
        assert opened.metadata()["format"] == "pt"
        tensor = opened.get_tensor(name)
        total += tensor.numel() * tensor.element_size()
assert total == index["metadata"]["total_size"] > 0
END
  if "$FSDP_TEST_PYTHON" -c 'import transformers' 2> /dev/null; then
    check_status "transformers opens it, with all weights" 0 "$FSDP_TEST_PYTHON" - "$WORK/gpt2" << 'END'
import sys
from transformers import GPT2LMHeadModel
model, info = GPT2LMHeadModel.from_pretrained(sys.argv[1], output_loading_info=True)
assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
END
  else skip "transformers opens an export" "transformers is not installed"; fi
else skip "an export in Python" "FSDP_TEST_PYTHON is not set"; fi

# import
begun=(--set train.steps=4 --set checkpoint.every=0)
run_job "$WORK/weights.log" "$WORK/job.yaml" "${begun[@]}" --set run.name=weights --set "model.weights=$step"
check_status "weights become a checkpoint" 0 ckpt import --job "$WORK/job.yaml" "$WORK/parts" "$WORK/runs/imported"
check_match "whose optimizer begins at zero" "^58 states of the optimizer begin at zero" "$(cat "$WORK/out")"
check_status "a run goes on from it" 0 run_job "$WORK/imported.log" "$WORK/job.yaml" "${begun[@]}" --set run.name=imported
check_match "which it says" "resuming after step 0" "$(cat "$WORK/imported.log")"
check_eq "with the figures of a run that began with these weights" "$(figures "$WORK/runs/weights")" "$(figures "$WORK/runs/imported")"
check_status "a checkpoint with its optimizer is taken too" 0 ckpt import --job "$WORK/job.yaml" --step 20 --ranks 3 "$step" "$WORK/runs/moved"
check_status "with every bit" 0 ckpt diff "$step" "$WORK/runs/moved"
check_status "and it is sound" 0 ckpt verify "$WORK/runs/moved"
mkdir -p "$WORK/hub/blobs" "$WORK/hub/snapshots/4f2a"
cp "$WORK/export/model.safetensors" "$WORK/hub/blobs/5c1d"
ln -s ../../blobs/5c1d "$WORK/hub/snapshots/4f2a/model.safetensors"
check_status "links of a Hugging Face cache are followed" 0 ckpt import "$WORK/hub/snapshots/4f2a" "$WORK/runs/hub"
check_status "a step that is there is not replaced" 2 ckpt import "$WORK/hub/snapshots/4f2a" "$WORK/runs/hub"
check_status "nor is anything imported into a run that a live job holds" 78 flock "$two/lock" "$BIN/fsdprun" ckpt import --step 1 "$WORK/export" "$two"
check_status "a job that cannot be used is refused as such" 78 ckpt import --job "$WORK/export/config.json" "$WORK/export" "$WORK/runs/never"
check_status "no source: the status of a missing input" 66 ckpt import "$WORK/nothing" "$WORK/runs/never"
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  "$FSDP_TEST_PYTHON" - "$WORK" "$WORK/export/model.safetensors" << 'END'
import sys, torch
from safetensors.torch import load_file, save_file
half = {name: tensor.half() for name, tensor in load_file(sys.argv[2]).items()}
save_file(half, sys.argv[1] + "/half.safetensors")
save_file({name: tensor.float() for name, tensor in half.items()}, sys.argv[1] + "/half32.safetensors")
END
  check_status "float16 weights are imported" 0 ckpt import "$WORK/half.safetensors" "$WORK/runs/half"
  check_status "as PyTorch converts them, to the bit" 0 ckpt diff "$WORK/runs/half" "$WORK/half32.safetensors"
  check_status "PyTorch saves model and optimizer as .distcp" 0 env PATH="$(dirname "$FSDP_TEST_PYTHON"):$PATH" \
    "$BIN/fsdprun" --nproc-per-node 3 tests/support/workers/save_distcp.py "$step" "$WORK/distcp" 20
  check_match "whose tensors show lists" "^optim.state.norm.weight.exp_avg +F32 +14 +3 " "$(ckpt show "$WORK/distcp")"
  check_status "a checkpoint is made of it" 0 ckpt import --job "$WORK/job.yaml" --step 20 "$WORK/distcp" "$WORK/runs/distcp"
  check_eq "with weights and optimizer" "imported 29 weights and 58 states" "$(grep -o 'imported .* states' "$WORK/out")"
  check_status "to the bit, and with the same state" 0 ckpt diff "$step" "$WORK/runs/distcp"
  cp -r "$two" "$WORK/runs/on"
  run_job "$WORK/on.log" "$WORK/job.yaml" --set run.name=on --set train.steps=24
  run_job "$WORK/distcp.log" "$WORK/job.yaml" --set run.name=distcp --set train.steps=24
  check_eq "a run goes on from it as from the original" "$(figures "$WORK/runs/on" | awk '$1 > 20')" "$(figures "$WORK/runs/distcp")"
else skip "float16 and .distcp of PyTorch" "FSDP_TEST_PYTHON is not set"; fi
mkdir "$WORK/evil"
printf '\x80\x02cos\nsystem\nX\x05\x00\x00\x00false\x85R.' > "$WORK/evil/.metadata"
check_status "a pickle that calls anything is refused" 66 ckpt show "$WORK/evil"
check_match "and what it calls is named" "it names os.system, which is no part of a checkpoint" "$(cat "$WORK/err")"


# prune
check_status "a number is needed" 2 ckpt prune --keep 0 "$two"
check_status "a run that a live job holds is refused" 78 flock "$two/lock" "$BIN/fsdprun" ckpt prune --keep 1 "$two"
check_eq "and nothing is removed" 3 "$(ckpt ls --json "$two" | grep -o '"state"' | wc -l)"
check_status "old checkpoints are removed" 0 ckpt prune --json --keep 2 "$two"
check_eq "which are named" '{"removed":[10],"kept":[15,20]}' "$(cat "$WORK/out")"
printf '\x5a' | dd of="$step/$SECOND" bs=1 seek="$begin" conv=notrunc 2> /dev/null
check_status "where the newest is damaged" 0 ckpt prune --json --keep 1 "$two"
check_eq "the newest sound one stays" '{"removed":[],"kept":[15,20]}' "$(cat "$WORK/out")"
mv "$two/checkpoints/step-00000015" "$WORK/away"
check_status "where none is sound nothing is removed" 66 ckpt prune --keep 1 "$two"
check_match "which is said" "no checkpoint in .* is sound" "$(cat "$WORK/err")"
mv "$WORK/away" "$two/checkpoints/step-00000015"

# verify --watch: the background scrub
mkdir "$WORK/runs/watched"
"$BIN/fsdprun" ckpt verify --watch --json "$WORK/runs/watched" > "$WORK/watched" 2> "$WORK/watched.err" & watcher=$!
at_exit() { kill -KILL "$watcher" 2> /dev/null; }
said() { grep -c "\"state\":\"$1\"" "$WORK/watched"; }
has_said() { [ "$(said "$1")" = "$2" ]; }
sleeps() { [ "$(awk '{ print $3 }' "/proc/$watcher/stat")" = S ]; }
check "a run that has no checkpoint yet is waited for" wait_until 20 sleeps
check_eq "at the lowest priority" 19 "$(awk '{ print $19 }' "/proc/$watcher/stat")"
run_job "$WORK/watched.log" "$WORK/job.yaml" --set run.name=watched --set train.steps=10 --set checkpoint.keep=0
check "each checkpoint is verified once it is published" wait_until 20 has_said sound 2
cp -r "$WORK/runs/watched/checkpoints/step-00000005" "$WORK/step-00000007"
printf '\x5a' | dd of="$WORK/step-00000007/$SECOND" bs=1 seek="$begin" conv=notrunc 2> /dev/null
mv "$WORK/step-00000007" "$WORK/runs/watched/checkpoints"
check "and damage is named" wait_until 20 has_said damaged 1
check_match "by file and tensor" "\"file\":\"$SECOND\",\"tensor\":\"norm.weight\"" "$(grep damaged "$WORK/watched")"
# poll() has the time -1, and ppoll(), which some machines have in its place, no address of one
waits_for_ever() { awk '{ exit !($4 == "0x0" || $4 ~ /^0xf+$/) }' "/proc/$watcher/syscall"; }
if [ -r "/proc/$watcher/syscall" ] && grep -q . "/proc/$watcher/syscall" 2> /dev/null; then
  check "then it waits without a deadline" wait_until 20 waits_for_ever
else skip "it waits without a deadline" "the kernel does not show the system call of a process"; fi
rm -rf "$WORK/runs/watched"
wait "$watcher"
check_eq "it ends with the run, and its status is that damage was found" 1 $?
check_eq "nothing was read twice" "2 1" "$(said sound) $(said damaged)"
