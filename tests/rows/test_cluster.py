"""Rows on the workers of a Dask cluster: the same sums, samples and fits as in one process, whoever
is lost.
"""

import os
import pickle
import signal
import time

import lazydata
import numpy as np
import pytest

import bbl
from bbl.engines.pseudo import blocks as pseudo_blocks
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.model.layout import Layout
from bbl.model.moments import level_counts, pair_counts
from bbl.rows import on_cluster as cluster
from bbl.rows.on_cluster import CodeParts, Part, active_client, call, n_threads
from bbl.rows.sample import Sample
from bbl.rows.staged import Staged
from tests.engines.test_pseudo_blocks import ALL_PAIRS, make_rows, stored

LAYOUT = Layout([3] * 6, ALL_PAIRS)


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 3000)
    monkeypatch.setattr(pseudo_blocks, "ROWS_PER_COLUMN", 1)
    monkeypatch.setattr(pseudo_blocks, "FULL_FIT_FACTOR", 2)


def make_part(codes, weights, y):
    whole = Sample(codes, weights, y)
    return Part({(int(k), 0): whole.group(k) for k in np.unique(y)})


def on_cluster(client, sample, n_parts=3):
    """Rows in consecutive parts, each encoded on some worker."""
    parts, sizes = [], []
    for at in np.array_split(np.arange(sample.n), n_parts):
        own = sample.rows(at)
        parts.append(call(client, make_part, own.codes, own.weights, own.response))
        sizes.append(
            {
                (int(k), 0): ((g := own.rows(own.response == k)).n, g.total, g.whole)
                for k in np.unique(own.response)
            }
        )
    weighted = not sample.unweighted
    return CodeParts(
        client, parts, sizes, np.full(sample.m, 3), sample.codes.dtype, weighted, False
    ).finish()


def grouped(sample, seed=3):
    return Sample(
        sample.codes, sample.weights, np.random.default_rng(seed).integers(2, size=sample.n)
    )


