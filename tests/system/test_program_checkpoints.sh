# A program of the C API and its checkpoints: every way of loading verifies every byte, the newest step is found, a
# directory of the program's own choice is as good as the run's.
. tests/support/harness.sh

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

# --- every path verifies ------------------------------------------------------------------------------------------------
run "three steps are saved below an agent" 0 2 --log-dir "$WORK/logs" -- "$prog" steps=1 save=- steps=2 save=- steps=3 save=-
points=$(echo "$WORK"/logs/*/checkpoints)
cp -r "$points" "$WORK/good"
flip "$points/step-00000001/$(shard 2)"
flip "$points/step-00000003/$(shard 1)"
run "an older step that is named is verified below an agent" 0 2 --log-dir "$WORK/other" -- "$prog" "!load=$points:1" "load=$points:2"
check_match "the rank that found the damage names the file" "rank [01]: load=.*$points/step-00000001/$(shard 2): the checksum does not hold" "$(cat "$WORK/err")"
check_match "the other one hears of it" "rank [01]: load=.*rank [01]: .*$points/step-00000001/$(shard 2): the checksum" "$(cat "$WORK/err")"
check_eq "a sound one is loaded" "loaded 2" "$(cat "$WORK/out")"
run "the newest that verifies is found" 0 2 --log-dir "$WORK/other" -- "$prog" "load=$points:-1"
check_eq "which is not the damaged one" "loaded 2" "$(cat "$WORK/out")"
check_status "alone it is the same" 0 "$prog" "!load=$points:1" "load=$points:-1"
check_eq "with the same step" "loaded 2" "$(cat "$WORK/out")"

# --- in the run directory, within one run ---------------------------------------------------------------------------------
run "load(NULL, -1) finds what this run has saved" 0 2 --log-dir "$WORK/own" -- "$prog" "!load=-:-1" steps=1 save=- load=-:-1 steps=2 save=- steps=4 load=-:-1
check_eq "its newest each time" "loaded 1 loaded 2" "$(grep loaded "$WORK/out" | xargs)"
(run "a step of this run that is damaged meanwhile" 0 2 --log-dir "$WORK/meanwhile" -- "$prog" steps=1 save=- steps=2 save=- "touch=$WORK/saved" "await=$WORK/go" "!load=-:2" load=-:-1
  cp "$WORK/out" "$WORK/meanwhile.out"; exit "$n_failed") & runs=$!
if wait_until 60 test -e "$WORK/saved"; then
  flip "$(echo "$WORK"/meanwhile/*/checkpoints/step-00000002)/$(shard 1)"
fi
: > "$WORK/go"; wait $runs; n_failed=$((n_failed + $?))
check_eq "is not loaded: the one before it is" "loaded 1" "$(grep loaded "$WORK/meanwhile.out")"
exit $((n_failed > 0))
