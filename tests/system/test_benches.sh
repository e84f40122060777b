# Every `make bench-NAME` of the Makefile works: it runs once, in short, ends with 0 and leaves its table as
# JSON. What it measures means nothing here.
# Nightly: bench
# Alone
. tests/support/shell/harness.sh
case $(basename "$BUILD") in build) ;; *) skip "benches" "what a sanitizer's build needs is not measured"; exit 0 ;; esac
export BENCH_RUNS=1 RESTART_RUNS=1 LAUNCH_RUNS=1 LAUNCH_PEER_RUNS=1 LAUNCH_WINDOW_MS=100 BENCH_TRAIN_STEPS=1 BENCH_TRAIN_ONLY=tutorial/float32
export RENDEZVOUS_NODES=64 RENDEZVOUS_REAL_NODES=4
export FSDP_BENCH_PYTHON=${FSDP_TEST_PYTHON:-}
benches=$(make -s help | grep -o '^bench-[a-z]*' | grep -vx bench-gpu) # scripts/gpu-check.sh tests that one
check "the Makefile has benches" test "$(wc -w <<< "$benches")" -ge 8
for bench in $benches; do
  json=$BUILD/bench/${bench#bench-}.json
  rm -f "$json"
  check_status "$bench ends well" 0 timeout 3000 make -s BUILD="$BUILD" "$bench" || tail -n 20 "$WORK/out" "$WORK/err" >&2
  if [ "$bench" = bench-ways ]; then # tables for a person alone
    check "$bench prints its tables" grep -qE '^2048 x  512 x  512 ' "$WORK/out"
    continue
  fi
  check "$bench prints a table" grep -q ' | ' "$WORK/out"
  check "$bench leaves its table as JSON" "$TOY/json_check" "$json"
  check_match "$bench: the JSON has rows" '"what": "[^"]+", "unit": "[^"]+"' "$(cat "$json")"
done
# A bench that is stopped takes its job with it.
BENCH_TRAIN_STEPS=3 "$BUILD/bench/bench_train" "$WORK/train.json" "$BUILD/bench/train" > /dev/null 2>&1 &
bench=$!
check "bench_train starts a launcher" wait_until 60 pgrep -P $bench -x fsdprun
launcher=$(pgrep -P $bench -x fsdprun)
folder=$(tr '\0' '\n' < "/proc/$launcher/cmdline" | sed -n 's|/job.yaml$||p')
kill -TERM $bench
check "... which ends with it" wait_until 60 eval "! kill -0 $launcher"
rm -rf "${folder:-none}"
