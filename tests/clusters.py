"""Dask clusters of processes for tests, forked from one that has imported what each would import
for itself.
"""

import contextlib
import multiprocessing


@contextlib.contextmanager
def local_cluster(n_workers, threads):
    """Yield a cluster of so many processes, each of some threads, and its client."""
    import dask
    import distributed

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        distributed.utils.get_mp_context()  # which asks for less to be imported
        multiprocessing.set_forkserver_preload(["distributed", "bbl", "dask.dataframe"])
        options = {"processes": True, "dashboard_address": ":0", "silence_logs": 50}
        with (
            distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=threads, **options
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield cluster, client
