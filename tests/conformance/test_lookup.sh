# A name server that never answers: what has to be looked up is waited for with a bound, and signals are
# answered meanwhile.
source tests/support/shell/harness.sh
toy=$TOY/toy
# blocked NAME OPTIONS...: what it says is in NAME
blocked() { LD_PRELOAD=$TOY/blocked_lookup "$FSDPRUN" "${@:2}" < /dev/null > "$WORK/$1" 2>&1; }
within() { in_good_time $(($2 * 1000)) $((($(date +%s) - $1) * 1000)); }

# Two that wait for 10 s, at the same time as the rest: before the first generation, and between two, the other workers gone.
began=$(date +%s)
blocked first --master-addr a.never --no-python "$toy" exit=0 & first=$!
BLOCKED_LOOKUP_FROM=$WORK/from blocked second --master-addr c.never --max-restarts 1 --no-python "$toy" gen=0 \
  "touch=$WORK/from" gen=0 exit=3 exit=0 & second=$!

for signal in TERM:143 INT:130; do
  blocked "$signal" --master-addr b.never --no-python "$toy" exit=0 & pid=$!
  wait_until 30 test "$(ps -o pid= --ppid $pid | wc -l)" -gt 0
  wait_until 30 pgrep -P $pid > /dev/null
  kill -s "${signal%:*}" "$(pgrep -P $pid | head -n 1)"
  wait $pid
  check_eq "SIG${signal%:*} while it is waited for: ${signal#*:}" "${signal#*:}" $?
done

# The endpoint of several nodes: no round waits for ever, and neither does the end.
asked=$(date +%s)
blocked endpoint --nnodes 2 --node-rank 1 --rdzv-endpoint d.never:29400 --rdzv-conf join_timeout=2 --insecure --no-python "$toy" exit=0; status=$?
check_eq "an endpoint that is not answered for: 75 when the join timeout is over" 75 $status
check_match "with the reason" "d.never.*(no name server answered|cannot be resolved)" "$(cat "$WORK/endpoint")"
check "and no later" within "$asked" 60

wait $first; status=$?
check_eq "MASTER_ADDR that is not answered for: no world, 75" 75 $status
check_match "it is named, with the bound" "a.never: no name server answered within 10 s" "$(tail -n 1 "$WORK/first")"
check "after the bound" within "$began" 60
wait $second; status=$?
check_eq "a name that is lost before a restart: 75" 75 $status
check_match "with the reason" "c.never: no name server answered" "$(tail -n 1 "$WORK/second")"
