#!/usr/bin/env bash
# Prints the path of a Python with the PyTorch that the tests speak to, for FSDP_TEST_PYTHON. Makes it first
# where it is not there yet: a virtual environment of 5.4 GB below the cache directory, from PyPI. Nothing but
# the tests needs it.
#   FSDP_TEST_PYTHON=$(scripts/test-pytorch.sh) ./scripts/test.sh
set -u
version=2.15.0
place=${XDG_CACHE_HOME:-$HOME/.cache}/fsdprun-tests/pytorch-$version
python=$place/bin/python
works() {
  [ -e "$place/complete" ] && [ "$("$python" -c 'import torch, numpy, safetensors; print(torch.__version__.split("+")[0])' 2>&1)" = "$version" ]
}

mkdir -p "$place" || exit 1
exec 9> "$place.lock" && flock 9 || exit 1 # two at once: the second finds the work done
if ! works; then
  echo "installing PyTorch $version into $place" >&2
  rm -rf "$place"
  python3 -m venv "$place" >&2 &&
    "$place/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "torch==$version" numpy safetensors >&2 &&
    touch "$place/complete" && works || { echo "PyTorch $version could not be installed into $place" >&2; exit 1; }
fi
echo "$python"
