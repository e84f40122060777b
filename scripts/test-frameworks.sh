#!/usr/bin/env bash
# Prints the path of a Python with accelerate, Lightning and transformers, for tests/system/test_frameworks.sh. Makes it first
# where it is not there yet: a virtual environment below the cache directory, from PyPI. It finds PyTorch, and what else
# they need, in the Python that FSDP_TEST_PYTHON names, or in that of scripts/test-pytorch.sh.
cd "$(dirname "$0")/.." || exit 1
. scripts/test-venv.sh
packages="accelerate==1.15.0 lightning-fabric==2.6.6 pytorch-lightning==2.6.6 transformers==5.23.0"
old_packages="lightning==2.2.5 setuptools==69.5.1" # has `lightning run`; in a folder of its own, since it has a `fabric` too
base=${FSDP_TEST_PYTHON:-$(scripts/test-pytorch.sh)} || exit 1
works() { "$1" -c 'import torch, accelerate, lightning_fabric, pytorch_lightning, transformers'; }
packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
make_environment() {
  "$base" -m venv --without-pip "$1" &&
    packages_of "$base" > "$(packages_of "$1/bin/python")/pytorch.pth" &&
    "$base" -m pip --disable-pip-version-check --python "$1/bin/python" install --quiet --no-cache-dir --only-binary=:all: $packages &&
    "$base" -m pip --disable-pip-version-check install --quiet --no-cache-dir --no-deps --target "$1/lightning-run" $old_packages
}
environment frameworks "$packages and $old_packages, with the PyTorch of $base"
