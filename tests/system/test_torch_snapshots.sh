# PyTorch's distributed checkpoints in FSDPRUN_SNAPSHOT_DIR, by the lines that docs/operations.md shows: a rank of
# two nodes is killed, and the program goes on from memory to the end of an undisturbed run.
# Nightly: torch
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/conformance/torch.sh
at_exit() { kill_agents; }
cd "$WORK" || exit 1
awk '/^## / { here = /Snapshots of PyTorch/ } /^```python/ { on = here; next } /^```/ { on = 0 } on' "$SOURCE/docs/operations.md" > train.py
check "the page has a program" grep -q 'FSDPRUN_SNAPSHOT_DIR' train.py
cat >> train.py << 'PY'

def main():
    import sys, time
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = torch.nn.Linear(8, 8)
    fsdp = torch.distributed.fsdp.fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    state = {"app": App(model, optimizer)}
    first = load(state)
    generation, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_rank()
    print(f"generation {generation} rank {rank} begins after step {first}", flush=True)
    for step in range(first + 1, 11):
        torch.manual_seed(step)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        save(state, step)
        if step == 6 and generation == 0 and rank == 1 and sys.argv[1] == "killed":
            os.kill(os.getpid(), 9)
    print(f"rank {rank} ends with {float(model.weight.full_tensor().double().sum()):.17g}", flush=True)

class App(torch.distributed.checkpoint.stateful.Stateful):
    def __init__(self, model, optimizer):
        self.of = model, optimizer
    def state_dict(self):
        return dict(zip("mo", torch.distributed.checkpoint.state_dict.get_state_dict(*self.of)))
    def load_state_dict(self, state):
        torch.distributed.checkpoint.state_dict.set_state_dict(*self.of, model_state_dict=state["m"], optim_state_dict=state["o"])

import torch.distributed.checkpoint.state_dict, torch.distributed.checkpoint.stateful, torch.distributed.fsdp
main()
PY
for way in calm killed; do
  port=$(port_block)
  for n in 0 1; do
    begin $way$n timeout -k 5 200 "$BIN/fsdprun" --nnodes 2 --node-rank $n --rdzv-endpoint 127.0.0.1:$port --insecure \
      --max-restarts 1 --no-python "$PYTHON" train.py $way
  done
  ended ${way}0 ${way}1
  check_eq "$way: both nodes end with 0" "0 0" "$(rcs ${way}0 ${way}1)" || tail -n 30 $way?.out >&2
done
ends() { sed -n 's/.*\(rank [01] ends with .*\)/\1/p' "$1"0.out "$1"1.out | sort; }
check_eq "two ranks end" 2 "$(ends calm | wc -l)"
check_eq "a killed rank costs no bit of the result" "$(ends calm)" "$(ends killed)"
check_match "the second generation begins after the last step that both nodes had" "generation 1 rank 0 begins after step [56]$" \
  "$(grep -h 'generation 1 rank 0' killed0.out)"
