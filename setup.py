"""Build of the Cython kernels in bbl/_ext, and the list of packages; everything else is declared in
pyproject.toml.
"""

import base64
import gzip
import hashlib
import locale
import multiprocessing
import os
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from Cython import __version__ as cython_version
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import editable_wheel
from setuptools.command.sdist import sdist

DEBUG = os.environ.get("BBL_DEBUG") == "1"
TRACE = os.environ.get("BBL_TRACE") == "1"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": not DEBUG,
    "initializedcheck": DEBUG,
    "linetrace": TRACE,
    # no kernel keeps state between calls; tests/sanitize/tsan.sh looks for races
    "freethreading_compatible": True,
}
# no debugging symbols unless asked for: they make the wheel five times as large
FLAGS = (
    ["/O2"]
    if os.name == "nt"
    else ["-O3", "-g" if DEBUG else "-g0", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
)
# for compiling and linking, e.g. -O1 -g -fsanitize=address
if given := os.environ.get("BBL_FLAGS"):
    FLAGS = given.split()
KERNELS = Path("bbl/_ext")  # a folder for each family; headers that families share are beside them
# what was built, by the digest of all that went into it: the build folder of an editable install
# and that of a wheel are new each time, and times of files say nothing about flags
BUILT = Path(os.environ.get("BBL_BUILT", "build/kernels"))

# what Cython adds to every kernel, compiled once: half the size, half the time of a build
SHARED = "bbl._ext._shared"


def read_by(source):
    """Return the paths of the headers that a kernel includes, those that they include too, and
    declarations of other kernels.
    """
    found = set(KERNELS.rglob("*.pxd"))
    pending = [source, *found]
    while pending:
        path = pending.pop()
        text = path.read_text(encoding="utf-8") if path.suffix != ".c" else ""
        for name in re.findall(r'(?:#include|extern from) "([^"]+)"', text):
            named = (folder / name for folder in (source.parent, KERNELS))
            header = next((path for path in named if path.is_file()), None)
            if header and header not in found:
                found.add(header)
                pending.append(header)
    return sorted(map(str, found))


def extension(source):
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        depends=read_by(source),
        include_dirs=sorted({str(KERNELS), str(source.parent)}),
        extra_compile_args=FLAGS,
        extra_link_args=FLAGS if given else [],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
    )


extensions = [extension(path) for path in sorted(KERNELS.rglob("*.pyx"))]
extensions.append(extension(KERNELS / "_shared.c"))  # Cython writes the file

CORES = os.cpu_count() or 1
# a process that starts otherwise would run this file again
FORKS = multiprocessing.get_start_method() == "fork"

# file of an editable install that names the folder of the checkout
CHECKOUT = "__editable__.bbl_checkout.pth"


class Build(build_ext):
    """Kernels are translated to C when they are built, and not whenever somebody asks for the name
    of the package; all cores compile; what was built from the same sources in the same way is
    copied.
    """

    def finalize_options(self):
        super().finalize_options()
        if self.parallel is None:  # an editable install hands on no options
            self.parallel = CORES

    def build_extensions(self):
        stale = [own for own in self.extensions if self.force or not self.kept(own).exists()]
        if stale:
            translated = cythonize(
                stale,
                nthreads=CORES if FORKS else 0,
                force=True,  # directives are not in the times of files
                compiler_directives=DIRECTIVES,
                shared_utility_qualified_name=SHARED,
            )
            for own, made in zip(stale, translated, strict=True):
                own.sources = made.sources
                self.kept(own).unlink(missing_ok=True)
            self.force = True
            # the largest first, that no core is left alone with it at the end
            self.extensions.sort(
                key=lambda own: os.path.getsize(own.sources[0]) if own in stale else 0, reverse=True
            )
        super().build_extensions()

    def build_extension(self, ext):
        kept = self.kept(ext)
        target = Path(self.get_ext_fullpath(ext.name))
        if kept.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(kept), str(target))
            return
        super().build_extension(ext)
        for old in BUILT.glob(f"*/{kept.name}"):
            old.unlink(missing_ok=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target, kept)

    def kept(self, ext):
        """Return the path where `ext` is kept: a folder for each digest of its sources, its flags
        and the tools that build it.
        """
        tools = (self.compiler.compiler_so, self.compiler.linker_so) if os.name != "nt" else ()
        way = (
            sys.version,
            cython_version,
            sorted(DIRECTIVES.items()),
            tools,
            ext.extra_compile_args,
            ext.extra_link_args,
            ext.define_macros,
        )
        digest = hashlib.sha256(repr(way).encode())
        translated = KERNELS.joinpath(*ext.name.split(".")[2:]).with_suffix(".pyx")
        for path in [translated, *map(Path, ext.depends)]:
            if path.exists():  # Cython writes the whole of the shared kernel
                digest.update(f"\n{path.as_posix()}\n".encode() + path.read_bytes())
        return (
            BUILT / digest.hexdigest()[:16] / self.get_ext_filename(ext.name).replace(os.sep, ".")
        )


class SourceArchive(sdist):
    """With SOURCE_DATE_EPOCH in the environment the archive has the same bytes each time."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def without_traces(entry):
            entry.mtime = int(epoch)
            entry.uid = 0
            entry.gid = 0
            entry.uname = ""
            entry.gname = ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        path = f"{base_name}.tar.gz"
        self.mkpath(os.path.dirname(path))
        with (
            gzip.GzipFile(path, "wb", mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=without_traces)  # files by name
        return path


class Editable(editable_wheel):
    """An editable install that type checkers find: they read paths in .pth files, not the hook that
    maps packages.
    """

    def run(self):
        super().run()
        (path,) = Path(self.dist_dir).glob("*.whl")
        with zipfile.ZipFile(path) as wheel:
            contents = {name: wheel.read(name) for name in wheel.namelist()}
        # of .pth files
        encoding = "utf-8" if sys.version_info >= (3, 13) else locale.getpreferredencoding(False)
        checkout = f"{Path(self.project_dir).resolve()}\n".encode(encoding)
        digest = base64.urlsafe_b64encode(hashlib.sha256(checkout).digest()).decode().rstrip("=")
        record = next(name for name in contents if name.endswith(".dist-info/RECORD"))
        contents[record] = (
            f"{CHECKOUT},sha256={digest},{len(checkout)}\n".encode() + contents[record]
        )
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, content in {CHECKOUT: checkout, **contents}.items():
                wheel.writestr(name, content)


setup(
    # the folder of bbl.data is data/, not bbl/data/
    packages=[*find_packages(include=["bbl", "bbl.*"]), "bbl.data"],
    ext_modules=extensions,
    cmdclass={"build_ext": Build, "editable_wheel": Editable, "sdist": SourceArchive},
    options={"build_ext": {"parallel": CORES}},
)
