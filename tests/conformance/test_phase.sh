# The phase that a program was in when it failed, as the store where its ranks meet knows it: before
# rendezvous, in it, running. In the last line and in errors.json.
source tests/support/shell/harness.sh
source tests/support/shell/agents.sh
export TMPDIR=$WORK
worker() { cat > "$WORK/$1"; chmod +x "$WORK/$1"; }
# meets PLAN: rank 1 fails with 5 once it and rank 0 have done what the plan says; MARK is a fresh name for
# each run.
export -f wait_until wait_at_most # a worker of bash waits for conditions too
worker meets <<'END'
#!/usr/bin/env bash
meet() { # VALIDATE and PING of the store's protocol, and the answer
  exec 3<> "/dev/tcp/$MASTER_ADDR/$MASTER_PORT" || exit 99
  printf '\0\316\367\205\074\015abcd' >&3
  [ "$(head -c 4 <&3)" = abcd ] || exit 98
}
until_there() { wait_until 60 test -e "$1"; }
case "$1 $RANK" in
  "start 0") meet; : > "$MARK"; exec sleep 1000 ;;
  "start 1") until_there "$MARK"; exit 5 ;;
  "meet 0") exec sleep 1000 ;;
  "meet 1") meet; exit 5 ;;
  "run 0") meet; : > "$MARK"; exec sleep 1000 ;;
  "run 1") until_there "$MARK"; meet; exit 5 ;;
  "again 1") meet; meet; meet; exit 5 ;;
  "again 0") exec sleep 1000 ;;
esac
END
worker wraps <<END
#!/bin/sh
"$WORK/meets" "\$@"
exit \$?
END
n=0
phase() { # NAME WORDS PHASE COMMAND...
  local name=$1 words=$2 phase=$3; shift 3
  n=$((n + 1))
  MARK=$WORK/mark.$n timeout 1000 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/d$n" --no-python "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null
  check_match "$name: the last line" "rank 1 \(host [^ ]+, pid [0-9]+\) exited with status 5 $words, generation 0" "$(tail -n 1 "$WORK/err")"
  check_match "$name: errors.json" "\"rank\": 1,.*\"phase\": \"$phase\"" "$(cat "$WORK/d$n"/*/errors.json)"
}
phase "a rank that dies before it has met the others" "before rendezvous" starting "$WORK/meets" start
phase "one that waits for others there" "in rendezvous" rendezvous "$WORK/meets" meet
phase "one that comes several times is one" "in rendezvous" rendezvous "$WORK/meets" again
phase "one that dies when all have met" "while running" running "$WORK/meets" run
phase "one below a script, before" "before rendezvous" starting "$WORK/wraps" start
phase "one below a script, in it" "in rendezvous" rendezvous "$WORK/wraps" meet
phase "one below a script, after" "while running" running "$WORK/wraps" run
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 phase "where the agent has no store" "while running" running \
  "$(command -v sh)" -c '[ $RANK = 0 ] && exec sleep 1000; exit 5'
check_match "a program that is not there was in none" '"phase": null' \
  "$("$FSDPRUN" --log-dir "$WORK/none" --no-python "$WORK/nothing" 2> /dev/null; \
  cat "$WORK"/none/*/errors.json)"

# Two nodes: the coordinator's store knows of the other's workers by how many have come.
port=$(port_block)
for plan in "start:before rendezvous" "run:while running"; do
  port=$((port + 1)) mark=$WORK/mark.${plan%:*}
  for node in 0 1; do
    MARK=$mark begin "$mark.$node" timeout 1000 "$FSDPRUN" --nnodes 2 --node-rank $node --insecure \
      --rdzv-endpoint 127.0.0.1:$port --no-python "$WORK/meets" "${plan%:*}"
  done
  ended "$mark.0" "$mark.1"
  for node in 0 1; do
    check_match "two nodes, ${plan#*:}: told by node $node" \
      "rank 1 \(host [^ ]+, pid [0-9]+\) exited with status 5 ${plan#*:}" "$(tail -n 1 "$mark.$node.out")"
  done
done

# PyTorch itself.
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  cat > "$WORK/phase.py" <<'END'
import os, sys, time
import torch.distributed as dist
if sys.argv[1] == "before" and os.environ["RANK"] == "1":
    raise ValueError("before")
if sys.argv[1] == "in" and os.environ["RANK"] == "0":
    time.sleep(1000)
if sys.argv[1] == "in":
    import datetime
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
dist.init_process_group("gloo")
dist.barrier()
if os.environ["RANK"] == "1":
    raise ValueError("after")
time.sleep(1000)
END
  for plan in "before:before rendezvous:ValueError: before" "in:in rendezvous:.*" "after:while running:ValueError: after"; do
    IFS=: read -r when words message <<< "$plan"
    PYTHON_EXEC=$FSDP_TEST_PYTHON timeout 2000 "$FSDPRUN" --nproc-per-node 2 "$WORK/phase.py" "$when" > "$WORK/out" 2> "$WORK/err" < /dev/null
    check_match "PyTorch: $when, without @record" \
      "rank 1 \(host [^ ]+, pid [0-9]+\) exited with status 1 $words, generation 0: .*$message" \
      "$(tail -n 1 "$WORK/err")"
    check_match "PyTorch: $when, its traceback is kept" '"traceback": *"Traceback.*phase.py' \
      "$(cat "$(sed -n 's/^fsdprun: more in \([^ ]*errors.json\).*/\1/p' "$WORK/err")")"
  done
else
  skip "PyTorch's phases" "FSDP_TEST_PYTHON names no Python with PyTorch"
fi
