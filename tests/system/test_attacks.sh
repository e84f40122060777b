# Attacks on the sockets of agents and runs, and on the folder of the registry; and where the secret must not be.
# test_daemon.sh has damaged requests and another user at the agent's socket, test_jobs.sh the socket of a run.
. tests/support/shell/harness.sh
F=$BIN/fsdprun A=$BIN/fsdp-agent T=$TOY/toy
S=$WORK/own/agent.sock
export XDG_RUNTIME_DIR=$WORK/runtime TMPDIR=$WORK/temporary FSDP_TEST_ROOT=$WORK/one
REGISTRY=$XDG_RUNTIME_DIR/fsdprun
unset CUDA_VISIBLE_DEVICES FSDPRUN_AGENT
mkdir -m 700 "$XDG_RUNTIME_DIR" "$TMPDIR"
cd "$WORK" || exit 1
secret=0123456789abcdef-never-to-be-seen
ulimit -S -c "$(ulimit -H -c)" # whatever crashes here and is not protected leaves its core
at_exit() { kill -KILL $(jobs -p) $(pgrep -f -- "^fsdp-agent --socket $WORK/") 2> /dev/null; }
mkdir -p one/proc/driver/nvidia/gpus/0000:01:00.0 one/dev
printf 'GPU UUID: \t GPU-1\nDevice Minor: \t 0\n' > one/proc/driver/nvidia/gpus/0000:01:00.0/information
: > one/dev/nvidia0
field() { "$F" ps --json | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
descriptors() { find "/proc/$1/fd" -mindepth 1 2> /dev/null | wc -l; }
# ours PID...: those that are fsdprun. tree PID...: these processes and all below them. seen FILE PID...: those of them whose /proc/PID/FILE has the secret
ours() { local p; for p in "$@"; do [[ $(cat "/proc/$p/comm" 2> /dev/null) =~ ^fsdp(run|-agent) ]] && echo "$p"; done; }
tree() { local p; for p in "$@"; do echo "$p"; tree $(pgrep -P "$p"); done; }
seen() { local p file=$1; shift; for p in "$@"; do tr '\0' '\n' < "/proc/$p/$file" 2> /dev/null | grep -q "$secret" && echo "$p $(cat "/proc/$p/comm")"; done; }

"$A" --socket "$S" 2> agent-log & agent=$!
wait_until 20 grep -q serves agent-log
"$F" --agent "$S" --rdzv-id holder "$T" touch=up wait=go & holder=$!
wait_until 20 test -s up
# this one is there until the job runs
FSDPRUN_SECRET=$secret "$F" --agent "$S" --rdzv-id waiter --detach --log-dir logs "$T" touch=ran > waiter.id 2> waiter.err & submit=$!
wait_until 20 grep -q 'waits for' waiter.err
queued=$(sed -n 's/^fsdprun: job \([0-9]*\) .*/\1/p' waiter.err)

cat > attack.py << 'PYTHON'
import array, os, resource, socket, struct, sys, time

path, how = sys.argv[1], sys.argv[2]

def dial():
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s

def head(kind, size):  # agent/wire/frame.h
    return b"FSPR" + struct.pack("<HHIIQQQQ", 2, kind, 0, size, 0, 0, 0, 0)

def until_cut(s):
    try:
        while s.recv(65536):
            pass
    except ConnectionResetError:
        pass

if how == "idle":  # as many as the system allows, renewed where they are cut
    want = int(sys.argv[3])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, want + 100), hard))
    held = [dial() for i in range(want)]
    open(sys.argv[4], "w").write("up")
    time.sleep(600)
elif how == "slow":  # a byte at a time never makes a request
    s = dial()
    began = time.time()
    try:
        for byte in head(0x40, 4000) + b"x" * 4000:
            s.send(bytes([byte]))
            time.sleep(0.1)
    except (BrokenPipeError, ConnectionResetError):
        pass
    print("cut", time.time() - began < 60)
elif how == "giant":  # the largest that may be announced, of many at once, and never whole
    held = []
    for i in range(40):
        s = dial()
        s.setblocking(False)
        s.send(head(0x40, 4 << 20))
        held.append(s)
    for i in range(200):
        for s in held:
            try:
                s.send(b"x" * 65536)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                pass
    print("sent")
