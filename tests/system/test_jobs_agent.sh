# The commands over jobs, with --agent and FSDPRUN_AGENT: an agent tells which jobs it has, wherever they were started.
. tests/support/shell/harness.sh
F=$BIN/fsdprun
export XDG_RUNTIME_DIR=$WORK/runtime TMPDIR=$WORK/temporary
unset FSDPRUN_AGENT
mkdir -m 700 "$XDG_RUNTIME_DIR" "$TMPDIR" "$WORK/far"
cd "$WORK" || exit 1
at_exit() { kill -KILL $(jobs -p) 2> /dev/null; }
lines_are() { [ "$(wc -l < "$1" 2> /dev/null)" = "$2" ]; }

S=$WORK/agent/agent.sock
"$BIN/fsdp-agent" --socket "$S" --pidfile "$WORK/agent.pid" 2> agent.log & agent=$!
wait_until 20 test -s agent.pid
# far ARGUMENTS...: fsdprun of a shell with another registry
far() { exec env XDG_RUNTIME_DIR="$WORK/far" "$F" --agent "$S" "$@"; }
of_agent() { "$F" ps --agent "$S" "$@"; }
agent_has() { [ "$(of_agent -q | wc -l)" = "$1" ]; }
is_own() { "$F" ps -q | grep -qx "$1"; }
check_eq "an agent without a job has none" "[]" "$(of_agent --json)"
far --run-dir "$WORK/ran" -r 3 "$TOY/toy" say=hello touch="$WORK/up" hang > far.out 2>&1 & client=$!
check "--agent lists a job that was started with another XDG_RUNTIME_DIR" wait_until 20 agent_has 1
id=$(of_agent -q)
check_eq "one's own registry does not have it" "" "$("$F" ps -q)"
"$F" "$TOY/toy" hang > own.out 2>&1 & own=$!
wait_until 20 is_own $own
check_eq "--agent has the agent's jobs alone, FSDPRUN_AGENT adds them to one's own" "$id|$id $own" \
  "$(of_agent -q)|$(FSDPRUN_AGENT=$S "$F" ps -q | xargs)"
