"""Data read by the workers of a Dask cluster: the model of a table in memory."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines import pseudo_blocks
from bbl.errors import DataError, OptionError
from bbl.rows import dealing
from bbl.rows.cluster import ClusterSample
from tests.rows.test_cluster import client  # noqa: F401  # a fixture


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "SAMPLE", 1500)
    monkeypatch.setattr(pseudo_blocks, "PER_COLUMN", 1)
    monkeypatch.setattr(dealing, "STATES", 100)


def make_frame(n=8000, m=6, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"y": rng.choice(["no", "yes"], n)})
    for j in range(m):
        own = rng.integers(3, size=n)
        copied = rng.random(n) < 0.4
        own[copied] = (frame["y"] == "yes")[copied] if not j else last[copied]  # noqa: F821  # of the column before
        frame[f"x{j}"], last = np.array(["a", "b", "c"])[own], own  # noqa: F841
    return frame


def in_parts(frame, npartitions=3):
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=npartitions)


def differs(one, other):
    return max(np.abs(one.parameters.theta - other.parameters.theta).max(), np.abs(one.log_z - other.log_z).max())


def test_dask_data_frames_are_fitted_where_they_are(client, monkeypatch):  # noqa: F811
    gathered = []
    monkeypatch.setattr(ClusterSample, "blocks", lambda *_: gathered.append(1) or iter(()))
    frame = make_frame()
    told = {"lambda_": 1e-2, "verbose": 0}
    one, other = bbl.bbl("y ~ .^2", in_parts(frame), **told), bbl.bbl("y ~ .^2", frame, **told)
    assert differs(one, other) < 1e-8
    assert not gathered
    assert one.loglik == pytest.approx(other.loglik, rel=1e-9) if hasattr(one, "loglik") else True
    for name in ("mf", "naive"):
        one, other = (bbl.bbl("y ~ .^2", data, method=name, verbose=0) for data in (in_parts(frame), frame))
        assert differs(one, other) < 1e-13


def test_parquet_is_read_by_the_workers_of_a_client_that_is_given(client, tmp_path):  # noqa: F811
    frame = make_frame(seed=1)
    for k, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(tmp_path / f"{k}.parquet")
    one = bbl.bbl("y ~ .^2", tmp_path, lambda_="cv", client=client, verbose=0)
    other = bbl.bbl("y ~ .^2", tmp_path, lambda_="cv", verbose=0)
    assert one.tuning.values[one.tuning.chosen] == other.tuning.values[other.tuning.chosen]
    np.testing.assert_allclose(one.tuning.loss, other.tuning.loss, atol=1e-5)
    assert differs(one, other) < 1e-8


def test_few_states_are_counted(client, monkeypatch):  # noqa: F811
    monkeypatch.setattr(dealing, "STATES", 1e6)
    frame = make_frame(m=3)
    one, other = (bbl.bbl("y ~ .^2", data, verbose=0) for data in (in_parts(frame), frame))
    assert one.parameters.theta.tobytes() == other.parameters.theta.tobytes()


def test_errors_of_workers_name_the_partition(client):  # noqa: F811
    frame = make_frame(n=600)
    frame.loc[500, "x1"] = None
    with pytest.raises(DataError, match="x1"):
        bbl.bbl("y ~ .", in_parts(frame), verbose=0)


def test_clients_are_refused_where_they_have_nothing_to_read(client):  # noqa: F811
    with pytest.raises(OptionError, match="client= is for data"):
        bbl.bbl("y ~ .", make_frame(n=100), client=client, verbose=0)
