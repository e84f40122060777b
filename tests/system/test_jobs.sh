# The commands over jobs: ps, status, logs, events, stop, restart, inspect, and the sockets and files they use.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
F=$BIN/fsdprun T=$TOY/toy
export XDG_RUNTIME_DIR=$WORK/runtime
REGISTRY=$XDG_RUNTIME_DIR/fsdprun
mkdir -m 700 "$XDG_RUNTIME_DIR" "$WORK/temporary"
export TMPDIR=$WORK/temporary # jobs of other tests are listed below the usual one
cd "$WORK" || exit 1
at_exit() { kill -KILL $(jobs -p) 2> /dev/null; }

# field KEY: a member of the one object that `ps` lists
field() { "$F" ps --json | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
state_is() { [ "$(field state)" = "$1" ]; }
number_of_jobs() { "$F" ps -q | wc -l; }
jobs_are() { [ "$(number_of_jobs)" = "$1" ]; }
is_listed() { "$F" ps -q 2> /dev/null | grep -qx "$pid"; }
# hanging FILE OPTIONS...: two ranks that hang, once both have touched FILE, and the run is listed
hanging() {
  local up=$1; shift
  env --default-signal=INT "$F" --nproc-per-node 2 "$@" "$T" say=one err=two touch="$up" hang > "$up.out" 2>&1 &
  pid=$!
  wait_until 20 lines_are "$up" 2
  wait_until 20 is_listed
}
lines_are() { [ "$(wc -l < "$1" 2> /dev/null)" = "$2" ]; }

# only_json COMMAND: is `json` JSON? inspect has one value over several lines, others one a line
only_json() { if [ "$1" = inspect ]; then "$TOY/json_check" json; else "$TOY/json_check" -l json; fi; }

# nothing runs
check_eq "without a job there is an empty array" "[]" "$("$F" ps --json)"
check_status "no job: the status of a missing input, and a line" 66 "$F" status nothing
check_match "which names the job" "no job nothing runs here" "$(cat err)"
check_eq "asking makes no folder" "" "$(ls "$XDG_RUNTIME_DIR")"

# one program
hanging up --max-restarts 1
check_eq "the registry is its user's alone, and so are entry and socket" "700 600 600" \
  "$(stat -c %a "$REGISTRY" "$REGISTRY"/*.json "$REGISTRY"/*.sock | xargs)"
check_match "ps has the object of the contract" \
  "^\[\{\"job\":\"$pid\",\"name\":\"toy\",\"state\":\"running\",\"nodes\":1,\"ranks\":2,\"generation\":0,\"step\":null,\"loss\":null,\"tokens_per_s\":null,\"restarts\":0,\"age_s\":[0-9.]+,\"run_dir\":.*\}\]$" \
  "$("$F" ps --json)"
check_match "and a table for a person" "^$pid +toy +running +1 +2 +0 +- +- +- +0 +[0-9ms]+$" "$("$F" ps)"
check_eq "-q has the ids, --names the names" "$pid toy" "$("$F" ps -q --names | xargs)"
check_eq "status has the workers" "$(awk '{ print $1 ":" $2 }' up | sort | xargs)" \
  "$("$F" status --json "${pid:0:3}" | grep -o '"rank":[0-9]*,"node":0,"pid":[0-9]*' | sed 's/"rank":\([0-9]*\).*"pid":/\1:/' | sort | xargs)"
for command in ps status top events inspect; do
  "$F" $command --json $([ $command = ps ] || echo toy) > json
  check_eq "$command --json ends well" 0 $?
  check "... with a value of JSON on each line" only_json $command
done
check_match "inspect has the command line" '"command":\s*\[.*"--max-restarts", "1"' "$("$F" inspect to)"
check_match "and no environment" '"max_restarts":\s*1' "$(SECRET=x "$F" inspect toy | grep -v XDG)"
check_status "a program cannot be asked to save: only a job can" 78 "$F" stop --save toy
check_match "which is said" "only a job can" "$(cat err)"
check_status "nor has it logs, unless they are kept" 66 "$F" logs toy
check_status "restart: a generation more, without a failure" 0 "$F" restart toy
check "both run again" wait_until 20 lines_are up 4
check_eq "and no restart is counted" "1 0 running" "$(field generation) $(field restarts) $(field state)"
check_eq "the line says why" 1 "$(grep -c 'a restart was asked for; starting again' up.out)"
"$F" events -f toy > events 2>&1 & follower=$!
wait_until 20 grep -q restart_asked events
check_status "stop waits for the end" 0 "$F" stop toy
check "no worker is left" none_alive "touch=up"
wait "$pid"
check_eq "the status of the job is TERM's" 143 $?
wait "$follower"
check_eq "events -f ends with the job" 0 $?
check_match "and has its last event" '"event": "exit", "generation": 1' "$(tail -n 2 events)"
check_eq "the registry is gone with its last entry" "" "$(ls "$XDG_RUNTIME_DIR")"

# logs
hanging kept --log-dir logs -r 3
check_eq "logs: what the ranks wrote, with the rank" "[rank 0]: one [rank 1]: one" "$("$F" logs toy 2> logs.err | xargs)"
check_eq "their stderr on stderr" "[rank 0]: two [rank 1]: two" "$(xargs < logs.err)"
check_eq "--rank has one" "[rank 1]: one" "$("$F" logs --rank 1 toy 2> /dev/null)"
"$F" logs --json toy > json 2> logs.err
check_eq "--json has both streams on stdout, an object a line" \
  '{"rank": 0, "stream": "stderr", "line": "two"} {"rank": 0, "stream": "stdout", "line": "one"} {"rank": 1, "stream": "stderr", "line": "two"} {"rank": 1, "stream": "stdout", "line": "one"}' \
  "$(sort json | xargs -d '\n')"
check "... and nothing on stderr" test ! -s logs.err
check_status "a rank that the job has not" 2 "$F" logs --rank 7 toy
check_match "is refused, with those that it has" "^fsdprun logs: no rank 7 ran here: the ranks are 0 to 1$" "$(cat err)"
run=$(field run_dir)
index=$(find "$run" -name index.jsonl)
cp "$index" whole && grep '"rank": 0,' whole > "$index"
check_eq "a rank of the job whose log is not there yet has no lines" 0 "$("$F" logs --rank 1 toy 2>&1; echo $?)"
check_status "... but one that the job has not is still refused" 2 "$F" logs --rank 7 toy
cp whole "$index"
check_eq "a run directory means the job that runs there" "$("$F" logs toy 2> /dev/null)" "$("$F" logs "$run" 2> /dev/null)"
"$F" logs -f "$run" > of_directory 2> /dev/null & by_directory=$!
"$F" logs -f toy > followed 2>&1 & follower=$!
wait_until 20 lines_are followed 4
check_status "a restart while logs are followed" 0 "$F" restart toy
check "their lines come, of the new generation too" wait_until 20 lines_are followed 8
"$F" stop toy
wait "$follower"
check_eq "logs -f ends with the job" 0 $?
wait "$by_directory"
check_eq "... and so does that of its directory" 0 $?
wait "$pid"
check_eq "once it has ended the directory has the logs of both generations" \
  "0 [rank 0]: one [rank 0]: one [rank 1]: one [rank 1]: one" "$("$F" logs "$run" > ended 2> /dev/null; echo $? $(sort ended))"
check_eq "-f prints them all, and ends" "$(cat ended)" "$(timeout 300 "$F" logs -f "$run" 2> /dev/null)"
check_eq "events reads its file" "$(cat "$run/events.jsonl")" "$(timeout 300 "$F" events -f "$run")"
check_status "a directory that is of no run" 66 "$F" logs "$WORK/temporary"
check_match "is named" "temporary has no such files" "$(cat err)"
check_status "... by events too" 66 "$F" events "$WORK/temporary"
check_status "a name that means neither job nor directory" 66 "$F" logs nothing
check_match "is said to be neither" "nothing is no run directory, and no job of that name runs here" "$(cat err)"
cp -r "$run" odd
index=$(find odd -name index.jsonl | head -n 1)
for file in odd/events.jsonl "${index%/*}"/*/stdout.log; do rm "$file" && mkfifo "$file"; done
mkfifo "${index%/*}/index.node1.jsonl" "${index%/*}/index.node2.jsonl"
exec 9<> "${index%/*}/index.node1.jsonl"
check_eq "logs reads no FIFO in place of an index or a log, also if it has a writer" "0 [rank 0]: two" \
  "$(timeout 60 "$F" logs --rank 0 odd > odd.out 2> odd.err; echo $? $(sort -u odd.err))"
check_eq "... nor events in place of its file" 0 "$(timeout 60 "$F" events -f odd; echo $?)"
exec 9>&-
"$F" --log-dir logs -r 3 "$T" say=early wait=go say=late hang > since.out 2>&1 & pid=$!
wait_until 20 is_listed
has_printed() { "$F" logs toy 2> /dev/null | grep -q "$1"; }
wait_until 20 has_printed early
since=$(($(date +%s) + 2)) # what is written within a second is told apart by no time
is_past() { [ "$(date +%s)" -ge "$since" ]; }
wait_until 20 is_past
touch go
wait_until 20 has_printed late
check_eq "--since leaves out what is older" "[rank 0]: late" "$("$F" logs --since "$(date -d "@$since" +%FT%T)" toy)"
check_eq "... and has what is younger" "[rank 0]: early [rank 0]: late" "$("$F" logs --since 1d toy | xargs)"
check_eq "--tail has the last lines of a log" "[rank 0]: late" "$("$F" logs --tail 1 toy 2> /dev/null)"
check_eq "... and all of them where it has fewer" "[rank 0]: early [rank 0]: late" "$("$F" logs --tail 3 toy 2> /dev/null | xargs)"
check_eq "... none for 0" "" "$("$F" logs --tail 0 toy 2> /dev/null)"
check_status "a time that is none" 2 "$F" logs --since yesterday toy
check_eq "... with -f too" "[rank 0]: late" "$(timeout 300 "$F" logs -f --since "$(date -u -d "@$since" +%FT%TZ)" toy 2> /dev/null | { read -r line; echo "$line"; "$F" stop toy > /dev/null; })"
wait "$pid"

# no rank has started yet
"$F" --insecure --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:"$(port_block)" --log-dir logs -r 3 "$T" hang > early.out 2>&1 & pid=$!
wait_until 20 is_listed
check_eq "logs of a job that waits for a node: none yet, also of one rank" "0 0" "$("$F" logs toy 2>&1; echo $?) $("$F" logs --rank 1 toy 2>&1; echo $?)"
check_status "a rank that it will not have" 66 "$F" logs --rank 7 toy
"$F" stop toy
wait "$pid"

# a job
tiny_job job.yaml
long=(--set train.steps=1000000 --set checkpoint.every=1000000 --set checkpoint.keep=2)
"$F" job.yaml "${long[@]}" > job.out 2>&1 & pid=$!
steps() { local s; s=$(field step); [ "${s:-null}" != null ] && [ "$s" -ge "$1" ]; }
check "the step of a job is live" wait_until 30 steps 10
check_match "and so are its loss and its pace" '"loss":[0-9.]+,"tokens_per_s":[0-9.]+' "$("$F" ps --json)"
check_match "inspect has the job" '"job_file":\s*\{' "$("$F" inspect tiny)"
check_match "a worker has a phase" '"phase":"[a-z]+","step":[0-9]+' "$("$F" status --json tiny)"
check_status "a job restarts" 0 "$F" restart tiny
resumed() { "$F" events tiny | grep -q '"event": "resume", "generation": 1.*"source": "\(disk\|memory\)"'; }
check "from the step that it saved" wait_until 30 resumed
lost_nothing() { "$F" events tiny | grep -q '"event": "timeline", "generation": 1.*"lost_steps": 0,'; }
check "... which loses none" wait_until 30 lost_nothing
check "it goes on" wait_until 30 steps 1
check_status "stop --save: 0 once it has saved" 0 "$F" stop --save tiny
wait "$pid"
check_eq "and its own status is 77" 77 $?
"$F" job.yaml "${long[@]}" > job.out 2>&1 & pid=$!
wait_until 30 steps 1
check_status "stop without saving" 0 "$F" stop --json tiny
check_match "says how the job ended" '"ended":143' "$(cat out)"
wait "$pid"

# names
hanging a --rdzv-id alpha; first=$pid
hanging b --rdzv-id alpine; second=$pid
wait_until 20 jobs_are 2
check_status "a prefix of two is refused" 2 "$F" status alp
check_match "with both named" "$first \(alpha\), $second \(alpine\)" "$(cat err)"
check_status "a prefix of one is not" 0 "$F" status alph
check_eq "the oldest comes first" "$first $second" "$("$F" ps -q | xargs)"

# several at once
hanging f --rdzv-id several-1 --shutdown-timeout 600; third=$pid
hanging g --rdzv-id several-2; fourth=$pid
check_status "stop of several: the status is that of the first that failed" 66 "$F" stop --json several-1 nothing "$fourth" several-1
check_eq "all others have ended, each with an object, in the order of the words" "143 143 2" \
  "$(wait "$third"; echo $?) $(wait "$fourth"; echo $?) $(grep -c '"ended":143' out)"
check_match "the one that is not there is said" "^fsdprun stop: no job nothing runs here" "$(cat err)"

# crashes
kill -KILL "$(pgrep -P "$second" -x fsdprun-agent)"
wait "$second"
check_eq "a run whose agent was killed is ignored, and swept" "$first 2" "$("$F" ps -q) $(ls "$REGISTRY" | grep -c "^$first\.")"
check_eq "no socket of it is left" 1 "$(ls "$REGISTRY" | grep -c sock)"
check_match "ps says where its run directory is" "job $second \(alpine\) was killed; its run directory is /" "$("$F" ps 2>&1 > /dev/null)"
for command in status logs events stop; do
  check_status "$command of it ends with 66" 66 "$F" $command alpine
  check_match "... and says so too" "^fsdprun $command: job $second was killed; .* run directory: /" "$(cat err)"
done
check_match "events reads it there" '"event": "spawn"' "$("$F" events "$(sed 's/.*: //' err)")"
for i in $(seq 10 19); do sed "s/\"job\": \"$second\"/\"job\": \"$i\"/" "$REGISTRY/$second".*.lost > "$REGISTRY/$i.1234abcd.lost"; done
check_eq "of many it names eight and counts the others" "fsdprun ps: 3 more 8" \
  "$("$F" ps 2>&1 > /dev/null | sed -n '1s/ jobs were killed.*//p; 2,$s/ was killed.*//p' | awk 'NR == 1 { first = $0 } END { print first, NR - 1 }')"
rm "$REGISTRY"/1?.1234abcd.lost
kill -STOP "$(pgrep -P "$first" -x fsdprun-agent)"
check_match "one that does not answer is listed without a state" '"name":"alpha","state":null' "$("$F" ps --json)"
check_status "and asking for its status says so" 75 "$F" status alpha
kill -CONT "$(pgrep -P "$first" -x fsdprun-agent)"
check "it answers again" wait_until 20 state_is running

# attacks
socket=$(ls "$REGISTRY"/*.sock)
cat > attack.py << 'PYTHON'
import os, resource, socket, sys, time

path, how = sys.argv[1], sys.argv[2]

def dial(blocking=True):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s

def answer(s):
    got = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                return got
            got += more
    except ConnectionResetError:
        return got

if how == "idle":
    want = 10000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, want + 100), hard))
    held = []
    while len(held) < want:
        held.append(dial())
    open(sys.argv[3], "w").write("up")
    time.sleep(600)
elif how == "say":
    s = dial()
    s.sendall(eval(sys.argv[3]))
    sys.stdout.buffer.write(answer(s)[:200])
elif how == "slow":  # a byte at a time never makes a line
    s = dial()
    began = time.time()
    try:
        while time.time() - began < 60:
            s.send(b"p")
            time.sleep(0.1)
    except (BrokenPipeError, ConnectionResetError):
        pass
    print("cut", time.time() - began < 30)
elif how == "deaf":  # asks, and takes nothing
    held = []
    for i in range(200):
        s = dial()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        s.sendall(b"inspect\n")
        held.append(s)
    print("asked")
elif how == "waits":  # as many as there are places wait for the end of the run
    held = []
    for i in range(64):
        s = dial()
        s.sendall(b"restart\n")
        held.append(s)
PYTHON
attack() { timeout 60 python3 attack.py "$socket" "$@"; }
if command -v python3 > /dev/null; then
  check_match "a giant line is refused" '"refused": 2' "$(attack say 'b"x" * 100000')"
  check_match "an unknown one too" '"refused": 2' "$(attack say 'b"ps now\n"')"
  check_eq "a line with a zero is none of ours" 1 "$(attack say 'b"ps\0\n"' | grep -c job)"
  check_match "bytes that are no text are refused" '"refused": 2' "$(attack say 'bytes(range(128, 160)) + b"\n"')"
  check_eq "a slow one is cut" "cut True" "$(attack slow)"
  check_eq "callers that take nothing" asked "$(attack deaf)"
  check "do not keep others from an answer" state_is running
  python3 attack.py "$socket" idle flood & flood=$!
  check "10,000 idle connections" wait_until 60 test -s flood
  agent=$(pgrep -P "$first" -x fsdprun-agent)
  check "hold no more descriptors of the run than it allows" test "$(ls "/proc/$agent/fd" | wc -l)" -lt 120
  check "nor keep others from an answer" state_is running
  kill -KILL "$flood"
  wait "$flood" 2> /dev/null
  if [ "$(id -u)" = 0 ] && command -v setpriv perl > /dev/null; then
    chmod 711 "$WORK" "$XDG_RUNTIME_DIR"
    other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
    say='use IO::Socket::UNIX; $SIG{PIPE} = "IGNORE"; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!\n"; $s->syswrite("stop\n"); print "connected ", <$s>;'
    check_eq "another user does not reach the socket" "Permission denied" "$(other perl -e "$say" "$socket" 2>&1)"
    chmod 711 "$REGISTRY"; chmod 666 "$socket"
    check_eq "and with all modes open gets no answer" "connected " "$(other perl -e "$say" "$socket" 2>&1)"
    check_status "a registry that others may enter is refused" 78 "$F" ps
    chmod 700 "$REGISTRY"; chmod 600 "$socket"
    check "the job runs on" state_is running
  else
    skip "another user" "only root can become another one"
  fi
else
  skip "attacks on the socket" "there is no python3"
fi
"$F" stop alpha
wait "$first"

# folders that are refused
rm -rf "$REGISTRY" # of a run that was killed it keeps where that has left its files
mkdir elsewhere
ln -s "$WORK/elsewhere" "$REGISTRY"
check_status "a registry that is a symbolic link is refused" 78 "$F" ps
check_match "which is said" "symbolic link" "$(cat err)"
check_status "a run goes on without it" 0 "$F" "$T"
check_match "and says that it is not listed" "ps. does not show this run.*symbolic link" "$(cat err)"
check_eq "nothing was written through the link" "" "$(ls elsewhere)"
env -u XDG_RUNTIME_DIR "$F" "$T" hang > below.out 2>&1 & pid=$!
wait_until 20 is_listed
check_eq "a job that is in the other folder is listed, and stopped" "78 $pid 0" \
  "$("$F" ps -q 2> /dev/null > listed; echo $? $(cat listed)) $("$F" stop toy 2> /dev/null; echo $?)"
wait "$pid"
rm "$REGISTRY"
if [ "$(id -u)" = 0 ]; then
  mkdir -m 700 "$REGISTRY"; chown 65534 "$REGISTRY"
  check_status "a registry of another user is refused" 78 "$F" ps
  check_status "a run goes on" 0 "$F" "$T"
  rmdir "$REGISTRY"
  mkdir theirs; chown 65534 theirs
  hanging c; rm -f c
  check_eq "a runtime directory of another user is not used" "1 0" \
    "$(XDG_RUNTIME_DIR=$WORK/theirs TMPDIR=$WORK/elsewhere "$F" ps -q | wc -l | sed s/0/1/) $(ls theirs | wc -l)"
  "$F" stop toy
fi
unset XDG_RUNTIME_DIR
export TMPDIR=$WORK/elsewhere
hanging d
check_eq "without a runtime directory it is below the temporary one" "700 $pid" \
  "$(stat -c %a "elsewhere/fsdprun-$(id -u)") $("$F" ps -q)"
"$F" stop toy
wait "$pid"

# a symbolic link as an entry
export XDG_RUNTIME_DIR=$WORK/runtime
hanging e
ln -s /etc/passwd "$REGISTRY/1.00000001.json"
ln -s "$(ls "$REGISTRY"/"$pid".*.json)" "$REGISTRY/2.00000002.json"
head -c 100000 /dev/zero > "$REGISTRY/3.00000003.json"
check_eq "links and garbage among the entries are ignored" "$pid" "$("$F" ps -q)"
"$F" stop toy
wait "$pid"

# the jobs of an agent
rm -rf "$REGISTRY"
"$BIN/fsdp-agent" --socket "$WORK/agent.sock" 2> agent-log & agent=$!
wait_until 20 test -S agent.sock
id=$("$F" --agent "$WORK/agent.sock" --detach --nproc-per-node 2 "$T" touch=g hang 2> /dev/null)
check_match "a detached job has an id" '^[0-9]+$' "$id"
check_eq "a detached job is listed by the id that it was given" "$id" "$("$F" ps -q)"
check_status "and stopped by it" 0 "$F" stop "$id"
check_eq "so that no job is left" 0 "$(number_of_jobs)"
kill -TERM "$agent"
wait "$agent"
