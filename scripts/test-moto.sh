#!/usr/bin/env bash
# Prints the path of a Python with moto, a server of S3's protocol, for the tests that keep checkpoints there. Makes it
# first where it is not there yet: a virtual environment of 0.3 GB below the cache directory, from PyPI.
cd "$(dirname "$0")/.." || exit 1
. scripts/test-venv.sh
what="moto[server]==5.2.5"
works() { "$1" -c 'import moto.server, boto3'; }
make_environment() {
  python3 -m venv "$1" && "$1/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "$what"
}
environment moto "$what"
