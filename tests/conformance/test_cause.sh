# What a run says about its end: the first cause with its traceback; error files in both forms, and broken
# ones; what is passed on to an error file of our own; the OOM killer. torch: multiprocessing/api_test.py,
# errors/{api,error_handler}_test.py, agent/server/test/local_elastic_agent_test.py.
source tests/support/shell/harness.sh
source tests/support/shell/agents.sh
source tests/support/shell/cgroup.sh
toy=$TOY/toy
export TMPDIR=$WORK
at_exit() { cgroup_end; }
unset TORCHELASTIC_ERROR_FILE
# field FILE KEY...: a value of a JSON file, by keys
field() {
  python3 -c 'import functools,json,sys; print(functools.reduce(lambda o, k: o[k], sys.argv[2:], json.load(open(sys.argv[1]))))' "$@"
}
have_python3=; command -v python3 > /dev/null && have_python3=yes
# worker NAME: a program from stdin, in $WORK/NAME
worker() { cat > "$WORK/$1"; chmod +x "$WORK/$1"; }
errors_of() { echo "$WORK/$1"/*/errors.json; }
last() { tail -n 1 "$WORK/err"; }

# How a program ends, alone: its status, and the last line of output.
check_status "a binary that exits with 138: 138" 138 "$FSDPRUN" -- "$toy" exit=138
check_match "the last line is the first cause" 'rank 0 \(host [^ ]+, pid [0-9]+\) exited with status 138 before rendezvous, generation 0$' "$(last)"
check_status "an executable that is missing: 127" 127 "$FSDPRUN" --no-python "$WORK/nothing"
check_match "it is named" "cannot start .*nothing" "$(last)"
check_status "one that cannot be executed: 126" 126 "$FSDPRUN" --no-python "$SOURCE/CHANGELOG.md"
for pair in KILL:137 SEGV:139 ABRT:134 USR1:138; do
  check_status "killed by SIG${pair%:*}: ${pair#*:}" "${pair#*:}" "$FSDPRUN" --nproc-per-node 2 -- "$toy" rank=1 "signal=$(kill -l "${pair%:*}")" hang
  check_match "SIG${pair%:*} is named, and the other is only counted" \
    "rank 1 \(.*\) was killed by SIG${pair%:*}[a-z ]*, generation 0; 1 other rank was stopped" "$(last)"
done
began=$(date +%s)
check_status "a failure ends the others at once" 3 "$FSDPRUN" --nproc-per-node 4 --log-dir "$WORK/one.d" -- \
  "$toy" rank=2 exit=3 hang
in_good_time 20000 $((($(date +%s) - began) * 1000)) && ok "long before any grace is over" || not_ok "long before any grace is over"
check_eq "and that is one failure in the events" 1 \
  "$(cat "$WORK"/one.d/*/events.jsonl | grep -c '"event": *"failure"')"
check_status "half of the ranks fail, with 2 restarts: the status of one of them" 1 "$FSDPRUN" \
  --nproc-per-node 4 --max-restarts 2 -- "$toy" "touch=$WORK/half" gen=0 "lines=4:$WORK/half" gen=1 \
  "lines=8:$WORK/half" gen=2 "lines=12:$WORK/half" rank=1 exit=1 rank=3 exit=1 hang
check_eq "every rank ran three times" "3 0 3 1 3 2 3 3" "$(awk '{print $1}' "$WORK/half" | sort | uniq -c | awk '{print $1, $2}' | tr '\n' ' ' | sed 's/ $//')"
check_eq "two times it was said that another begins" 2 "$(grep -c 'starting again' "$WORK/err")"

# A Python without PyTorch, where the virtual environment that is active has one. The hint is said once, for
# all ranks and generations, and the last line is still the first cause.
mkdir -p "$WORK/venv/bin" "$WORK/venv/lib/python3.11/site-packages/torch"
touch "$WORK/venv/lib/python3.11/site-packages/torch/__init__.py" "$WORK/train.py"
ln -s "$toy" "$WORK/venv/bin/python3.11"
worker bare_python <<'END'
#!/bin/sh
printf 'Traceback (most recent call last):\n  File "%s", line 1, in <module>\n    import torch\n' "$2" >&2
echo "ModuleNotFoundError: No module named 'torch'" >&2
exit 1
END
hint="found no PyTorch; $WORK/venv/bin/python3.11 has it: activate its environment, or set PYTHON_EXEC to it"
check_status "a Python without torch: its status" 1 env VIRTUAL_ENV="$WORK/venv" PYTHON_EXEC="$WORK/bare_python" \
  "$FSDPRUN" --nproc-per-node 4 --max-restarts 1 "$WORK/train.py"
