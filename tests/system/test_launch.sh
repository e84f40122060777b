# Any program, launched: what it is given, how its end is told, what a start that fails says.
source tests/support/harness.sh
FSDPRUN=${FSDPRUN:-$BIN/fsdprun}
toy=$TOY/toy
run() { "$FSDPRUN" "$@" < /dev/null; }
last() { tail -n 1 "$WORK/err"; }

check_status "every rank ends with 0: 0" 0 run --nproc-per-node 3 -- "$toy" exit=0
check_eq "an end that is well says nothing" "" "$(cat "$WORK/err")"

# --- environment
check_status "the environment is printed" 0 run --nproc-per-node 2 -- "$toy" rank=1 env
for want in RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 ROLE_NAME=default \
  ROLE_RANK=1 ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 \
  TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=True TORCH_NCCL_ASYNC_ERROR_HANDLING=1; do
  check "a worker has $want" grep -qx -- "$want" "$WORK/out"
done
for name in MASTER_PORT OMP_NUM_THREADS FSDP_LINK_FD; do
  check_match "a worker has $name, a number" "^$name=[0-9]+$" "$(grep "^$name=" "$WORK/out")"
done
check_eq "OMP_NUM_THREADS of the parent stays" "OMP_NUM_THREADS=7" "$(OMP_NUM_THREADS=7 run --nproc-per-node 2 -- "$toy" rank=0 env=OMP_NUM_THREADS)"
cores=$(nproc)
check_eq "one worker has all the cores" "OMP_NUM_THREADS=$cores" "$(run -- "$toy" env=OMP_NUM_THREADS)"
check_eq "more workers than cores have one each" "OMP_NUM_THREADS=1" "$(run --nproc-per-node $((cores + 1)) -- "$toy" rank=0 env=OMP_NUM_THREADS)"
check_eq "one core of the mask is one thread" "OMP_NUM_THREADS=1" "$(taskset -c 0 "$FSDPRUN" -- "$toy" env=OMP_NUM_THREADS)"
check_eq "\${local_rank} in an argument is the local rank" "$(printf 'a0b\na1b\n')" "$(run --nproc-per-node 2 -- "$toy" 'say=a${local_rank}b' | sort)"
check_eq "the environment of the parent is passed on" "SOME_NAME=some value" "$(SOME_NAME='some value' run -- "$toy" env=SOME_NAME)"

