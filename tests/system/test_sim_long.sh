# Simulated nodes, at length: ten thousand histories without a violation, and each planted bug of
# tests/sim/mutants is found within ten thousand, too.
# Nightly: sim
. tests/support/shell/harness.sh

histories=10000
[ -n "${FSDP_NIGHTLY:-}" ] || histories=4000 # a sample, in CI
check "$histories histories without a violation" "$BUILD/test/sim" 1 "$histories" "$(nproc)"

make -s -k -j"$(nproc)" BUILD="$BUILD" NVCC= sim-mutants > "$WORK/mutants" 2>&1
for patch in tests/sim/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  if [ ! -x "$BUILD/test/sim-mutants/$name" ]; then
    not_ok "mutant $name is built" "$(cat "$WORK/mutants")"
    continue
  fi
  "$BUILD/test/sim-mutants/$name" 1 10000 "$(nproc)" > "$WORK/out" 2>&1
  check_match "mutant $name is found: $(head -n 1 "$patch")" '^seed [0-9]+: ' "$(grep -m 1 '^seed ' "$WORK/out")"
done
