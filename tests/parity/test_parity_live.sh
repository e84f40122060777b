#!/usr/bin/env bash
# PyTorch's own FSDP2, run here and now, is as near to the stored references as ours must be, and in the
# stored order.
# Nightly: torch-parity
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
PARITY=$SOURCE/tests/parity
if [ -z "${FSDP_TEST_PYTHON:-}" ]; then
  skip "FSDP2 run live" "FSDP_TEST_PYTHON names no Python with PyTorch"
  exit 0
fi
live() { "$FSDP_TEST_PYTHON" "$PARITY/$@"; }
for name in linears-a linears-b linears-c transformer twice tied rms unused biases leading groups mlp tensor clip-1 clip-3 clip-inf \
  {mlp,tensor}-clip-{1,3,inf}; do
  check_status "FSDP2 agrees with the reference of $name" 0 live fsdp2_reference.py --check "$name"
done
check_status "FSDP2's events can be noted, in every way of sharding" 0 live fsdp2_schedule.py --out "$WORK/schedule.txt"
stored=$(grep -v '^#' "$PARITY/reference/fsdp2/schedule.txt") now=$(grep -v '^#' "$WORK/schedule.txt")
for name in $(cut -d ' ' -f 1 <<< "$stored" | uniq); do
  check_eq "$name: they come in the stored order" "$(grep "^$name " <<< "$stored")" "$(grep "^$name " <<< "$now")"
done
check_eq "nothing was noted that is not stored" "$(wc -l <<< "$stored")" "$(wc -l <<< "$now")"
[ "$n_failed" -eq 0 ]
