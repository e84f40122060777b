# A run goes on with the data and the job it was begun with: other data is refused, and other keys are named.
# A run that has all its steps is not called complete for a job that would give another result.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
head -c 3000 tests/parity/excerpt.txt > "$WORK/data"
job() {
  run_job "$WORK/log" --nproc-per-node 1 "$WORK/job.yaml" --set "run.name=$1" --set "data.path=$WORK/data" "${@:2}"
}
# again WHAT STATUS PATTERN ARGS...: a copy of the run `base` goes on to step 4, as ARGS change it.
again() {
  local what=$1 status=$2 pattern=$3; shift 3
  rm -rf "$WORK/runs/copy"; cp -r "$WORK/runs/base" "$WORK/runs/copy"
  job copy --set train.steps=4 "$@"
  check_eq "$what: status" "$status" $?
  check_match "$what: what is said" "$pattern" "$(cat "$WORK/log")"
}
changes_said() { grep -c 'the job has changed' "$WORK/log"; }

job base --set train.steps=2 --set checkpoint.every=2
check_eq "a run of two steps" 0 $?
check_match "the manifest names length, order and sequence length of its data, and a hash" \
  '"extra":\{"data":\{"size_bytes":3000,"xxh3_128":"[0-9a-f]{32}","order":"shuffled","seq":16\}\}' \
  "$(tr -d '\n' < "$WORK/runs/base/checkpoints/step-00000002/manifest.json")"

# data
cp "$WORK/data" "$WORK/data.kept"
again "the same data" 0 'resuming after step 2'
check_eq "only the number of steps is named" "1 1" "$(changes_said) $(grep -c 'train.steps 2 -> 4' "$WORK/log")"
mv "$WORK/data" "$WORK/elsewhere"
again "the same bytes in another place" 0 'resuming after step 2' --set "data.path=$WORK/elsewhere"
mv "$WORK/elsewhere" "$WORK/data"
echo more >> "$WORK/data"
again "appended data" 66 'step 2 was trained on other data.*3005 bytes.*3000'
check_eq "in one line" 1 "$(grep -c '^\[rank 0\].*other data' "$WORK/log")"
check "and nothing that was saved is lost" test -e "$WORK/runs/copy/checkpoints/step-00000002/manifest.json"
again "appended data with checkpoint.data: ignore" 0 'step 2 was trained on other data.*goes on' --set checkpoint.data=ignore
check "and it trains to its end" test -e "$WORK/runs/copy/checkpoints/step-00000004/manifest.json"
{ head -c 1499 "$WORK/data.kept"; printf '\1'; tail -c +1501 "$WORK/data.kept"; } > "$WORK/data"
again "one edited byte" 66 'other data.*3000 bytes.*differ'
cp "$WORK/data.kept" "$WORK/data"
again "another order" 66 'other data.*data.order.*shuffled.*sequential' --set data.order=sequential
again "another seed" 66 'seed.*7' --set run.seed=7

# other keys
again "another learning rate and batch" 0 'the job has changed since step 2: .*train.global_batch 12 -> 6.*optimizer.lr 1?\.?0?e?-?0?.*->' \
  --set optimizer.lr=2.0e-2 --set train.global_batch=6
check_eq "in one line" 1 "$(changes_said)"

# a run that has its steps
complete() { # WHAT STATUS PATTERN ARGS...
  local what=$1 status=$2 pattern=$3; shift 3
  job base --set train.steps=2 --set checkpoint.every=2 "$@"
  check_eq "complete, $what: status" "$status" $?
  check_match "complete, $what: what is said" "$pattern" "$(cat "$WORK/log")"
}
complete "the same job" 0 'is complete'
complete "what changes no figure" 0 'is complete' --set run.log_every=5 --set launch.max_restarts=1 --set checkpoint.keep=9 --set parallel.overlap=false
for key in optimizer.lr=2.0e-2 optimizer.weight_decay=0.2 train.global_batch=6 train.clip_norm=0.5 run.seed=7 model.dim=16 \
  data.order=sequential parallel.param_dtype=bfloat16; do
  complete "$key" 78 "is complete.*another job: ${key%=*}( |\$)" --set "$key"
done
check_eq "job.json is still that of the run" 1 "$(grep -c '"clip_norm": 1.0' "$WORK/runs/base/job.json")"
complete "a data file that is gone" 78 'another job: data.path' --set "data.path=$WORK/gone"
echo more >> "$WORK/data"
complete "other bytes" 78 'another job: data.path'
complete "other bytes with checkpoint.data: ignore" 0 'is complete' --set checkpoint.data=ignore

# restarts of one launch read the data once
cp "$WORK/data.kept" "$WORK/data"
if strace -f -o "$WORK/trace" true 2> /dev/null; then
  RUN=$WORK/runs/again
  ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -qq -e trace=pread64 -o "$WORK/trace" "$BIN/fsdprun" --nproc-per-node 2 "$WORK/job.yaml" --set run.name=again \
    --set "data.path=$WORK/data" --set train.steps=1000000 --set checkpoint.every=10 > "$WORK/log" 2>&1 < /dev/null & traced=$!
  wait_until 60 has_logged "$RUN" 0 15 && kill -KILL "$(pid_of "$RUN" 0 1)"
  check "a killed rank is started again" wait_until 60 has_logged "$RUN" 1 3
  kill -TERM "$(pgrep -P $traced -x fsdprun | head -n 1)"
  wait $traced
  check_eq "two generations of two ranks read the data for its hash once" 1 "$(grep -c ', 3000, 0) *= 3000' "$WORK/trace")"
else
  skip "two generations of two ranks read the data for its hash once" "strace cannot trace here"
fi

# without an agent: the same, said by fsdp-train
alone() { "$BIN/fsdp-train" "$WORK/alone.json" > "$WORK/log" 2>&1 < /dev/null; }
sed "s,\"lr\": *[^\,]*,\"lr\": 0.5," "$WORK/runs/base/job.json" > "$WORK/alone.json"
alone
check_eq "fsdp-train by hand refuses another learning rate" 78 $?
check_match "and names it" 'another job: optimizer.lr' "$(cat "$WORK/log")"
cp "$WORK/runs/base/job.json" "$WORK/alone.json"
alone
check_eq "and ends well on the same job" 0 $?
sed 's,"lr": *0.01\(0*\)\,,"lr":1.0E-2\,,' "$WORK/runs/base/job.json" > "$WORK/alone.json"
check "a job written by hand spells a number in another way" grep -q '"lr":1.0E-2,' "$WORK/alone.json"
alone
check_eq "which is the same job" "0 0" "$? $(grep -c 'another job' "$WORK/log")"

# a checkpoint that says nothing of its data, as 0.1.0 wrote them
check "its manifest without the record" "$BUILD/test/old_manifest" "$WORK/runs/base/checkpoints/step-00000002"
echo more >> "$WORK/data"
again "a checkpoint that says nothing of its data" 0 'resuming after step 2'
