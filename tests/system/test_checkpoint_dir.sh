# Checkpoints in a directory apart from the run's (checkpoint.dir).
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
job() { run_job "$WORK/$1.log" "$WORK/job.yaml" --set "run.name=$1" "${@:2}"; }
names_in() { (cd "$1" && ls -A | grep -v '^\.lock$' | tr '\n' ' '); }

job whole
check_eq "20 steps with checkpoints in the run directory" 0 $?
for async in true false; do
  name=apart-$async
  job "$name" --set train.steps=10 --set "checkpoint.dir=$WORK/elsewhere/$name/" --set checkpoint.async=$async
  check_eq "async: $async: 10 steps with checkpoints elsewhere" 0 $?
  check_eq "async: $async: they are there" "step-00000005 step-00000010 " "$(names_in "$WORK/elsewhere/$name")"
  check_eq "async: $async: and the run directory has none" missing \
    "$([ -e "$WORK/runs/$name/checkpoints" ] && echo there || echo missing)"
  job "$name" --set "checkpoint.dir=$WORK/elsewhere/$name" --set checkpoint.async=$async --set checkpoint.keep=2
  check_eq "async: $async: the run goes on to step 20" 0 $?
  check_match "async: $async: from there" '"event": *"resume".*"step": *10' "$(cat "$WORK/runs/$name/events.jsonl")"
  check_eq "async: $async: what is too old is removed there" "step-00000010 step-00000015 step-00000020 " \
    "$(names_in "$WORK/elsewhere/$name")"
  check_eq "async: $async: every figure is that of a run that keeps them in its directory" \
    "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/$name")"
done

job alone --set train.steps=5 --set "checkpoint.dir=$WORK/by-itself"
sed 's/"steps": *5\b/"steps": 10/' "$WORK/runs/alone/job.json" > "$WORK/alone.json"
(cd "$WORK" && timeout -k 5 120 "$BIN/fsdp-train" alone.json) > "$WORK/alone.log" 2>&1
check_eq "a trainer by itself goes on from there, and saves there" "0 step-00000005 step-00000010 " \
  "$? $(names_in "$WORK/by-itself")"

mkdir -m 777 "$WORK/open" && chown 12345 "$WORK/open" 2> /dev/null || skip "a directory of another user" "needs root"
if [ "$(stat -c %u "$WORK/open")" = 12345 ]; then
  job open --set train.steps=5 --set "checkpoint.dir=$WORK/open"
  check_match "a directory in which any user may write, of another one, is refused" "open belongs to" \
    "$(cat "$WORK/open.log")"
fi
