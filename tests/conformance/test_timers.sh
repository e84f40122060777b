# Watchdog timers over a FIFO, as PyTorch's FileTimerClient writes them. torch:
# timer/file_based_local_timer_test.py, and local_elastic_agent_test.py (the variable on and off).
source tests/support/shell/harness.sh
toy=$TOY/toy
export TMPDIR=$WORK
unset TORCHELASTIC_ENABLE_FILE_TIMER TORCHELASTIC_TIMER_FILE
last() { tail -n 1 "$WORK/err"; }
fifos() { find "$WORK" -maxdepth 1 -type p | wc -l; }
# set_timer SCOPE SECONDS SIGNAL [PID]: what FileTimerClient does, by the shell; negative seconds release.
cat > "$WORK/timer.sh" << 'END'
set_timer() {
  case $2 in -*) when=-1 ;; *) when=$(awk -v now="$(date +%s.%N)" -v s="$2" 'BEGIN { printf "%.3f", now + s }') ;; esac
  printf '{"version": 1, "pid": %d, "scope_id": "%s", "expiration_time": %s, "signal": %d}\n' "${4:-$$}" "$1" "$when" "$3" > "$TORCHELASTIC_TIMER_FILE"
}
END
worker() { { echo '#!/bin/bash'; echo ". $WORK/timer.sh"; cat; } > "$WORK/$1"; chmod +x "$WORK/$1"; }

check_match "without it there is no timer file" "TORCHELASTIC_TIMER_FILE unset" "$("$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"
export TORCHELASTIC_ENABLE_FILE_TIMER=1
check_match "with it the workers are told where" "TORCHELASTIC_TIMER_FILE=$WORK/watchdog_timer_" "$("$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"
check_eq "and it is gone afterwards" 0 "$(fifos)"
check_match "0 is off" "unset" "$(TORCHELASTIC_ENABLE_FILE_TIMER=0 "$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"

worker late <<'END'
stat -c %a "$TORCHELASTIC_TIMER_FILE" > "$1.mode"
[ "$RANK" = 1 ] && set_timer step 0.2 9
exec sleep 1000
END
check_status "a timer that expires: killed by its signal" 137 "$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/d" -- "$WORK/late" "$WORK/late"
check_match "it is the first cause" "rank 1 .*was killed by SIGKILL[a-z ]*, generation 0: timer step expired; 1 other rank was stopped" "$(last)"
check_match "said when it happens, too" "timer step of rank 1 \(pid [0-9]+\) expired: SIGKILL" "$(cat "$WORK/err")"
check_eq "nobody else may write the FIFO" 600 "$(cat "$WORK/late.mode")"
check "events.jsonl has it" grep -q '"event": *"timer_expired".*"rank": *1.*"scope": *"step"' "$WORK"/d/*/events.jsonl
check "errors.json has it" grep -q 'timer step expired' "$WORK"/d/*/errors.json

worker signalled <<'END'
set_timer a 100 9; set_timer b 0.1 15; exec sleep 1000
END
check_status "the earliest of several, with its own signal" 143 "$FSDPRUN" -- "$WORK/signalled"
check_match "is named" "was killed by SIGTERM[a-z ]*, generation 0: timer b expired" "$(last)"
worker released <<'END'
set_timer a 3 9; set_timer a -1 0; set_timer b 3 9; set_timer b 100 9; sleep 4; exit 4
END
check_status "released, and set anew: nobody is killed" 4 "$FSDPRUN" -- "$WORK/released"
worker later <<'END'
set_timer quiet 0.1 0
until [ "$(cat "$1" 2> /dev/null)" = said ]; do sleep 0.1; done
exit 5
END
"$FSDPRUN" -- "$WORK/later" "$WORK/go" 2> "$WORK/err" & run=$!
wait_until 30 grep -q 'timer quiet .* asks for no signal' "$WORK/err"
echo said > "$WORK/go"
wait "$run"; check_eq "a failure after a report only: its own status" 5 $?
check_match "and not put down to the timer" "exited with status 5[a-z ]*, generation 0$" "$(last)"
worker child <<'END'
sleep 1000 & child=$!
set_timer grand 0.1 9 "$child"
wait "$child"; exit 21
END
check_status "a timer of a child: the child is signalled" 21 "$FSDPRUN" -- "$WORK/child"
check_match "and named" "exited with status 21[a-z ]*, generation 0: timer grand of its process [0-9]+ expired" "$(last)"

