# A real job under strace. There is one run for each (system call, k-th occurrence in a process) between its
# checkpoint at step 5 and the one at step 10. The process that gets there first, guard, agent or worker, is
# killed. The next run goes on from the old or the new checkpoint, and ends with the figures and weights of an
# undisturbed run.
# FSDP_NIGHTLY=1: the calls that make directories, only read or talk, too.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # LeakSanitizer cannot look while strace does
if ! strace -f -o "$WORK/probe" true 2> /dev/null; then
  skip "a job killed at every system call of a save" "strace is not there, or may not trace"
  exit 0
fi
calls='^(rename|renameat|renameat2|fsync|pwrite64|fallocate|ftruncate|unlink|rmdir)$'
[ -z "${FSDP_NIGHTLY:-}" ] || calls='^(rename.*|fsync|pwrite64|fallocate|ftruncate|mkdir.*|unlink.*|rmdir|openat|pread64|newfstatat|getdents64|sendmsg|recvmsg|write|close)$'
tiny_job "$WORK/job.yaml"
job() { run_job "$WORK/$1.log" "$WORK/job.yaml" --set "run.name=$1" --set launch.max_restarts=0 "${@:2}"; }

job whole --set train.steps=10
check_eq "a run that nobody touches" 0 $?
job start --set train.steps=5
check_eq "and one with a checkpoint at step 5" 0 $?
traced() { # NAME OPTIONS...: a copy of the start goes on to step 10 under strace
  rm -rf "$WORK/runs/$1"; cp -r "$WORK/runs/start" "$WORK/runs/$1"
  { strace -f -o "$WORK/trace" "${@:2}" "$BIN/fsdprun" "$WORK/job.yaml" --set "run.name=$1" --set launch.max_restarts=0 \
    --set train.steps=10 > "$WORK/$1.log" 2>&1 < /dev/null; } 2> /dev/null # the shell's own word for a killed child
}

traced recorded
check_eq "a run that is only watched" 0 $?
# "NAME K" up to the largest count that one process makes
pairs=$(awk '$2 !~ /^(<|\+|-)/ { name = $2; sub(/\(.*/, "", name); n = ++k[$1, name]; if (n > most[name]) most[name] = n }
             END { for (name in most) for (n = 1; n <= most[name]; n++) print name, n }' "$WORK/trace" | sort -k 1,1 -k 2,2n)
n=0 killed=0 wrong=0 list=
while read -r name k; do
  [[ $name =~ $calls ]] || continue
  n=$((n + 1))
  traced killed -e "inject=$name:signal=KILL:when=$k"
  grep -q 'killed by SIGKILL' "$WORK/trace" && killed=$((killed + 1)) list="$list $name:$k"
  left=$(find "$WORK/runs/killed/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' -printf '%f ')
  job killed --set train.steps=10
  rc=$?
  if [ $rc -ne 0 ] || [ "$(figures "$WORK/runs/killed")" != "$(figures "$WORK/runs/whole")" ] ||
     [ "$(payloads "$WORK/runs/killed/checkpoints/step-00000010")" != "$(payloads "$WORK/runs/whole/checkpoints/step-00000010")" ] ||
     [ "$(find "$WORK/runs/killed/checkpoints" -name '.*' ! -name .lock | wc -l)" != 0 ]; then
    wrong=$((wrong + 1))
    echo "# $name:$k: left $left; then status $rc: $(tail -n 2 "$WORK/killed.log" | tr '\n' ' ')"
  fi
done <<< "$pairs"
echo "# $killed of $n runs were killed:$list"
# A process that ends in another order may not get to its last call: most must be reached, all must recover.
if [ "$wrong" -eq 0 ] && [ "$killed" -gt 10 ] && [ $((killed * 10)) -ge $((n * 8)) ]; then
  ok "killed at a call of a save, the job goes on to the same end ($killed pairs)"
else
  not_ok "killed at a call of a save, the job goes on to the same end" "$wrong of $n wrong, $killed killed"
fi
