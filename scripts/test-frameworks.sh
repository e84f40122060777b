#!/usr/bin/env bash
# Prints the path of a Python with accelerate, Lightning and transformers, for tests/system/test_frameworks.sh. Makes it first
# where it is not there yet: a virtual environment below the cache directory, from PyPI. It finds PyTorch, and what else
# they need, in the Python that FSDP_TEST_PYTHON names, or in that of scripts/test-pytorch.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
packages="accelerate==1.15.0 lightning-fabric==2.6.6 pytorch-lightning==2.6.6 transformers==5.23.0"
old_packages="lightning==2.2.5 setuptools==69.5.1" # has `lightning run`; in a folder of its own, since it has a `fabric` too
base=${FSDP_TEST_PYTHON:-$(scripts/test-pytorch.sh)} || exit 1
place=${XDG_CACHE_HOME:-$HOME/.cache}/fsdprun-tests/frameworks
python=$place/bin/python
made="$base $packages $old_packages" # what is there is of use only if it was made of the same
works() {
  [ "$(cat "$place/complete" 2> /dev/null)" = "$made" ] && "$python" -c 'import torch, accelerate, lightning_fabric, pytorch_lightning, transformers' 2> /dev/null
}

mkdir -p "$place" || exit 1
exec 9> "$place.lock" && flock 9 || exit 1 # two at once: the second finds the work done
if ! works; then
  echo "installing $packages into $place" >&2
  rm -rf "$place"
  "$base" -m venv --without-pip "$place" >&2 &&
    "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pytorch.pth" &&
    "$base" -m pip --disable-pip-version-check --python "$python" install --quiet --no-cache-dir --only-binary=:all: $packages >&2 &&
    "$base" -m pip --disable-pip-version-check install --quiet --no-cache-dir --no-deps --target "$place/lightning-run" $old_packages >&2 &&
    echo "$made" > "$place/complete" && works || { echo "$packages could not be installed into $place" >&2; exit 1; }
fi
echo "$python"
