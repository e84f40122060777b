#!/usr/bin/env bash
# Prints the path of a Python with the PyTorch that the tests speak to, for FSDP_TEST_PYTHON. Makes it first
# where it is not there yet: a virtual environment of 5.4 GB below the cache directory, from PyPI. Nothing but
# the tests needs it.
#   FSDP_TEST_PYTHON=$(scripts/test-pytorch.sh) ./scripts/test.sh
cd "$(dirname "$0")/.." || exit 1
. scripts/test-venv.sh
version=2.15.0
works() { [ "$("$1" -c 'import torch, numpy, safetensors; print(torch.__version__.split("+")[0])')" = "$version" ]; }
make_environment() {
  python3 -m venv "$1" && "$1/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "torch==$version" numpy safetensors
}
environment "pytorch-$version" "PyTorch $version"
