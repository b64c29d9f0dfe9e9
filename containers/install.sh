#!/bin/sh
# Install a wheel of dolma_dask with exactly the packages of the lock file, whose hashes are checked, and compile its kernels.
# The recipes in this folder call it, and .ci/run does too, so that it is known to work.
# Usage: containers/install.sh VENV LOCK_FILE WHEEL
set -eu
venv=$1 lock=$2 wheel=$3
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --require-hashes -r "$lock"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps "$wheel"
"$venv/bin/dolma-dask" warm-up
