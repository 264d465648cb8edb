"""Run a target under atheris: ``python -m fuzz NAME OPTIONS``, where OPTIONS are those of libFuzzer; see run.sh."""

import sys

import atheris

with atheris.instrument_imports(include=["bbl", "formulaic"]):  # so that inputs that reach new Python code are kept
    from fuzz.harness import accepts
    from fuzz.targets import TARGETS

target = TARGETS[sys.argv.pop(1)]
atheris.Setup(sys.argv, lambda data: accepts(target, data))
atheris.Fuzz()
