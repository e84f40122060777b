# The run directory: one live job at a time, nothing of an earlier run lost, one clear line where it cannot be
# used.
# The trainer here is a script next to a copy of fsdprun, so that only the launcher is tested.
. tests/support/shell/harness.sh
mkdir -m 755 "$WORK/bin"
cp "$BIN/fsdprun" "$WORK/bin/"
F=$WORK/bin/fsdprun
RUN=$WORK/runs/toy
cat > "$WORK/bin/fsdp-train" << EOF2
#!/bin/sh
echo "rank \$RANK restart \$TORCHELASTIC_RESTART_COUNT"
echo "complaint of \$RANK" >&2
[ -z "\$TOY" ] || exec "$TOY/toy" \$TOY
EOF2
chmod 755 "$WORK/bin/fsdp-train"
printf 'some text for a byte tokenizer %s\n' $(seq 200) > "$WORK/text"
cat > "$WORK/job.yaml" << 'YAML'
run: {name: toy}
data: {path: text}
model: {layers: 1, dim: 16, heads: 2, vocab: 256, seq: 16}
train: {steps: 1, batch: 1}
YAML
job() { (cd "$WORK" && exec "$F" --nproc-per-node 2 "$@" job.yaml); }

# a run
check_status "a job runs" 0 job
check_eq "its console lines carry the rank" "[rank 0]: rank 0 restart 0 [rank 1]: rank 1 restart 0" "$(sort "$WORK/out" | xargs)"
check_eq "it says where its files are" 1 "$(grep -c "^fsdprun: run directory $RUN\$" "$WORK/err")"
check_eq "each rank has its logs" "complaint of 1" "$(cat "$RUN/logs/g0/rank1/stderr.log")"
check_match "job.json is the resolved job" '"name": *"toy"' "$(cat "$RUN/job.json")"
check_match "events.jsonl has spawns and exits" "spawn spawn .*exit.* complete" \
  "$(sed -E 's/.*"event": "([a-z_]+)".*/\1/' "$RUN/events.jsonl" | xargs)"
check_match "the first line begins with time, event, generation" '^\{"time": [0-9]{10}\.[0-9]{6}, "event": "[a-z]+", "generation": 0' \
  "$(head -n 1 "$RUN/events.jsonl")"
check_eq "no errors.json" "" "$(ls "$RUN/errors.json" 2> /dev/null)"

check_status "--run-dir names the directory itself" 0 job --run-dir "$WORK/named"
check_match "of a job too" '"name": *"toy"' "$(cat "$WORK/named/job.json")"

# again, and failing
TOY="before=1 exit=5" check_status "a second run in it restarts a failed world" 0 job --max-restarts 1
check_match "the first run's log is gone on with, behind a mark" \
  "^rank 0 restart 0 --- fsdprun: run of 20[0-9-]+T[0-9:]+Z, pid [0-9]+ --- rank 0 restart 0$" "$(xargs < "$RUN/logs/g0/rank0/stdout.log")"
check_eq "the next generation has its own" "rank 0 restart 1" "$(cat "$RUN/logs/g1/rank0/stdout.log")"
check_eq "the mark is not shown" 0 "$(grep -c -e --- "$WORK/out")"
TOY="rank=1 err=boom rank=1 signal=11 hang" check_status "the root cause is the status" 139 job --max-restarts 0
check_match "the failure says where there is more" "fsdprun: more in $RUN/errors.json and $RUN/logs/g0/rank1/stderr.log\$" "$(cat "$WORK/err")"
check_eq "but does not repeat what has just gone by" 1 "$(grep -c boom "$WORK/err")"
check_match "errors.json names it" '"class": "signal", "rank": 1, .*"signal_name": "SIGSEGV", .*"stderr": \["complaint of 1", "boom"\]' "$(cat "$RUN/errors.json")"
check_match "and what was stopped because of it" '"collateral": \{"count": 1' "$(cat "$RUN/errors.json")"
check "events.jsonl is JSON line by line, over all runs" "$BUILD/test/json_check" -l "$RUN/events.jsonl"
check "errors.json is JSON" "$BUILD/test/json_check" "$RUN/errors.json"

# a second live job
(cd "$WORK" && TOY="rank=0 touch=$WORK/up hang" exec "$F" --nproc-per-node 1 job.yaml) > /dev/null 2>&1 & first=$!
wait_until 30 test -s "$WORK/up"
wait_until 30 grep -q '"nproc_per_node": *1' "$RUN/job.json" # written while the workers start
before=$(cat "$RUN/job.json")
check_status "a second live job in the directory is refused" 78 job
check_eq "by one line" 1 "$(wc -l < "$WORK/err")"
check_match "that names the holder" "another live job \(pid [0-9]+ on [^ ]+ since 20.*Z\) holds the run directory $RUN\$" "$(cat "$WORK/err")"
check_eq "and nothing of the first was touched" "$before" "$(cat "$RUN/job.json")"
check "which goes on" kill -0 $first
kill -KILL $first; wait $first 2> /dev/null
wait_until 10 none_alive "$WORK/up"
wait_until 10 flock -n "$RUN/lock" true # its guard has it until nothing is left
check_status "one that was killed leaves the directory free" 0 job

# where it cannot be
: > "$WORK/file"
one_line() { check_eq "$1" "$2 1" "$3 $(wc -l < "$WORK/err")"; }
job --set run.dir=file 2> "$WORK/err"; one_line "a file where the directory should be: 78 and one line" 78 $?
job --set run.dir=/proc/none 2> "$WORK/err"; one_line "a place where none can be made: 74 and one line" 74 $?
job --set run.name=a/b 2> "$WORK/err"; one_line "a name with a slash: 78 and one line" 78 $?
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
  mkdir "$WORK/mine"; chmod 755 "$WORK"
  (cd "$WORK" && setpriv --reuid 65534 --regid 65534 --clear-groups "$F" --log-dir mine job.yaml) 2> "$WORK/err"
  one_line "a directory of another user: 74 and one line" 74 $?
