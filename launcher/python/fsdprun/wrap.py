"""Runs a Python command whose use of PyTorch's launcher becomes a use of fsdprun.

    python -m fsdprun.wrap accelerate launch --num_processes 2 train.py
    python -m fsdprun.wrap fabric run train.py
    python -m fsdprun.wrap python -m torch.distributed.run --nproc-per-node 2 train.py

Such commands call torch.distributed.run.run(Namespace) or .main(words) in their own process. In this process,
and only here, both start fsdprun with the same arguments, as torchrun. Its failing status is the process's.
"""

import os
import runpy
import shutil
import signal
import sys
import sysconfig
import threading
from importlib import metadata

RELAYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
USAGE = "usage: python -m fsdprun.wrap COMMAND [WORD...], or python -m MODULE, or FILE.py in place of COMMAND"
TORCHRUN = "torch.distributed.run"


class Refused(Exception):
    """What is asked for has no counterpart in fsdprun."""


def fail(status, words):
    print("fsdprun.wrap: " + words, file=sys.stderr)
    raise SystemExit(status)


def installed_with_this():
    """The programs that pip has installed with this file; with --user or --prefix in a folder of their own."""
    try:
        files = metadata.files("fsdprun") or []
    except metadata.PackageNotFoundError:
        files = []
    return [str(file.locate()) for file in files if file.name == "fsdprun"]


def find_fsdprun():
    beside = os.path.join(sysconfig.get_path("scripts"), "fsdprun")
    found = (path for path in [*installed_with_this(), beside] if os.access(path, os.X_OK))
    path = next(found, None) or shutil.which("fsdprun")
    return path or fail(127, "there is no fsdprun in %s, and none on PATH" % os.path.dirname(beside))


def is_from_terminal(number):
    """fsdprun is in our process group, so it has the signals of the terminal's keys already."""
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def start(words, left_out=()):
    """Start fsdprun as torchrun with `words`, and wait for it. Ends this process if the status is not 0.

    left_out: variables that fsdprun must not get
    """
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment.setdefault("PYTHON_EXEC", sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    child = 0

    def relay(number, _frame):
        if not is_from_terminal(number):
            os.kill(child, number)

    # None is lost: they are blocked until there is a process to relay them to.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)
    handlers = {}
    try:
        ignored = [number for number in RELAYED if signal.getsignal(number) == signal.SIG_IGN]
        child = os.posix_spawn(find_fsdprun(), ["torchrun", *words], environment, setsigmask=mask,
                               setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])  # Python ignores these two
        if threading.current_thread() is threading.main_thread():  # no other may set them
            handlers = {number: signal.signal(number, relay) for number in RELAYED if number not in ignored}
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # The process stays until its status is taken, so a relayed signal never meets another one.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    status = os.waitpid(child, 0)[1]
    status = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    if status != 0:
        raise SystemExit(status)


def parser_without_variables():
    """torchrun's parser takes defaults from PET_*; these say nothing about what a Namespace means."""
    import torch.distributed.run

    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PET_")}
    try:
        return torch.distributed.run.get_args_parser()
    finally:
        os.environ.update(kept)


def option_words(action, value):
    option = next(name for name in action.option_strings if name.startswith("--"))
    if action.nargs == 0:
        return [option] if value else []
    if isinstance(value, (list, tuple)):
        value = ",".join(str(item) for item in value)
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise Refused("field %s: a value of type %s" % (action.dest, type(value).__name__))
    return ["%s=%s" % (option, value)]


def words_of(fields, parser):
    """The command line of a Namespace: each field that differs from the default of `parser`."""
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}
    fields = dict(fields)
    words = []
    # torch.distributed.launch: without use_env the program gets its local rank as an argument.
    local_rank = [] if fields.pop("use_env", True) else ["--local-rank=${local_rank}"]
    unknown = sorted(name for name in fields if name not in actions)
    if unknown:
        raise Refused("torchrun has no field " + ", ".join(unknown))
    if fields.get("training_script") is None:
        raise Refused("the field training_script is missing")
    for name, value in fields.items():
        action = actions[name]
        # A number and its digits are the same: accelerate has both.
        if action.option_strings and value is not None and str(value) != str(action.default):
            words += option_words(action, value)
    return [*words, "--", str(fields["training_script"]), *local_rank,
            *(str(word) for word in fields.get("training_script_args") or [])]


def run(args):
    """In place of torch.distributed.run.run."""
    fields = vars(args)
    try:
        words = words_of(fields, parser_without_variables())
    except Refused as refused:
        fail(2, str(refused))
    start(words, left_out={"PET_" + name.upper() for name in fields})


def main(args=None):
    """In place of torch.distributed.run.main."""
    start(sys.argv[1:] if args is None else list(args))


def replace():
    try:
        import torch.distributed.run as launcher
    except ImportError as error:
        fail(1, "%s has no PyTorch: %s" % (sys.executable, error))
    launcher.run = run
    launcher.main = main


def run_module(name, words):
    sys.argv = [name, *words]  # runpy puts the file's name in the place of the first
    if name == TORCHRUN:  # as __main__ it would define the two again
        main()
        return 0
    replace()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


def run_file(path, words):
    sys.argv = [path, *words]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    replace()
    runpy.run_path(path, run_name="__main__")
    return 0


def console_script(name):
    """The entry point of an installed command; None: there is none."""
    found = metadata.entry_points()
    scripts = found.select(group="console_scripts") if hasattr(found, "select") else found["console_scripts"]
    return next((script for script in scripts if script.name == name), None)


def run_words(words):
    if words and os.path.basename(words[0]).startswith("python"):
        words = words[1:]
    if not words:
        fail(2, USAGE)
    if words[0] in ("-m", "--module"):
        return run_module(words[1], words[2:]) if len(words) > 1 else fail(2, USAGE)
    if words[0].endswith(".py"):
        return run_file(words[0], words[1:])
    if words[0].startswith("-"):
        fail(2, USAGE)
    script = console_script(os.path.basename(words[0]))
    if script is None:
        fail(127, "%s is no command of a package of %s" % (words[0], sys.executable))
    sys.argv = [shutil.which(words[0], path=sysconfig.get_path("scripts")) or words[0], *words[1:]]
    replace()
    return script.load()()


if __name__ == "__main__":
    sys.exit(run_words(sys.argv[1:]))
