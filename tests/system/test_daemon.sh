# fsdp-agent as a service: the same runs as fsdprun's own, and nothing left of them when any part goes.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
F=$BIN/fsdprun A=$BIN/fsdp-agent
S=$WORK/own/agent.sock
agent=
at_exit() { [ -z "$agent" ] || { kill -TERM "$agent"; kill -TERM "$agent"; wait "$agent"; } 2> /dev/null; }

start_agent() {
  "$A" --socket "$S" --pidfile "$WORK/pid" --config "$WORK/agent.conf" 2>> "$WORK/agent-log" & agent=$!
  wait_until 20 grep -qx $agent "$WORK/pid"
}
# A job of ours, that is named by the file it touches, is alive when processes with that name are.
none_left() { none_alive "$WORK/up"; }
begin_hanging() { # name, options of fsdprun...
  rm -f "$WORK/up"
  # A shell's background jobs ignore INT, and what was ignored stays so.
  env --default-signal=INT,QUIT "$F" --agent "$S" "$@" "$TOY/toy" daemon child "touch=$WORK/up" hang 2> "$WORK/err" & client=$!
  wait_until 20 test -s "$WORK/up"
}

start_agent
check_eq "the socket is its owner's alone, and so is its folder" "600 700" "$(stat -c %a "$S" "$WORK/own" | xargs)"
check_eq "the pidfile names it" $agent "$(cat "$WORK/pid")"

# a run is what it is without the agent
mkdir "$WORK/here dir"
unnumbered() {
  sed -E 's/pid [0-9]+/pid N/; s/fd=[0-9]{2}/fd=NN/; s,/[^ ]*/fsdprun_[^/ ]*/[^/ ]*,RUN,g' <<< "$1"
}
same() { # name, arguments of fsdprun...: exit status and output, embedded and by the agent
  local name=$1 direct by_agent; shift
  direct=$(cd "$WORK/here dir" && umask 027 && ulimit -S -n 300 && echo input | SPECIAL=$'a\xffb' "$F" "$@" 2>&1; echo "status $?")
  by_agent=$(cd "$WORK/here dir" && umask 027 && ulimit -S -n 300 && echo input | SPECIAL=$'a\xffb' "$F" --agent "$S" "$@" 2>&1; echo "status $?")
  check_eq "$name" "$(unnumbered "$direct")" "$(unnumbered "$by_agent")"
}
same "the environment, limits, umask and affinity are fsdprun's" sh -c 'echo "$SPECIAL"; umask; ulimit -n; pwd; nproc; id -u'
same "so is the terminal's side" "$TOY/toy" read say=out err=err
same "threads of a worker are the same" --nproc-per-node 2 -t 1 "$TOY/toy" rank=0 env=OMP_NUM_THREADS
same "an exit status is the same" "$TOY/toy" exit=17
same "a program that is not there is the same" "$WORK/absent"
same "captured output is the same" -t 3 -q --nproc-per-node 1 "$TOY/toy" say=one say=two exit=3
same "signals are neither blocked nor ignored" "$TOY/toy" mask
same "the words of the command line are the same" sh -c 'printf "<%s>" "$@"' x "" "a  b" --agent y
same "no descriptor comes along" "$TOY/toy" fds
same "restarts are the same" --max-restarts 2 "$TOY/toy" before=2 exit=9 say=third
"$F" --agent "$S" --log-dir "$WORK/logs" -r 3 --nproc-per-node 2 "$TOY/toy" say=kept
check_eq "logs are kept where fsdprun was told to" "kept kept" "$(cat "$WORK"/logs/*/attempt_0/?/stdout.log | xargs)"
cd "$WORK/here dir" || exit 1
"$F" --agent "$S" --log-dir relative -r 3 ./../../"${TOY#/}"/absent 2> /dev/null
check_match "a relative log directory is below fsdprun's working directory" "errors.json" "$(ls relative/*)"
cd "$SOURCE" || exit 1

