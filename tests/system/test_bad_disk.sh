# A disk that refuses a call while an agent's run saves: each write, sync and rename of a save, in each process that
# makes one, and a disk that is full for a while. The run goes on, or ends with a documented status; one line says
# why; the checkpoints before are whole; nothing unfinished is left; the next save succeeds.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
# job NAME ARGS...: its exit status; its output in NAME.log. ${bad[@]} goes before the command.
bad=()
job() {
  "${bad[@]}" "$BIN/fsdprun" "$WORK/job.yaml" --set run.name="$1" --set train.steps=9 --set checkpoint.every=3 \
    --set checkpoint.keep=0 --set launch.max_restarts=0 "${@:2}" > "$WORK/$1.log" 2>&1 < /dev/null
}
# refuse PROCESS CALL PATTERN NTH ERROR: which call fails in the next job
refuse() {
  bad=(env "LD_PRELOAD=$TOY/bad_disk" "BAD_PROCESS=$1" "BAD_CALL=$2" "BAD_PATH=$3" "BAD_NTH=$4" "BAD_ERROR=$5" "BAD_NOTE=$WORK/note")
  rm -rf "$WORK/note" "$WORK/runs/bad"
}
last=9
state() { figures "$WORK/runs/$1"; payloads "$WORK/runs/$1/checkpoints/$(printf 'step-%08d' $last)"; }
job calm
check_eq "the undisturbed run ends with 0" 0 $?
calm=$(state calm)

# wrong_in NAME: what is not as it should be at the end of a run: its checkpoints, figures and last state
wrong_in() {
  local step
  for step in "$WORK/runs/$1/checkpoints"/step-*; do "$BIN/fsdprun" ckpt verify "$step" > /dev/null || echo "$step is damaged"; done
  [ "$calm" = "$(state "$1")" ] || echo "other figures or another state"
  find "$WORK/runs/$1/checkpoints" -mindepth 1 -maxdepth 1 -name '.*' ! -name .lock -printf '%f is left\n'
}
# wrong_about STEP: the line of bad.log on this step. If the name of a step may be lost in a power failure, the step is
# there all the same, and the line says that.
reasons='\(Input/output error\|No space left on device\)'
wrong_about() {
  local there=no in_place=no
  [ "$(grep -ac "^fsdprun: step $1 was not saved: .*$reasons" "$WORK/bad.log")" = 1 ] || echo "not one line with the reason"
  [ ! -e "$WORK/runs/bad/checkpoints/step-0000000$1" ] || there=yes
  ! grep -aq "step-0000000$1 is complete and in place" "$WORK/bad.log" || in_place=yes
  [ $there = $in_place ] || echo "step $1: there: $there, said to be: $in_place"
}

# on_the_way: a job in which a call fails when step 6 is saved
on_the_way() {
  job bad "$@" || echo "it ended with $?"
  wrong_about 6
  ! grep -a 'saving step 6' "$WORK/bad.log" # a rank says it, too
  wrong_in bad
}
# each TITLE LEAST PROCESS CALL ERROR ARGS...: the first of these calls fails, then the second, until the save has no more
each() {
  local nth=0 wrong='' why
  while nth=$((nth + 1)); refuse "$3" "$4" '*.step-00000006*' $nth "$5"; why=$(on_the_way "${@:6}"); [ -e "$WORK/note" ]; do
    [ -z "$why" ] || wrong="$wrong; call $nth: $why"
  done
  check_eq "$1: the run goes on to the same end" "" "$wrong"
  check "... $2 calls of the save at least" test $nth -gt "$2"
}
each "a full disk, any write of the process that writes for the ranks" 2 fsdp-disk pwrite ENOSPC
each "an error, any sync of it" 2 fsdp-disk fsync EIO
each "any write of a rank" 1 fsdp-train pwrite EIO --set checkpoint.async=false
each "any sync of a rank" 1 fsdp-train fsync EIO --set checkpoint.async=false
each "the agent's write of the manifest" 1 fsdprun-agent pwrite ENOSPC
each "any sync of the agent before the rename" 3 fsdprun-agent fsync EIO
each "the rename" 1 fsdprun-agent rename EIO
refuse fsdprun-agent fsync '*/checkpoints' 2 EIO
check_eq "the sync after the rename: the run goes on to the same end" "" "$(on_the_way)"
check "... it has failed" test -e "$WORK/note"

# at_the_end PROCESS CALL PATTERN NTH ERROR: a call fails when the last step is saved
at_the_end() {
  local status
  refuse "$@"
  job bad; status=$?
  [ -e "$WORK/note" ] || echo "no call has failed"
  [ $status = 74 ] || echo "it ended with $status"
  wrong_about 9
  bad=()
  job bad || echo "the next run ended with $?"
  wrong_in bad
}
check_eq "a full disk at the last step: 74, and the next run ends with 0" "" "$(at_the_end fsdp-disk pwrite '*.step-00000009*' 1 ENOSPC)"
check_eq "an error of the last rename: likewise" "" "$(at_the_end fsdprun-agent rename '*.step-00000009*' 1 EIO)"
check_eq "an error of the last sync: likewise" "" "$(at_the_end fsdprun-agent fsync '*/checkpoints' 3 EIO)"

# A disk for checkpoints alone, with room for one and a half at first. What it has at the end is copied out of its
# namespace. The run is slow, so it is not over before there is room again.
unshare -rm true 2> /dev/null || { skip "a disk that is full for a while" "no user and mount namespaces here"; exit; }
last=60
job calm --set train.steps=$last
calm=$(state calm)
mkdir -p "$WORK/bin" "$WORK/runs/full/checkpoints"
cp "$BIN/fsdprun" "$WORK/bin/"
cp "$TOY/fsdp_train_mutant" "$WORK/bin/fsdp-train"
export FSDP_TEST_SLOW=data:0:50
BIN=$WORK/bin
on_small_disk='mount -t tmpfs -o size=32m tmpfs "$1" && head -c 32448K /dev/zero > "$1/filler" && "${@:2}"
  status=$?; cp -a "$1" "$1.kept"; exit $status'
bad=(unshare -rm bash -c "$on_small_disk" bash "$WORK/runs/full/checkpoints")
job full --set train.steps=$last & full=$!
at_exit() { [ -z "$full" ] || pkill -KILL -P "$(pgrep -P "$full")"; }
check "a disk that is full is said" wait_until 60 grep -aq '^fsdprun: step 6 was not saved: .*No space left' "$WORK/full.log"
rm "/proc/$(pgrep -P $full)/root$WORK/runs/full/checkpoints/filler"
wait $full
check_eq "the run goes on and ends with 0" 0 $?
full=
rmdir "$WORK/runs/full/checkpoints" && mv "$WORK/runs/full/checkpoints.kept" "$WORK/runs/full/checkpoints"
check_eq "... to the same end" "" "$(wrong_in full)"
n_refused=$(grep -ac 'was not saved' "$WORK/full.log")
check_eq "every save after that succeeds" $((last / 3 - n_refused)) "$(find "$WORK/runs/full/checkpoints" -name 'step-*' | wc -l)"
check "... of which there is more than the last one" test "$n_refused" -lt $((last / 3 - 2))
