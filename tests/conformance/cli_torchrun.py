"""
The same command lines to torchrun's own parser and to fsdprun, side by side. usage: cli_torchrun.py FSDPRUN DOC

torchrun's side is torch.distributed.run.run() itself, up to where it would launch; ours is --dry-run of a link of the
name torchrun. Command lines are those of lists below, and every option of torchrun's parser in every spelling and cut
at every length. Where the two differ on purpose, the case names a line of DOC (docs/torchrun-differences.md): a
difference without such a line fails, and so does a line without its difference.
"""
import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile

import torch.distributed.run as torchrun
from torch.distributed.elastic.multiprocessing.api import to_map
from torch.distributed.elastic.utils import macros

FSDPRUN, DOC = sys.argv[1], sys.argv[2]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "FSDPRUN_", "SLURM_", "OMPI_", "PMI"))}
CLEAN["PYTHON_EXEC"] = "python3"  # so that the two name the same interpreter
logging.disable(logging.CRITICAL)
n_failed = 0
marks_seen = set()


class Captured(Exception):
    pass


def capture(config, entrypoint):
    def launch(*args):
        error = Captured()
        error.config, error.command = config, [entrypoint, *args]
        raise error

    return launch


torchrun.elastic_launch = capture


def streams(spec, n):
    return [int(v) for _, v in sorted(to_map(spec, n).items())]


def theirs(argv, env):
    """What torchrun makes of it: a dictionary, or None where it refuses."""
    os.environ.clear()
    os.environ.update({**CLEAN, **env})
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            args = torchrun.parse_args(argv)
            torchrun.run(args)
    except Captured as captured:
        config, command = captured.config, captured.command
    except SystemExit as end:
        return None if end.code else {"page": True}
    except Exception:
        return None
    n = config.nproc_per_node
    specs = config.logs_specs
    conf = config.rdzv_configs
    out = {
        "command": [c if isinstance(c, str) else "run_path" for c in command],
        "nproc_per_node": n,
        "min_nodes": config.min_nodes,
        "max_nodes": config.max_nodes,
        "max_restarts": config.max_restarts,
        "shutdown_timeout_s": 30 if config.shutdown_timeout is None else config.shutdown_timeout,
        "signals_to_handle": sorted(s.strip() for s in config.signals_to_handle.split(",")),
        "role": config.role,
        "virtual_local_rank": config.virtual_local_rank,
        "numa_binding": config.numa_options.affinity_mode.value if config.numa_options else None,
        "local_addr": config.local_addr,
        "log_dir": args.log_dir,
        "redirects": streams(specs._redirects, n),
        "tee": streams(specs._tee, n),
        "shown_local_ranks": [r for r in range(n) if not specs._local_ranks_filter or r in specs._local_ranks_filter],
        "duplicate_stdout_filters": config.duplicate_stdout_filters or [],
        "duplicate_stderr_filters": config.duplicate_stderr_filters or [],
        "log_line_prefix_template": config.log_line_prefix_template or "[${role_name}${local_rank}]:",
    }
    if config.rdzv_backend == "static":
        out["node_rank"] = conf["rank"]
    if config.max_nodes > 1:
        out["rdzv_id"] = config.run_id
        host, _, port = config.rdzv_endpoint.rpartition(":") if ":" in config.rdzv_endpoint else (
            config.rdzv_endpoint, "", "29400")
        out["rdzv_host"], out["rdzv_port"] = host.strip("[]"), int(port)
        for key in ("join_timeout", "last_call_timeout"):
            if conf.get(key, "").isdigit():
                out[key + "_s"] = int(conf[key])
    return out


