"""Run one target: ``python -m fuzz kernels -runs=1000000``, from the folder `tests`, with the instrumented build."""

import sys

from fuzz.harness import fuzz, instrument

instrument()

from fuzz.targets import TARGETS  # noqa: E402

fuzz(TARGETS[sys.argv[1]], sys.argv[2:])
