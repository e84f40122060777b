#!/usr/bin/env bash
# PyTorch's own FSDP2, run here and now, is as near to the stored references as ours must be, and in the stored order.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
PARITY=$SOURCE/tests/parity
if [ -z "${FSDP_TEST_PYTHON:-}" ]; then
  skip "FSDP2 run live" "FSDP_TEST_PYTHON names no Python with PyTorch"
  exit 0
fi
live() { "$FSDP_TEST_PYTHON" "$PARITY/$@"; }
for name in linears-a linears-b linears-c transformer twice tied unused biases leading groups mlp tensor clip-1 clip-3 clip-inf; do
  check_status "FSDP2 agrees with the reference of $name" 0 live fsdp2_reference.py --check "$name"
done
check_status "FSDP2's events can be noted" 0 live fsdp2_schedule.py --out "$WORK/schedule.txt" default hybrid accumulate-every two-forwards two-backwards
check_eq "they come in the stored order" "$(grep -E '^(default|hybrid|accumulate-every|two-forwards|two-backwards) ' "$PARITY/reference/fsdp2/schedule.txt")" \
  "$(grep -v '^#' "$WORK/schedule.txt")"
[ "$n_failed" -eq 0 ]
