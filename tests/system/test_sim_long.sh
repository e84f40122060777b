# Simulated nodes, and who leads them, at length: twenty thousand histories without a violation, and each planted
# bug of tests/sim/mutants and tests/sim/arbiter/mutants is found within as many.
# Nightly: sim
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh

histories=20000
[ -n "${FSDP_NIGHTLY:-}" ] || histories=4000 # a sample, in CI
for sim in sim sim_arbiter; do
  check "$histories histories of $sim without a violation" "$BUILD/test/$sim" 1 "$histories" "$(nproc)"
done

make -s -k -j"$(nproc)" BUILD="$BUILD" NVCC= sim-mutants > "$WORK/mutants" 2>&1
for patch in tests/sim/mutants/*.patch tests/sim/arbiter/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  case $patch in
  tests/sim/arbiter/*) mutant=$BUILD/test/sim_arbiter-mutants/$name ;;
  *) mutant=$BUILD/test/sim-mutants/$name ;;
  esac
  if [ ! -x "$mutant" ]; then
    not_ok "mutant $name is built" "$(cat "$WORK/mutants")"
    continue
  fi
  "$mutant" 1 20000 "$(nproc)" > "$WORK/out" 2>&1
  check_match "mutant $name is found: $(head -n 1 "$patch")" '^seed [0-9]+: ' "$(grep -m 1 '^seed ' "$WORK/out")"
done
