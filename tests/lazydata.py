"""Data that are read in batches, for tests: a table, and every kind of source that has its rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bbl.engines.pseudo import blocks

KINDS = (
    "file",
    "files",
    "glob",
    "folder",
    "dataset",
    "reader",
    "duckdb",
    "polars",
    "dask",
    "callable",
)


def make_table(n=3000, m=9, levels=6, seed=0, K=2):
    """Return a table with a response that predictors, strings and numbers, depend on; 6**9 states
    are too many.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    columns = {"y": np.array(["no", "yes", "perhaps"])[y]}
    for i in range(m):
        codes = np.minimum((rng.random(n) * levels + 0.7 * y * (i % 3)).astype(int), levels - 1)
        columns[f"x{i}"] = codes if i % 4 == 3 else np.array(list("fbadce"))[codes]
    return pd.DataFrame(columns)


def write_parts(table, folder, parts=3):
    """Write the rows to that many Parquet files; return their paths."""
    folder.mkdir(exist_ok=True)
    edges = np.linspace(0, len(table), parts + 1).astype(int)
    paths = [folder / f"part{k}.parquet" for k in range(parts)]
    for path, first, last in zip(paths, edges[:-1], edges[1:], strict=True):
        own = pa.Table.from_pandas(table.iloc[first:last], preserve_index=False)
        pq.write_table(own, path, row_group_size=700)
    return paths


def lazy(kind, table, folder):
    """Return the rows of a table as data of a kind that is read in batches."""
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    paths = write_parts(table, folder / "parts", 1 if kind == "file" else 3)
    if kind in ("file", "files"):
        return str(paths[0]) if kind == "file" else paths
    if kind == "glob":
        return str(folder / "parts" / "*.parquet")
    if kind == "folder":
        return folder / "parts"
    if kind == "dataset":
        return ds.dataset(folder / "parts")
    if kind == "reader":
        return pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=700))
    if kind == "duckdb":
        import duckdb

        return duckdb.read_parquet([str(path) for path in paths])
    if kind == "polars":
        import polars as pl

        return pl.scan_parquet(paths)
    if kind == "dask":
        import dask.dataframe as dd

        return dd.from_pandas(table, npartitions=4)
    return lambda: (table.iloc[first : first + 700] for first in range(0, len(table), 700))


def make_correlated(n, m, K=2):
    """Return a table of predictors that depend on the response and on each other."""
    rng = np.random.default_rng(0)
    y = rng.integers(K, size=n)
    factor = rng.normal(size=n)
    columns = {"y": np.array(["no", "yes", "perhaps"])[y]}
    for i in range(m):
        value = 0.5 * factor + 0.3 * y * (i % 3) + rng.normal(size=n)
        columns[f"x{i}"] = np.array(list("abc"))[np.digitize(value, [-0.3, 0.8])]
    return pd.DataFrame(columns)


def keep_few(patch, size=3000):
    """Make fits keep about `size` rows of groups with more than twice as many."""
    patch.setattr(blocks, "MIN_SAMPLE", size)
    patch.setattr(blocks, "ROWS_PER_COLUMN", 1)
    patch.setattr(blocks, "FULL_FIT_FACTOR", 2)
