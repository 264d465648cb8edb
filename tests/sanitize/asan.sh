#!/usr/bin/env bash
# Run the tests against kernels built with ASAN and UBSAN; any report ends the process that made it.
#   tests/sanitize/asan.sh                                   the whole suite, gcc
#   CC=clang-14 tests/sanitize/asan.sh tests/ext/test_pseudo.py   some files, clang
# PYTHON has the test dependencies; WORK (default a temporary folder) keeps the build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
work=${WORK:-$(mktemp -d)}
export CC=${CC:-gcc} PYTHON=$python BBL_SHARED=${BBL_SHARED:-$here/../../../shared}
runtime="$("$CC" -print-file-name=libasan.so) $("$CC" -print-file-name=libubsan.so)"
[[ $CC == gcc* ]] || runtime=$("$CC" -print-file-name=libclang_rt.asan-x86_64.so)
[ -d "$work" ] && [ -f "$work/build.log" ] || "$here/build.sh" "$work" -O1 -g -fno-omit-frame-pointer \
    -fsanitize=address,undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined \
    $([[ $CC == gcc* ]] || echo -shared-libasan -fno-sanitize=function)

cd "$work"
# leaks: the interpreter keeps what it has until the end; PYTHONMALLOC: every object is watched
export PYTHONMALLOC=malloc PYTHONPATH=$work ASAN_OPTIONS=detect_leaks=0:malloc_context_size=5 MPLBACKEND=Agg OPENBLAS_NUM_THREADS=1
# left out: scripts that run what other tests run, and R's largest fits, which take over ten minutes here
[ $# -gt 0 ] || set -- tests --ignore=tests/test_vignettes.py --ignore=tests/test_benchmarks.py \
    --ignore=tests/test_reference_r.py
LD_PRELOAD=$runtime "$python" -m pytest -q -n 0 -p no:cacheprovider "$@"
