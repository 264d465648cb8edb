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
    --log-file="$work/valgrind.log" "$python" "${1:-tests/sanitize/kernels.py}"
files=$(cd bbl/_ext && printf '%s|' *.c *.h | sed 's/[.]/[.]/g; s/|$//')
ours=$(grep -cE "\(($files):[0-9]+\)|/bbl/_ext/" "$work/valgrind.log" || true)
echo "$(grep -oE 'ERROR SUMMARY: .*' "$work/valgrind.log"); $ours frames of ours"
[ "$ours" = 0 ]