else
  skip "a directory of another user: 74 and one line" "needs root and setpriv"
fi

# a directory that another user made
# Mallory owns the run directory and puts links into it, to have us write where only we may.
theirs() { rm -rf "$WORK/theirs"; mkdir -p "$WORK/theirs/toy" "$WORK/ours"; chown 65533:65533 "$WORK/theirs/toy"; rm -rf "$WORK"/ours/*; }
as() { (cd "$WORK" && setpriv --reuid "$1" --regid "$2" --clear-groups "$F" --nproc-per-node 1 "${@:3}" job.yaml); }
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
  for name in events.jsonl metrics.jsonl lock logs checkpoints; do
    theirs
    case $name in *.jsonl | lock) echo kept > "$WORK/ours/$name"; before=kept ;; *) mkdir "$WORK/ours/$name"; before="" ;; esac
    ln -s "$WORK/ours/$name" "$WORK/theirs/toy/$name"; chown -h 65533 "$WORK/theirs/toy/$name"
    job --log-dir "$WORK/theirs" 2> "$WORK/err"; one_line "another user's link in place of $name: 78 and one line" 78 $?
    check_match "which names it" "run directory $WORK/theirs/toy: $name is a symbolic link of user 65533" "$(cat "$WORK/err")"
    check_eq "and what it leads to is untouched" "$before" "$(cat "$WORK/ours/$name" 2> /dev/null || ls -A "$WORK/ours/$name")"
  done
  theirs; mkfifo "$WORK/theirs/toy/metrics.jsonl"
  job --log-dir "$WORK/theirs" 2> "$WORK/err"; one_line "a FIFO in place of metrics.jsonl: 78 and one line" 78 $?
  theirs; chmod 777 "$WORK/theirs/toy"
  job --log-dir "$WORK/theirs" 2> "$WORK/err"; one_line "another user's directory that everyone may write to: 78 and one line" 78 $?
  chmod 755 "$WORK/theirs/toy"
  check_status "another user's directory is used otherwise" 0 job --log-dir "$WORK/theirs"
  theirs; ln -s "$WORK/ours" "$WORK/theirs/toy/logs"
  check_status "a link of one's own in it is followed" 0 job --log-dir "$WORK/theirs"
  check_eq "to where it leads" "complaint of 1" "$(cat "$WORK/ours/g0/rank1/stderr.log")"
  theirs; chown -R 65534 "$WORK/theirs" "$WORK/ours"; ln -s "$WORK/ours" "$WORK/theirs/toy/logs"
  check_status "root's link is followed by another user" 0 as 65534 65534 --log-dir theirs
  check_eq "to where it leads" "complaint of 0" "$(cat "$WORK/ours/g0/rank0/stderr.log")"
  mkdir "$WORK/group"; chgrp 65532 "$WORK/group"; chmod 2775 "$WORK/group"
  (umask 002; check_status "a group's folder with umask 002 is used" 0 as 65534 65532 --log-dir group)
  (umask 002; check_status "and gone on with by another member" 0 as 65533 65532 --log-dir group)
else
  skip "links in a directory of another user" "needs root and setpriv"
fi
mkdir "$WORK/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=64k none "$WORK/full" 2> "$WORK/err"; then
  at_exit() { umount "$WORK/full"; }
  check_status "a job on a small disk keeps its records" 0 job --log-dir "$WORK/full"
  head -c 100000 /dev/zero > "$WORK/full/zero" 2> /dev/null
  TOY="rank=0 touch=$WORK/full-up" job --log-dir "$WORK/full" > "$WORK/out" 2> "$WORK/err"; status=$?
  check "on a full disk the workers run, or one line says why not" test $status -eq 0 -o $status -eq 74
  check_match "the disk is named" "No space left on device" "$(cat "$WORK/err")"
  check_match "and the job.json that stood there still does" '"name": *"toy"' "$(cat "$WORK/full/toy/job.json")"
else
  skip "a job on a full disk" "needs root and mount"
fi

# programs
mkdir "$WORK/tmp"
TMPDIR=$WORK/tmp "$F" -r 3 --max-restarts 1 "$BUILD/test/toy" say=x before=1 exit=1 2> "$WORK/err"
check_eq "output in a temporary directory: it says where" 1 "$(grep -c "^fsdprun: the output of the ranks is kept in $(echo "$WORK"/tmp/fsdprun_*/*_*)\$" "$WORK/err")"
check_eq "torchrun's layout in a temporary directory" "attempt_0 attempt_1 events.jsonl job.json lock" \
  "$(cd "$WORK"/tmp/fsdprun_*/*_* && ls | xargs)"
check_eq "with one folder an attempt and local rank" "attempt_0/0/stderr.log attempt_0/0/stdout.log attempt_1/0/stderr.log attempt_1/0/stdout.log" \
  "$(cd "$WORK"/tmp/fsdprun_*/*_* && ls attempt_*/*/*.log | xargs)"
TMPDIR=$WORK/absent "$F" --tee 3 "$BUILD/test/toy" env=FSDP_RUN_DIR > "$WORK/out" 2> "$WORK/err"
check_match "and its output is kept below /tmp" '^0 .*/tmp/fsdprun_' "$? $(cat "$WORK/out")"
kept=$(sed -n 's,.*=\(/tmp/fsdprun_[A-Za-z0-9]*\)/.*,\1,p' "$WORK/out")
rm -r "${kept:?}"