elif how == "descriptors":  # more and more of them, with no request
    s = dial()
    fds = array.array("i", [0] * 200)
    for i in range(50):
        try:
            s.sendmsg([b"F"[:1] if i == 0 else b""[:0] or b"S"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except (BrokenPipeError, ConnectionResetError, OSError):
            break
    print("sent")
PYTHON
attack() { local socket=$1; shift; timeout 120 python3 attack.py "$socket" "$@"; }

if command -v python3 > /dev/null; then
  # the agent's socket
  waiter=$(ls "$REGISTRY/$queued".*.sock)
  attack "$waiter" slow > slow-waiter & slow=$!
  check_eq "a request of one byte at a time is cut" "cut True" "$(attack "$S" slow)"
  wait "$slow"
  check_eq "and by a queued job" "cut True" "$(cat slow-waiter)"
  check_eq "giant requests that are never whole" sent "$(attack "$S" giant)"
  check_status "keep no job out" 0 "$F" --agent "$S" --gpus 0 "$T"
  check_eq "thousands of descriptors without a request" sent "$(attack "$S" descriptors < /dev/null)"
  check "are not kept" wait_until 20 test "$(descriptors "$agent")" -lt 60
  python3 attack.py "$S" idle 10000 flood & flood=$!
  check "10,000 idle connections to the agent" wait_until 60 test -s flood
  check "hold no more of its descriptors than it allows" test "$(descriptors "$agent")" -lt 330
  check_status "and keep no job out while they are held" 0 "$F" --agent "$S" --gpus 0 "$T"
  kill -KILL "$flood"; wait "$flood" 2> /dev/null

  # the socket of a job that waits
  check_eq "giant requests to a queued job" sent "$(attack "$waiter" giant)"
  check_match "do not keep it from its answers" '"state":"queued"' "$("$F" status --json waiter)"
  python3 attack.py "$waiter" idle 10000 flood2 & flood=$!
  check "10,000 idle connections to a queued job" wait_until 60 test -s flood2
  check "hold no more of its descriptors than it allows" test "$(descriptors "$queued")" -lt 120
  check_match "and it answers" '"state":"queued"' "$("$F" status --json waiter)"
  kill -KILL "$flood"; wait "$flood" 2> /dev/null
  if [ "$(id -u)" = 0 ] && command -v setpriv perl > /dev/null; then
    chmod 711 "$WORK" "$XDG_RUNTIME_DIR" "$REGISTRY"; chmod 666 "$waiter"
    say='use IO::Socket::UNIX; $SIG{PIPE} = "IGNORE"; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!\n"; $s->syswrite("stop\n"); print "connected ", <$s>;'
    check_eq "another user gets no answer of it, with all modes open" "connected " \
      "$(setpriv --reuid 65534 --regid 65534 --clear-groups perl -e "$say" "$waiter" 2>&1)"
    chmod 700 "$REGISTRY" "$XDG_RUNTIME_DIR"; chmod 600 "$waiter"
  else
    skip "another user at the socket of a queued job" "only root can become another one"
  fi
else
  skip "attacks on the sockets" "there is no python3"
fi

# the folder
before=$("$F" ps -q | xargs)
entry=$(ls "$REGISTRY/$queued".*.json)
echo "{\"job\":\"666\",\"name\":\"theirs\",\"run_dir\":\"$WORK\",\"pid\":1,\"started\":1}" > theirs
for kind in json new lost; do
  mkfifo "$REGISTRY/1.0000000a.$kind"
  ln -s "$WORK/theirs" "$REGISTRY/2.0000000b.$kind"
  mkdir "$REGISTRY/3.0000000c.$kind"
  ln -s "$entry" "$REGISTRY/4.0000000d.$kind"
done
[ "$(id -u)" != 0 ] || { cp theirs "$REGISTRY/5.0000000e.lost"; chown 65534 "$REGISTRY/5.0000000e.lost"; }
: > "$REGISTRY/$(printf '%0245d' 0).json"
printf '{"job":"%09000d","name":"\033[2J","run_dir":"%09000d","pid":1,"started":1}' 0 0 > "$REGISTRY/6.0000000f.lost"
echo "{\"job\":\"7\",\"name\":\"\\u001b[2Jx\",\"run_dir\":\"$WORK\",\"pid\":1,\"started\":1}" > "$REGISTRY/7.00000010.lost"
mkdir "$REGISTRY/agent.sock"
check_eq "links, fifos, folders, foreign and oversized files: the jobs are those that run" "$before" "$(timeout 60 "$F" ps -q | xargs)"
check_eq "of what is no entry of ours nothing is said, and no text moves the cursor" \
  "fsdprun ps: job 7 (?[2Jx) was killed; its run directory is $WORK" "$("$F" ps 2>&1 > /dev/null)"
check "the files that links name are as they were" test -s theirs -a -s "$entry"
check_eq "no command follows or removes what is not its own" 4 "$(find "$REGISTRY" -name '*.json' -type l -o -name '*.json' -type p -o -name '*.json' -type d | wc -l)"
check_status "--detach refuses a folder in place of the socket" 75 "$F" --detach "$T"
rmdir "$REGISTRY/agent.sock"; : > victim; ln -s "$WORK/victim" "$REGISTRY/agent.sock"
check_status "or a link" 75 "$F" --detach "$T"
rm "$REGISTRY/agent.sock"; ln -s "$WORK/victim" "$REGISTRY/agent.sock.lock"
check_status "or a link in place of its lock" 75 "$F" --detach "$T"
check_eq "and writes nothing through them" 0 "$(wc -c < victim)"
rm -f "$REGISTRY/agent.sock.lock"
: > go; wait "$holder"
check "the job that waited runs in the end" wait_until 20 test -s ran

# an agent that --detach has started, a job that waits in its queue, and one that waits for its second node
FSDPRUN_SECRET=$secret "$F" --detach --log-dir logs "$T" wait=go2 > /dev/null 2>&1
own=$(pgrep -f -- "^fsdp-agent --socket $WORK/runtime/")
port=$(port_block)
FSDPRUN_SECRET=$secret "$F" --detach --log-dir logs "$T" > /dev/null 2> own.err & queued=$!
FSDPRUN_SECRET=$secret "$F" --detach --log-dir logs --gpus 0 --nnodes 2 --node-rank 0 --rdzv-endpoint "127.0.0.1:$port" "$T" > /dev/null 2> node.err & lone=$!
wait_until 20 grep -q 'waits for' own.err
wait_until 20 grep -q 'this node hosts' node.err
waiting="$queued $lone $(tree "$own" | xargs)"
check "jobs that wait under an agent of --detach, and their clients" test "$(wc -w <<< "$waiting")" -ge 8
check_eq "have the secret in no environment while they wait" "" "$(seen environ $waiting)"

if command -v python3 > /dev/null; then
  socket=$REGISTRY/agent.sock
  attack "$socket" slow > slow-own & slow=$!
  python3 attack.py "$socket" idle 10000 flood3 & flood=$!
  check "10,000 idle connections to an agent of --detach" wait_until 60 test -s flood3
  check "hold no more of its descriptors than it allows" test "$(descriptors "$own")" -lt 330
  check_eq "giant requests as well" sent "$(attack "$socket" giant)"
  check_status "keep no job out" 0 "$F" --agent "$socket" --gpus 0 "$T"
  kill -KILL "$flood"; wait "$flood" 2> /dev/null
  wait "$slow"
  check_eq "a request of one byte at a time is cut by it too" "cut True" "$(cat slow-own)"
fi

# the secret
printf '%s\n' "$secret" > key; chmod 600 key
port=$(port_block)
nodes=(--nnodes 2 --rdzv-endpoint "127.0.0.1:$port" --gpus 0 --agent "$S")
"$F" "${nodes[@]}" --node-rank 0 --secret-file key --run-dir run --summary sum0 -r 3 "$T" touch=both wait=go-on > out0 2>&1 & first=$!
FSDPRUN_SECRET=$secret "$F" "${nodes[@]}" --node-rank 1 --run-dir run --summary sum1 -r 3 "$T" touch=both wait=go-on > out1 2>&1 & second=$!
lines_are() { [ "$(wc -l < "$1" 2> /dev/null)" = "$2" ]; }
check "a job of two nodes with a secret, by file and by variable" wait_until 30 lines_are both 2
tree=$(tree "$agent" "$first" "$second")
check "agents, guards, workers and clients are looked at" test "$(wc -w <<< "$tree")" -ge 9
check_eq "the secret is in no environment" "" "$(seen environ $tree)"
check_eq "nor in a command line" "" "$(seen cmdline $tree $waiting)"
"$F" inspect "$(pgrep -P "$agent" | head -n 1)" > inspected 2>&1
check_eq "nor in a file of the runs, of the registry, of the agent, or in what commands show" "./key" \
  "$(grep -rlF "$secret" . 2> /dev/null | grep -v '^./attack' | xargs)"

# Cores. The control is a process with the secret and no protection.
mkdir control
(cd control && FSDPRUN_SECRET=$secret exec sleep 600) & control=$!
wait_until 20 test "$(cat "/proc/$control/comm")" = sleep
kill -ABRT "$control"; wait "$control" 2> /dev/null
if grep -qrF "$secret" control; then
  rm -rf control
  kill -ABRT $(ours $waiting | grep -vx "$own") 2> /dev/null # not the workers, which have no secret
  wait "$queued" "$lone" 2> /dev/null
  kill -ABRT $(pgrep -x fsdprun-agent | grep -Fx "$tree" | xargs); wait "$first" "$second" 2> /dev/null
  check "jobs and their clients that crash while they wait, and agents of a job that runs" wait_until 20 none_alive "touch=both"
  kill -ABRT "$agent" "$own"; wait "$agent" 2> /dev/null
  check "and the agents of the node" wait_until 20 none_alive "^fsdp-agent --socket $WORK/"
  check_eq "leave no core dump" "" "$(find "$WORK" -name 'core*')"
else
  skip "core dumps" "this machine leaves none in the working directory"
  : > go-on; wait "$first" "$second"; kill -TERM "$agent"; wait "$agent"
fi
