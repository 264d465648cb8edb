#!/usr/bin/env bash
# Run the kernels in 2 to 8 Python threads at once under TSan; a data race between them ends the run with status 66.
# PYTHON has the package's dependencies; WORK (default a temporary folder) keeps the build and the reports.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
work=${WORK:-$(mktemp -d)}
[ -f "$work/build.log" ] || PYTHON=$python "$here/build.sh" "$work" -O1 -g -fno-omit-frame-pointer -fsanitize=thread

cd "$work"
# the interpreter and its libraries are not instrumented: only what a kernel of ours does counts
export TSAN_OPTIONS="exitcode=66 report_signal_unsafe=0 ignore_noninstrumented_modules=1 log_path=$work/race"
LD_PRELOAD=$(gcc -print-file-name=libtsan.so) OPENBLAS_NUM_THREADS=1 PYTHONPATH=$work \
    setarch "$(uname -m)" -R "$python" tests/sanitize/threads.py
echo "no data race"
