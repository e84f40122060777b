#!/usr/bin/env bash
# The tests that a change has to pass. Installs what they need (apt; sudo when not root), builds, and runs
# unit tests, the GPU kernels on an emulated GPU, and all scripts but the long ones. Those are `make nightly`
# (scripts/nightly.sh).
# Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/packages.sh
. scripts/tally.sh
install_packages $packages_build $packages_data $packages_test || exit 1

suite build one_result make -s -j"$(nproc)" WERROR="${CI:+1}" tests-build
[ "$failed" -eq 0 ] || { tally; exit 1; }
suite tests tests/run --quick unit emulation system parity conformance
tally
