# model.kind: gpt2 from a job file: trained, exported for other programs, loaded again by their names, written
# text with.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
PARITY=$SOURCE/tests/parity
tiny_job "$WORK/job.yaml"
gpt2=(--set model.kind=gpt2 --set train.steps=3)
job=("$WORK/job.yaml" "${gpt2[@]}" --set train.steps=2 --set checkpoint.every=0)

check_status "a gpt2 trains and is exported" 0 run_job "$WORK/made.log" "$WORK/job.yaml" "${gpt2[@]}" --set run.name=made --set checkpoint.export=huggingface
made=$WORK/runs/made
export=$made/export/step-00000003
check_match "which is said" "exported to .*/export/step-00000003" "$(cat "$WORK/made.log")"
check_eq "config.json and one file of weights, nothing else" "config.json model.safetensors" "$(ls -A "$export" | tr '\n' ' ' | sed 's/ $//')"
check_match "config.json is a GPT2Config" \
  '"model_type": "gpt2".*"n_embd": 14.*"n_layer": 2.*"activation_function": "gelu_new"' \
  "$(tr -d '\n' < "$export/config.json")"
check "config.json is JSON" "$TOY/json_check" "$export/config.json"
check_eq "nothing hidden is left next to it" "step-00000003" "$(ls -A "$made/export")"

# From the checkpoint and from its export, at different world sizes, the figures are the same.
check_status "a run begins with the checkpoint's weights" 0 run_job "$WORK/a.log" "${job[@]}" --set \
  run.name=a --set "model.weights=$made/checkpoints/step-00000003"
check_status "and one with the export's" 0 run_job "$WORK/b.log" "${job[@]}" --set run.name=b --set "model.weights=$export"
check_eq "they are the same to the bit" "$(figures "$WORK/runs/a")" "$(figures "$WORK/runs/b")"
check_status "one with the file alone, on 3 ranks" 0 run_job "$WORK/c.log" "${job[@]}" --set run.name=c \
  --set "model.weights=$export/model.safetensors" --nproc-per-node 3
check "is as near as another world size may be" close_figures "$WORK/runs/a" "$WORK/runs/c" 1 2e-6

cp "$export/model.safetensors" "$WORK/first.safetensors"
check_status "a complete run is left alone" 0 run_job "$WORK/again.log" "$WORK/job.yaml" "${gpt2[@]}" --set run.name=made --set checkpoint.export=huggingface
check "and its export" cmp "$WORK/first.safetensors" "$export/model.safetensors"
rm -r "$made/export"
mkdir -p "$made/export/.step-00000003" && echo old > "$made/export/.step-00000003/config.json"
check_status "one without its export makes it, past what an attempt has left" 0 run_job "$WORK/again.log" \
  "$WORK/job.yaml" "${gpt2[@]}" --set run.name=made --set checkpoint.export=huggingface
check "to the byte" cmp "$WORK/first.safetensors" "$export/model.safetensors"
rm -r "$made/export" && echo no > "$made/export"
check_status "where it cannot be written the run fails as an I/O error" 74 "$BIN/fsdprun" "$WORK/job.yaml" \
  "${gpt2[@]}" --set run.name=made --set checkpoint.export=huggingface --max-restarts 0
check_match "that says what was done" 'exporting the model' "$(cat "$WORK/out" "$WORK/err")"

check_status "text is written with it" 0 "$BIN/fsdp-train" --sample "$made" --prompt "In the beginning" --tokens 5 --temperature 0
check_match "that begins as told" '^In the beginning' "$(cat "$WORK/out")"

check_status "the tutorial's transformer can be exported too" 0 run_job "$WORK/own.log" "$WORK/job.yaml" \
  --set train.steps=1 --set run.name=own --set checkpoint.export=huggingface
check_match "under a name of its own" '"model_type": "fsdprun-transformer"' "$(cat "$WORK/runs/own/export/step-00000001/config.json")"

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  "$FSDP_TEST_PYTHON" - "$PARITY" "$WORK/first.safetensors" "$WORK/bare.safetensors" > "$WORK/torch.out" << 'END'
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import torch, torch.nn.functional as F
import reference
from safetensors.torch import load_file, save_file
case = {**reference.COMMON, **reference.SHAPES["gpt2"], "model.dim": 14, "model.seq": 16}
state = {name.removeprefix("transformer."): tensor for name, tensor in load_file(sys.argv[2]).items()}
model = reference.Gpt2(case).double()
model.load_state_dict(state)
tokens, targets = next(iter(reference.batches(case)))
print("%.8f" % F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).item())
# As the first releases of the model had it: no prefix, the masks in addition, and the head once more.
state["lm_head.weight"] = state["wte.weight"].clone()
for i in range(2):
    state[f"h.{i}.attn.bias"] = torch.ones(16, 16).tril().view(1, 1, 16, 16)
    state[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
save_file(state, sys.argv[3])
END
  check_eq "PyTorch loads the export" 0 $?
  check "and has the loss of the run that began with it" awk -v a="$(cat "$WORK/torch.out")" -v b="$(figures "$WORK/runs/b" | awk 'NR == 1 { print $2 }')" \
    'BEGIN { d = a - b; exit !(a > 1 && d < 1e-5 && d > -1e-5) }'
  check_status "a file without prefix, with masks and head" 0 run_job "$WORK/bare.log" "${job[@]}" --set \
    run.name=bare --set "model.weights=$WORK/bare.safetensors"
  check_eq "is the same model" "$(figures "$WORK/runs/a")" "$(figures "$WORK/runs/bare")"
else
  skip "PyTorch loads the export" "FSDP_TEST_PYTHON is not set"
fi
