"""Run a target under atheris: ``python -m fuzz NAME OPTIONS``, where OPTIONS are those of libFuzzer; see run.sh."""

import sys

import atheris

# so that inputs that reach new Python code are kept; storage has loops over bytes, which would take most of the time
with atheris.instrument_imports(include=["bbl", "formulaic"], exclude=["bbl.storage"]):
    from fuzz.harness import accepts
    from fuzz.targets import TARGETS

target = TARGETS[sys.argv.pop(1)]
atheris.Setup(sys.argv, lambda data: accepts(target, data))
atheris.Fuzz()
