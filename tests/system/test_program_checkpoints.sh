# A program of the C API and its checkpoints: every way of loading verifies every byte, the newest step is
# found, a directory of the program's own choice is as good as the run's.
. tests/support/shell/harness.sh

prog=$TOY/checkpoints
run() { # NAME WANTED RANKS OPTIONS... -- WORDS...: the program over so many ranks; output in $WORK/out and $WORK/err
  local name=$1 want=$2 ranks=$3; shift 3
  check_status "$name" "$want" timeout -k 5 600 "$BIN/fsdprun" --nproc-per-node "$ranks" "$@"
}
# flip FILE: changes one bit in the middle of its tensors
flip() {
  local at=$(($(stat -c %s "$1") - 64)) byte
  byte=$(od -An -tu1 -j "$at" -N 1 "$1" | tr -d ' ')
  printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
shard() { printf 'shard-%05d-model-00001-of-00001.safetensors' "$1"; }

# every path verifies
run "three steps are saved below an agent" 0 2 --log-dir "$WORK/logs" -- "$prog" steps=1 save=- steps=2 save=- steps=3 save=-
points=$(echo "$WORK"/logs/*/checkpoints)
cp -r "$points" "$WORK/good"
flip "$points/step-00000001/$(shard 2)"
flip "$points/step-00000003/$(shard 1)"
run "an older step that is named is verified below an agent" 0 2 --log-dir "$WORK/other" -- "$prog" "!load=$points:1" "load=$points:2"
check_match "the rank that found the damage names the file" \
  "rank [01]: load=.*$points/step-00000001/$(shard 2): the checksum does not hold" "$(cat "$WORK/err")"
check_match "the other one hears of it" "rank [01]: load=.*rank [01]: .*$points/step-00000001/$(shard 2): the checksum" "$(cat "$WORK/err")"
check_eq "a sound one is loaded" "loaded 2" "$(cat "$WORK/out")"
run "the newest that verifies is found" 0 2 --log-dir "$WORK/other" -- "$prog" "load=$points:-1"
check_eq "which is not the damaged one" "loaded 2" "$(cat "$WORK/out")"

# in the run directory, within one run
run "load(NULL, -1) finds what this run has saved" 0 2 --log-dir "$WORK/own" -- "$prog" "!load=-:-1" steps=1 save=- load=-:-1 steps=2 save=- steps=4 load=-:-1
check_eq "its newest each time" "loaded 1 loaded 2" "$(grep loaded "$WORK/out" | xargs)"
(run "a step of this run that is damaged meanwhile" 0 2 --log-dir "$WORK/meanwhile" -- "$prog" steps=1 save=- steps=2 save=- "touch=$WORK/saved" "await=$WORK/go" "!load=-:2" load=-:-1
  cp "$WORK/out" "$WORK/meanwhile.out"; exit "$n_failed") & runs=$!
if wait_until 60 test -e "$WORK/saved"; then
  flip "$(echo "$WORK"/meanwhile/*/checkpoints/step-00000002)/$(shard 1)"
fi
: > "$WORK/go"; wait $runs; n_failed=$((n_failed + $?))
check_eq "is not loaded: the one before it is" "loaded 1" "$(grep loaded "$WORK/meanwhile.out")"

# a directory of the program's own choice
D=$WORK/mine
names() { ls -A "$1" | grep step | xargs; }
check_status "a run that nothing ends" 0 "$BIN/fsdprun" --nproc-per-node 2 "$prog" steps=6
cp "$WORK/out" "$WORK/whole"
mkdir "$WORK/cwd"
export TMPDIR=$WORK/tmp; mkdir "$TMPDIR"
run "a program saves to a directory of its own, which it names by a relative path" 137 2 sh -c \
  'cd "$0" && exec "$@"' "$WORK/cwd" "$prog" steps=2 save=../mine/ steps=4 save=../mine/ steps=5 kill=1
check_eq "its steps are there" "step-00000002 step-00000004" "$(names "$D")"
check_eq "and none in the run's" "" "$(find "$TMPDIR" -name 'step-*')"
check_eq "they are events, with their directory" "2 $WORK/cwd/../mine 4 $WORK/cwd/../mine" \
  "$(cat "$TMPDIR"/*/*/events.jsonl | sed -n \
  's/.*"event": "checkpoint".*"step": \([0-9]*\),.*"directory": "\([^"]*\)".*/\1 \2/p' | xargs)"
mkdir "$D/.step-00000009.g0.00000001" "$D/.trash-step-00000001"
run "launched again, it goes on from there" 0 2 -- "$prog" load="$D":-1 steps=5 keep=2 save="$D" steps=6 save="$D"
check_eq "with the same losses to the bit" "loaded 4 $(tail -n 2 "$WORK/whole" | xargs)" "$(xargs < "$WORK/out")"
check_eq "leftovers are gone, and so is the oldest step, but not the one it began with" "step-00000004 step-00000005 step-00000006" "$(names "$D")"
run "at another number of ranks" 0 3 -- "$prog" load="$D":-1 save="$D"
check_eq "too, and a step that is there is replaced" "3 files" "$(ls "$D/step-00000006" | grep -c shard) files"
check_status "alone it goes on from what ranks saved" 0 "$prog" load="$D":-1 steps=7 save="$D"
run "and ranks from what was saved alone" 0 2 -- "$prog" load="$D":-1
check_eq "both from the newest" "loaded 7" "$(cat "$WORK/out")"
run "ranks that name different directories" 0 2 -- sh -c 'exec "$0" steps=1 "!save=$1/$RANK"' "$prog" "$WORK/apart"
check_match "are told so" "the ranks saved into different directories" "$(cat "$WORK/err")"
check_eq "and nothing is published or left" "" "$(find "$WORK/apart" -name '*step*')"
: > "$WORK/file"
run "where there can be no directory" 0 2 -- "$prog" steps=1 "!save=$WORK/file" "!save=/proc/none" save=-
for rank in 0 1; do
  check_match "rank $rank is told" "rank $rank: save=$WORK/file: .*$WORK/file" "$(cat "$WORK/err")"
done
if [ "$(id -u)" = 0 ]; then
  mkdir "$WORK/theirs"; chown 65533 "$WORK/theirs"; chmod 777 "$WORK/theirs"
  for ranks in alone 2; do
    case $ranks in alone) "$prog" steps=1 "!save=$WORK/theirs" 2> "$WORK/err" ;; *) "$BIN/fsdprun" \
      --nproc-per-node 2 "$prog" steps=1 "!save=$WORK/theirs" 2> "$WORK/err" ;; esac
    check_eq "another user's directory that everyone may write to is refused, $ranks" "0 " "$? $(ls -A "$WORK/theirs")"
  done
  check_match "with the reason" "belongs to user 65533, and everyone may write to it" "$(cat "$WORK/err")"
  chmod 755 "$WORK/theirs"; mkdir "$WORK/target"
  ln -s "$WORK/target" "$WORK/theirs/step-00000001"; chown -h 65533 "$WORK/theirs/step-00000001"
  run "a link of theirs in place of the step" 0 2 -- "$prog" steps=1 save="$WORK/theirs"
  check_eq "is replaced, not followed" "" "$(ls -A "$WORK/target")"
else
  skip "a directory of another user" "needs root"
fi
# two runs that begin to save to one directory at the same moment
# stopped WORDS: the process that is stopped, of those with WORDS in their command line
stopped() {
  local p
  for p in $(pgrep -f -- "$1"); do
    grep -qs '^State:.T' "/proc/$p/status" && echo "$p" && return
  done
  return 1
}
# begin_late DIR WORDS...: a run in the background whose rank 1 stops in its first save to DIR, before it
# writes its file
begin_late() {
  local dir=$1; shift
  STOP_AT=save:1:0 LD_PRELOAD=$TOY/stop_at timeout -k 5 600 "$BIN/fsdprun" --nproc-per-node 2 -- "$prog" \
    "$@" touch="$dir.ended" > /dev/null 2> "$WORK/late.err" & late=$!
  wait_until 60 stopped "touch=$dir.ended" || not_ok "a rank is stopped in its first save" "$(cat "$WORK/late.err")"
}
# end_late DIR: let it go on, and wait for its end; the status
end_late() { kill -CONT "$(stopped "touch=$1.ended")"; wait "$late"; }
S=$WORK/both
begin_late "$S" steps=1 save="$S"
mkdir "$S/.step-00000008.g0.00000001"
run "a run saves where another one is in the middle of its first save" 0 2 -- "$prog" steps=2 save="$S"
check_match "it removes what no process writes, not what the other does" '^\.step-00000001\.[^ ]+ step-00000002$' "$(names "$S")"
end_late "$S"; check_eq "the other goes on and ends well" "0 " "$? $(cat "$WORK/late.err")"
check_eq "both are published, and nothing is left" "step-00000001 step-00000002" "$(names "$S")"
check_status "and both load" 0 "$prog" load="$S":1 load="$S":2
S=$WORK/late
begin_late "$S" steps=1 "!save=$S"
timeout -k 5 600 "$BIN/fsdprun" --nproc-per-node 2 -- "$prog" steps=2 save="$S" touch="$WORK/published" await="$WORK/end" > /dev/null 2>&1 & holder=$!
wait_until 60 test -e "$WORK/published" || not_ok "the second run publishes"
end_late "$S"; check_eq "one that comes too late goes on without its save" 0 $?
check_match "which is refused, and it is told who holds the directory" "another process \\(pid [0-9]+ on .*\\) saves to $S" "$(cat "$WORK/late.err")"
: > "$WORK/end"; wait $holder; check_eq "that one ends well" 0 $?
check_eq "only its step is there" "step-00000002" "$(names "$S")"