@pytest.mark.long
def test_sums_and_blocks_are_those_of_the_rows(client):
    sample = grouped(make_rows(n=4000, weighted=True))
    rows = on_cluster(client, sample)
    assert (rows.n, rows.m, rows.total, rows.whole, rows.unweighted) == (
        4000,
        6,
        sample.total,
        True,
        False,
    )
    for y in range(2):
        own, kept = sample.group(y), rows.group(y)
        np.testing.assert_array_equal(pair_counts(kept, LAYOUT), pair_counts(own, LAYOUT))
        np.testing.assert_array_equal(
            np.concatenate([part.codes for part in kept.blocks(700)]), own.codes
        )
    counts = rows.sums("by group", lambda part: level_counts(part, [3] * 6, 2))
    for found, expected in zip(counts, level_counts(sample, [3] * 6, 2), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_drawn_rows_are_those_of_a_file(client):
    sample = make_rows(n=9000, rare=12, seed=1)
    local, rows = stored(sample), on_cluster(client, sample).pooled
    rows.file.n_levels[1] = 4
    few = [
        np.flatnonzero((own > 0) & (own < 100)) for own in level_counts(local, rows.file.n_levels)
    ]
    assert any(map(len, few))
    for size, rare in ((1000, None), (1000, few), (9000, None)):
        one, other = (each.draw(size, np.random.default_rng(5), rare) for each in (local, rows))
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_array_equal(one.weights, other.weights)


def test_fit_by_rows_is_that_in_memory_and_survives_a_killed_worker(client):
    sample, engine = make_rows(seed=2), PseudoLikelihood(lambda_=1e-2)
    rows = on_cluster(client, sample)
    first = engine.fit(engine.prepare(rows.pooled, LAYOUT), LAYOUT)
    np.testing.assert_allclose(first.theta, engine.fit(sample, LAYOUT).theta, atol=1e-8)
    assert first.log_z("half") == pytest.approx(engine.fit(sample, LAYOUT).log_z("half"), abs=1e-8)
    victim = next(iter(client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    again = engine.fit(engine.prepare(rows.pooled, LAYOUT), LAYOUT)
    assert again.theta.tobytes() == first.theta.tobytes()
    deadline = time.monotonic() + 30
    while n_threads(client) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)


def kept_here(dask_worker):
    return {
        key[0]
        for own in dask_worker.data.values()
        if isinstance(own, Part)
        for key in own.cache._results
    }


def kept(client):
    """What blocks are prepared for, on any worker: Dask may have copied a part, and drop either."""
    return set().union(*client.run(kept_here).values())


def set_share(share):
    cluster.CACHE_SHARE = share


def test_conditional_fits_by_rows_are_those_of_a_file(client, tmp_path):
    table = lazydata.make_correlated(20_000, 14)
    paths = lazydata.write_parts(table, tmp_path / "parts", 3)
    with pytest.MonkeyPatch.context() as patch:
        lazydata.keep_few(patch)
        options = {"method": "conditional", "ridge": 0, "verbose": 0}
        own = bbl.bbl("y ~ . + x0 * x1 + x2 * x3", [str(path) for path in paths], **options)
        lazy = bbl.bbl(
            "y ~ . + x0 * x1 + x2 * x3", [str(path) for path in paths], client=client, **options
        )
    assert not lazy._kept.is_complete
    np.testing.assert_allclose(
        lazy.estimate.coefficients, own.estimate.coefficients, rtol=1e-8, atol=1e-9
    )


@pytest.mark.long
def test_workers_keep_prepared_blocks_while_they_have_room_and_no_bit_of_the_result_changes(client):
    rows, engine = on_cluster(client, make_rows(seed=4)), PseudoLikelihood(lambda_=1e-2)
    first = engine.fit(rows.pooled, LAYOUT)
    one = kept(client)
    assert one
    fewer = Layout([3] * 6, [(0, 1), (2, 3)])
    other = engine.fit(rows.pooled, fewer)
    both = kept(client)
    assert both > one
    client.run(set_share, 0.0)
    try:
        again = on_cluster(client, make_rows(seed=4))
        assert engine.fit(again.pooled, LAYOUT).theta.tobytes() == first.theta.tobytes()
        assert engine.fit(again.pooled, fewer).theta.tobytes() == other.theta.tobytes()
        engine.fit(again.pooled, Layout([3] * 6, [(0, 1)]))
        assert kept(client) <= both
    finally:
        client.run(set_share, cluster.CACHE_SHARE)


def test_what_is_kept_stays_where_it_is(monkeypatch):
    monkeypatch.setattr(cluster, "_free_cache_bytes", lambda held: 100.0 - held)
    part = Part({(0, 0): make_rows(n=10)})

    def prepared_again(key, size):
        calls = []
        function = Staged(
            key, lambda block: calls.append(key) or np.ones(size), lambda prepared, block: block.n
        )
        assert [part.cache.apply(function, "place", part[0, 0]) for _ in range(2)] == [10, 10]
        return len(calls) == 2

    assert [prepared_again("few", 1), prepared_again("more", 99), prepared_again("last", 11)] == [
        False,
        True,
        False,
    ]
    copy = pickle.loads(pickle.dumps(part))  # noqa: S301  # our own
    assert not copy.cache._results
    np.testing.assert_array_equal(copy[0, 0].codes, part[0, 0].codes)


def test_few_rows_are_fitted_by_nodes_to_the_last_bit(client):
    sample, engine = make_rows(n=5000, seed=3), PseudoLikelihood(lambda_=1e-3)
    rows = engine.prepare(on_cluster(client, sample).pooled, LAYOUT)
    whole = engine.prepare(sample.collapsed(LAYOUT.n_levels), LAYOUT)
    one, other = engine.fit(whole, LAYOUT), engine.fit(rows, LAYOUT)
    assert one.theta.tobytes() == other.theta.tobytes()
    assert one.lkh == other.lkh
    assert one.log_z("half") == other.log_z("half")


def test_active_clients_are_found(client):
    assert active_client() is client
    assert active_client(client) is client
    with pytest.raises(TypeError, match="client must be"):
        active_client("tcp://somewhere")
