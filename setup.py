"""Build of the Cython kernels in bbl/_ext, and the list of packages; everything else is declared in pyproject.toml."""

import multiprocessing
import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

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
FLAGS = (
    ["/O2"]
    if os.name == "nt"
    else ["-O3", "-g" if DEBUG else "-g0", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
)
if given := os.environ.get("BBL_FLAGS"):  # for compiling and linking, e.g. -O1 -g -fsanitize=address
    FLAGS = given.split()
KERNELS = Path("bbl/_ext")  # a folder for each family; headers that families share are beside them
HEADERS = sorted(str(p) for p in KERNELS.rglob("*.h"))

SHARED = "bbl._ext._shared"  # what Cython adds to every kernel, compiled once: half the size, half the time of a build


def extension(source):
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        depends=HEADERS,
        include_dirs=sorted({str(KERNELS), str(source.parent)}),
        extra_compile_args=FLAGS,
        extra_link_args=FLAGS if given else [],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
    )


extensions = [extension(path) for path in sorted(KERNELS.rglob("*.pyx"))]
extensions.append(extension(KERNELS / "_shared.c"))  # Cython writes the file

CORES = os.cpu_count() or 1
FORKS = multiprocessing.get_start_method() == "fork"  # a process that starts otherwise would run this file again


class Build(build_ext):
    """Kernels are translated to C when they are built, and not whenever somebody asks for the name of the package."""

    def run(self):
        translated = cythonize(
            self.extensions,
            nthreads=CORES if FORKS else 0,
            compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=SHARED,
        )
        for own, made in zip(self.extensions, translated, strict=True):
            own.sources = made.sources
        super().run()


setup(
    packages=[*find_packages(include=["bbl", "bbl.*"]), "bbl.data"],  # the folder of bbl.data is data/, not bbl/data/
    ext_modules=extensions,
    cmdclass={"build_ext": Build},
    options={"build_ext": {"parallel": CORES}},
)
