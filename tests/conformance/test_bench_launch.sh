# make bench-launch: every row is there, as a table and as JSON; what does not depend on a quiet machine
# holds, and times do where it is quiet. Few runs: the figures of docs/benchmarks.md come from the bench
# itself.
# Nightly: bench
# Alone
. tests/support/shell/harness.sh
case $(basename "$BUILD") in build) ;; *) skip "bench-launch" "what a sanitizer's build needs is not measured"; exit 0 ;; esac
command -v python3 > /dev/null || { skip "bench-launch" "no python3 to read its JSON"; exit 0; }
runs=3
if awk '{exit !($1 < 1)}' /proc/loadavg; then quiet=yes runs=31; else quiet=; fi
check "it runs" env FSDP_BENCH_PYTHON="${FSDP_TEST_PYTHON:-}" LAUNCH_RUNS=$runs LAUNCH_PEER_RUNS=1 LAUNCH_WINDOW_MS=500 \
  timeout 5000 make -s BUILD="$BUILD" bench-launch
# row WHAT KEY: a value of a row
row() {
  python3 -c 'import json,sys; print(next(r for r in json.load(open(sys.argv[1]))["rows"] if r["what"] == sys.argv[2])[sys.argv[3]])' "$BUILD/bench/launch.json" "$@"
}
# holds NAME EXPRESSION
holds() { if python3 -c "import sys; sys.exit(not ($2))"; then ok "$1"; else not_ok "$1" "$2"; fi; }
check_match "the machine is named" '"machine": \{"cpu": ".+", "cores": [0-9]+\}' "$(cat "$BUILD/bench/launch.json")"
for n in 1 2 8 32; do
  what="start to last of $n $([ $n = 1 ] && echo worker || echo workers) in main()"
  check_eq "$n: in ms, lower is better, of $runs runs" "ms lower $runs" "$(row "$what" unit) $(row "$what" better) $(row "$what" n)"
  if [ -n "$quiet" ]; then holds "$n: within twice bare and 5 ms, thrice over" "$(row "$what" ours) < 3 * (2 * $(row "$what" limit) + 5)"
  else skip "$n: within twice bare and 5 ms" "the machine is busy"; fi
  if [ -n "${FSDP_TEST_PYTHON:-}" ]; then holds "$n: far sooner than torchrun" "$(row "$what" ours) * 5 < $(row "$what" peer)"
  else skip "$n: far sooner than torchrun" "FSDP_TEST_PYTHON does not name a Python with PyTorch"; fi
done
what="SIGKILL of a worker to replacements in main()"
if [ -n "$quiet" ]; then holds "a replacement within 20 ms, thrice over" \
  "$(row "$what" ours) < 60 * $(pace)"; else skip "a replacement within 20 ms" "the machine is busy"; fi
holds "both processes of the launcher hold less than 8 MB" "0 < $(row "PSS of the launcher's processes, 8 workers" ours) < 8"
holds "and wake so seldom that it is less than 0.1 % of a core" "0 < $(row 'wakeups of them a second, 8 workers idle' ours) < $(row 'wakeups of them a second, 8 workers idle' limit)"
# Beside other load each wakeup takes longer.
if [ -n "$quiet" ]; then most=3.6; else most=10.8; fi
holds "which they take, or three times as much on a busy machine" "0 < $(row 'CPU of them in an hour, 8 workers idle' ours) < $most * $(pace)"