# who runs it
mkdir "$WORK/elsewhere"
cp "$F" "$WORK/elsewhere/fsdprun"
ln -s "$F" "$WORK/elsewhere/torchrun"
printf '#!/bin/sh\n[ "$1" != -u ] || shift\nexec sh "$@"\n' > "$WORK/python"; chmod +x "$WORK/python"
check_eq "a job runs under the fsdprun next to the agent, not under the client's" "$(readlink -f "$F")" \
  "$("$WORK/elsewhere/fsdprun" --agent "$S" sh -c 'readlink /proc/$PPID/exe')"
echo 'echo yes' > "$WORK/x"
check_eq "called torchrun it is torchrun there, and FSDPRUN_AGENT serves as --agent" yes \
  "$(FSDPRUN_AGENT=$S PYTHON_EXEC=$WORK/python "$WORK/elsewhere/torchrun" "$WORK/x")"

# a job trains to the same bits
tiny_job "$WORK/train.yaml"
check_status "a job trains" 0 "$F" --log-dir "$WORK/by-itself" "$WORK/train.yaml"
check_status "and by the agent" 0 "$F" --agent "$S" --log-dir "$WORK/by-agent" "$WORK/train.yaml"
check_eq "to the same metrics, bit for bit" \
  "$(figures "$WORK/by-itself/tiny")" "$(figures "$WORK/by-agent/tiny")"
check_eq "of every step" 20 "$(figures "$WORK/by-agent/tiny" | wc -l)"
check_eq "and the same weights" "$(payloads "$WORK/by-itself/tiny/checkpoints/step-00000020")" \
  "$(payloads "$WORK/by-agent/tiny/checkpoints/step-00000020")"
check_match "its lines reach the client" 'step 20/20' "$(cat "$WORK/out")"
check_status "a data file that is not there: the trainer's own status" 66 "$F" --agent "$S" \
  --log-dir "$WORK/nodata" --set data.path=/nowhere "$WORK/train.yaml"

# several at once
for i in 1 2 3; do "$F" --agent "$S" "$TOY/toy" "touch=$WORK/at-$i" "wait=$WORK/go" exit=$i & jobs[i]=$!; done
for i in 1 2 3; do wait_until 20 test -s "$WORK/at-$i" || not_ok "job $i of three at once runs"; done
: > "$WORK/go"
for i in 1 2 3; do wait "${jobs[i]}"; echo $?; done > "$WORK/statuses" 2> "$WORK/err"
check_eq "three jobs run at once, each with its own end" "1 2 3" "$(xargs < "$WORK/statuses")"

# the end of a client
begin_hanging --nproc-per-node 2
kill -KILL $client; wait $client 2> "$WORK/err"
check "SIGKILL of fsdprun ends its job, grandchildren included" wait_until 10 none_left
begin_hanging
kill -TERM $client; wait $client
check_eq "SIGTERM is passed on, and the status comes back" "143 yes" "$? $(none_left && echo yes)"
begin_hanging --shutdown-timeout 600
kill -INT $client; kill -INT $client; wait $client
check_eq "so is Ctrl-C, twice" "130 yes" "$? $(none_left && echo yes)"
# The signal and the word that the job was accepted wait for the client at once: it is stopped from before the
# agent reads its request until the workers run.
waits() { grep -qx fsdprun "/proc/$1/comm" && grep -q '^State:.S' "/proc/$1/status"; }
kill -STOP $agent
"$F" --agent "$S" --forward-signals USR1 "$TOY/toy" "catch=10:$WORK/caught" "touch=$WORK/catching" "wait=$WORK/caught" & client=$!
wait_until 20 waits $client; kill -STOP $client; kill -CONT $agent
wait_until 20 test -s "$WORK/catching"; kill -USR1 $client; kill -CONT $client; wait $client
check_eq "SIGUSR1 reaches the workers where it is to be forwarded" "0 0 10" "$? $(cat "$WORK/caught")"

