# Checkpoints in moto, a server of S3's protocol that checks signatures.
# Nightly: store
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/moto.sh
start_moto || exit 1
tiny_job "$WORK/job.yaml"
far=s3://bucket/runs/far

run_job "$WORK/whole.log" "$WORK/job.yaml" --set run.name=whole
run_job "$WORK/far.log" "$WORK/job.yaml" --set run.name=far --set train.steps=10 --set "checkpoint.dir=$far"
check_eq "a job saves into moto" 0 $?
run_job "$WORK/far.log" "$WORK/job.yaml" --set run.name=far --set "checkpoint.dir=$far" --set checkpoint.keep=1
check_eq "it goes on from there" "0 1" "$? $(grep -c '"event": *"resume".*"step": *10' "$WORK/runs/far/events.jsonl")"
check_eq "every figure is that of a run with a disk" "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/far")"
run_job "$WORK/big.log" "$WORK/job.yaml" --set run.name=big --set model.dim=448 --set model.layers=4 --set train.steps=1 \
  --set checkpoint.dir=s3://bucket/big
check_eq "a file of several parts is saved" 0 $?
check "and is sound" "$BIN/fsdprun" ckpt verify s3://bucket/big
AWS_SECRET_ACCESS_KEY=another "$BIN/fsdprun" ckpt ls "$far" > "$WORK/wrong.log" 2>&1
check_eq "with another secret the store refuses" "74 1" "$? $(grep -c 'HTTP status 403' "$WORK/wrong.log")"
stop_moto
