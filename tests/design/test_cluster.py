"""Data read by the workers of a Dask cluster: the model of a table in memory."""

import re

import numpy as np
import pandas as pd
import pytest
from lazydata import keep_few

import bbl
from bbl.design.frames import to_frame
from bbl.design.streams import parquet
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.source import Batch, Source
from bbl.engines.pseudo import blocks as pseudo_blocks
from bbl.engines.pseudo import solvers as pseudo_nodes
from bbl.errors import DataError, OptionError
from bbl.rows import fold_assignment
from bbl.rows.on_cluster import ClusterSample


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    keep_few(monkeypatch, 1500)
    monkeypatch.setattr(fold_assignment, "MAX_TABLE_CELLS", 100)


def make_frame(n=8000, m=6, seed=0):
    rng = np.random.default_rng(seed)
    last = rng.integers(2, size=n)
    frame = pd.DataFrame({"y": np.array(["no", "yes"])[last]})
    for j in range(m):
        own = rng.integers(3, size=n)
        copied = rng.random(n) < 0.4
        own[copied] = last[copied]
        frame[f"x{j}"], last = np.array(["a", "b", "c"])[own], own
    return frame


def in_parts(frame, npartitions=3):
    import dask.dataframe as dd

    return dd.from_pandas(frame, npartitions=npartitions)


def differs(one, other):
    return max(
        np.abs(one.estimate.parameters.theta - other.estimate.parameters.theta).max(),
        np.abs(one.log_z - other.log_z).max(),
    )


def facts(fit):
    return fit.summary().facts["Fitted"]


@pytest.mark.long
def test_dask_data_frames_are_fitted_where_they_are(client, monkeypatch):
    gathered = []
    monkeypatch.setattr(ClusterSample, "blocks", lambda *_: gathered.append(1) or iter(()))
    frame = make_frame()
    told = {"lambda_": 1e-2, "verbose": 0}
    one, other = bbl.bbl("y ~ .^2", in_parts(frame), **told), bbl.bbl("y ~ .^2", frame, **told)
    assert differs(one, other) < 1e-8
    assert not gathered
    assert re.match(
        r"by rows: a sample of 1,5\d\d, and \d+ passes over all rows, on 2 cluster threads",
        facts(one),
    )
    for name in ("mf", "naive"):
        one, other = (
            bbl.bbl("y ~ .^2", data, method=name, verbose=0) for data in (in_parts(frame), frame)
        )
        assert differs(one, other) < 1e-13


def read_part(frame, seen):
    def read(names):
        with open(seen, "a") as file:
            file.write(f"{len(frame)}\n")
        yield Batch(to_frame(frame[names]), "a part")

    return Source(tuple(frame.columns), read, "a part")


@pytest.mark.long
def test_each_part_is_read_once(client, tmp_path):
    frame, seen = make_frame(), tmp_path / "read.txt"
    frame.loc[7, "x2"] = None
    pieces = [frame.iloc[at] for at in np.array_split(np.arange(len(frame)), 3)]
    data = Source(
        tuple(frame.columns),
        iter,
        "parts",
        lambda *_: [(read_part, own, str(seen)) for own in pieces],
    )
    told = {"lambda_": 1e-2, "missing": "drop", "verbose": 0}
    one, other = bbl.bbl("y ~ .^2", data, client=client, **told), bbl.bbl("y ~ .^2", frame, **told)
    assert sorted(seen.read_text().split()) == sorted(str(len(own)) for own in pieces)
    assert differs(one, other) < 1e-8


@pytest.mark.long
def test_parquet_is_read_by_the_workers_of_a_client_that_is_given(client, tmp_path, monkeypatch):
    frame = make_frame(seed=1)
    monkeypatch.setattr(parquet, "PART_ROWS", 2000)  # of the files' row groups of 800 rows
    for k, part in enumerate(np.array_split(np.arange(len(frame)), 2)):
        frame.iloc[part].to_parquet(tmp_path / f"{k}.parquet", row_group_size=800)
    assert len(lazy_source(tmp_path).parts(["y"], client)) == 4
    one, other = (
        bbl.bbl("y ~ .^2", tmp_path, method="mf", eps="cv", client=own, verbose=0)
        for own in (client, None)
    )
    np.testing.assert_allclose(one.tuning.loss, other.tuning.loss, rtol=1e-12)
    assert differs(one, other) < 1e-13


