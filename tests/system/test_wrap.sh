# python -m fsdprun.wrap: a Python program that calls PyTorch's launcher in its own process starts fsdprun. With
# FSDP_TEST_PYTHON the launcher is PyTorch's, else a stand-in with a parser of the same kind.
. tests/support/shell/harness.sh
python=${FSDP_TEST_PYTHON:-python3}
command -v "$python" > /dev/null || { skip "fsdprun.wrap" "there is no Python"; exit 0; }
export PYTHONPATH=$SOURCE/launcher/python PYTHONDONTWRITEBYTECODE=1 PATH=$BIN:$PATH
if [ -z "${FSDP_TEST_PYTHON:-}" ]; then
  mkdir -p "$WORK/standin/torch/distributed"
  touch "$WORK/standin/torch/__init__.py" "$WORK/standin/torch/distributed/__init__.py"
  cat > "$WORK/standin/torch/distributed/run.py" << 'END'
import argparse
import os


class Env(argparse.Action):
    def __init__(self, dest, default=None, **kwargs):
        super().__init__(dest=dest, default=os.environ.get("PET_" + dest.upper(), default), **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)


def get_args_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc-per-node", "--nproc_per_node", action=Env, default="1")
    parser.add_argument("--max-restarts", "--max_restarts", action=Env, type=int, default=0)
    parser.add_argument("--role", action=Env, default="default")
    parser.add_argument("--logs-specs", "--logs_specs", default=None)
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("--no-python", "--no_python", action="store_true")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def run(args):
    raise AssertionError("PyTorch's launcher was called")


def main(args=None):
    run(args)


if __name__ == "__main__":
    main()
END
  PYTHONPATH=$PYTHONPATH:$WORK/standin
fi
cat > "$WORK/caller.py" << 'END'
import json
import sys

import torch.distributed.run as launcher

fields, words = json.loads(sys.argv[1]), sys.argv[2:]
args = launcher.get_args_parser().parse_args(words)
for name, value in fields.items():
    setattr(args, name, value)
launcher.run(args)
print("the caller goes on", flush=True)
END
cat > "$WORK/worker.py" << 'END'
import os
import signal
import sys

if "wait" in sys.argv:
    open(sys.argv[2] + os.environ["RANK"], "w").close()
    signal.pause()
if "die" in sys.argv and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
words = [os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["ROLE_NAME"], sys.executable, *sys.argv[1:]]
# One write: ranks share their output, and with python -u each argument is a write.
print(" ".join(words) + "\n", end="")
END
wrap() { timeout 60 "$python" -m fsdprun.wrap "$@"; }
call() { wrap "$WORK/caller.py" "$@"; }
executable=$("$python" -c 'import sys; print(sys.executable)')
want=$(printf '0 2 trainer %s --lr 1\n1 2 trainer %s --lr 1\n' "$executable" "$executable")

check_status "run(Namespace) starts fsdprun" 0 call '{"nproc_per_node": 2, "role": "trainer"}' "$WORK/worker.py" --lr 1
check_eq "... with the fields, in the Python of the caller" "$want" "$(grep -v caller "$WORK/out" | sort)"
check_match "... and the caller goes on after it" "the caller goes on" "$(cat "$WORK/out")"
PET_ROLE=other PET_NPROC_PER_NODE=3 check_status "a field wins over its variable" 0 call '{"nproc_per_node": "1", "role": "default"}' "$WORK/worker.py"
check_match "... also where it has the default" "^0 1 default " "$(cat "$WORK/out")"
check_status "main(words) of python -m torch.distributed.run" 0 wrap python -m torch.distributed.run --nproc-per-node 2 --role trainer "$WORK/worker.py" --lr 1
check_eq "... has the words" "$want" "$(sort "$WORK/out")"
check_status "use_env=False" 0 call '{"use_env": false}' "$WORK/worker.py" x
check_match "... gives the program its local rank, as torch.distributed.launch" " --local-rank=0 x$" "$(cat "$WORK/out")"

check_status "a rank is killed: the status is fsdprun's" 137 call '{"nproc_per_node": 2}' "$WORK/worker.py" die
check_match "... and the line names the rank" "rank 1 .*SIGKILL" "$(cat "$WORK/err")"
check_eq "... and the caller does not go on" "" "$(grep caller "$WORK/out")"
check_status "an unknown field is refused" 2 call '{"colour": 1}' "$WORK/worker.py"
check_eq "... by its name" "fsdprun.wrap: torchrun has no field colour" "$(cat "$WORK/err")"
check_status "a field that fsdprun refuses" 2 call '{"logs_specs": "mine"}' "$WORK/worker.py"
check_match "... by its name too" "logs-specs" "$(cat "$WORK/err")"
check_status "a value that is no word" 2 call '{"role": {}}' "$WORK/worker.py"
check_eq "... is refused" "fsdprun.wrap: field role: a value of type dict" "$(cat "$WORK/err")"
check_status "a command of no package" 127 wrap no-such-command
check_status "no command" 2 wrap
mkdir "$WORK/none" && echo 'raise ImportError("not here")' > "$WORK/none/torch.py"
PYTHONPATH=$WORK/none:$SOURCE/launcher/python check_status "a Python without PyTorch" 1 wrap "$WORK/caller.py"
check_match "... is one line" "^fsdprun.wrap: .* has no PyTorch: not here$" "$(cat "$WORK/err")"

"$python" -m fsdprun.wrap "$WORK/caller.py" '{"nproc_per_node": 2}' "$WORK/worker.py" wait "$WORK/up." > "$WORK/out" 2> "$WORK/err" &
wrapped=$!
is_up() { [ -e "$WORK/up.0" ] && [ -e "$WORK/up.1" ]; }
check "two ranks wait" wait_until 30 is_up
kill -TERM $wrapped
wait $wrapped
check_eq "SIGTERM reaches fsdprun, and the status is as of fsdprun" 143 $?
check_eq "no rank is left" "" "$(pgrep -f "$WORK/worker.py")"
