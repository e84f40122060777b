# Programs on libfsdp that save without an agent: two of them at one directory, one while a job runs, and one
# whose disk fails when the step has its name already. One that is killed in a save: test_crash_save.sh.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
SAVE=$TOY/save_alone
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # LeakSanitizer cannot look while strace does
unset FSDP_LINK_FD

leftovers() { find "$1" -mindepth 1 -maxdepth 1 \( -name '.step-*' -o -name '.trash-*' \) | wc -l; }

# two processes, one directory

dir=$WORK/two
coproc first { exec "$SAVE" "$dir"; }
holder=$first_PID
echo "save 1" >&"${first[1]}"; read -r -t 600 answer <&"${first[0]}"
check_eq "the first process saves" "saved 1" "$answer"
answer=$("$SAVE" "$dir" <<< "save 2")
check_match "the second is refused in one line, which says who holds the directory" \
  "^busy: saving step 2: another process \(pid $holder on $(uname -n) since [0-9T:Z-]+\) saves to $dir, and two cannot share" "$answer"
check_eq "it is one line" 1 "$(wc -l <<< "$answer")"
check_eq "it wrote nothing" "0 1" "$(leftovers "$dir") $(find "$dir" -name 'step-*' | wc -l)"
check_eq "it may load" "loaded 1" "$("$SAVE" "$dir" <<< "load")"
check_eq "and save elsewhere" "saved 2" "$("$SAVE" "$WORK/elsewhere" <<< "save 2")"
echo "save 3" >&"${first[1]}"; read -r -t 600 answer <&"${first[0]}"
check_eq "the first goes on" "saved 3" "$answer"
kill -KILL "$holder"; wait "$holder" 2> /dev/null
check_eq "when it is killed the directory is free" "saved 4" "$("$SAVE" "$dir" <<< "save 4")"

# a program and a job, one directory

tiny_job "$WORK/job.yaml"
dir=$WORK/runs/tiny/checkpoints
mkdir -p "$dir"
coproc first { exec "$SAVE" "$dir"; }
holder=$first_PID
echo "save 1" >&"${first[1]}"; read -r -t 600 answer <&"${first[0]}"
check_status "a job is refused where a program saves: 78" 78 "$BIN/fsdprun" "$WORK/job.yaml"
check_match "the line says who holds the directory" "another process \(pid $holder on " "$(tail -n 1 "$WORK/err")"
kill -KILL "$holder"; wait "$holder" 2> /dev/null
rm -r "$WORK/runs"
"$BIN/fsdprun" "$WORK/job.yaml" --set train.steps=99999999 --set checkpoint.every=20 > "$WORK/log" 2>&1 < /dev/null & job=$!
saves() { compgen -G "$dir/step-*" || ! kill -0 "$job"; }
wait_until 60 saves
check_match "a program is refused where a job saves" "^busy: .*another process \(pid [0-9]+ on " "$("$SAVE" "$dir" <<< "save 1")"
kill "$job"; wait "$job" 2> /dev/null
check_eq "and may save when the job has ended" "saved 1" "$("$SAVE" "$dir" <<< "save 1")"

# a disk that fails

if ! strace -o "$WORK/probe" true 2> /dev/null; then
  skip "a save that cannot be synced" "strace is not there, or may not trace"
  exit
fi

# last_fsync LOG: the number of the last one that the process makes in its last save, as strace's when= counts
last_fsync() {
  awk '/save-alone-begins/ { on = 1 } /save-alone-ends/ { on = 0 } $2 ~ /^fsync\(/ { n++; if (on) last = n }
    END { print last }' "$1"
}
strace -f -o "$WORK/log" "$SAVE" "$WORK/record" <<< "save 1" > /dev/null
dir=$WORK/unsynced
when=$(last_fsync "$WORK/log") # of the parent: nothing is synced after it
answer=$(strace -f -o /dev/null -e "inject=fsync:error=EIO:when=$when" "$SAVE" "$dir" 2> /dev/null <<< "save 1")
check_match "a failed sync of the parent is an error that says what is on the disk" \
  "^io: saving step 1: $dir/step-00000001 is complete and in place, but a power failure may still undo that: sync directory $dir: Input/output error$" \
  "$answer"
check_eq "the step is there, and loads" "loaded 1" "$("$SAVE" "$dir" <<< "load")"

# Over a step that is there two names are swapped.
strace -f -o "$WORK/log" "$SAVE" "$WORK/record" <<< "save 1" > /dev/null
when=$(last_fsync "$WORK/log")
answer=$(strace -f -o /dev/null -e "inject=fsync:error=EIO:when=$when" "$SAVE" "$dir" 2> /dev/null <<< "save 1")
check_match "saved again: what it replaced is kept, and named" \
  "step-00000001 is complete and in place, and what it replaced is kept as $dir/\.step-00000001\.g0\.[0-9a-f]{8}, but" "$answer"
check_eq "both are there" 1 "$(leftovers "$dir")"
check_eq "the step loads" "loaded 1" "$("$SAVE" "$dir" <<< "load")"
check_eq "the next save clears up, after a sync" "saved 2 0" "$("$SAVE" "$dir" <<< "save 2") $(leftovers "$dir")"
