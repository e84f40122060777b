# Any program, launched: what it finds, statuses that mean something else to us, what a start that fails says.
source tests/support/shell/harness.sh
toy=$TOY/toy
run() { "$FSDPRUN" "$@" < /dev/null; }
last() { tail -n 1 "$WORK/err"; }

check_status "every rank ends with 0: 0" 0 run --nproc-per-node 3 -- "$toy" exit=0
check_eq "an end that is well says nothing" "" "$(cat "$WORK/err")"

# --- what a worker finds
check_eq "descriptors: the standard three and the link" 4 "$(run -- "$toy" fds 7< /dev/null 8> /dev/null | grep -c fd=)"
ids=$(run -- "$toy" ids)
pid=${ids#pid=}; pid=${pid%% *}
check_match "a worker leads a session of its own" "pgid=$pid sid=$pid" "$ids"
check_eq "umask and limits are unchanged" "$(umask 0137; ulimit -S -n 256; ulimit -S -c 0; "$toy" limits)" \
  "$(umask 0137; ulimit -S -n 256; ulimit -S -c 0; run -- "$toy" limits)"
check_match "the soft limit of files is the one fsdprun had" "nofile=300:" "$(ulimit -S -n 300; run -- "$toy" limits)"
check_eq "no signal is blocked or ignored that was not" "$(env --default-signal=INT,QUIT "$toy" mask)" \
  "$(env --default-signal=INT,QUIT "$FSDPRUN" -- "$toy" mask)"
check_eq "what was ignored stays ignored" "$(env --ignore-signal=HUP,PIPE,USR1,CHLD "$toy" mask)" \
  "$(env --ignore-signal=HUP,PIPE,USR1,CHLD "$FSDPRUN" -- "$toy" mask)"
check_eq "what was blocked stays blocked" "$(env --block-signal=USR2,TERM "$toy" mask)" "$(env --block-signal=USR2,TERM "$FSDPRUN" -- "$toy" mask)"
check_eq "standard input is inherited" "read: hello" "$(echo hello | "$FSDPRUN" -- "$toy" read)"
check_status "closed standard descriptors do no harm" 0 bash -c "\"$FSDPRUN\" -- \"$toy\" fds <&- >&- 2>&-"

# --- how it ends
check_status "a worker's 77 without notice is just a code" 77 run --nproc-per-node 2 -- "$toy" rank=0 exit=77 hang
check_status "captured: the last stderr lines come before the last line" 6 run --log-dir "$WORK/logs" -r 3 \
  --nproc-per-node 2 -- "$toy" rank=1 err=ouch rank=1 exit=6 hang
check_match "the captured line is shown" "ouch" "$(tail -n 2 "$WORK/err")"
check_match "and the first cause stands below it" "rank 1 .*status 6" "$(last)"
folder=$(echo "$WORK"/logs/*/)
check "errors.json names the class" grep -q '"class": *"exit"' "$folder/errors.json"
check_eq "events: two spawns, two exits, one failure" "2 2 1" \
  "$(for e in spawn exit failure; do grep -c "\"event\": *\"$e\"" "$folder/events.jsonl"; done |
  tr '\n' ' ' | sed 's/ $//')"

# --- what cannot start
printf 'x' > "$WORK/plain"; chmod 755 "$WORK/plain"
check_status "a file that is no program: 126" 126 run -- "$WORK/plain"
check_match "it is said with its reason" "cannot start .*plain: Exec format error" "$(last)"
printf '#!/no/such/interpreter\n' > "$WORK/script"; chmod 755 "$WORK/script"
check_status "a script without its interpreter: 126" 126 run -- "$WORK/script"
check_match "it is said which is missing" "its interpreter is not there" "$(last)"
check_status "what cannot start is not tried again" 126 run --max-restarts 3 -- "$WORK/plain"
check_eq "one line only" 1 "$(wc -l < "$WORK/err")"
check_status "no descriptor left: one line, no hang" 75 bash -c "ulimit -n 24; exec \"$FSDPRUN\" --nproc-per-node 16 -- \"$toy\" hang"