in_state() { [ "$(awk '/^State/ {print $2}' "/proc/$1/status")" = "$2" ]; }
begin_hanging
worker=$(awk '{print $2}' "$WORK/up" | tail -n 1)
kill -TSTP $client
wait_until 20 in_state $client T && wait_until 20 in_state $worker T; stopped=$?
kill -CONT $client
wait_until 20 in_state $client S && wait_until 20 in_state $worker S
check_eq "Ctrl-Z stops it all, fg lets it go on" "0 0" "$stopped $?"
kill -TSTP $client; wait_until 20 in_state $worker T
kill -KILL $client; wait $client 2> "$WORK/err"
check "SIGKILL of fsdprun after Ctrl-Z ends its job" wait_until 10 none_left

for depth in outer inner; do
  begin_hanging
  victim=$(pgrep -P $agent)
  [ $depth = outer ] || victim=$(pgrep -P "$victim")
  kill -KILL "$victim"; wait $client
  check_eq "SIGKILL of a job's $depth process ends the job" 137 $?
  check "with everything it had started" wait_until 10 none_left
done

# detached
rm -f "$WORK/go"
"$F" --agent "$S" --detach --log-dir "$WORK/det" "$TOY/toy" say=begun err=e "touch=$WORK/det-up" "wait=$WORK/go" say=ended > "$WORK/out" 2> "$WORK/err"
check_eq "a detached job lets fsdprun go" 0 $?
check_match "which says what runs where" "job [0-9]+ runs under the agent at $S, in $WORK/det/" "$(cat "$WORK/err")"
check_eq "and has its id alone on stdout" "$(pgrep -P $agent)" "$(cat "$WORK/out")"
wait_until 20 test -s "$WORK/det-up"; : > "$WORK/go"
check "and goes on without it, its output in its files" wait_until 20 grep -q ended "$WORK"/det/*/attempt_0/0/stdout.log
wait_until 20 none_alive "$WORK/det-up"
"$F" --agent "$S" --detach --log-dir /dev/null "$TOY/toy" 2> "$WORK/err"
check_eq "output that has nowhere to go is refused" "2 1" "$? $(grep -c -- --detach "$WORK/err")"
TMPDIR=$WORK "$F" --agent "$S" --detach "$TOY/toy" say=kept err=too > "$WORK/out" 2> "$WORK/err"
kept=$(sed -n 's/.*, in //p' "$WORK/err")
check "without --log-dir it keeps its output where it says" wait_until 20 grep -q kept "$kept/attempt_0/0/stdout.log"
check "of both streams" wait_until 20 grep -q too "$kept/attempt_0/0/stderr.log"
"$F" --agent "$S" --detach --log-dir "$WORK/det" "$WORK/absent" > "$WORK/out" 2> "$WORK/err"
check_eq "a detached program that is not there: its status, no id" "127 0" "$? $(wc -c < "$WORK/out")"
check_match "and its line" "absent: No such file" "$(cat "$WORK/err")"
port=$(port_block)
"$F" --agent "$S" --detach --log-dir "$WORK/det" --nnodes 2 --insecure --rdzv-endpoint "127.0.0.1:$port" "$TOY/toy" > "$WORK/out" 2> "$WORK/err" & client=$!
wait_until 20 grep -q "waiting for the others" "$WORK/err"
kill -TERM $client; wait $client
check_eq "a signal before it has started ends it, and fsdprun with it" "143 0 " "$? $(wc -c < "$WORK/out") $(pgrep -P $agent)"
long() {
  "$F" --agent "$S" --detach --nproc-per-node 2 --log-dir "$WORK/long" --set train.steps=1000000 --set checkpoint.every=1000000 "$WORK/train.yaml"
}
long > "$WORK/out" 2> "$WORK/err"
check_eq "a detached job of a file runs" "0 $(cat "$WORK/out")" "$? $(pgrep -P $agent)"
long > "$WORK/out" 2> "$WORK/err"
check_eq "on a run directory that is held it is refused, as it would be here" "78 0" "$? $(wc -c < "$WORK/out")"
check_match "with the line that names the holder" "another live job .* holds the run directory $WORK/long/tiny" "$(cat "$WORK/err")"

# signals to the agent
reload() { # LINE WORDS: reads a configuration of that line, and says so
  echo "$1" > "$WORK/agent.conf"
  : > "$WORK/agent-log"
  kill -HUP $agent
  wait_until 20 grep -q "$2" "$WORK/agent-log"
}
reload "drain = yes" "agent.conf has been read again"
"$F" --agent "$S" "$TOY/toy" > "$WORK/out" 2> "$WORK/err"
check_eq "HUP reads the configuration again: drain takes no new jobs" "75 1" "$? $(grep -c 'takes no new jobs' "$WORK/err")"
check_eq "and leaves those that run alone" 1 "$(pgrep -cP $agent)"
reload "drian = no" "agent.conf:1: there is no key.*stays as it was"
check_status "a wrong one changes nothing" 75 "$F" --agent "$S" "$TOY/toy"
reload "drain = no" "agent.conf has been read again"
check_status "a right one does" 0 "$F" --agent "$S" "$TOY/toy" exit=0
echo "drain" > "$WORK/wrong.conf"
check_status "at the start a wrong configuration is refused" 78 "$A" --socket "$WORK/own/wrong" --config "$WORK/wrong.conf"
wait_until 60 grep -q '"step": 2,' "$WORK/long/tiny/metrics.jsonl"
kill -TERM $agent; wait $agent
check_eq "TERM of the agent: a job of a file saves and ends" "0 1" "$? $(find "$WORK"/long/tiny/checkpoints -name manifest.json | wc -l)"
start_agent
for socket in "$S" "$WORK/own/other.sock"; do
  "$A" --socket "$socket" --pidfile "$WORK/pid" 2> "$WORK/err"
  check_eq "a second agent leaves the pidfile as it is" "75 $agent 1" "$? $(cat "$WORK/pid") $(grep -c 'another agent' "$WORK/err")"
done
check "nor does it leave a socket" test ! -e "$WORK/own/other.sock"

rm -f "$WORK/up"
"$F" --agent "$S" --detach --log-dir "$WORK/det" "$TOY/toy" daemon "touch=$WORK/up" hang > "$WORK/out" 2> "$WORK/err"
wait_until 20 test -s "$WORK/up"

# the end of the agent (the detached job runs)
cp "$WORK/up" "$WORK/up-detached"
"$F" --agent "$S" "$TOY/toy" daemon "touch=$WORK/up" hang 2> "$WORK/err" & client=$!
wait_until 20 sh -c "[ \$(wc -l < '$WORK/up') = 2 ]"
"$A" --socket "$S" 2> "$WORK/err2"
check_eq "a second agent on the socket is refused" "75 1" "$? $(grep -c 'another agent serves' "$WORK/err2")"
kill -KILL $agent; wait $agent 2> /dev/null; agent=
wait $client
check_eq "SIGKILL of the agent: fsdprun says so" "76 1" "$? $(grep -c 'is gone' "$WORK/err")"
check "and nothing of any job is left" wait_until 10 none_left
"$F" --agent "$S" "$TOY/toy" 2> "$WORK/err"
check_eq "no agent there: one line and 75" "75 1" "$? $(wc -l < "$WORK/err")"
start_agent # the old socket is still there, so that only an answer shows the new agent
check "a socket left behind is taken over" wait_until 20 "$F" --agent "$S" "$TOY/toy"
begin_hanging
kill -TERM $agent; wait $agent
check_eq "TERM ends the agent well" 0 $?
agent=
wait $client
check_eq "after its jobs" "143 yes" "$? $(none_left && echo yes)"
check "the socket and the pidfile are gone with it" test ! -e "$S" -a ! -e "$WORK/pid"

# who may not
mkdir -m 777 "$WORK/open"
check_status "a folder that others may write is refused" 78 "$A" --socket "$WORK/open/s"
: > "$WORK/own/file"
check_status "a file that is no socket is left alone" 78 "$A" --socket "$WORK/own/file"
check "and stays" test -f "$WORK/own/file"
check_status "a path that no socket can have is refused" 2 "$A" --socket "$WORK/$(printf '%0120d' 0)"
check_status "a folder that cannot be made is an I/O error" 74 "$A" --socket /proc/none/s
check_status "bad usage is 2" 2 "$A" --sockt x
check_status "a job to run is named by a descriptor's number" 2 "$A" --run-job 3x
check_status "an argument too many is 2" 2 "$A" now
start_agent
begin_hanging # what follows must not touch it
for kind in garbage huge empty nofds signal; do
  check_match "$kind is refused" "^text: " "$("$TOY/bad_client" "$S" $kind)"
done
check_match "half a request is hung up on" "^text: .*in time" "$("$TOY/bad_client" "$S" half)"
check_match "and so is silence, of many at once" "^text: .*in time" "$("$TOY/bad_client" "$S" many)"
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
  chmod 755 "$WORK" "$WORK/own"; chmod 666 "$S"
  check_eq "another user is hung up on, even where the socket lets him in" "closed" \
    "$(setpriv --reuid 65534 --regid 65534 --clear-groups "$TOY/bad_client" "$S" nothing)"
  chmod 600 "$S"
else
  skip "another user is hung up on" "needs root and setpriv"
fi
check "none of it touched the job that ran" alive "$WORK/up"
kill -TERM $client; wait $client
check_eq "which ends as it should" 143 $?

# told to systemd
kill -TERM $agent; wait $agent; agent=
"$BUILD/test/notified" "$WORK/notify" 5 > "$WORK/told" &
wait_until 20 test -S "$WORK/notify"
NOTIFY_SOCKET=$WORK/notify start_agent
wait_until 20 grep -q READY=1 "$WORK/told"
"$F" --agent "$S" "$TOY/toy" exit=0
kill -TERM $agent; wait $agent; agent=
check "systemd is told of the start and the end" wait_until 20 grep -q 'stops, after' "$WORK/told"
check_eq "in this order, with the jobs that run" \
  "READY=1 STATUS=serves $S, 0 jobs READY=1 STATUS=serves $S, 1 job READY=1 STATUS=serves $S, 0 jobs STOPPING=1 STATUS=stops, after 0 jobs" \
  "$(xargs < "$WORK/told")"

# a socket of systemd's
activated() { # SOCKET: the file is there before anyone listens on it
  systemd-socket-activate -l "$1" "$A" --socket "$S" 2> "$WORK/activated" & agent=$!
  wait_until 20 grep -q '^Listening on' "$WORK/activated"
}
if command -v systemd-socket-activate > /dev/null; then
  S=$WORK/own/activated.sock
  activated "$S"
  check_status "the first job starts an agent on a socket of systemd's" 5 "$F" --agent "$S" "$TOY/toy" exit=5
  "$A" --socket "$S" 2> "$WORK/err"
  check_eq "where a second agent is refused" "75 1" "$? $(grep -c 'another agent serves' "$WORK/err")"
  kill -TERM $agent; wait $agent; agent=
  check "and the socket stays when it ends" test -S "$S"
  activated "$WORK/own/s"
  "$F" --agent "$WORK/own/s" "$TOY/toy" 2> "$WORK/err2"
  wait $agent
  check_eq "a --socket that is another one is refused" "78 1" "$? $(grep -c "and the socket from systemd is" "$WORK/activated")"
  agent=
else
  skip "a socket of systemd's" "systemd-socket-activate is not installed (Debian: systemd)"
fi
