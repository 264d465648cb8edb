"""Rows in a temporary file: the same rows, sums and samples as in memory, and no file left
behind.
"""

import errno
import os
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from bbl.errors import DataError
from bbl.rows.fold_assignment import StoredFold
from bbl.rows.folds import WeightedFold
from bbl.rows.on_disk import CodeFile
from bbl.rows.sample import Sample
from bbl.rows.staged import Staged


def make_rows(n=5000, m=5, levels=4, weighted=False, masked=False, K=2, seed=0, dtype=np.uint8):
    rng = np.random.default_rng(seed)
    codes = rng.integers(levels, size=(n, m)).astype(dtype)
    missing = rng.random((n, m)) < 0.1 if masked else None
    if masked:
        codes[missing] = 0
    weights = rng.integers(1, 9, n).astype(float) if weighted else np.ones(n)
    return Sample(codes, weights, rng.integers(K, size=n), missing)


def store(sample, folds=None, batch=700, **how):
    """Put rows into a file in batches, as a pass over a source does."""
    fold = np.zeros(sample.n, dtype=int) if folds is None else folds
    file = CodeFile(sample.m, sample.codes.dtype, not sample.unweighted, not sample.complete, **how)
    for first in range(0, sample.n, batch):
        at = np.arange(first, min(first + batch, sample.n))
        for key in sorted(set(zip(sample.y[at].tolist(), fold[at].tolist(), strict=True))):
            file.append(key, sample.rows(at[(sample.y[at] == key[0]) & (fold[at] == key[1])]))
    return file.finish()