check_eq "the Python that has it is named, once" 1 "$(grep -cE "^fsdprun: rank [0-3] ran $WORK/bare_python and $hint\$" "$WORK/err")"
check_match "above the first cause" "rank .*: ModuleNotFoundError: No module named 'torch'" "$(last)"
# Error files. The plain form, with a time.
worker plain <<'END'
#!/bin/sh
[ "$RANK" = 1 ] || exec sleep 1000
printf '{"message": "the disk is on fire", "timestamp": %s}' "$(date +%s)" > "$TORCHELASTIC_ERROR_FILE"
exit 5
END
check_status "an error file in the plain form: the worker's status" 5 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/plain.d" -- "$WORK/plain"
check_match "its message is in the last line" "rank 1 .*exited with status 5.*: the disk is on fire; 1 other rank was stopped" "$(last)"
# The form of @record: a traceback, shown above the line.
worker recorded <<'END'
#!/bin/sh
[ "$RANK" = 0 ] || exec sleep 1000
cat > "$TORCHELASTIC_ERROR_FILE" << JSON
{"message": {"message": "ValueError: \u00e4 \"b\"", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\nValueError: \u001b[31mb\n", "timestamp": "$(date +%s)"}}}
JSON
exit 1
END
check_status "an error file as @record writes it" 1 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/rec.d" -- "$WORK/recorded"
check_match "the traceback stands above the last line" \
  "fsdprun: its Python traceback:.  Traceback \(most recent call last\):.    File \"x.py\", line 1, in f.  ValueError: \?\[31mb.fsdprun: rank 0" \
  "$(tail -n 5 "$WORK/err" | tr '\n' '.')"
if [ -n "$have_python3" ]; then
  errors=$(errors_of rec.d)
  check_eq "errors.json: the message" 'ValueError: ä "b"' "$(field "$errors" cause message)"
  check_match "errors.json: the traceback" 'File "x.py", line 1' "$(field "$errors" cause traceback)"
  check_match "errors.json: where the file is" 'attempt_0/0/error.json$' "$(field "$errors" cause error_file)"
  check_match "errors.json: when it raised" '^[0-9]{10}' "$(field "$errors" cause raised)"
  check_eq "errors.json: no OOM kill" False "$(field "$errors" cause oom_kill)"
  check_eq "errors.json: one died of it" 1 "$(field "$errors" collateral count)"
  check_eq "errors.json: no message, no traceback where there is no error file" "None None" \
    "$("$FSDPRUN" --log-dir "$WORK/none.d" -- "$toy" exit=1 2> /dev/null; e=$(errors_of none.d); \
    echo "$(field "$e" cause message) $(field "$e" cause traceback)")"
else
  skip "the fields of errors.json" "no python3"
fi

# What is no error file is no failure of ours.
for bad in 'echo "{\"message\": {\"mess" >' ': >' 'head -c 100000 /dev/urandom >' 'truncate -s 3G' \
  'printf "{\"message\": \"long\"}%1048576s" "" >' 'mkfifo' 'mkdir'; do
  worker broken <<END
#!/bin/sh
$bad "\$TORCHELASTIC_ERROR_FILE"
exit 6
END
  check_status "an error file made by '$bad': the worker's status all the same" 6 timeout 600 "$FSDPRUN" -- "$WORK/broken"
  check_match "and the line without it" "exited with status 6[a-z ]*, generation 0$" "$(last)"
done

# A restart has an error file of its own: nothing of the failure before is told again.
worker again <<'END'
#!/bin/sh
if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then echo '{"message": "of generation 0"}' > "$TORCHELASTIC_ERROR_FILE"; exit 7; fi
exit 8
END
check_status "after a restart: the status of the last" 8 "$FSDPRUN" --max-restarts 1 -- "$WORK/again"
check_match "the restart tells the failure before" "of generation 0; starting again" "$(cat "$WORK/err")"
check_match "the end does not" "exited with status 8[a-z ]*, generation 1$" "$(last)"

# An error file of our own: fsdprun below a launcher.
if [ -n "$have_python3" ]; then
  export TORCHELASTIC_ERROR_FILE=$WORK/ours.json
  "$FSDPRUN" --nproc-per-node 2 -- "$WORK/recorded" 2> /dev/null
  check_eq "passed on: the root cause's message, with its code" 'ValueError: ä "b" 1' \
    "$(field "$WORK/ours.json" message message) $(field "$WORK/ours.json" message errorCode)"
  "$FSDPRUN" --nproc-per-node 2 -- "$WORK/plain" 2> /dev/null
  check_eq "the plain form stays as it is" "the disk is on fire" "$(field "$WORK/ours.json" message)"
  rm "$WORK/ours.json"
  "$FSDPRUN" -- "$toy" exit=1 2> /dev/null
  check "no error file, none is made" test ! -e "$WORK/ours.json"
  "$FSDPRUN" -- "$FSDPRUN" --nproc-per-node 2 -- "$WORK/recorded" > /dev/null 2> "$WORK/err"
  check_eq "through two launchers: the outermost has it" 1 "$(field "$WORK/ours.json" message errorCode)"
  unset TORCHELASTIC_ERROR_FILE
else
  skip "what is passed on" "no python3"
fi

# Two nodes: what one knows is told by both, word for word, and the first to have raised is found across them.
port=$(port_block)
two() { # NAME PROGRAM...: its output in NAME.0.out and NAME.1.out, the statuses in $statuses
  local name=$WORK/$1 node
  shift
  port=$((port + 1))
  for node in 0 1; do
    TORCHELASTIC_ERROR_FILE=$name.passed$node begin "$name.$node" "$FSDPRUN" --nnodes 2 --node-rank $node \
      --nproc-per-node 2 --insecure --rdzv-endpoint 127.0.0.1:$port --shutdown-timeout 20 \
      --log-dir "$name.d$node" --no-python "$@"
  done
  ended "$name.0" "$name.1"
  statuses=$(rcs "$name.0" "$name.1")
}
export -f wait_until wait_at_most # workers of bash wait for conditions too
# Rank 3 goes on when the others run: how many are stopped is then the same in each run.
worker meet <<'END'
[ "$RANK" = 3 ] || : > "$1.$RANK"
wait_until 60 test -e "$1.0" -a -e "$1.1" -a -e "$1.2"
END
worker far <<'END'
#!/usr/bin/env bash
. "${0%/*}/meet"
[ "$RANK" = 3 ] || exec sleep 1000
cat > "$TORCHELASTIC_ERROR_FILE" << JSON
{"message": {"message": "ValueError: far away", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  in far\nValueError: far away\n", "timestamp": "$(date +%s)"}}}
JSON
exit 17
END
began=$(date +%s)
two far "$WORK/far" "$WORK/far.up"
check_eq "a failure on node 1 is the status of both" "17 17" "$statuses"
check "and nobody waits at an exit barrier" in_good_time 20000 $((($(date +%s) - began) * 1000))
for node in 0 1; do
  check_match "node $node tells it, with the traceback" \
    "fsdprun: its Python traceback:.  Traceback \(most.*  in far.*fsdprun: rank 3 \(host .*\) exited with status 17[a-z ]*, generation 0: ValueError: far away; 3 other ranks were stopped.$" \
    "$(tail -n 5 "$WORK/far.$node.out" | tr '\n' '.')"
  check_match "node $node passes it on" '"message": ?"ValueError: far away".*"errorCode": ?17' "$(cat "$WORK/far.passed$node" 2>&1)"
done
check_eq "in the same words" "$(tail -n 5 "$WORK/far.0.out")" "$(tail -n 5 "$WORK/far.1.out")"
check_eq "errors.json stands once, with the node that hosts" 1 "$(ls "$WORK"/far.d?/*/errors.json 2> /dev/null | wc -l)"
# A program may exit with 75 or 76 for reasons of its own: only a worker that uses our library blames a peer
# by them.
worker own <<'END'
#!/usr/bin/env bash
. "${0%/*}/meet"
[ "$RANK" = 3 ] && exit "$2"
sleep 1000; : > "$1.own-end"
END
for code in 75 76; do
  two own$code "$WORK/own" "$WORK/own$code" $code
  check_eq "a program that exits with $code on node 1 is the cause on both" "$code $code" "$statuses"
  check_match "node 0 names it" "rank 3 \(host .*\) exited with status $code[a-z ]*, generation 0; 3 other ranks were stopped" "$(tail -n 1 "$WORK/own$code.0.out")"
  check "and no other rank runs to its own end" test ! -e "$WORK/own$code.own-end"
done
# What rank 3 says was long before, longer than a message takes on a busy machine.
worker late <<'END'
#!/usr/bin/env bash
rank_0_is_over() { [ -e "$1" ] && ! pgrep -f "^bash $0 $1 0" > /dev/null; }
case $RANK in
3) trap '' TERM
   printf '{"message": "first of all", "timestamp": %s}' "$(date -d '-5 seconds' +%s.%N)" > "$TORCHELASTIC_ERROR_FILE"
   : > "$1"; wait_until 60 test -e "$1.over"; exit 13 ;;
0) wait_until 60 test -e "$1"
   printf '{"message": "because of that", "timestamp": %s}' "$(date +%s.%N)" > "$TORCHELASTIC_ERROR_FILE"; exit 14 ;;
1) trap '' TERM
   wait_until 60 rank_0_is_over "$1"; : > "$1.over"; exit 0 ;;
*) exec sleep 1000 ;;
esac
END
two late bash -c 'exec bash "$0" "$1" "$RANK"' "$WORK/late" "$WORK/late.at"
check_eq "of two errors on two nodes the first counts, though its rank dies last" "13 13" "$statuses"
check_match "and is named on the other node" "rank 3 .*: first of all" "$(tail -n 1 "$WORK/late.0.out")"

# stderr that is captured: a Python traceback in it is shown from its beginning.
worker traced <<'END'
#!/bin/sh
echo "a warning before" >&2
echo "Traceback (most recent call last):" >&2
i=0; while [ $i -lt 12 ]; do echo "  frame $i" >&2; i=$((i + 1)); done
echo "KeyError: 3" >&2
exit 1
END
"$FSDPRUN" --redirects 3 --log-dir "$WORK/tr.d" -- "$WORK/traced" 2> "$WORK/err"
check_match "the captured traceback is shown whole" \
  "fsdprun: its Python traceback:.  Traceback .*frame 0.*frame 11.  KeyError: 3.fsdprun: rank 0 .*: KeyError: 3" \
  "$(tail -n 16 "$WORK/err" | tr '\n' '.')"

# The OOM killer, in a control group of 64 MiB. tail(1) keeps the last line, and /dev/zero has no other.
if [ "$(id -u)" = 0 ] && cgroup_new oom memory && { echo 64M > "$CGROUP/memory.max" || echo 64M > "$CGROUP/memory.limit_in_bytes"; } 2> /dev/null; then
  [ -e "$CGROUP/memory.memsw.limit_in_bytes" ] && echo 64M > "$CGROUP/memory.memsw.limit_in_bytes"
  [ -e "$CGROUP/memory.swap.max" ] && echo 0 > "$CGROUP/memory.swap.max"
  worker eater <<'END'
#!/bin/sh
[ "$RANK" = 1 ] || exec sleep 1000
exec tail -n 1 /dev/zero
END
  check_status "a rank that the OOM killer ends: 137" 137 bash -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' \
    "$CGROUP" "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/oom.d" -- "$WORK/eater"
  check_match "it is named, with the limit" \
    "rank 1 .*was killed by SIGKILL[a-z ]*, generation 0: out of memory: ended by the kernel's OOM killer \(its control group may use 64 MiB\); 1 other rank" \
    "$(last)"
  [ -z "$have_python3" ] || check_eq "errors.json says so" "True signal" \
    "$(field "$(errors_of oom.d)" cause oom_kill) $(field "$(errors_of oom.d)" cause class)"
  worker bystander <<'END'
#!/bin/sh
tail -n 1 /dev/zero
exit 9
END
  check_status "a rank whose child it ends: the rank's own status" 9 bash -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$CGROUP" "$FSDPRUN" -- "$WORK/bystander"
  check_match "and what happened beside it" "exited with status 9[a-z ]*, generation 0: the kernel's OOM killer ended another process of its control group" "$(last)"
  check_status "a KILL of the user's in the same group: 137" 137 bash -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$CGROUP" "$FSDPRUN" -- "$toy" signal=9
  check_match "is no OOM kill" "was killed by SIGKILL[a-z ]*, generation 0$" "$(last)"
  cgroup_end
else
  skip "a rank that the OOM killer ends" "no memory control group can be made here"
fi

# Real programs with torch's @record.
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  cat > "$WORK/recorded.py" << 'END'
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record
def inner(): raise ValueError("rank %s gives up" % os.environ["RANK"])
@record
def main():
    if os.environ["RANK"] == "1": inner()
    time.sleep(1000)
main()
END
  check_status "@record: 1" 1 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/torch.d" --no-python "$FSDP_TEST_PYTHON" -u "$WORK/recorded.py"
  check_match "@record: the message" "rank 1 .*exited with status 1[a-z ]*, generation 0: ValueError: rank 1 gives up; 1 other rank" "$(last)"
  check_match "@record: the traceback, once" "1 .*in inner.*ValueError: rank 1 gives up" \
    "$(grep -c '^Traceback' "$WORK/err") $(tail -n 30 "$WORK/err" | tr '\n' ' ')"
  cat > "$WORK/nested.py" << 'END'
import json, os, subprocess, sys
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main(): raise KeyError("deep")
main()
END
  TORCHELASTIC_ERROR_FILE=$WORK/outer.json "$FSDPRUN" --no-python "$FSDP_TEST_PYTHON" "$WORK/nested.py" > /dev/null 2>&1
  check_match "@record: passed on as torchrun does" "KeyError: 'deep' 1" \
    "$(field "$WORK/outer.json" message message) $(field "$WORK/outer.json" message errorCode)"
else
  skip "programs with @record" "FSDP_TEST_PYTHON names no Python with PyTorch"
fi
