# The command line against torchrun's own parser, in one Python process: what it takes, what it refuses, what
# it makes of it. torch: launcher/test_run.py (parsing), distributed/run.py and argparse_util.py themselves.
source tests/support/shell/harness.sh
if [ -z "${FSDP_TEST_PYTHON:-}" ]; then
  skip "fsdprun's command line is torchrun's" "FSDP_TEST_PYTHON names no Python with PyTorch"
  exit 0
fi
"$FSDP_TEST_PYTHON" tests/conformance/cli_torchrun.py "$BIN/fsdprun" docs/torchrun-differences.md
n_failed=$((n_failed + $?))
