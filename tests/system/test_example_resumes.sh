# The example as an outsider has it: installed, built by pkg-config from the installed tree, killed and
# started again. It goes on from its newest checkpoint, in the run directory or in a directory of its own, to
# the bit.
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh

command -v pkg-config > /dev/null || { skip "the example resumes" "needs pkg-config"; exit 0; }
case $BUILD in *asan*) san=-fsanitize=address,undefined ;; *) san= ;; esac
make -s NVCC= BUILD="$BUILD" DESTDIR="$WORK/stage" PREFIX=/opt/fsdp install > "$WORK/install.log" 2>&1 || cat "$WORK/install.log" >&2
TREE=$WORK/stage/opt/fsdp
example=$WORK/train_transformer
# shellcheck disable=SC2046
check "the installed example builds by pkg-config alone" cc -std=c11 -Wall -Wextra -Werror $san "$TREE/share/fsdprun/examples/train_transformer.c" \
  $(PKG_CONFIG_PATH=$TREE/lib/pkgconfig pkg-config --define-prefix --cflags --libs fsdp) -o "$example" || exit 1
export LD_LIBRARY_PATH=$TREE/lib
text=$WORK/text
for i in $(seq 400); do echo "line $i of a text that is easy to learn, because it is much the same line again"; done > "$text"

# resumes NAME DIRECTORY WORD COMMAND...: COMMAND runs the example with checkpoints in WORD, which are then in
# DIRECTORY. It is killed after its second one, and started again.
resumes() {
  local name=$1 directory=$2 word=$3 pid step; shift 3
  "$@" "$example" "$text" 1000000 "$word" > "$WORK/killed.log" 2>&1 & pid=$!
  wait_until 60 saved_or_gone "$directory" $pid
  check "$name: it runs, and saves" kill -KILL $pid || cat "$WORK/killed.log"
  wait $pid 2> /dev/null
  wait_until 30 none_alive "$example"
  [ ! -e "$WORK/run/lock" ] || wait_until 30 flock -n "$WORK/run/lock" true # the kernel lets go of it later than of what ps shows
  step=$(ls "$directory" | sed -n 's/^step-0*//p' | sort -n | tail -n 1)
  "$@" "$example" "$text" $((step + 5)) "$word" > "$WORK/again.log" 2> "$WORK/err"
  check_eq "$name: killed and started again it ends with 0" 0 $? || tail -n 5 "$WORK/err"
  "$@" "$example" "$text" $((step + 5)) > "$WORK/whole.log" 2>&1
  check_eq "$name: it went on from its newest checkpoint, with the same losses to the bit" \
    "$(tail -n 5 "$WORK/whole.log")" "$(cat "$WORK/again.log")"
}
saved_or_gone() { [ "$(ls "$1" 2> /dev/null | grep -c ^step-)" -ge 2 ] || ! kill -0 "$2" 2> /dev/null; }

resumes "alone, in a directory of its own" "$WORK/alone" "$WORK/alone" env
resumes "under an agent, in a directory of its own" "$WORK/own" "$WORK/own" "$TREE/bin/fsdprun" --nproc-per-node 2 --
resumes "under an agent, in its run directory" "$WORK/run/checkpoints" - "$TREE/bin/fsdprun" --nproc-per-node 2 --run-dir "$WORK/run" --
check "both attempts have their folders" test -d "$WORK/run/attempt_0" -a -d "$WORK/run/attempt_1"
