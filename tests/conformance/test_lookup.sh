# A name server that never answers: what has to be looked up is waited for with a bound, and signals are
# answered meanwhile.
source tests/support/shell/harness.sh
FSDPRUN=$BIN/fsdprun
toy=$TOY/toy
blocked() { LD_PRELOAD=$TOY/blocked_lookup "$FSDPRUN" "$@" < /dev/null > "$WORK/out" 2> "$WORK/err"; }
within() { in_good_time $(($2 * 1000)) $((($(date +%s) - $1) * 1000)); }

began=$(date +%s)
blocked --master-addr a.never --no-python "$toy" exit=0; status=$?
check_eq "MASTER_ADDR that is not answered for: no world, 75" 75 $status
check_match "it is named, with the bound" "a.never: no name server answered within 10 s" "$(tail -n 1 "$WORK/err")"
check "after the bound" within "$began" 60

for signal in TERM:143 INT:130; do
  blocked --master-addr b.never --no-python "$toy" exit=0 & pid=$!
  wait_until 30 test "$(ps -o pid= --ppid $pid | wc -l)" -gt 0
  began=$(date +%s%N)
  wait_until 30 pgrep -P $pid > /dev/null
  kill -s "${signal%:*}" "$(pgrep -P $pid | head -n 1)"
  wait $pid
  check_eq "SIG${signal%:*} while it is waited for: ${signal#*:}" "${signal#*:}" $?
done

# Between two generations, the other workers gone.
export BLOCKED_LOOKUP_FROM=$WORK/from
blocked --master-addr c.never --max-restarts 1 --no-python "$toy" gen=0 "touch=$BLOCKED_LOOKUP_FROM" gen=0 exit=3 exit=0; status=$?
check_eq "a name that is lost before a restart: 75" 75 $status
check_match "with the reason" "c.never: no name server answered" "$(tail -n 1 "$WORK/err")"
unset BLOCKED_LOOKUP_FROM

# The endpoint of several nodes: no round waits for ever, and neither does the end.
began=$(date +%s)
blocked --nnodes 2 --node-rank 1 --rdzv-endpoint d.never:29400 --rdzv-conf join_timeout=2 --insecure --no-python "$toy" exit=0; status=$?
check_eq "an endpoint that is not answered for: 75 when the join timeout is over" 75 $status
check_match "with the reason" "d.never.*(no name server answered|cannot be resolved)" "$(cat "$WORK/err")"
check "and no later" within "$began" 60
