# --run-dir: a program's run directory that the user names. Each run goes on with the numbers of the attempts,
# and a program with its own checkpoints. One run at a time holds the directory, and several nodes share it.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh

F=$BIN/fsdprun
prog=$TOY/checkpoints
RUN=$WORK/run
run() { # NAME WANTED ARGS...: fsdprun in $RUN
  local name=$1 want=$2; shift 2
  check_status "$name" "$want" timeout -k 5 600 "$F" --run-dir "$RUN" "$@"
}
attempts() { (cd "$RUN" && ls -d attempt_*/* | xargs); }

# attempts
run "a program runs in a directory that it names" 0 -r 1 --nproc-per-node 2 "$TOY/toy" say=one
check_eq "with its output in it" "one" "$(cat "$RUN/attempt_0/1/stdout.log")"
run "a second run in it, with a restart" 0 -r 1 --max-restarts 1 "$TOY/toy" say=two before=1 exit=3
check_eq "goes on with the numbers of the attempts" "0/0 0/1 1/0 2/0" "$(attempts | sed 's,attempt_,,g; s,[0-9]/index[^ ]* *,,g' | xargs)"
check_eq "and touches nothing of the first" "one" "$(cat "$RUN/attempt_0/1/stdout.log")"
check_eq "its index names the ranks" '"0/stdout.log"' "$(sed 's/.*"stdout": \([^,]*\),.*/\1/' "$RUN/attempt_2/index.jsonl")"
check_match "events.jsonl has both runs" "spawn spawn exit exit spawn .*restart" "$(sed -E 's/.*"event": "([a-z_]+)".*/\1/' "$RUN/events.jsonl" | xargs)"
mkdir "$WORK/cwd"
(cd "$WORK/cwd" && "$F" --run-dir rel/a/ -r 1 "$TOY/toy" say=rel) &&
  check_eq "a relative path is of the working directory" rel "$(cat "$WORK/cwd/rel/a/attempt_0/0/stdout.log")"

# refused
one_line() { check_eq "$1" "$2 1" "$3 $(wc -l < "$WORK/err")"; }
"$F" --run-dir "$RUN" --log-dir "$WORK/logs" "$TOY/toy" exit=0 2> "$WORK/err"; one_line "with --log-dir it is bad usage" 2 $?
# a program of the C API goes on from its own checkpoints
check_status "a run that nothing ends" 0 "$F" --nproc-per-node 2 "$prog" steps=6
cp "$WORK/out" "$WORK/whole"
RUN=$WORK/c
run "one that is killed after its second save" 137 --nproc-per-node 2 "$prog" steps=2 save=- steps=4 save=- steps=5 kill=1
run "is launched again in its directory" 0 --nproc-per-node 2 "$prog" load=-:-1 steps=6
check_eq "goes on from the newest step, with the same losses to the bit" "loaded 4 $(tail -n 2 "$WORK/whole" | xargs)" "$(xargs < "$WORK/out")"
RUN=$WORK/restarts
run "within a run it is the same: a rank is killed once, and the world starts again" 0 --nproc-per-node 2 --max-restarts 1 \
  sh -c 'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then exec "$0" steps=3 save=- steps=5 kill=0; fi; exec "$0" load=-:-1 steps=6' "$prog"
check_eq "with the same losses" "$(sort -u "$WORK/whole" | xargs)" "$(grep step "$WORK/out" | sort -u | xargs)"

# several nodes
at_exit() { netns_down; }
netns_up || { skip "--run-dir on two nodes" "needs root, ip and nft for network namespaces"; exit; }
new_secret "$WORK/secret"
port=$(port_block)
both() { # NAME WORDS...: one rank on each of two nodes; node 1 by way of $APART
  local name=$WORK/$1 i how
  shift
  port=$((port + 1))
  for i in 0 1; do
    if [ $i = 1 ]; then how=("${APART[@]}"); else how=(); fi
    begin "$name.$i" on_node $i "${how[@]}" timeout -k 5 600 "$F" --nnodes 2 --node-rank $i \
      --rdzv-endpoint "10.77.77.1:$port" --secret-file "$WORK/secret" --run-dir "$RUN" -r 1 -- "$@"
  done
  ended "$name.0" "$name.1"
  statuses=$(rcs "$name.0" "$name.1")
}
RUN=$WORK/shared
APART=()
both killed "$prog" steps=2 save=- steps=3 kill=1
check_eq "two nodes: a rank of the second is killed" "137 137" "$statuses"
both again "$prog" load=-:-1 steps=6
check_eq "both are launched again" "0 0" "$statuses" || tail "$WORK"/again.?.out
check_eq "and go on from what they saved" "loaded 2 $(tail -n 4 "$WORK/whole" | xargs)" "$(xargs < "$RUN/attempt_1/0/stdout.log")"
check_eq "each rank has a folder, each node its index" "0/0 0/1 0/index.jsonl 0/index.node1.jsonl 1/0 1/1 1/index.jsonl 1/index.node1.jsonl" \
  "$(attempts | sed 's,attempt_,,g')"
mkdir "$WORK/parent"
RUN=$WORK/parent/run
# As on a host with its own disk.
APART=(unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$WORK/parent")
both apart "$TOY/toy" exit=0
check_eq "nodes that do not share it are refused" "78 78" "$statuses"
check_match "the line says so" "--run-dir: this node does not see the directory of the node that hosts, and all nodes must share it: $RUN" "$(cat "$WORK"/apart.?.out)"
check_eq "and no mark is left" "" "$(ls -A "$RUN" | grep nodes)"
