# Snapshots of programs in memory (FSDPRUN_SNAPSHOT_DIR): what a worker finds there after a restart, on one node
# and on two, and that nothing is left in /dev/shm. With PyTorch: test_torch_snapshots.sh.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
at_exit() { kill_agents; }
cd "$WORK" || exit 1
RUN=$BIN/fsdprun
cat > worker << 'SH'
#!/bin/bash
# worker FOLDER: each node saves step-1, and then node 0 alone saves step-2. Rank 0 fails, twice. With --snapshot-persist,
# which only the two nodes have, what the agent links to write it to a disk may be there for a moment.
d=$FSDPRUN_SNAPSHOT_DIR g=$TORCHELASTIC_RESTART_COUNT
links=none; [ "$GROUP_WORLD_SIZE" = 1 ] || links='.persist-*'
(cd "$d" && find . -name "$links" -prune -o -type f -print | sort | xargs) > "$1/seen.$g.$RANK.tmp"
mv "$1/seen.$g.$RANK.tmp" "$1/seen.$g.$RANK"
echo "$d" > "$1/place.$RANK"
save() { mkdir "$d/.part" && echo "$g" > "$d/.part/node$GROUP_RANK" && mv "$d/.part" "$d/$1"; }
[ "$g" = 2 ] && exit 0
[ "$LOCAL_RANK" = 0 ] || exec sleep 1000
if [ "$g" = 0 ]; then
  save step-1
  touch "$1/saved.$GROUP_RANK"
  [ "$RANK" = 0 ] || exec sleep 1000
  until [ -e "$1/saved.$((GROUP_WORLD_SIZE - 1))" ]; do read -r -t 0.02 <> <(:); done
  [ "$GROUP_WORLD_SIZE" = 1 ] || save step-2
  mkdir "$d/.half"
fi
[ "$RANK" = 0 ] || exec sleep 1000
for ((r = 0; r < WORLD_SIZE; r++)); do until [ -e "$1/seen.$g.$r" ]; do read -r -t 0.02 <> <(:); done; done
exit 1
SH
chmod +x worker
seen() { cat "$1/seen.$2.$3" 2> /dev/null || echo none; }

# One node.
mkdir one
check_status "two failures on one node" 0 "$RUN" --nproc-per-node 2 --max-restarts 2 ./worker "$PWD/one"
check_eq "the first generation finds nothing" "" "$(seen one 0 0)"
check_eq "after a failure each rank finds what was saved, and nothing unfinished" "./step-1/node0 ./step-1/node0" \
  "$(seen one 1 0) $(seen one 1 1)"
check_eq "... and after another one again" "./step-1/node0" "$(seen one 2 1)"
check "... in memory" test -n "$(grep '^/dev/shm/' one/place.0)"
check "nothing of it is left" test ! -e "$(cat one/place.0)"

# Two nodes: the last that both have, with the small files of both.
mkdir two
port=$(port_block)
for n in 0 1; do
  begin "two$n" timeout -k 5 120 "$RUN" --nnodes 2 --node-rank $n --rdzv-endpoint 127.0.0.1:$port --insecure --max-restarts 2 \
    --snapshot-persist disk ./worker "$PWD/two"
done
check_ends "two failures on two nodes" "0 0" two0 two1
both="./step-1/node0 ./step-1/node1"
check_eq "each node finds what both have, and the small files of both" "$both | $both" "$(seen two 1 0) | $(seen two 1 1)"
check_eq "... and nothing of this is forgotten with the next failure" "$both | $both" "$(seen two 2 0) | $(seen two 2 1)"
check_eq "with --snapshot-persist that is on the disk, too, and nothing else" "disk/step-1/node0 disk/step-1/node1" "$(find disk -type f | sort | xargs)"
check "the nodes have places of their own" test "$(cat two/place.0)" != "$(cat two/place.1)"

# The limit.
check_status "without memory for them" 0 "$RUN" --snapshot-memory 0 "$TOY/toy" env=FSDPRUN_SNAPSHOT_DIR
check_match "there is no such directory" "FSDPRUN_SNAPSHOT_DIR unset" "$(cat "$WORK/out")"
if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --clear-groups test -x "$TOY/toy" 2> /dev/null; then
  check_status "more than /dev/shm holds is refused to users who may not mount" 78 setpriv --reuid 65534 --clear-groups \
    "$RUN" --snapshot-memory 1000T "$TOY/toy"
  check_match "... with the remedy" "shm-size" "$(cat "$WORK/err")"
else
  skip "more than /dev/shm holds is refused" "needs root, to become another user, who can reach the programs"
fi
no_watches() { unshare -rU sh -c 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"' sh "$RUN" "$@" "$TOY/toy" env=FSDPRUN_SNAPSHOT_DIR; }
if unshare -rU sh -c 'echo 0 > /proc/sys/user/max_inotify_instances' 2> /dev/null; then
  check_status "where no directory can be watched, a program runs" 0 no_watches
  check_match "... without a place for snapshots" "FSDPRUN_SNAPSHOT_DIR unset" "$(cat "$WORK/out")"
  check_match "... and with the reason" "no FSDPRUN_SNAPSHOT_DIR: watch /dev/shm/.*: Too many open files" "$(cat "$WORK/err")"
  check_status "... unless it asked for one" 74 no_watches --snapshot-memory 1M
else
  skip "where no directory can be watched" "needs a user namespace"
fi
check_status "a size that is none is refused" 2 "$RUN" --snapshot-memory much "$TOY/toy"

# Both processes of a run are killed: the next run, of this test or of another one beside it, removes what they left.
begin killed timeout -k 5 60 "$RUN" --nproc-per-node 1 -- "$TOY/toy" env=FSDPRUN_SNAPSHOT_DIR hang
wait_until 20 has killed FSDPRUN_SNAPSHOT_DIR=
place=$(sed -n 's/.*FSDPRUN_SNAPSHOT_DIR=//p' killed.out)
check "a run has its place" touch "$place/step-1"
power_off killed
wait_until 20 test -e killed.rc
# The kernel may let go of the lock of a killed run a moment after its processes are gone.
unlocked() { [ ! -e "$1" ] || flock -n "$1" true; }
check "its lock is free" wait_until 20 unlocked "$place.lock"
check_status "after a run that was killed with its guard, the next run" 0 "$RUN" "$TOY/toy"
check "... removes what it left" test ! -e "$place"
