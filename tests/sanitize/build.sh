#!/usr/bin/env bash
# Copy the checkout to a folder and build its kernels there with other flags: build.sh FOLDER FLAGS...
# PYTHON (default python3) has to have the package's dependencies, Cython and setuptools; CC is gcc or clang-14.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$1
shift
mkdir -p "$folder"
tar -C "$root" --exclude=./.git --exclude='*.so' --exclude='__pycache__' --exclude='*.c' -cf - . | tar -C "$folder" -xf -
cd "$folder"
BBL_FLAGS="$*" LDSHARED="${CC:-gcc} -shared" CC=${CC:-gcc} "${PYTHON:-python3}" setup.py -q build_ext --inplace > build.log 2>&1 \
    || { tail -50 build.log; exit 1; }
