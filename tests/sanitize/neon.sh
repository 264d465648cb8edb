#!/usr/bin/env bash
# Build the kernels for 64-bit ARM, whose vectors (NEON) have 16 bytes, and run tests of them under emulation.
#   tests/sanitize/neon.sh                          the tests of kernels
#   tests/sanitize/neon.sh tests/ext/test_pseudo.py some files
# Needs Debian with gcc-aarch64-linux-gnu and qemu-user; Python 3.11 and its libraries for ARM are downloaded and only
# unpacked. PYTHON has Cython and setuptools; WORK (default a temporary folder) keeps downloads and the build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
work=${WORK:-$(mktemp -d)}
root=$work/root
site=$work/site
mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,debs,root}

if [ ! -e "$root/usr/bin/python3.11" ]; then
    arm=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::lists=$work/apt/lists"
        -o "Dir::Cache=$work/apt/cache" -o Dir::State::status=/dev/null)
    apt-get "${arm[@]}" -q update > "$work/apt.log" 2>&1
    (cd "$work/debs" && apt-get "${arm[@]}" -q download python3.11 python3.11-minimal libpython3.11 \
        libpython3.11-minimal libpython3.11-stdlib libpython3.11-dev libc6 libgcc-s1 libstdc++6 libssl3 libexpat1 \
        zlib1g libffi8 liblzma5 libbz2-1.0 libsqlite3-0 libuuid1 libcrypt1 >> "$work/apt.log" 2>&1)
    for package in "$work"/debs/*.deb; do
        dpkg -x "$package" "$root"
    done
fi
if [ ! -d "$site/pytest" ]; then
    "$python" -m pip install -q --target "$site" --only-binary=:all: --python-version 311 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 \
        --platform manylinux2014_aarch64 numpy scipy pandas formulaic statsmodels matplotlib narwhals joblib tqdm \
        threadpoolctl scikit-learn pyarrow dask distributed pytest pytest-xdist hypothesis
fi

export CC="aarch64-linux-gnu-gcc -I$root/usr/include/python3.11 -I$root/usr/include"
export PYTHON=$python BBL_BUILT=$work/kernels
[ -f "$work/src/build.log" ] || "$here/build.sh" "$work/src" -O3 -fno-math-errno -fno-trapping-math -Wno-psabi
cd "$work/src"
for kernel in $(find bbl -name '*.cpython-*-x86_64-linux-gnu.so'); do # the name that Python for ARM looks for
    mv "$kernel" "${kernel/x86_64/aarch64}"
done
[ $# -gt 0 ] || set -- tests/ext tests/engines/test_engines.py tests/engines/test_variational.py \
    tests/engines/test_boosting.py tests/engines/test_conditional.py tests/model
export PYTHONPATH=$work/src:$site PYTHONHASHSEED=0 MPLBACKEND=Agg OPENBLAS_NUM_THREADS=1 BBL_SHARED=$work/none
qemu-aarch64 -L "$root" "$root/usr/bin/python3.11" -m pytest -q -n 0 -p no:cacheprovider "$@"
