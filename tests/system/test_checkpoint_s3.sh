# Checkpoints in an object store: a job of two ranks against a server of our own (tests/support/fakes/fake_s3.c).
# One that checks signatures: test_checkpoint_moto.sh.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
mkfifo "$WORK/in" "$WORK/out"
"$TOY/fake_s3" 2 < "$WORK/in" > "$WORK/out" &
exec {store_in}> "$WORK/in" {store_out}< "$WORK/out"
read -r -t 60 port <&"$store_out"
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=id-of-a-key AWS_SECRET_ACCESS_KEY=hush-hush no_proxy='*'
unset AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN
job() { run_job "$WORK/$1.log" "$WORK/job.yaml" --set "run.name=$1" "${@:2}"; }
steps_in() { "$BIN/fsdprun" ckpt ls --json "$1" 2>&1 | tr '{' '\n' | number step | tr '\n' ' '; }
fault() { curl -s -o "$WORK/fault" -X PUT "$AWS_ENDPOINT_URL/-/fault/$1/$2"; }

job whole
check_eq "20 steps with checkpoints in the run directory" 0 $?
job far --set train.steps=10 --set checkpoint.dir=s3://bucket/runs/far/
check_eq "10 steps with checkpoints in a store" 0 $?
check_eq "they are there" "5 10 " "$(steps_in s3://bucket/runs/far)"
check_match "the last lines name the newest one" 'checkpoint: s3://bucket/runs/far/step-00000010' "$(cat "$WORK/far.log")"

# A rank is killed: the world resumes from the store, since nothing is kept in memory.
timeout -k 5 300 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=far --set checkpoint.dir=s3://bucket/runs/far --set checkpoint.async=false \
  --set train.steps=1000000 --set checkpoint.every=0 > "$WORK/killed.log" 2>&1 < /dev/null & job=$!
began() { [ "$(grep -c '"event": *"first_step"' "$WORK/runs/far/events.jsonl")" -ge "$1" ]; }
wait_until 60 began 2 || not_ok "it goes on" "$(tail -n 5 "$WORK/killed.log")"
kill -KILL "$(pid_of "$WORK/runs/far" 0 1)"
wait_until 60 began 3 || not_ok "it goes on after the death of a rank" "$(tail -n 5 "$WORK/killed.log")"
kill -TERM "$job"; wait "$job"
check_eq "both generations resumed from step 10 of the store" 2 \
  "$(grep -c '"event": *"resume".*"step": *10.*"source": *"disk"' "$WORK/runs/far/events.jsonl")"
rm -r "$WORK/runs/far"

job far --set checkpoint.dir=s3://bucket/runs/far --set checkpoint.keep=2 --set checkpoint.async=false
check_eq "the job goes on to step 20 in a run directory that is new" 0 $?
check_eq "what is too old is removed" "10 15 20 " "$(steps_in s3://bucket/runs/far)"
check_eq "every figure is that of a run with a disk" "$(figures "$WORK/runs/whole" | sed -n '11,$p')" "$(figures "$WORK/runs/far")"
"$BIN/fsdprun" ckpt verify s3://bucket/runs/far > "$WORK/verify.log" 2>&1
check_eq "all are sound" "0 3" "$? $(grep -c ': sound: ' "$WORK/verify.log")"
"$BIN/fsdprun" ckpt prune --keep 1 s3://bucket/runs/far > "$WORK/prune.log" 2>&1
check_eq "prune leaves the newest one" "0 20 " "$? $(steps_in s3://bucket/runs/far)"

# Requests that fail are sent again.
if command -v curl > /dev/null; then
  for how in 503 cut lost short; do
    for n in 3 9; do fault $n $how; job "shaky-$how-$n" --set train.steps=5 --set "checkpoint.dir=s3://bucket/shaky/$how-$n"; echo $?; done
  done > "$WORK/shaky"
  check_eq "one request that fails costs no checkpoint" 8 "$(grep -c '^0$' "$WORK/shaky")"

  # A store that loses what the ranks have sent costs that save, not the run.
  for n in 5 9 13 17; do
    fault $n lose; job "lossy-$n" --set "checkpoint.dir=s3://bucket/lossy/$n" --set checkpoint.keep=1; echo $?
    "$BIN/fsdprun" ckpt verify "s3://bucket/lossy/$n/step-00000020" > "$WORK/verify.log" 2>&1; echo $?
  done > "$WORK/lossy"
  check_eq "a run goes on when its store loses what was sent, and its last checkpoint is sound" 8 "$(grep -c '^0$' "$WORK/lossy")"
  fault 9 lose; job lossy-last --set train.steps=5 --set checkpoint.dir=s3://bucket/lossy/last
  check_eq "unless that is the last save" 74 $?
  check_match "... and a save that it costs is a line" 'step 5 was not saved: open s3://bucket/lossy/.*No such file' "$(cat "$WORK"/lossy-*.log)"
else
  skip "one request that fails costs no checkpoint" "there is no curl to order it"
fi

# A save that is killed leaves the older checkpoint, and what it sent is removed by the next run.
job cut --set train.steps=5 --set checkpoint.dir=s3://bucket/cut
timeout -k 5 300 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=cut --set checkpoint.dir=s3://bucket/cut --set train.steps=1000000 --set checkpoint.every=1 \
  --set checkpoint.keep=1 > "$WORK/cut.log" 2>&1 < /dev/null & job=$!
saved() { [ "$(grep -c '"event": *"checkpoint"' "$WORK/runs/cut/events.jsonl")" -ge "$1" ]; }
wait_until 60 saved 3 || not_ok "it saves" "$(tail -n 5 "$WORK/cut.log")"
kill -KILL "$job" $(pgrep -P "$job"); wait "$job" 2> /dev/null
"$BIN/fsdprun" ckpt verify s3://bucket/cut > "$WORK/verify.log" 2>&1
check_eq "a run that is killed while it saves leaves sound checkpoints" 0 $?
newest=$(steps_in s3://bucket/cut | tr ' ' '\n' | grep . | tail -n 1)
job cut --set checkpoint.dir=s3://bucket/cut --set "train.steps=$((newest + 1))" --set checkpoint.keep=1
check_eq "and the next one goes on from the newest" 0 $?
check_match "from there" "\"event\": *\"resume\".*\"step\": *$newest," "$(tail -n 200 "$WORK/runs/cut/events.jsonl")"

# What is wrong is one line.
job refused --set checkpoint.dir=s3://Bucket/x
check_eq "a name that is none is refused" "78 1" "$? $(grep -c 'checkpoint.dir: s3://Bucket/x: a bucket' "$WORK/refused.log")"
AWS_SECRET_ACCESS_KEY='' job refused --set checkpoint.dir=s3://bucket/x
check_eq "without credentials the job is refused" "78 1" "$? $(grep -c 'AWS_SECRET_ACCESS_KEY' "$WORK/refused.log")"
job missing --set checkpoint.dir=s3://missing/x --set launch.max_restarts=0
check_match "a bucket that is missing is named" 'GET s3://missing: HTTP status 404, NoSuchBucket' "$(cat "$WORK/missing.log")"
check_eq "no secret is in any file of a run" 0 "$(grep -rl hush-hush "$WORK" | wc -l)"

exec {store_in}>&-
left=$(timeout 60 cat <&"$store_out")
check_eq "no upload is left" 0 "$(grep -c '^upload ' <<< "$left")"
check_eq "of the run that pruned, there is one checkpoint: its name, its manifest, and two files a rank" 6 \
  "$(grep -c '^object bucket/runs/far/' <<< "$left")"
