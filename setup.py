"""Build of the Cython kernels in bbl/_ext; everything else is declared in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("BBL_DEBUG") == "1"
TRACE = os.environ.get("BBL_TRACE") == "1"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": not DEBUG,
    "initializedcheck": DEBUG,
    "linetrace": TRACE,
}
# no debugging symbols unless asked for: they make the wheel five times as large
FLAGS = ["/O2"] if os.name == "nt" else ["-O3", "-g" if DEBUG else "-g0", "-fno-math-errno", "-fno-trapping-math"]
if given := os.environ.get("BBL_FLAGS"):  # for compiling and linking, e.g. -O1 -g -fsanitize=address
    FLAGS = given.split()
HEADERS = sorted(str(p) for p in Path("bbl/_ext").glob("*.h"))

extensions = [
    Extension(
        f"bbl._ext.{path.stem}",
        [str(path)],
        depends=HEADERS,
        include_dirs=["bbl/_ext"],
        extra_compile_args=FLAGS,
        extra_link_args=FLAGS if given else [],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
    )
    for path in sorted(Path("bbl/_ext").glob("*.pyx"))
]

setup(ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES))
