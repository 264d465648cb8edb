"""Run vignettes, warnings being errors, and show what one printed if it fails.

Usage: python -W error .ci/vignettes.py CORES LOGS SCRIPT...

Each vignette runs in a fork of this process, which has imported what most of them need. Without
this, imports would take a fifth of the time.
"""

import importlib
import os
import runpy
import sys
import warnings
from pathlib import Path

import bbl

IMPORTS = (
    "matplotlib.pyplot",
    "pandas",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.linear_model",
)


def start(script: str, log: Path) -> int:
    """Run a script in a fork, and return the number of its process."""
    with warnings.catch_warnings():
        # idle threads of libraries are a reason for a warning, but not a problem
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    output = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    runpy.run_path(script, run_name="__main__")
    sys.exit()


def main(cores: int, logs: Path, scripts: list[str]) -> int:
    """Run scripts on some cores, and return the number of those that fail."""
    for name in IMPORTS:
        importlib.import_module(name)
    for name in bbl.__all__:  # imported when first used
        getattr(bbl, name)
    # the longest last, as they are taken from the end: no core waits for one of them
    waiting = sorted(scripts, key=os.path.getsize)
    running: dict[int, Path] = {}
    n_failed = 0
    while waiting or running:
        while waiting and len(running) < cores:
            script = waiting.pop()
            print(script, flush=True)
            log = logs / f"{Path(script).name}.log"
            running[start(script, log)] = log
        process, status = os.wait()
        log = running.pop(process)
        if status:
            n_failed += 1
            print(f"{log.stem} failed:\n{log.read_text()}", flush=True)
    return n_failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])))
