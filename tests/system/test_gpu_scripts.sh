# The scripts for a machine with a GPU, where there is none: what they say then, what the archive for one without our packages holds, and each of
# their lines over the emulated device.
. tests/support/harness.sh
if [ -e /dev/nvidia0 ]; then skip "scripts for a machine with a GPU" "there is one here: scripts/gpu-check.sh"; exit 0; fi
if [ "$BUILD" != "$SOURCE/build" ]; then skip "scripts for a machine with a GPU" "they work on build, and this is another flavour"; exit 0; fi
check "the archive holds at most 64 MiB" scripts/gpu-archive.sh --built "$WORK/gpu.tar.gz"
check "and is that large" test "$(stat -c %s "$WORK/gpu.tar.gz")" -le $((64 << 20))
check "it unpacks" tar xf "$WORK/gpu.tar.gz" -C "$WORK"
tree=$WORK/fsdprun
# bare COMMAND...: as on a machine that has nothing of ours: no variable of this environment, and of PATH only the system's.
bare() { (cd "$tree" && env -i PATH=/usr/bin:/bin HOME="$WORK" TMPDIR="$WORK" "$@"); }
foreign() { # what a program of the archive needs and neither it nor libc has
  bare env LD_LIBRARY_PATH=build/libs ldd "$1" | awk '/not found/ { print $1 } $3 ~ /^\// && $3 !~ /^build\/libs\// { print $1 }' | grep -vE '^(libc|libm|libdl|librt|libpthread)\.so'
}
for program in bin/fsdprun bin/fsdp-agent bin/fsdp-train test/cuda_numerics test/attention_time test/parity_compare; do
  check_eq "$(basename "$program") needs the archive's libraries and libc" "" "$(foreign "build/$program")"
done
check_status "without a GPU it says so, and does nothing" 69 bare scripts/gpu-check.sh test bench restart
check_match "in one line" '^gpu-check: there is no GPU here' "$(cat "$WORK/err")"
check_status "without nvcc too, where something is to be built" 69 bare env PATH=/bin:/nowhere scripts/gpu-check.sh
check_match "with what is missing" '^gpu-check: (no nvcc|there is no GPU)' "$(cat "$WORK/err")"
check_status "make test-gpu too, where the archive was unpacked" 2 bare make -s test-gpu
check_match "in the same words" '^gpu-check: there is no GPU here' "$(cat "$WORK/err")"
check_status "a part that it does not have" 2 bare scripts/gpu-check.sh tests
check_status "the bench alone" 69 bare tests/bench/gpu/bench.sh
check_status "the time of a restart alone" 69 bare tests/bench/gpu/restart.sh

# Behind their first lines, over the emulated device: the archive carries none, so it is put there.
cp -r "$BUILD/test/emulated" "$tree/build/test/"
check_status "the parts but building it" 0 bare env FSDP_TEST_EMULATED_GPU=1 FSDP_TEST_ONLY=test_kernels FSDP_BENCH_SIZES=tiny:2 FSDP_BENCH_STEPS=6 \
  FSDP_BENCH_PYTHON="${FSDP_TEST_PYTHON:-/nowhere/python}" LAYERS=1 DIM=32 SEQ=16 STEPS=100000 scripts/gpu-check.sh test sanitizer bench restart
report=$tree/build/gpu/report.txt
check_match "kernels were tested" '^[1-9][0-9]* passed, 0 failed' "$(cat "$report")"
for what in "GPT-2 tiny, tokens/s" "GPT-2 tiny, share of the peak, %" "GPT-2 tiny, peak memory, GiB" "GPT-2 tiny, host in a step, ms"; do
  check_match "the bench tells: $what" "^$what +\\| +[0-9.]+ " "$(cat "$report")"
done
check "and leaves the same as JSON" "$TOY/json_check" "$tree/build/bench/gpu.json"
check_eq "four rows, of ours none missing" 4 "$(grep -o '"ours": [0-9.]*, "peer"' "$tree/build/bench/gpu.json" | grep -c .)"
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  check_eq "nor of PyTorch's, but the memory that a CPU has no count of" 3 "$(grep -o '"peer": [0-9.]*, "peer_name": "torch-[^"]*"' "$tree/build/bench/gpu.json" | grep -c .)"
else
  skip "PyTorch's side of the bench" "FSDP_TEST_PYTHON is not set"
fi
for run in '1 rank(s), FSDP_COLLECTIVES=nccl' '2 rank(s), FSDP_COLLECTIVES=cpu'; do
  parts=$(awk -v run="restart at $run" '/^restart at / { on = $0 == run } on && / ms$/' "$report")
  for what in 'teardown: killed -> known' 'teardown: known -> new ones spawned' 'process start, joining, model' 'context' 'collectives init' 'load' 'first step' 'whole: killed -> first step done'; do
    check_match "a restart at $run is broken down: $what, not negative" "^$what +[0-9.]+ ms" "$parts"
  done
  check "a restart at $run: its parts are the whole, but for what rounding makes" awk '/^whole/ { whole = $(NF - 1); next } { sum += $(NF - 1) } END { exit !(whole > 0 && sum - whole < 1 && whole - sum < 1) }' <<< "$parts"
done
[ "$n_failed" -eq 0 ]