check_eq "--agent before the command means the same" "$id" "$("$F" --agent "$S" ps -q)"
check_eq "and wins over FSDPRUN_AGENT" "$id" "$(FSDPRUN_AGENT=/nowhere "$F" ps -q --agent="$S")"
check_status "its job is not found among one's own" 66 "$F" stop "$id"
check_match "status sees the job" "^job +$id\$" "$("$F" status --agent "$S" toy)"
check_match "so does top" "^ *$id " "$("$F" top --agent "$S" toy)"
check_match "so does inspect" '"say=hello"' "$("$F" inspect --agent "$S" "$id")"
check "logs reads its files" grep -qx '\[rank 0\]: hello' <("$F" logs --agent "$S" toy)
check_match "so does events" '"event": "spawn", "generation": 0' "$(FSDPRUN_AGENT=$S "$F" events "$id")"
"$F" ps --watch --agent "$S" > watched 2>&1 & watcher=$!
wait_until 20 grep -q "^$id " watched
far --rdzv-id later "$TOY/toy" wait="$WORK/go-later" > later.out 2>&1 & later=$!
check "ps --watch sees the next one too" wait_until 20 grep -q " later " watched
kill "$watcher"
touch go-later
wait "$later"
wait_until 20 lines_are up 1
# a TMPDIR that the job does not take, because each process would find another folder there
(cd far && exec env -u XDG_RUNTIME_DIR TMPDIR=. "$F" --agent "$S" --rdzv-id relative "$TOY/toy" hang > ../relative.out 2>&1) & relative=$!
check "a job with a relative TMPDIR is listed" wait_until 20 agent_has 2
check_eq "and has left nothing there" "fsdprun" "$(ls far)"
check_status "and stopped" 0 "$F" stop --agent "$S" relative
wait "$relative"
# each job has its folder: one that is refused hides no job of another
mkdir -m 700 refused
env XDG_RUNTIME_DIR="$WORK/refused" "$F" --agent "$S" --rdzv-id hidden "$TOY/toy" hang > hidden.out 2>&1 & hidden=$!
check "two jobs, in two folders" wait_until 20 agent_has 2
chmod 750 refused/fsdprun
check_status "a folder that is refused leaves ps its status" 78 "$F" ps -q --agent "$S"
check_eq "but lists the jobs of the others, and says so in one line" "$id 1" "$(cat out) $(grep -c "refused/fsdprun is refused" err)"
check_eq "... and in no other" 1 "$(wc -l < err)"
check_status "a job of another folder is found" 0 "$F" status --agent "$S" toy
check_status "one of that folder is not, for that reason" 78 "$F" stop --agent "$S" hidden
"$F" ps --watch --agent "$S" > watched 2> watched.err & watcher=$!
check "ps --watch shows the others too" wait_until 20 grep -q "^$id " watched
kill "$watcher"
chmod 700 refused/fsdprun
check_status "once it is mended the job is there" 0 "$F" stop --agent "$S" hidden
wait "$hidden"
check_status "restart reaches it" 0 "$F" restart --agent "$S" "$id"
check "and its rank is started again" wait_until 20 lines_are up 2
"$F" status -w --agent "$S" "$id" > watched 2>&1 & watcher=$!
wait_until 20 grep -q "^$id " watched
check_status "so does stop" 0 "$F" stop --agent "$S" "$id"
wait "$client"
check_eq "which ends it" 143 $?
wait "$watcher"
check_eq "what watches it ends with it" 0 $?
check_eq "the agent has no job, and one's own runs on" "[] $own" "$(of_agent --json) $("$F" ps -q)"
# root may look at the agent of any user, which may name any folder and write what it likes there
as_other=(setpriv --reuid 65533 --regid 65533 --clear-groups env XDG_RUNTIME_DIR="$WORK/other")
[ "$(id -u)" != 0 ] || chmod 711 "$WORK"
if [ "$(id -u)" = 0 ] && "${as_other[@]}" test -x "$F"; then
  mkdir -m 700 other && chown 65533:65533 other
  O=$WORK/other/agent.sock
  "${as_other[@]}" "$BIN/fsdp-agent" --socket "$O" 2> other.log & other=$!
  wait_until 20 test -S "$O"
  "${as_other[@]}" "$F" --agent "$O" --run-dir "$WORK/other/ran" -r 3 "$TOY/toy" say=hello wait="$WORK/go-other" > other.out 2>&1 & client=$!
  other_has() { [ "$("$F" ps -q --agent "$O" | wc -l)" = 1 ]; }
  check "root sees the jobs of another user's agent" wait_until 20 other_has
  entry=$(ls other/fsdprun/*.json) && id=$("$F" ps -q --agent "$O")
  ln -s /etc/shadow "${entry%/*}/$id.00000000.json"
  echo '{"job":"x","name":"y","run_dir":null,"pid":'"$id"',"started":1}' > "${entry%/*}/$id.00000001.json"
  chown 65533 "${entry%/*}/$id.00000001.json"
  check_eq "but no link and no entry that no run holds" "$id" "$("$F" ps -q --agent "$O")"
  check "and removes nothing of that user's" test -e "${entry%/*}/$id.00000001.json"
  mkdir -m 500 other/shut && chown 65533 other/shut
  "${as_other[@]}" env -u XDG_RUNTIME_DIR TMPDIR="$WORK/other/shut" "$F" --agent "$O" --rdzv-id shut "$TOY/toy" hang > shut.out 2>&1 & shut=$!
  is_shut() { "$F" ps --names --agent "$O" | grep -qx shut; }
  check "a job whose TMPDIR it may not write to is listed" wait_until 20 is_shut
  "$F" stop --agent "$O" shut
  wait "$shut"
  # what the user writes there leads to a file of root's
  index=$(find other/ran -name index.jsonl)
  sed 's|"stdout": *"[^"]*"|"stdout": "../../../../../../../../../../../../etc/shadow"|' "$index" > leads && cat leads >> "$index"
  check_match "logs prints what the job has printed" "hello" "$("$F" logs --agent "$O" "$id")"
  check_eq "and reads no file that this user may not read" "" "$("$F" logs --agent "$O" "$id" 2>&1 | grep '\[rank 0\]: root:')"
  check_status "handing a job to it stays refused" 75 "$F" --agent "$O" "$TOY/toy"
  chmod 750 other/fsdprun
  check_status "a folder that others may enter is refused" 78 "$F" ps --agent "$O"
  chmod 700 other/fsdprun
  check_status "root stops its job" 0 "$F" stop --agent "$O" "$id"
  wait "$client"
  check_eq "with TERM's status" 143 $?
  kill -TERM "$other"
  wait "$other"
  check_eq "its agent has ended well" 0 $?
  # one that says what no agent says, and one that says nothing
  listens() { # ANSWER: as hexadecimal digits
    rm -f odd.sock
    perl -MIO::Socket::UNIX -e 'my $all = IO::Socket::UNIX->new(Local => "odd.sock", Listen => 5) or die;
      while (my $one = $all->accept) { $one->sysread(my $question, 4096); $one->syswrite(pack "H*", $ARGV[0]); close $one }' "$1" &
    odd=$!
    wait_until 20 test -S odd.sock
  }
  for answer in "" 00 "$(printf '%0200d')" "$(head -c 3000 "$F" | od -An -v -tx1 | tr -d ' \n')"; do
    listens "$answer"
    check_status "what no agent says: ${answer:0:8}" 75 "$F" ps --agent odd.sock
    kill "$odd"; wait "$odd" 2> /dev/null
  done
else
  skip "root sees the jobs of another user's agent" "this needs root, and a build that other users may run"
fi
# an agent that is told to stop leaves its socket at once, while its jobs have their grace
far --shutdown-timeout 600 "$TOY/toy" ignore=15 touch="$WORK/slow" wait="$WORK/go-slow" > slow.out 2>&1 & client=$!
wait_until 20 lines_are slow 1
wait_until 20 agent_has 1
id=$(of_agent -q)
FSDPRUN_AGENT=$S "$F" ps --watch --json > watched 2>&1 & watcher=$!
wait_until 20 grep -q "\"job\":\"$id\"" watched
kill -TERM "$agent"
wait_until 20 test ! -e "$S"
"$F" --rdzv-id third "$TOY/toy" hang > third.out 2>&1 & third=$!
wait_until 20 grep -q '"name":"third"' watched
check_match "ps --watch shows the jobs of an agent that stops, and a new one" "\"job\":\"$id\"" "$(grep '"name":"third"' watched | tail -n 1)"
touch go-slow
wait "$client" "$agent"
ended_there() { tail -n 1 watched | grep -v "\"job\":\"$id\"" | grep -q '"name":"third"'; }
check "until they have ended" wait_until 20 ended_there
kill "$watcher"
"$F" stop third
wait "$third"
for how in "ps --agent $S" "--agent $S ps" "stop --agent $S x" "top --agent $S" "ps --agent $(printf '%0200d')"; do
  # shellcheck disable=SC2086 # words of a command line
  check_status "no agent serves the socket: ${how:0:14}" 75 "$F" $how
  check_eq "in one line: ${how:0:14}" 1 "$(wc -l < err)"
done
check_status "the same for FSDPRUN_AGENT" 75 env FSDPRUN_AGENT="$S" "$F" ps
check_match "the line names the socket" "no agent serves $S: No such file or directory" "$(cat err)"
check_status "--agent without a socket is bad usage" 2 "$F" ps --agent
check_eq "but one's own jobs are listed" "$own" "$(FSDPRUN_AGENT=$S "$F" ps -q 2> /dev/null)"
check_match "plot finds one too, though it has nothing to draw" "metrics.jsonl with a step|has no run directory" "$(FSDPRUN_AGENT=$S "$F" plot "$own" 2>&1)"
check_status "and obey" 0 env FSDPRUN_AGENT="$S" "$F" stop "$own"
wait "$own"
check_eq "and nothing is left in the registry" "" "$(find "$XDG_RUNTIME_DIR" "$WORK/far" -mindepth 1)"
