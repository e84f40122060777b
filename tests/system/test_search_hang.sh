# A disk that hangs while the agent looks for a checkpoint, before there is any worker to watch.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
fuse= mounted=
at_exit() {
  [ -z "$fuse" ] || kill "$fuse" 2> /dev/null
  [ -z "$mounted" ] || umount -l "$mounted" 2> /dev/null
}
tiny_job "$WORK/job.yaml"
run_job "$WORK/log" "$WORK/job.yaml" --set train.steps=10
check_eq "a job of 10 steps" 0 $?
dir=$WORK/runs/tiny/checkpoints

# search WHERE: the job once more, while the disk that begins at WHERE does not answer; then as that disk was
# never there.
search() {
  local where=$1
  mv "$where" "$WORK/whole" && mkdir "$where"
  rm -f "$WORK/mounted"
  "$TOY/hang_fuse" "$where" "$WORK/mounted" & fuse=$!
  mounted=$where
  wait_until 5 test -e "$WORK/mounted" -o ! -d "/proc/$fuse/fd"
  if [ -e "$WORK/mounted" ]; then
    # Without the bound nothing ends it: timeout's 124, or 137.
    timeout -k 5 600 "$BIN/fsdprun" "$WORK/job.yaml" --set train.steps=12 --set launch.hang_timeout_s=2 > "$WORK/log" 2>&1 < /dev/null
    status=$?
    kill "$fuse"
  else
    status=absent
  fi
  wait "$fuse" 2> /dev/null; fuse=
  umount -l "$where" 2> /dev/null; mounted=
  rmdir "$where" && mv "$WORK/whole" "$where"
}

for what in "a checkpoint" "the folder of all of them"; do
  if [ "$what" = "a checkpoint" ]; then search "$dir/step-00000010"; else search "$dir"; fi
  if [ "$status" = absent ]; then skip "the disk of $what does not answer" "a hanging file system needs root and /dev/fuse"; continue; fi
  check_eq "the disk of $what does not answer: 74" 74 "$status"
  check_match "the last line names the directory and the time" \
    "fsdprun: no checkpoint to go on from: the disk of $dir has not answered for 2 s \(launch.hang_timeout_s\)$" "$(tail -n 1 "$WORK/log")"
  check_eq "no worker was started" 2 "$(grep -c '"event": *"spawn"' "$WORK/runs/tiny/events.jsonl")"
  # It holds the run directory until its thread comes back.
  check "what was left behind ends when the disk answers" wait_until 20 none_alive "$WORK/job.yaml"
done
run_job "$WORK/log" "$WORK/job.yaml" --set train.steps=12 --set launch.hang_timeout_s=2
check_eq "then the job goes on" 0 $?
check_match "from the step that could not be read" "resuming after step 10" "$(cat "$WORK/log")"
