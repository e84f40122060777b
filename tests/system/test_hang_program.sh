# --hang-timeout watches what a program shows, here shell scripts that use no library: output, heartbeats, changes
# in the store. A rank that shows nothing is named, and the world is formed again.
. tests/support/shell/harness.sh
# A machine that is slow now may take a few seconds for what is no hang.
limit=$((3 * $(pace)))
cat > "$WORK/program" <<'END'
#!/usr/bin/env bash
echo "rank $RANK begins"
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
pause() { read -r -t "$1" <> <(:); }
# for_long COMMAND: again and again, for three limits
for_long() { local end=$((SECONDS + 3 * LIMIT)); while [ $SECONDS -lt $end ]; do "$@"; pause 0.2; done; }
ask() { printf "$1" >&3; } # a request of the store
case "$1 $RANK" in
  "stop 1") kill -STOP $$ ;;
  "spin "*) while :; do :; done ;;
  "print 0") for_long echo on; exit 0 ;;
  "print 1") pause $((3 * LIMIT)); exit 0 ;;
  "heart "*)
    for ((step = 0; step < 5 || RANK == 0; step++)); do
      printf 'step %d\nphase evaluate\n' $step >&"$FSDPRUN_HEARTBEAT_FD"
      echo on
      pause 0.1
    done ;;
  "gpu "*) pause $((2 * LIMIT)); exit 0 ;;
  "nodes 0") for_long echo on; echo done ;;
  "set 0" | "check 0")
    exec 3<> "/dev/tcp/$MASTER_ADDR/$MASTER_PORT"
    ask '\0\316\367\205\074'                               # VALIDATE
    key='\1\0\0\0\0\0\0\0k'
    [ "$1" = check ] && for_long ask "\5\1\0\0\0\0\0\0\0$key" # CHECK: it is not there
    [ "$1" = set ] && for_long ask "\1$key$key"               # SET
    exit 0 ;;
esac
exec sleep 1000
END
chmod +x "$WORK/program"
# run NAME KIND OPTIONS...: two ranks; the status in NAME.rc
run() {
  local name=$1 kind=$2; shift 2
  LIMIT=$limit timeout -k 5 1000 "$BIN/fsdprun" --nproc-per-node 2 --hang-timeout $limit --run-dir "$WORK/$name" "$@" "$WORK/program" "$kind" > "$WORK/$name.out" 2> "$WORK/$name.err" < /dev/null
  echo $? > "$WORK/$name.rc"
}
rc() { cat "$WORK/$1.rc"; }
errors() { cat "$WORK/$1/errors.json"; }
run stop stop --max-restarts 1 &
run heart heart &
run seen print --redirects 1 &
run unseen print & # the script's stdout and stderr are two files, so fsdprun sees only one of them
run set set --redirects 3 &
run check check --redirects 3 &
FSDP_TEST_NVML=$TOY/fake_nvml FAKE_NVML="GPU-aa@3b" run gpu gpu --redirects 3 &
wait
run spin spin &
port=$(port_block)
for node in 0 1; do
  run nodes.$node nodes --run-dir "$WORK/nodes" --nproc-per-node 1 --nnodes 2 --node-rank $node --insecure --rdzv-endpoint 127.0.0.1:$port &
done
wait

check_eq "a stopped rank, and a restart: 0" 0 "$(rc stop)"
check_match "it was named" '"event": "hang".*"kind": "stuck", "rank": 1, ' "$(cat "$WORK/stop/events.jsonl")"
check_match "in the line, too" "rank 1 \(.*\) made no progress .*generation 0: no progress for $limit s.*; starting again" "$(cat "$WORK/stop.err")"
lines=$(awk '/^fsdprun: rank 1 made no progress for / { n = 1; next } n && /^  / { print ++n; next } { n = 0 }' "$WORK/stop.err" | sort -n | tail -n 1)
check "what both showed is printed, in at most 20 lines (${lines:-0})" test "${lines:-0}" -ge 4 -a "${lines:-0}" -le 20
check_eq "ranks that spin show nothing: 137" 137 "$(rc spin)"
check_match "errors.json has the state of both" '"hang": \{"ranks":"[01]",.*"culprit":true,.*"state":"R"' "$(errors spin)"
check_eq "a heart that stops is a hang, while the other rank prints: 137" 137 "$(rc heart)"
check_match "with the step and phase that it named" '"hang": \{"ranks":"1",.*"layer":"evaluate","step":4,.*"layer":"evaluate","step":[0-9]+' "$(errors heart)"
check_match "in the last line, too" "rank 1 \(.*\) made no progress .* in step 4, generation 0: no progress for $limit s in evaluate" "$(tail -n 1 "$WORK/heart.err")"
check_eq "while one rank prints, none hangs: 0" 0 "$(rc seen)"
check_eq "nor if it prints where fsdprun does not see it: 0" 0 "$(rc unseen)"
ended_first() { grep -B 100 '"event": "hang"' "$WORK/$1/events.jsonl" | grep -q '"event": "exit".*"rank": 0.*"code": 0'; }
check_eq "a rank that changes keys of the store lives; without it the other one hangs: 137" 137 "$(rc set)"
check "only then" ended_first set
check_eq "a rank that only asks for a key shows nothing: 137" 137 "$(rc check)"
check "it does not end first" eval "! ended_first check"
check_eq "while a GPU works and uses its memory, no rank hangs: 0" 0 "$(rc gpu)"
check_eq "two nodes, of which one is silent: 137" "137 137" "$(rc nodes.0) $(rc nodes.1)"
check_match "while a rank of one node prints, the rank of the other does not hang" '^done$' "$(cat "$WORK/nodes.0.out")"
check_match "then one is named" '"event": "hang"' "$(cat "$WORK/nodes/events.jsonl")"
check_eq "no heartbeat without the option" 0 "$("$BIN/fsdprun" -- /bin/sh -c 'env | grep -c FSDPRUN_HEARTBEAT' 2> /dev/null | head -n 1)"
check_match "of a job it is launch.hang_timeout_s" "hang_timeout_s: 7.*--hang-timeout" "$("$BIN/fsdprun" --hang-timeout 7 --dry-run configs/quickstart.yaml 2>&1)"
