"""Pseudo-likelihood on two worker processes of Dask against one, with and without a lost worker, for `scale`."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

LAMBDA = 1e-2


def used() -> float:
    """Return the user seconds of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def fitted(path: str, **where: Any) -> Any:
    """Fit all pairs to a Parquet file."""
    import bbl

    return bbl.bbl("y ~ .^2", path, lambda_=LAMBDA, n_jobs=1, verbose=0, **where)


def one_process(path: str, out: str) -> dict[str, Any]:
    """Fit in this process; return what it took."""
    before = used()
    fit = fitted(path)
    np.save(out, fit.parameters.theta)
    return {"user_s": used() - before, "passes": max(int(own.state["streamed"][2]) for own in fit.estimate.fits)}


def two_processes(path: str, out: str, kill: bool) -> dict[str, Any]:
    """Fit on two workers of one thread, one of which is killed on the way if `kill`; return what all took together."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "bbl")
        before = used() + sum(client.run(used).values())
        if kill:
            victim = next(iter(client.run(os.getpid).values()))
            threading.Timer(15.0, os.kill, (victim, signal.SIGKILL)).start()
        fit = fitted(path, client=client)
        np.save(out, fit.parameters.theta)
        took = used() + sum(client.run(used).values()) - before
    passes = max(int(own.state["streamed"][2]) for own in fit.estimate.fits)
    return {"user_s": float("nan") if kill else took, "passes": passes}


WAYS = {
    "one process": one_process,
    "two processes of Dask": lambda path, out: two_processes(path, out, kill=False),
    "and one of them killed": lambda path, out: two_processes(path, out, kill=True),
}


def main() -> None:
    """Do one of the `WAYS` with a file, and print what it took."""
    way, path, out = sys.argv[1:]
    print(json.dumps(WAYS[way](path, str(Path(out)))))


if __name__ == "__main__":
    main()
