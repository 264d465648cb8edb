"""Run a target under atheris: ``python -m fuzz NAME OPTIONS``, where OPTIONS are those of
libFuzzer; see run.sh.
"""

import sys

import atheris

# Kernels always report their branches. Python's cost time, so only where Python is what is tested,
# and not in the loops over bytes of storage, nor in formulaic's over characters.
COUNTED = {name: ["bbl"] for name in ("formula", "load", "network", "blocks")}.get(
    sys.argv[1], ["none"]
)
with atheris.instrument_imports(include=COUNTED, exclude=["bbl.container", "bbl.storage"]):
    from fuzz.harness import accepts
    from fuzz.targets import TARGETS

target = TARGETS[sys.argv.pop(1)]
atheris.Setup(sys.argv, lambda data: accepts(target, data))
atheris.Fuzz()