# Of nobody else: not the agent, not its guard, not the shell that started it.
worker foreign <<'END'
agent=$PPID; guard=$(awk '/^PPid/ {print $2}' "/proc/$agent/status"); outer=$(awk '/^PPid/ {print $2}' "/proc/$guard/status")
for pid in "$agent" "$guard" "$outer" 1 999999999; do set_timer wrong 0 9 "$pid"; done
sleep 1; exit 0
END
check_status "timers of processes that are not below the agent are let be" 0 bash -c '"$@"; exit $?' - "$FSDPRUN" -- "$WORK/foreign"
worker garbage <<'END'
echo '{"pid": ' > "$TORCHELASTIC_TIMER_FILE"; echo more >> "$TORCHELASTIC_TIMER_FILE"
head -c 300000 /dev/zero > "$TORCHELASTIC_TIMER_FILE"; echo > "$TORCHELASTIC_TIMER_FILE"
set_timer fine 0.1 9; exec sleep 1000
END
check_status "garbage is dropped, and what comes after it is heard" 137 "$FSDPRUN" -- "$WORK/garbage"
check_match "it is said" "a line in the timer file was not understood: no JSON object" "$(cat "$WORK/err")"
check_match "what came after it" "timer fine expired" "$(last)"

# A restart begins without timers: the worker of generation 0 leaves one, as a child of generation 1 would
# have it.
worker restarted <<'END'
if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then set_timer old 1 9; exit 3; fi
sleep 2; exit 0
END
check_status "timers end with their generation" 0 "$FSDPRUN" --max-restarts 1 -- "$WORK/restarted"

# A path of the user's; a stale FIFO at it; one that another agent reads; a file of another kind.
export TORCHELASTIC_TIMER_FILE=$WORK/mine
check_match "TORCHELASTIC_TIMER_FILE says where" "^TORCHELASTIC_TIMER_FILE=$WORK/mine$" "$("$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"
mkfifo "$WORK/mine"
check_match "a FIFO left behind is replaced" "^TORCHELASTIC_TIMER_FILE=$WORK/mine$" "$("$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"
worker nested <<END
"$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE
set_timer mine 0.1 9; exec sleep 1000
END
check_status "one within the other: the outer's timers still work" 137 "$FSDPRUN" -- "$WORK/nested"
check_match "the inner has its own file" "TORCHELASTIC_TIMER_FILE=$WORK/watchdog_timer_" "$(cat "$WORK/out")"
echo keep > "$WORK/mine"
check_match "a file of another kind is let be" "TORCHELASTIC_TIMER_FILE=$WORK/watchdog_timer_" "$("$FSDPRUN" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"
check_eq "as it was" keep "$(cat "$WORK/mine")"
unset TORCHELASTIC_TIMER_FILE
check_match "a TMPDIR that cannot hold one is as if there were none" \
  "TORCHELASTIC_TIMER_FILE=/tmp/watchdog_timer_" \
  "$(TMPDIR=/proc/nowhere "$FSDPRUN" --log-dir "$WORK/d2" -- "$toy" env=TORCHELASTIC_TIMER_FILE 2>&1)"
check_eq "no FIFO is left of all this" 0 "$(fifos)"

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  cat > "$WORK/client.py" << 'END'
import os, sys, time
from torch.distributed.elastic.timer import configure, expires, FileTimerClient
configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with expires(after=60, scope="fast"):
    pass
print("released", flush=True)
open(f"{sys.argv[1]}.{os.environ['RANK']}", "w").close()
while not all(os.path.exists(f"{sys.argv[1]}.{rank}") for rank in "01"):
    time.sleep(0.01)
with expires(after=1, scope="slow"):
    time.sleep(1000)
END
  check_status "PyTorch's own client: killed when its scope takes too long" 137 "$FSDPRUN" --nproc-per-node 2 --no-python "$FSDP_TEST_PYTHON" "$WORK/client.py" "$WORK/released"
  check_match "the scope is named" "was killed by SIGKILL[a-z ]*, generation 0: timer slow expired" "$(last)"
  check_eq "the one that was in time is released" 2 "$(grep -c released "$WORK/out")"
else
  skip "PyTorch's FileTimerClient" "FSDP_TEST_PYTHON names no Python with PyTorch"
fi