def joined(blocks):
    parts = list(blocks)
    missing = [np.zeros(p.codes.shape, bool) if p.missing is None else p.missing for p in parts]
    return tuple(
        map(np.concatenate, ([p.codes for p in parts], [p.weights for p in parts], missing))
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_blocks_are_the_rows_of_each_group_in_their_order(monkeypatch, weighted, masked, dtype):
    monkeypatch.setattr("bbl.rows.on_disk.BUFFER_BYTES", 0)  # pieces of 1,024 rows
    sample = make_rows(weighted=weighted, masked=masked, dtype=dtype)
    stored = store(sample)
    assert (stored.n, stored.total, stored.m, stored.whole) == (
        sample.n,
        sample.total,
        sample.m,
        True,
    )
    for y in range(2):
        own, kept = sample.group(y), stored.group(y)
        assert (kept.n, kept.total) == (own.n, own.total)
        for size in (100, 1000, 3000, 10**6):
            codes, weights, missing = joined(kept.blocks(size))
            np.testing.assert_array_equal(codes, own.codes)
            np.testing.assert_array_equal(weights, own.weights)
            np.testing.assert_array_equal(
                missing, np.zeros(codes.shape, bool) if own.complete else own.missing
            )
            assert all(part.n == size for part in list(kept.blocks(size))[:-1])
    assert {int(part.response[0]) for part in stored.blocks()} == {0, 1}
    assert all(part.y is None for part in stored.pooled.blocks())


def test_folds_are_held_and_left_out():
    sample = make_rows()
    fold = np.arange(sample.n) % 3
    stored = store(sample, fold)
    for f in range(3):
        np.testing.assert_array_equal(
            joined(stored.group(1).fold(f).blocks())[0], sample.rows(fold == f).group(1).codes
        )
        assert stored.without(f).n + stored.fold(f).n == sample.n
    assert stored.without(0).group(1).n == sample.rows(fold != 0).group(1).n


@pytest.mark.parametrize("scale", [1.0, 1000.5])
def test_validation_rows_count_once_if_weights_are_no_numbers_of_copies(scale):
    sample = make_rows(weighted=True, masked=True)
    sample = replace(sample, weights=sample.weights * scale)
    fold = np.arange(sample.n) % 3
    stored, expected = store(sample, fold), np.zeros((5, 2, 3, 5))  # predictor, group, fold, level
    level = np.where(sample.missing, 4, sample.codes)
    for i in range(sample.m):
        np.add.at(
            expected[i], (sample.y, fold, level[:, i]), sample.weights if scale == 1.0 else 1.0
        )
    for f in range(3):
        validation_counts = StoredFold(f, 3).validation_counts(stored, [4] * 5, 2)
        np.testing.assert_array_equal(validation_counts, expected[:, :, f])
        held = np.where(fold == f, sample.weights, 0.0)
        in_memory = WeightedFold(sample.weights - held, held).validation_counts(sample, [4] * 5, 2)
        np.testing.assert_array_equal(in_memory, validation_counts)


def test_sums_are_made_once_for_each_group_and_fold():
    sample, calls = make_rows(), []
    stored = store(sample, np.arange(sample.n) % 2)

    def count(part):
        calls.append(part.n)
        return [np.bincount(part.codes[:, 0], part.weights, 4), part.total]

    found, total = stored.pooled.sums("levels", count)
    np.testing.assert_array_equal(found, np.bincount(sample.codes[:, 0], minlength=4))
    assert total == sample.n and sum(calls) == sample.n
    np.testing.assert_array_equal(stored.pooled.sums("levels", count)[0], found)
    one = stored.group(0).sums("levels", count)[0] + stored.group(1).sums("levels", count)[0]
    np.testing.assert_array_equal(one, found)
    assert sum(calls) == sample.n


@pytest.mark.parametrize("room", [0, 100, 10**6])  # bytes: of no block, of some, of all
@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_are_prepared_once_if_there_is_room(monkeypatch, room, workers):
    monkeypatch.setattr("bbl.rows.on_disk.BUFFER_BYTES", 0)
    monkeypatch.setattr("bbl.rows.on_disk.CACHE_BYTES", room)
    rows, prepared = store(make_rows()), []
    few = np.ones(5)  # 40 bytes
    function = Staged(
        "key",
        lambda block: prepared.append(block.n) or few,
        lambda made, block: made * block.codes.sum(),
    )
    first, n_blocks = rows.summed(function, workers), len(prepared)
    assert n_blocks > 2 and sum(prepared) == rows.n
    # groups share their blocks with all rows
    assert rows.pooled.summed(function, workers).tobytes() == first.tobytes()
    assert len(prepared) == {0: 2 * n_blocks, 100: 2 * n_blocks - 2, 10**6: n_blocks}[room]
    assert np.array_equal(
        rows.group(0).summed(function, workers) + rows.group(1).summed(function, workers), first
    )
    assert rows.summed(lambda block: block.n, workers) == rows.n
    rows.close()
    assert not rows.file.cache._results


def test_a_random_sample_takes_every_row_alike_and_blocks_do_not_matter():
    sample = make_rows(3000, 2, 200)
    sample.codes[:, 0], sample.codes[:, 1] = np.arange(3000) % 200, np.arange(3000) // 200
    stored, hits = store(sample), np.zeros(3000)
    for seed in range(200):
        drawn = stored.pooled.draw(300, np.random.default_rng(seed))
        assert drawn.n == 300 and drawn.total == 300.0
        np.add.at(hits, drawn.codes[:, 0].astype(int) + 200 * drawn.codes[:, 1].astype(int), 1)
    assert hits.sum() == 60_000 and ((hits - 20) ** 2 / 18).sum() / 3000 == pytest.approx(
        1.0, abs=0.15
    )
    again = store(sample, batch=17).pooled.draw(300, np.random.default_rng(0))
    np.testing.assert_array_equal(
        again.codes, stored.pooled.draw(300, np.random.default_rng(0)).codes
    )
    assert stored.draw(2500, np.random.default_rng(0)).n == 2500
    assert stored.draw(9999, np.random.default_rng(0)).n == 3000


def test_rows_with_rare_levels_are_kept_whole_and_the_others_weigh_more():
    sample = make_rows(4000, 3, 4)
    sample.codes[[5, 77, 2048, 3999], 1] = 9
    drawn = store(sample).draw(
        400, np.random.default_rng(1), rare=[np.zeros(0, int), np.array([9]), np.zeros(0, int)]
    )
    assert drawn.n == 400 and (drawn.codes[:, 1] == 9).sum() == 4
    np.testing.assert_array_equal(drawn.weights[drawn.codes[:, 1] == 9], np.ones(4))
    assert drawn.total == pytest.approx(4000.0)


def test_the_file_has_no_name_and_goes_with_its_object(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stored = store(make_rows())
    assert list(stored.blocks()) and not os.listdir(tmp_path)
    stored.close()
    with pytest.raises(ValueError, match="closed"):
        list(stored.blocks())


def test_a_full_disk_is_told_and_the_file_removed(monkeypatch):
    sample = make_rows()
    file = CodeFile(sample.m, np.uint8)
    with pytest.raises(DataError, match=r"require .* GiB in .* are free.*TMPDIR"):
        file.check_room(10**15)

    class Full:
        closed = False

        def write(self, view):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            self.closed = True

    file.close()
    file._file = Full()
    file.append((0, 0), sample)
    with pytest.raises(
        DataError, match=r"cannot be written .* \(No space left on device\).*TMPDIR"
    ):
        file.finish()
    assert file._file.closed