# --- what a worker finds
check_eq "descriptors: the standard three and the link" 4 "$(run -- "$toy" fds 7< /dev/null 8> /dev/null | grep -c fd=)"
ids=$(run -- "$toy" ids)
pid=${ids#pid=}; pid=${pid%% *}
check_match "a worker leads a session of its own" "pgid=$pid sid=$pid" "$ids"
check_eq "umask and limits are unchanged" "$(umask 0137; ulimit -S -n 256; ulimit -S -c 0; "$toy" limits)" \
  "$(umask 0137; ulimit -S -n 256; ulimit -S -c 0; run -- "$toy" limits)"
check_match "the soft limit of files is the one fsdprun had" "nofile=300:" "$(ulimit -S -n 300; run -- "$toy" limits)"
check_eq "no signal is blocked or ignored that was not" "$(env --default-signal=INT,QUIT "$toy" mask)" "$(env --default-signal=INT,QUIT "$FSDPRUN" -- "$toy" mask)"
check_eq "what was ignored stays ignored" "$(env --ignore-signal=HUP,PIPE,USR1,CHLD "$toy" mask)" "$(env --ignore-signal=HUP,PIPE,USR1,CHLD "$FSDPRUN" -- "$toy" mask)"
check_eq "what was blocked stays blocked" "$(env --block-signal=USR2,TERM "$toy" mask)" "$(env --block-signal=USR2,TERM "$FSDPRUN" -- "$toy" mask)"
check_eq "standard input is inherited" "read: hello" "$(echo hello | "$FSDPRUN" -- "$toy" read)"
check_status "closed standard descriptors do no harm" 0 bash -c "\"$FSDPRUN\" -- \"$toy\" fds <&- >&- 2>&-"

# --- how it ends
check_status "an exit code is the exit status" 3 run --nproc-per-node 2 -- "$toy" rank=1 exit=3 hang
check_match "the last line names rank, pid and code" "^fsdprun: rank 1 \(host [^,]+, pid [0-9]+\) exited with status 3.*1 other rank was stopped" "$(last)"
check_status "a signal is 128 + n" 139 run --nproc-per-node 2 -- "$toy" rank=0 signal=11 hang
check_match "the last line names the signal" "rank 0 .*was killed by SIGSEGV" "$(last)"
check_status "a rank killed from outside is the first cause" 137 run --nproc-per-node 3 -- "$toy" rank=2 signal=9 onterm=9 hang
check_match "its consequences are counted, not blamed" "rank 2 .*SIGKILL.*2 other ranks were stopped" "$(last)"
check_status "75 of a program blames no peer: it is the first cause" 75 run --nproc-per-node 2 --no-python -- bash -c 'if [ $RANK = 0 ]; then echo $$ > "$0.tmp"; mv "$0.tmp" "$0"; exit 75; fi; until [ -e "$0" ]; do sleep 0.05; done; while kill -0 "$(cat "$0")" 2> /dev/null; do sleep 0.05; done; exit 5' "$WORK/blamer"
check_match "the rank is named" "rank 0 .*exited with status 75" "$(last)"
check_status "a worker's 77 without notice is just a code" 77 run --nproc-per-node 2 -- "$toy" rank=0 exit=77 hang
check_status "a worker that ignores TERM is killed after the grace" 4 run --nproc-per-node 2 --shutdown-timeout 1 -- "$toy" ignore=15 rank=0 sleep=0.2 rank=0 exit=4 hang
check_status "captured: the last stderr lines come before the last line" 6 run --log-dir "$WORK/logs" -r 3 --nproc-per-node 2 -- "$toy" rank=1 err=ouch rank=1 exit=6 hang
check_match "the captured line is shown" "ouch" "$(tail -n 2 "$WORK/err")"
check_match "and the first cause stands below it" "rank 1 .*status 6" "$(last)"
folder=$(echo "$WORK"/logs/*/)
check "errors.json names the class" grep -q '"class": *"exit"' "$folder/errors.json"
check_eq "events: two spawns, two exits, one failure" "2 2 1" "$(for e in spawn exit failure; do grep -c "\"event\": *\"$e\"" "$folder/events.jsonl"; done | tr '\n' ' ' | sed 's/ $//')"

# --- what cannot start
check_status "a program that is not there: 127" 127 run --no-python "$WORK/nothing"
check_match "it is said with its reason" "cannot start .*nothing: No such file" "$(last)"
printf 'x' > "$WORK/plain"; chmod 755 "$WORK/plain"
check_status "a file that is no program: 126" 126 run -- "$WORK/plain"
check_match "it is said with its reason" "cannot start .*plain: Exec format error" "$(last)"
printf '#!/no/such/interpreter\n' > "$WORK/script"; chmod 755 "$WORK/script"
check_status "a script without its interpreter: 126" 126 run -- "$WORK/script"
check_match "it is said which is missing" "its interpreter is not there" "$(last)"
check_status "what cannot start is not tried again" 126 run --max-restarts 3 -- "$WORK/plain"
check_eq "one line only" 1 "$(wc -l < "$WORK/err")"
check_status "no descriptor left: one line, no hang" 75 bash -c "ulimit -n 24; exec \"$FSDPRUN\" --nproc-per-node 16 -- \"$toy\" hang"

# --- the price
pss() { awk '/^Pss:/ {sum += $2} END {print sum + 0}' "/proc/$1/smaps_rollup"; }
"$FSDPRUN" --nproc-per-node 2 -- "$toy" "touch=$WORK/here" hang > /dev/null 2>&1 &
guard=$!
both_here() { [ "$(wc -l < "$WORK/here")" -ge 2 ]; }
wait_until 30 both_here
agent=$(tr -d ' ' < "/proc/$guard/task/$guard/children")
kib=$(($(pss "$guard") + $(pss "$agent")))
kill -TERM "$guard"; wait "$guard"
check_eq "TERM ends it with 143" 143 $?
echo "# guard and agent together: $kib KiB PSS"
case $BUILD in
*asan* | *tsan*) skip "both processes under 8 MB" "a sanitizer's memory is not ours" ;;
*) [ "$kib" -gt 0 ] && [ "$kib" -lt 8000 ] && ok "both processes under 8 MB" || not_ok "both processes under 8 MB" "$kib KiB" ;;
esac
[ "$n_failed" = 0 ]
