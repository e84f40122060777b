# Eight workers write 1 GB through --tee 3 into a pipe: lines of 80 to 200 bytes, of 100 MB, of 1 byte, and
# binary junk (tests/support/workers/volume.c). Every line is whole and in order, the files have what was
# written, and the agent stays small. It is at least half as fast as one thread that only reads and writes the
# same (tests/support/oracles/plain_copy.c). That thread has the same workers and the same reader, and runs in
# turns with ours. FSDP_TEST_OUTPUT_MB makes it less.
# Alone
. tests/support/shell/harness.sh
F=$BIN/fsdprun
V=$TOY/volume
WORKERS=8
mounted=
at_exit() { [ -z "$mounted" ] || umount "$mounted"; }
sanitized() { case $BUILD in *asan*|*tsan*) true ;; *) false ;; esac; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

mb=${FSDP_TEST_OUTPUT_MB:-1112} # 9 % of it are one line of 100 MB
sanitized && mb=$((mb < 112 ? mb : 112))
free_mb=$(df -Pm "$WORK" | awk 'NR == 2 {print $4}')
[ "$free_mb" -gt $((3 * mb + 500)) ] || mb=$((free_mb > 800 ? (free_mb - 500) / 3 : 100))
total=$((mb * 1000000))

# every byte
mkfifo "$WORK/gate"
# shellcheck disable=SC2016 # expanded by the worker
"$F" --log-dir "$WORK/logs" --nproc-per-node $WORKERS -t 3 /bin/sh -c '"$0" write "$1" "$2" && : > "$3.$RANK" && cat "$4"' \
  "$V" $total $WORKERS "$WORK/done" "$WORK/gate" 2>&1 | cat > "$WORK/console" &
pipeline=$!
# shellcheck disable=SC2009
all_done() { [ "$(ls "$WORK"/done.* 2> /dev/null | wc -l)" = $WORKERS ]; }
check "eight workers write $mb MB" wait_until 300 all_done
peak=0
for pid in $(pgrep -f -- "--log-dir $WORK/logs"); do # guard and agent; a worker's command line has no such words
  kib=$(awk '/^VmHWM/ {print $2}' "/proc/$pid/status" 2> /dev/null)
  peak=$((peak + ${kib:-0}))
done
: > "$WORK/gate"
wait $pipeline
"$V" check $total $WORKERS < "$WORK/console" > "$WORK/verdict"
verdict=$?
check_eq "no line is torn, mixed, lost, doubled or out of its order: $(cat "$WORK/verdict")" 0 $verdict
rm "$WORK/console"
if sanitized; then
  skip "guard and agent stay below 64 MiB" "a sanitizer's own memory counts"
else
  check "guard and agent stay below 64 MiB: $peak KiB" [ "$peak" -gt 0 -a "$peak" -lt 65536 ]
fi
same=0
for rank in $(seq 0 $((WORKERS - 1))); do
  dir=$(echo "$WORK"/logs/*/attempt_0/"$rank")
  RANK=$rank "$V" write $total $WORKERS 2> /dev/null | cmp -s - "$dir/stdout.log" && same=$((same + 1))
  RANK=$rank "$V" write $total $WORKERS 2>&1 > /dev/null | cmp -s - "$dir/stderr.log" && same=$((same + 1))
done
check_eq "the files are byte for byte what was written" $((2 * WORKERS)) $same
rm -rf "$WORK/logs"

# as fast as half a thread
plain() {
  mkdir "$WORK/plain"
  "$TOY/plain_copy" "$WORK/plain" $WORKERS "$V" write $total $WORKERS | cat > /dev/null
  rm -rf "$WORK/plain"
}
ours() {
  "$F" --log-dir "$WORK/ours" --nproc-per-node $WORKERS -t 3 "$V" write $total $WORKERS 2>&1 | cat > /dev/null
  rm -rf "$WORK/ours"
}
timed() { # name: the least of its times so far, in ms, files deleted or not: both do
  local began ms; began=$(now_ms); "$1"; ms=$(($(now_ms) - began))
  [ "${least[$1]:-0}" -ne 0 ] && [ "${least[$1]}" -lt $ms ] || least[$1]=$ms
}
# CPU time of all processes that are none of ours, in ms.
foreign_ms() {
  local all own hz; hz=$(getconf CLK_TCK)
  all=$(awk '/^cpu / {print $2 + $3 + $4 + $7 + $8}' /proc/stat)
  own=$(awk '{sub(/.*\) /, ""); print $12 + $13 + $14 + $15}' "/proc/$$/stat")
  echo $(((all - own) * 1000 / hz))
}
declare -A least=()
if sanitized; then
  skip "at least half the rate of one thread that reads and writes" "a sanitizer slows one of the two"
else
  n=0; before=$(foreign_ms); began=$(now_ms)
  # The least of the times on a busy machine: more pairs only where they are needed.
  until [ $n -ge 2 ] && [ $((2 * least[plain])) -ge "${least[ours]}" ] || [ $n -ge 7 ]; do
    timed plain; timed ours; n=$((n + 1))
  done
  foreign=$((100 * ($(foreign_ms) - before) / (($(now_ms) - began) * $(nproc))))
  name="at least half the rate of one thread that reads and writes"
  words="$((total / least[ours] / 1000)) MB/s, the thread $((total / least[plain] / 1000)): $((100 * least[plain] / least[ours])) %, best of $n in turns"
  if [ $((2 * least[plain])) -lt "${least[ours]}" ] && [ $foreign -gt 20 ]; then
    skip "$name" "others took $foreign % of the machine ($words)"
  else
    check "$name ($words)" [ $((2 * least[plain])) -ge "${least[ours]}" ]
  fi
fi

# a full disk
mkdir "$WORK/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=8m none "$WORK/full" 2> "$WORK/err"; then
  mounted=$WORK/full
  "$F" --log-dir "$WORK/full" --nproc-per-node $WORKERS -t 3 "$V" write 40000000 $WORKERS > /dev/null 2> "$WORK/err"
  check_eq "eight workers outlive a full disk" 0 $?
  kept=$(cat "$WORK"/full/*/attempt_0/*/std*.log | wc -c)
  lost=$(sed -n 's/^fsdprun: \([0-9]*\) bytes of output were lost.*/\1/p' "$WORK/err")
  written=0
  for rank in $(seq 0 $((WORKERS - 1))); do written=$((written + $(RANK=$rank "$V" write 40000000 $WORKERS 2>&1 | wc -c))); done
  check_eq "every byte is kept or counted as lost" "$written" $((kept + ${lost:-0}))
  check_eq "it is said once" 1 "$(grep -c 'No space left on device' "$WORK/err")"
else
  skip "eight workers outlive a full disk" "needs root and mount"
fi