def ours(link, argv, env):
    done = subprocess.run([link, "--dry-run", "--insecure", *argv], env={**CLEAN, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="surrogateescape")
    if done.returncode != 0:
        one_line = done.stderr.count("\n") == 1 and done.stderr.startswith("torchrun: ")
        return None, done.returncode == 2 and one_line, done.stderr
    if done.stdout.startswith("Usage: torchrun "):
        return {"page": True}, True, done.stderr
    out = {}
    for line in done.stdout.splitlines():
        key, _, rest = line.partition(": ")
        if line.startswith("#") or not rest:
            continue
        out[key] = json.loads(rest if key == "command" else rest.rpartition(" # ")[0])
    out["signals_to_handle"].sort()
    return out, True, done.stderr


def report(good, name, *lines):
    global n_failed
    print(("ok - " if good else "not ok - ") + name)
    if not good:
        n_failed += 1
        for line in lines:
            print("#", line)


def compare(link, argv, env, mark):
    """None where all is well, else what is not. A mark says that they differ, and that DOC says so."""
    want = theirs(argv, env)
    got, well_refused, words = ours(link, argv, env)
    if not well_refused:
        return f"refused other than with 2 and one line: {words!r}"
    if want is None or got is None or "page" in want or "page" in got:
        differs = (want is None) != (got is None) or (want is not None and ("page" in want) != ("page" in got))
        detail = f"theirs {'refuses' if want is None else 'takes it'}, ours {'refuses: ' + words if got is None else 'takes it'}"
    else:
        fields = [k for k in want if want[k] != got.get(k)]
        differs = bool(fields)
        detail = "; ".join(f"{k}: theirs {want[k]!r}, ours {got.get(k)!r}" for k in fields)
    if mark is not None:
        marks_seen.add(mark)
        return None if differs else f"they agree, but {mark!r} says that they differ"
    return detail if differs else None


def check(link, name, cases):
    wrong = []
    for case in cases:
        argv, env, mark = (list(case) + [None, None, None])[:3] if isinstance(case, tuple) else (case, None, None)
        said = compare(link, argv, env or {}, mark)
        if said:
            wrong.append(f"{env or ''} {' '.join(argv)}: {said}")
    report(not wrong, f"{name} ({len(cases)} command lines)", *wrong[:20])


X = ["x.py", "a", "--b"]
MANY = ["--nproc-per-node", "12"]

# What spelled() does not make already.
GOOD = [
    X,
    ["--", *X],
    ["--nnodes=2", "--rdzv-endpoint", "h:1", *X],
    ["--nnodes=2", "--rdzv-backend", "c10d", "--rdzv-endpoint=h", *X],
    ["--nnodes", "2", "--master-addr", "h", "--master-port", "29511", "--node-rank", "1", *X],
    ["--nnodes", "2", "--master-addr", "h", *X],
    ["--nnodes", "2", "--master-addr", "[fe80::1]", *X],
    ["--nnodes=2", "--master-addr", "::1", *X],
    ["--nnodes", "1:4", "--rdzv-backend=c10d", "--rdzv-endpoint", "[fe80::1]:4711", "--rdzv-id", "job7", *X],
    ["--nnodes=2:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1",
     "--rdzv-conf", "join_timeout=5, last_call_timeout = 6,read_timeout=7", *X],
    ["--rdzv-conf=", *X],
    ["--rdzv-conf", "timeout=3", "--rdzv-conf", "timeout=4", *X],
    ["--rdzv-conf", "zebra=1", *X],
    ["--rdzv-endpoint", "localhost:29400", "--rdzv-backend", "c10d", *X],
    ["--rdzv-endpoint=", *X],
    ["--standalone", "--nproc-per-node=4", *X],
    ["--monitor-interval=.5", *X],
    ["-m", "mod", "a"],
    ["-m", "--", "mod", "a"],
    ["--module", "pkg.mod", "--nnodes", "9"],
    ["--no-python", "prog", "-m"],
    ["--no_python", "--", "prog"],
    [*MANY, "-r", "3", *X],
    [*MANY, "-r3", *X],
    [*MANY, "-r=1", *X],
    [*MANY, "-t", "0:1,1:2,9:3", *X],
    [*MANY, "--tee=2", "--redirect=3", *X],
    [*MANY, "-mt3", "mod"],
    [*MANY, "--local-ranks-filter", "0,11", *X],
    ["--local-ranks-filter=", *X],
    ["--duplicate-stdout-filters", "a,b", "--duplicate-stderr-filters", "c,,d,,,e", *X],
    ["--log-line-prefix-template", "${hostname}:${rank}: ", *X],
    ["--numa-binding", "socket", *X],
    ["--signals-to-handle", "SIGTERM,SIGUSR1", *X],
    ["--signals-to-handle", "SIGTERM, SIGINT", *X],
    ["--shutdown-timeout", "0", *X],
    ["--help"],
    ["-h"],
    ["--nnodes", "7", "--help"],
    (X, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "45"}),
    (X, {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "}),
    (["--log-line-prefix-template", "y", *X], {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "z"}),
    (["--nproc-per-node", "2", *X], {"PET_NPROC_PER_NODE": "3"}),
    (["mod", "-x"], {"PET_MODULE": "1"}),
    (["mod", "-x"], {"PET_MODULE": "0"}),
    (["mod", "-x"], {"PET_MODULE": "2"}),
    (["prog"], {"PET_NO_PYTHON": "1"}),
    (["--nnodes", "1", *X], {"PET_NNODES": "2:4"}),
    (X, {"PET_NUMA_BINDING": "nothing", "PET_LOGS_SPECS": "nothing"}),
    (X, {"PET_DUPLICATE_STDOUT_FILTERS": "a,,b,c", "PET_TEE": "3"}),
    (X, {"PET_SIGNALS_TO_HANDLE": "SIGTERM", "PET_SHUTDOWN_TIMEOUT": "3", "PET_ROLE": "r", "PET_MAX_RESTARTS": "2"}),
    (X, {"PET_VIRTUAL_LOCAL_RANK": "1", "PET_STANDALONE": "1", "PET_RUN_PATH": "0"}),
    (["--nnodes=2", *X], {"PET_RDZV_ENDPOINT": "h:1", "PET_RDZV_ID": "j", "PET_NODE_RANK": "1"}),
]

BAD = [
    [],
    ["--"],
    ["--zebra", "x.py"],
    ["--nnodes", "1:2:3", *X],
    ["--nnodes", "0", *X],
    ["--nnodes", "2:1", *X],
    ["--nnodes="] + X,
    ["--nnodes"],
    ["--nproc-per-node", "gpus", *X],
    ["--nproc-per-node", "", *X],
    ["--nproc-per-node", "xpu", *X],
    ["--max-restarts", "-1", *X],
    ["--monitor-interval", "soon", *X],
    ["--start-method", "thread", *X],
    ["--standalone=1", *X],
    ["-m", "--no-python", "mod"],
    ["--log-dir", "/etc/passwd", *X],
    ["-r", "4", *X],
    ["-r", "0:4", *X],
    ["-t", "0:1,", *X],
    ["--local-ranks-filter", "a", *X],
    ["--local-ranks-filter", "0,,1", *X],
    ["--rdzv-conf", "a", *X],
    ["--rdzv-conf", "a=", *X],
    ["--rdzv-conf", "=b", *X],
    ["--logs-specs", "nothing", *X],
    ["--numa-binding", "core", *X],
    ["--shutdown-timeout", "1.5", *X],
    ["--shutdown-timeout", "-5", *X],
    ["--node-rank", "x", *X],
    ["--master-port", "x", *X],
    ["--log", "/tmp", *X],
    ["--n", "1", *X],
    ["--print-completion", "csh"],
    (X, {"PET_NNODES": "x"}),
    (X, {"PET_NO_PYTHON": "yes"}),
    (X, {"PET_MAX_RESTARTS": "x"}),
]

# Those that differ: the third is the line of DOC.
DIFFERENT = [
    ([*MANY, "-r", "10:1,11:2", *X], {}, "Local ranks of more than one digit"),
    ([*MANY, "-t", "0:1,10:3", *X], {}, "Local ranks of more than one digit"),
    (["-r", "1:3", *X], {}, "A local rank that is not there is refused"),
    (["--local-ranks-filter", "7", *X], {}, "A local rank that is not there is refused"),
    (["--nproc-per-node", "0", *X], {}, "Numbers out of range are refused"),
    (["--nproc-per-node", "-1", *X], {}, "Numbers out of range are refused"),
    (["--nproc-per-node", "1_0", *X], {}, "Numbers are written in digits"),
    (["--master-port", "99999", *X], {}, "Numbers out of range are refused"),
    (["--monitor-interval", "-1", *X], {}, "Numbers out of range are refused"),
    (["--monitor-interval", "nan", *X], {}, "Numbers are written in digits"),
    (["--nnodes", "2", *X], {}, "Several nodes without an endpoint are refused"),
    (["--node-rank", "1", *X], {}, "A node rank that is not there is refused"),
    (["--rdzv-backend", "etcd", "--rdzv-endpoint", "h:1", *X], {}, "etcd and other back ends are refused"),
    (["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "h:1", *X], {}, "etcd and other back ends are refused"),
    (["--rdzv-backend", "zebra", *X], {}, "etcd and other back ends are refused"),
    (["--event-log-handler", "console", *X], {}, "Event log handlers are Python"),
    (["--nnodes=2", "--rdzv-endpoint", "::1", *X], {}, "IPv6"),
    (["--nnodes=2", "--rdzv-endpoint", "h", "--rdzv-conf", "rank=1", "--rdzv-backend=static", "--standalone", *X], {},
     "What contradicts `--standalone` is refused"),
    (["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--rdzv-conf", "join_timeout=x", *X], {},
     "Keys of `--rdzv-conf` are checked when they are read"),
    (["--signals-to-handle", "SIGTERM,USR1", *X], {}, "Signals may be named without SIG"),
    (["--signals-to-handle", "SIGZEBRA", *X], {}, "Signals that are none are refused"),
    (["--signals-to-handle", "SIGKILL", *X], {}, "Signals that are none are refused"),
    (["--duplicate-stdout-filters", "a,", *X], {}, "An empty filter is refused"),
    (["--standalone", "--nnodes", "2", *X], {}, "What contradicts `--standalone` is refused"),
    (["--standalone", "--rdzv-endpoint", "h:1", *X], {}, "What contradicts `--standalone` is refused"),
    (["--log-dir", "", *X], {}, "Empty values are refused"),
    (["--role", "", *X], {}, "Empty values are refused"),
    (["--nnodes", " 1", *X], {}, "Numbers are written in digits"),
    (["--max-restarts", "+1", *X], {}, "Numbers are written in digits"),
    (["x.py", "--", "a"], {}, "Dashes after the program belong to the program"),
    (["--run-path", "/tmp/x.py"], {}, "`--run-path` is `python -u -c`"),
    (["--run-path", "--no-python", "/tmp/x.py"], {}, "`--run-path` is `python -u -c`"),
    (["--dry-run", *X], {}, "Options of ours"),
    (["--log-limit", "1M", *X], {}, "Options of ours"),
    (X, {"PET_NNODES": ""}, "An empty variable counts as not set"),
    (X, {"PET_NO_PYTHON": ""}, "An empty variable counts as not set"),
    (["--nnodes", "1", *X], {"PET_NO_PYTHON": "yes"}, None),
    (["--no-python", "x"], {"PET_NO_PYTHON": "yes"}, "A wrong variable does no harm where the command line wins"),
]


def good_value(action):
    values = {
        "nnodes": "1", "nproc_per_node": "2", "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "rdzv_id": "j",
        "rdzv_conf": "timeout=3", "max_restarts": "2", "monitor_interval": "1", "start_method": "fork",
        "event_log_handler": "null", "role": "r", "log_dir": "/tmp", "redirects": "3", "tee": "0:1",
        "log_line_prefix_template": "p", "local_ranks_filter": "0", "duplicate_stdout_filters": "a,b",
        "duplicate_stderr_filters": "c", "node_rank": "0", "master_addr": "127.0.0.1", "master_port": "29511",
        "local_addr": "10.0.0.1", "numa_binding": "node", "signals_to_handle": "SIGTERM", "shutdown_timeout": "4",
    }
    return values[action.dest]


def spelled():
    """Every option of torchrun's own parser, in each of its spellings and cut at every length."""
    whole, cut = [], []
    for action in torchrun.get_args_parser()._actions:
        if action.dest in ("training_script", "training_script_args", "help", "print_completion", "logs_specs", "run_path"):
            continue
        for text in action.option_strings:
            lengths = range(3, len(text)) if text.startswith("--") else []
            value = [] if action.nargs == 0 else [good_value(action)]
            whole.append([text, *value, *X])
            if value and text.startswith("--"):
                whole.append([f"{text}={value[0]}", *X])
            for length in lengths:
                cut.append([text[:length], *value, *X])
                if value:
                    cut.append([f"{text[:length]}={value[0]}", *X])
    return whole, cut


def check_cut(link, cases):
    """A cut name that torchrun takes means the same here; one that it refuses may be taken by us (DOC says so)."""
    wrong, more = [], 0
    for argv in cases:
        want = theirs(argv, {})
        got, well_refused, words = ours(link, argv, {})
        if not well_refused:
            wrong.append(f"{argv}: {words}")
        elif want is None:
            more += got is not None
        elif got is None or any(want[k] != got.get(k) for k in want):
            wrong.append(f"{argv}: theirs {want}, ours {got or words}")
    marks_seen.add("Names may be cut where torchrun's Python says they are ambiguous")
    report(not wrong and more > 0, f"every option cut at every length ({len(cases)} command lines, {more} taken by us alone)",
           *wrong[:10])


def check_environment(link):
    wrong, n = [], 0
    for action in torchrun.get_args_parser()._actions:
        if action.dest in ("training_script", "training_script_args", "help", "print_completion", "run_path"):
            continue
        value = "1" if action.nargs == 0 else "x" if action.dest == "logs_specs" else good_value(action)
        n += 1
        said = compare(link, X, {f"PET_{action.dest.upper()}": value}, None)
        if said:
            wrong.append(f"PET_{action.dest.upper()}={value}: {said}")
    report(not wrong, f"PET_* of every option ({n} variables)", *wrong)


def check_arguments():
    """The macro in arguments: what workers get is what string.Template makes of it."""
    texts = ["plain", "${local_rank}", "$local_rank", "a${local_rank}b$local_rank", "$local_ranks", "$Local_Rank",
             "${local_rank", "${ local_rank}", "$$", "$$$$", "$$local_rank", "$$$local_rank", "$${local_rank}", "$",
             "a$", "$1 $- ${}", "$\u00e9", "{$local_rank}", "$local_rank-x", "$local_rank.txt", "$local_rank_"]
    done = subprocess.run([FSDPRUN, "--no-python", "--nproc-per-node", "1", "/usr/bin/printf", r"%s\n", *texts],
                          env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    want = macros.substitute(texts, "0")
    report(done.stdout.splitlines() == want, f"the local rank in arguments is what Python's Template makes of it ({len(texts)} texts)",
           f"want {want}", f"got {done.stdout.splitlines()} {done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "torchrun")
        os.symlink(FSDPRUN, link)
        whole, cut = spelled()
        check(link, "every option in every spelling", whole)
        check_cut(link, cut)
        check_environment(link)
        check(link, "what torchrun takes means the same here", GOOD)
        check(link, "what torchrun refuses is refused, with 2 and one line", BAD)
        check(link, "what differs is known to differ", DIFFERENT)
        check_arguments()
    os.environ.clear()
    os.environ.update(CLEAN)
    with open(DOC, encoding="utf-8") as file:
        text = file.read()
    missing = [m for m in sorted(marks_seen) if m not in text]
    report(not missing, f"every difference is in docs/torchrun-differences.md ({len(marks_seen)} of them)", *missing)
    options = [s for a in torchrun.get_args_parser()._actions for s in a.option_strings if "_" not in s]
    missing = [o for o in options if f"`{o}`" not in text]
    report(not missing, f"every option of this PyTorch's torchrun is in it ({len(options)})", *missing)
    return 1 if n_failed else 0


sys.exit(main())
