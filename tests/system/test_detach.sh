# --detach without an agent: it finds the agent of this user, or starts one, which ends by itself.
. tests/support/shell/harness.sh
F=$BIN/fsdprun A=$BIN/fsdp-agent
export XDG_RUNTIME_DIR=$WORK/runtime TMPDIR=$WORK/temporary
S=$XDG_RUNTIME_DIR/fsdprun/agent.sock
unset FSDPRUN_AGENT
mkdir -m 700 "$XDG_RUNTIME_DIR" "$TMPDIR"
agents() { pgrep -f -- "^fsdp-agent --socket $WORK/"; }
at_exit() { agents | xargs -r kill -KILL; }
detach() { "$F" --detach --log-dir "$WORK/logs" "$@"; }

# 20 at once
mkdir "$WORK/up"
for i in $(seq 20); do
  detach "$TOY/toy" "touch=$WORK/up/$i" "wait=$WORK/go" > "$WORK/id.$i" 2> "$WORK/err.$i" & submits[i]=$!
done
statuses=
for i in $(seq 20); do wait "${submits[i]}"; statuses+=$?; done
check_eq "20 start at once without an agent: each is taken" 00000000000000000000 "$statuses"
check_eq "by one agent" 1 "$(agents | wc -l)"
agent=$(agents)
check_eq "under which all 20 run, each with an id of its own" "20 20" "$(pgrep -P "$agent" | wc -l) $(cat "$WORK"/id.* | sort -u | wc -l)"
check_match "their lines say where" "^fsdprun: job [0-9]+ runs under this user's agent, in $WORK/logs/" "$(cat "$WORK/err.1")"
check_eq "the agent says nothing to those who started it" 20 "$(cat "$WORK"/err.* | wc -l)"
check_eq "its socket is the user's alone" 600 "$(stat -c %a "$S")"
session() { awk '{ print $6 }' "/proc/$1/stat"; }
check "it has a session of its own" test "$(session "$agent")" != "$(session $$)"
check_eq "and nothing open of its client's" "/dev/null /dev/null /dev/null" "$(readlink /proc/"$agent"/fd/[012] | xargs)"
: > "$WORK/go"
gone() { [ "$("$F" ps -q | wc -l)" = 0 ]; }
check "the jobs end" wait_until 20 gone
check_match "it ends after a minute without a job" ' --idle-exit 60( |$)' "$(tr '\0' ' ' < "/proc/$agent/cmdline")"
FSDPRUN_SECRET=hush detach "$TOY/toy" "touch=$WORK/second" > "$WORK/out" 2>&1
check_eq "the next one finds it" "$agent" "$(agents)"
kill -TERM "$agent"
check "TERM ends it" wait_until 20 none_alive "^fsdp-agent --socket $WORK/"
check_eq "and leaves no file" "" "$("$F" ps -q; find "$XDG_RUNTIME_DIR" -mindepth 1)"
FSDPRUN_SECRET=hush detach "$TOY/toy" hang > "$WORK/id" 2>&1
check_eq "a secret of its client is not in the environment of an agent" 0 "$(grep -c hush "/proc/$(agents)/environ")"
kill -KILL "$(agents)"
check "SIGKILL of it ends its jobs" wait_until 20 none_alive "$TOY/toy"
check "a socket that it has left does not keep another from starting" detach "$TOY/toy"
agents | xargs kill -TERM

# an agent that the user has started
D=$XDG_RUNTIME_DIR/fsdp/agent.sock
wait_until 20 none_alive "^fsdp-agent --socket $WORK/"
"$A" 2> "$WORK/agent-log" & agent=$!
wait_until 20 grep -q serves "$WORK/agent-log"
check "an agent at the default socket is used" detach "$TOY/toy"
check "it had the job" wait_until 20 grep -q 'ended with 0' "$WORK/agent-log"
check "and none was started" none_alive "^fsdp-agent --socket $WORK/"
kill -TERM "$agent"; wait "$agent"

# the end of an agent that has nothing to do
ended() { ! kill -0 "$1" 2> /dev/null; }
"$A" --socket "$WORK/idle.sock" --idle-exit 1 2> "$WORK/agent-log" & agent=$!
wait_until 20 grep -q serves "$WORK/agent-log"
"$F" --agent "$WORK/idle.sock" --detach --log-dir "$WORK/logs" "$TOY/toy" "touch=$WORK/third" "wait=$WORK/go3" > /dev/null 2>&1
# The job runs for longer than the time after which the agent would end.
check "with a job it stays" bash -c ". tests/support/shell/harness.sh; ! wait_at_most 2 test ! -e /proc/$agent"
: > "$WORK/go3"
wait "$agent"
check_eq "without one it ends with 0" 0 $?
check "with its socket and lock" test ! -e "$WORK/idle.sock" -a ! -e "$WORK/idle.sock.lock"
check_status "0 s are no time" 2 "$A" --idle-exit 0

# An agent that ends between the connection and the request has not taken the job: another one is started.
if command -v python3 > /dev/null; then
  mkdir -p "$XDG_RUNTIME_DIR/fsdprun"; chmod 700 "$XDG_RUNTIME_DIR/fsdprun"
  begin_dying() {
    python3 -c '
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()
while True:
    c, _ = s.accept()
    if c.recv(1):  # a request, not a look whether an agent serves
        os.unlink(sys.argv[1])
        break
' "$S" & dying=$!
    wait_until 20 test -S "$S"
  }
  begin_dying
  check_status "an agent that ends before it has taken the job is no end of it" 0 detach "$TOY/toy"
  wait "$dying"
  check_eq "another has it" "$(cat "$WORK/out")" "$(sed -n 's/^fsdprun: job \([0-9]*\) runs under.*/\1/p' "$WORK/err")"
  agents | xargs kill -TERM
  wait_until 20 none_alive "^fsdp-agent --socket $WORK/"
  begin_dying
  check_status "the other agent gets the secret as well" 78 env FSDPRUN_SECRET=hush "$F" --detach --log-dir "$WORK/logs" \
    --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:1 "$TOY/toy"
  wait "$dying"
  check_match "and judges it" "FSDPRUN_SECRET: a secret has at least 16 bytes, this one has 4" "$(cat "$WORK/err")"
  agents | xargs kill -TERM
  wait_until 20 none_alive "^fsdp-agent --socket $WORK/"
else
  skip "an agent that ends before it has taken the job" "there is no python3"
fi

# what is refused
mkdir "$WORK/nothing"; cp "$F" "$WORK/nothing/fsdprun"
check_status "without an fsdp-agent beside it: 75" 75 "$WORK/nothing/fsdprun" --detach "$TOY/toy"
check_match "and a line" "cannot execute $WORK/nothing/fsdp-agent: No such file" "$(cat "$WORK/err")"
rm -rf "$XDG_RUNTIME_DIR/fsdprun"; mkdir "$WORK/elsewhere"; ln -s "$WORK/elsewhere" "$XDG_RUNTIME_DIR/fsdprun"
check_status "a folder that is a symbolic link is refused" 78 "$F" --detach "$TOY/toy"
check_eq "nothing is written through it" "" "$(ls "$WORK/elsewhere")"
rm "$XDG_RUNTIME_DIR/fsdprun"
long=$WORK/$(printf '%0100d' 0); mkdir -m 700 "$long"
check_status "a path that no socket can have is refused" 78 env XDG_RUNTIME_DIR="$long" "$F" --detach "$TOY/toy"
check_match "with what to do" "give --agent" "$(cat "$WORK/err")"
