#!/usr/bin/env bash
# Run fuzz targets against kernels built with ASAN and UBSAN, a million inputs each:
#   tests/fuzz/run.sh                                all targets
#   RUNS=-max_total_time=300 tests/fuzz/run.sh gibbs   one, for five minutes (any options of libFuzzer)
# Needs apt-get install clang-14 libclang-rt-14-dev, and PYTHON (default python3), a Python 3.11 to 3.13 that has the
# package's dependencies. WORK (default a temporary folder) keeps build, inputs that reach new code, and crashes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
work=${WORK:-$(mktemp -d)}
mkdir -p "$work/crashes"
sanitizers=address,undefined,fuzzer-no-link
[ -d "$work/lib" ] || "$python" -m pip install --quiet --no-deps --target "$work/lib" "atheris>=3,<4"
[ -d "$work/tree" ] || CC=${CC:-clang-14} PYTHON=$python "$here/../sanitize/build.sh" "$work/tree" \
    -O1 -g -fno-omit-frame-pointer -fsanitize=$sanitizers -fno-sanitize=alignment,function -fno-sanitize-recover=undefined

cd "$work/tree/tests"
export PYTHONPATH="$work/tree:$work/lib" ASAN_OPTIONS=detect_leaks=0:malloc_context_size=2:quarantine_size_mb=8 OPENBLAS_NUM_THREADS=1 MPLBACKEND=Agg
if [ -d /dev/shm ]; then export TMPDIR=/dev/shm; fi # model files in memory
failed=0
for target in "${@:-formula kernels predict load network blocks gibbs folds}"; do
    for name in $target; do
        mkdir -p "$work/corpus/$name"
        started=$SECONDS
        # shellcheck disable=SC2086
        LD_PRELOAD="$work/lib/asan_with_fuzzer.so" "$python" -m fuzz "$name" "$work/corpus/$name" -max_len=100 -timeout=120 \
            -rss_limit_mb=0 -artifact_prefix="$work/crashes/$name-" ${RUNS:--runs=1000000} > "$work/$name.log" 2>&1 \
            && result=passed || { result=FAILED; failed=1; tail -40 "$work/$name.log"; }
        echo "$name: $result, $(grep -o '^Done [0-9]* runs\|^#[0-9]*' "$work/$name.log" | tail -1), $((SECONDS - started)) s"
    done
done
echo "inputs and crashes are in $work"
exit $failed