@pytest.mark.long
def test_folds_of_large_data_are_dealt_part_by_part(client, monkeypatch):
    monkeypatch.setattr(fold_assignment, "MAX_SINGLE_COPIES", 0)
    one = bbl.crossVal(
        "y ~ .^2", in_parts(make_frame(seed=2)), method="mf", eps=[0.5], shuffle=True, verbose=0
    )
    assert 0.5 < one.maxscore < 1.0
    consecutive = [
        bbl.crossVal("y ~ .^2", data, method="mf", eps=[0.5, 0.9], verbose=0).cvframe
        for data in (in_parts(make_frame(seed=3)), make_frame(seed=3))
    ]
    pd.testing.assert_frame_equal(*consecutive)


@pytest.mark.long
def test_few_rows_are_fitted_by_nodes(client, monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 5000)
    monkeypatch.setattr(pseudo_nodes, "MIN_SHARE", 2)
    frame = make_frame(seed=4)
    one, other = (
        bbl.bbl("y ~ .^2", data, lambda_=1e-3, verbose=0) for data in (in_parts(frame), frame)
    )
    assert facts(one) == "by nodes: predictors distributed over 2 cluster threads"
    assert one.estimate.parameters.theta.tobytes() == other.estimate.parameters.theta.tobytes()


@pytest.mark.long
def test_few_rows_of_few_predictors_are_fitted_where_they_are_asked_for(client, monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 5000)
    frame = make_frame(seed=4)
    one, other = (
        bbl.bbl("y ~ .^2", data, lambda_=1e-3, verbose=0) for data in (in_parts(frame), frame)
    )
    assert all("shared" not in own.state for own in one.estimate.fits)
    assert one.estimate.parameters.theta.tobytes() == other.estimate.parameters.theta.tobytes()


def test_the_zero_sum_gauge_is_fitted_by_nodes_too(client, monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 5000)
    monkeypatch.setattr(pseudo_nodes, "MIN_SHARE", 2)
    frame, told = (
        make_frame(seed=5),
        {"lambda_": 1e-2, "lambdah": 1e-3, "gauge": "zero-sum", "verbose": 0},
    )
    one, other = (bbl.bbl("y ~ .^2", data, **told) for data in (in_parts(frame), frame))
    assert facts(one).startswith("by nodes")
    assert one.estimate.parameters.theta.tobytes() == other.estimate.parameters.theta.tobytes()
    np.testing.assert_allclose(one.log_z, other.log_z, rtol=1e-12)


def test_few_states_are_counted(client, monkeypatch):
    monkeypatch.setattr(fold_assignment, "MAX_TABLE_CELLS", 1e6)
    frame = make_frame(m=3)
    one, other = (bbl.bbl("y ~ .^2", data, verbose=0) for data in (in_parts(frame), frame))
    assert one.estimate.parameters.theta.tobytes() == other.estimate.parameters.theta.tobytes()


def test_errors_of_workers_name_the_partition(client):
    frame = make_frame(n=600)
    frame.loc[500, "x1"] = None
    with pytest.raises(DataError, match="x1"):
        bbl.bbl("y ~ .", in_parts(frame), verbose=0)


def test_clients_are_refused_where_they_have_nothing_to_read(client):
    with pytest.raises(OptionError, match="client= requires data"):
        bbl.bbl("y ~ .", make_frame(n=100), client=client, verbose=0)


@pytest.mark.long
def test_standard_errors_effects_and_evaluations_on_a_cluster(client):
    frame = make_frame(n=16_000)
    told = {"lambda_": 1e-4, "verbose": 0}
    remote, local, table = (
        bbl.bbl("y ~ .^2", data, **told) for data in (in_parts(frame), lambda: iter([frame]), frame)
    )
    assert remote._kept.n_rows == local._kept.n_rows
    assert not remote._kept.is_complete
    assert "exact to about" in remote.inference().note
    tested = remote.inference().table("pooled")["test"] == "Wald"
    assert tested.mean() > 0.9
    np.testing.assert_allclose(remote.bse, table.bse, rtol=0.15)
    np.testing.assert_allclose(remote.bse, local.bse, rtol=0.2)
    found, expected = (fit.avg_comparisons("x0").frame for fit in (remote, table))
    np.testing.assert_allclose(found["estimate"], expected["estimate"], atol=1e-6)
    np.testing.assert_allclose(found["std_error"], expected["std_error"], rtol=0.1)
    np.testing.assert_allclose(remote.evaluate().scores, table.evaluate().scores, atol=1e-5)
