#!/usr/bin/env bash
# Run all kernels under valgrind; a record with a function of ours in it fails.
# PYTHON has the package's dependencies; WORK (default a temporary folder) keeps the build and the log.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
work=${WORK:-$(mktemp -d)}
[ -f "$work/build.log" ] || PYTHON=$python "$here/build.sh" "$work" -O1 -g

cd "$work"
PYTHONMALLOC=malloc OPENBLAS_NUM_THREADS=1 PYTHONPATH=$work valgrind --leak-check=no --num-callers=30 \
    --log-file="$work/valgrind.log" "$python" tests/sanitize/kernels.py
ours=$(grep -cE '__pyx_|/bbl/_ext/|\.cpython-[^ ]*/bbl|(by|at) 0x[0-9A-F]+: (bbl|pseudo|gibbs|newton)_' "$work/valgrind.log" || true)
echo "$(grep -oE 'ERROR SUMMARY: .*' "$work/valgrind.log"); $ours lines with a function of ours"
[ "$ours" = 0 ]
