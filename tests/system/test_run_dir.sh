# --run-dir: a program's run directory that the user names. Attempts are counted on from run to run, a program goes on from
# its own checkpoints, one run at a time holds the directory, and several nodes share it.
. tests/support/harness.sh
. tests/support/netns.sh

F=$BIN/fsdprun
prog=$TOY/checkpoints
RUN=$WORK/run
run() { # NAME WANTED ARGS...: fsdprun in $RUN
  local name=$1 want=$2; shift 2
  check_status "$name" "$want" timeout -k 5 600 "$F" --run-dir "$RUN" "$@"
}
attempts() { (cd "$RUN" && ls -d attempt_*/* | xargs); }

# --- attempts -----------------------------------------------------------------------------------------------------------
run "a program runs in a directory that it names" 0 -r 1 --nproc-per-node 2 "$TOY/toy" say=one
check_eq "with its output in it" "one" "$(cat "$RUN/attempt_0/1/stdout.log")"
run "a second run in it, with a restart" 0 -r 1 --max-restarts 1 "$TOY/toy" say=two before=1 exit=3
check_eq "goes on with the numbers of the attempts" "0/0 0/1 1/0 2/0" "$(attempts | sed 's,attempt_,,g; s,[0-9]/index[^ ]* *,,g' | xargs)"
check_eq "and touches nothing of the first" "one" "$(cat "$RUN/attempt_0/1/stdout.log")"
check_eq "its index names the ranks" '"0/stdout.log"' "$(sed 's/.*"stdout": \([^,]*\),.*/\1/' "$RUN/attempt_2/index.jsonl")"
check_match "events.jsonl has both runs" "spawn spawn exit exit spawn .*restart" "$(sed -E 's/.*"event": "([a-z_]+)".*/\1/' "$RUN/events.jsonl" | xargs)"
mkdir "$WORK/cwd"
(cd "$WORK/cwd" && "$F" --run-dir rel/a/ -r 1 "$TOY/toy" say=rel) && check_eq "a relative path is of the working directory" rel "$(cat "$WORK/cwd/rel/a/attempt_0/0/stdout.log")"

# --- refused --------------------------------------------------------------------------------------------------------------
one_line() { check_eq "$1" "$2 1" "$3 $(wc -l < "$WORK/err")"; }
"$F" --run-dir "$RUN" --log-dir "$WORK/logs" "$TOY/toy" exit=0 2> "$WORK/err"; one_line "with --log-dir it is bad usage" 2 $?
: > "$WORK/file"
"$F" --run-dir "$WORK/file" "$TOY/toy" exit=0 2> "$WORK/err"; one_line "a file under its name: 78 and one line" 78 $?
"$F" --run-dir "$RUN" "$TOY/toy" "touch=$WORK/up" hang > /dev/null 2>&1 & first=$!
wait_until 30 test -s "$WORK/up"
"$F" --run-dir "$RUN" "$TOY/toy" exit=0 2> "$WORK/err"; one_line "a second live run in it is refused" 78 $?
check_match "and told who holds it" "another live job \(pid [0-9]+ on .*\) holds the run directory $RUN\$" "$(cat "$WORK/err")"
kill -KILL $first; wait $first 2> /dev/null
wait_until 10 none_alive "$WORK/up"

# --- a program of the C API goes on from its own checkpoints --------------------------------------------------------------
check_status "a run that nothing ends" 0 "$F" --nproc-per-node 2 "$prog" steps=6
cp "$WORK/out" "$WORK/whole"
RUN=$WORK/c
run "one that is killed after its second save" 137 --nproc-per-node 2 "$prog" steps=2 save=- steps=4 save=- steps=5 kill=1
run "is launched again in its directory" 0 --nproc-per-node 2 "$prog" load=-:-1 steps=6
check_eq "goes on from the newest step, with the same losses to the bit" "loaded 4 $(tail -n 2 "$WORK/whole" | xargs)" "$(xargs < "$WORK/out")"
run "at another number of ranks" 0 "$prog" load=-:-1
check_eq "too" "loaded 4" "$(cat "$WORK/out")"
printf x | dd of="$(echo "$RUN"/checkpoints/step-00000004/shard-00001-*)" bs=1 seek=6000 conv=notrunc status=none
run "with its newest step damaged" 0 --nproc-per-node 2 "$prog" load=-:-1
check_eq "it goes on from the one before" "loaded 2" "$(cat "$WORK/out")"
check_match "and one line says why" "checkpoint_skipped step=4 .*the checksum does not hold" "$(cat "$WORK/err")"
run "a save that was killed leaves a folder" 137 "$prog" steps=1 save=- kill=0
mkdir "$RUN/checkpoints/.step-00000009.g0.00000001"
run "which the next run removes" 0 "$prog" load=-:-1
check_eq "so that steps alone are there" "step-00000001 step-00000002 step-00000004" "$(ls -A "$RUN/checkpoints" | grep step | xargs)"
RUN=$WORK/restarts
run "within a run it is the same: a rank is killed once, and the world starts again" 0 --nproc-per-node 2 --max-restarts 1 \
  sh -c 'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then exec "$0" steps=3 save=- steps=5 kill=0; fi; exec "$0" load=-:-1 steps=6' "$prog"
check_eq "with the same losses" "$(sort -u "$WORK/whole" | xargs)" "$(grep step "$WORK/out" | sort -u | xargs)"

# --- several nodes ----------------------------------------------------------------------------------------------------------
at_exit() { netns_down; }
netns_up || { skip "--run-dir on two nodes" "needs root, ip and nft for network namespaces"; exit $((n_failed > 0)); }
head -c 32 /dev/urandom | base64 > "$WORK/secret"; chmod 600 "$WORK/secret"
port=$(port_block)
both() { # NAME WORDS...: one rank on each of two nodes; node 1 by way of $APART
  local name=$WORK/$1 i; shift
  port=$((port + 1))
  for i in 0 1; do
    { on_node $i ${APART:+$([ $i = 1 ] && echo "$APART")} timeout -k 5 600 "$F" --nnodes 2 --node-rank $i --rdzv-endpoint "10.77.77.1:$port" \
        --secret-file "$WORK/secret" --run-dir "$RUN" -r 1 -- "$@" > "$name.$i" 2>&1 < /dev/null; echo $? > "$name.rc.$i"; } &
  done
  wait
  statuses="$(cat "$name.rc.0") $(cat "$name.rc.1")"
}
RUN=$WORK/shared
APART=
both killed "$prog" steps=2 save=- steps=3 kill=1
check_eq "two nodes: a rank of the second is killed" "137 137" "$statuses"
both again "$prog" load=-:-1 steps=6
check_eq "both are launched again" "0 0" "$statuses" || tail "$WORK"/again.?
check_eq "and go on from what they saved" "loaded 2 $(tail -n 4 "$WORK/whole" | xargs)" "$(xargs < "$RUN/attempt_1/0/stdout.log")"
check_eq "each rank has a folder, each node its index" "0/0 0/1 0/index.jsonl 0/index.node1.jsonl 1/0 1/1 1/index.jsonl 1/index.node1.jsonl" \
  "$(attempts | sed 's,attempt_,,g')"
mkdir "$WORK/parent"
RUN=$WORK/parent/run
APART="$SOURCE/tests/support/apart.sh $WORK/parent"
both apart "$TOY/toy" exit=0
check_eq "nodes that do not share it are refused" "78 78" "$statuses"
check_match "the line says so" "--run-dir: this node does not see the directory of the node that hosts, and all nodes must share it: $RUN" "$(cat "$WORK"/apart.?)"
check_eq "and no mark is left" "" "$(ls -A "$RUN" | grep nodes)"
exit $((n_failed > 0))
