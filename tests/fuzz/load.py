"""Any bytes as a model file, of every kind: loaded whole and usable, or refused."""

import atexit
import json
import tempfile
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

import bbl
from bbl import bicluster, networks, storage
from bbl.api import load as verbs
from bbl.errors import ConvergenceWarning
from bbl.rows.sample import code_dtype
from fuzz.harness import ODD
from fuzz.predict import TRAIN, model, model_of_a_fold

RARE = 64  # pandas takes a hundred times as long as all the rest
VALUES = (
    *ODD,
    None,
    True,
    -1,
    0.5,
    1e300,
    "",
    "x",
    "number",
    "bool",
    "all",
    "pseudo",
    [],
    [0],
    [[0, 1]],
    {},
    {"a": 1},
)
DTYPES = ("|b1", "|u1", "<u2", "<i4", "<i8", "<f8")


@cache
def sound(make) -> tuple[Path, bytes, str, str, dict]:
    """Return a path, and a sound file with its kind and content, the dict as JSON; the folder stays
    to the end.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "model.bbl"
    fit = make()
    fit.save(path, store_data=True)
    meta, arrays = storage.read_model(path, fit._kind)
    return path, path.read_bytes(), fit._kind, json.dumps(meta), arrays


def load(source) -> None:
    """Files of Boltzmann machines."""
    use_machine(loaded(source, (model, posterior, model_of_a_fold)), source)


def network(source) -> None:
    """Files of Bayesian network classifiers, and of averages of them."""
    use_network(loaded(source, (tree, average)), source)


def blocks(source) -> None:
    """Files of two-way clusterings: of numbers, levels, ratings and rated pairs."""
    use_blocks(loaded(source, CLUSTERINGS), source)


def loaded(source, makes):
    """Damage a file, change the content of a sound one, or take any bytes; return what is loaded
    from it.
    """
    path, good, kind, meta, arrays = sound(source.pick(makes))
    way = source.integer(0, 3)
    data = source.data if way == 0 else good
    if way == 1:
        data = bytearray(good[: len(good) - source.integer(0, 300) * source.maybe(4)])
        for _ in range(source.integer(1, 4)):
            data[source.integer(0, 2**32) % len(data)] ^= source.integer(1, 255)
    if way < 2:
        path.write_bytes(data)
        fit = verbs.load(path)
        assert data == good, "a damaged file was loaded"
        return fit
    return load_content(
        path, kind, *forge(source, json.loads(meta), dict(arrays)), source.maybe(16)
    )


def load_content(path, kind: str, meta: dict, arrays: dict, by_file: bool):
    """Load what a stranger could write: the checksums are right. Most go around the file, which
    takes most time.
    """
    if by_file:
        path.write_bytes(b"".join(map(bytes, storage._pack(meta, arrays, kind))))
        return verbs.load(path)
    try:
        verbs.read_any = lambda *_: (kind, meta, arrays)
        return verbs.load(path)
    finally:
        verbs.read_any = storage.read_any


def forge(source, meta: dict, arrays: dict) -> tuple[dict, dict]:
    """Return content that `save` would not write, of the types that a file holds."""
    for _ in range(source.integer(1, 2)):
        if source.maybe(2):
            change(source, meta)
        else:
            name = source.pick(sorted(arrays))
            arrays[name] = np.ascontiguousarray(changed(source, arrays[name]))
            if source.maybe(16):
                del arrays[name]
    return meta, arrays


def change(source, node) -> None:
    """Replace, drop or double one value somewhere in a tree of dicts and lists."""
    while True:
        keys = sorted(node) if isinstance(node, dict) else range(len(node))
        if not keys:
            return
        key = source.pick(keys)
        if isinstance(node[key], dict | list) and not source.maybe(4):
            node = node[key]
            continue
        way = source.integer(0, 7)
        if way == 0:
            del node[key]
        elif way == 1 and isinstance(node, list):
            node.append(node[key])
        else:
            node[key] = source.pick(VALUES)
        return


def changed(source, array: np.ndarray) -> np.ndarray:
    """Return the array with another shape, type, or value."""
    way = source.integer(0, 4)
    if way == 0:
        with np.errstate(invalid="ignore"):  # nan as a whole number
            return array.astype(source.pick(DTYPES))
    if way == 1:
        return array.reshape(
            source.pick(((-1,), (1, *array.shape), (*array.shape, 1), array.shape[::-1]))
        )
    if way == 2:
        return array[: source.integer(0, len(array))]
    if way == 3:
        return np.resize(array, (len(array) + source.integer(0, 3), *array.shape[1:]))
    array = array.copy()
    if array.size:
        array.reshape(-1)[source.integer(0, 2**32) % array.size] = source.array(array.dtype, 1)[0]
    return array


def use_machine(fit, source) -> None:
    """Score the rows in the file and new ones; rarely, print and predict all there is."""
    if fit.training is not None:
        fit._class_scores(fit.training.codes)
    codes = (fit.estimate.parameters.layout.n_levels - 1)[None].astype(
        code_dtype(fit.estimate.parameters.layout.n_levels)
    )
    fit._class_scores(codes, codes > 1)
    if source.maybe(RARE):
        new = {f.name: [f.levels[0], f.levels[-1]] for f in fit.design.predictors}
        str(fit), str(fit.summary()), fit.predict(new), fit.tidy(), fit.model_frame, fit.logLik()


def use_network(fit, source) -> None:
    """Score the rows in the file and a new one; rarely, print and predict all there is."""
    if fit.training is not None:
        fit._class_scores(fit.training.codes, fit.training.missing)
    codes = (fit.design.n_levels - 1)[None].astype(code_dtype(fit.design.n_levels))
    fit._class_scores(codes, codes > 1)
    if source.maybe(RARE):
        new = {f.name: [f.levels[0], f.levels[-1]] for f in fit.design.predictors}
        str(fit), str(fit.summary()), fit.predict(new), fit.params, fit.nparams, fit.logLik()


def use_blocks(fit, source) -> None:
    """Look at groups and blocks; rarely, print and predict all there is."""
    assert len(fit.row_groups) + len(fit.column_groups) == sum(fit.table.shape)
    assert fit.block_means.shape[0] == fit.block_counts.shape[0]
    if source.maybe(RARE):
        str(fit), str(fit.summary()), fit.selection, fit.population
        if fit.table.formula is None or fit.cells is not None:
            fit.fitted()


def table(seed: int = 1) -> dict:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, 60), rng.integers(0, 3, 60)
    c = [None if gap else f"v{v}" for gap, v in zip(rng.random(60) < 0.2, (a + b) % 2, strict=True)]
    return {"y": np.where(rng.random(60) < 0.8, a, 1 - a), "a": a, "b": b, "c": c}


@cache
def posterior():
    options = {
        "method": "bayes",
        "prior": "conjugate",
        "hidden": 2,
        "draws": 4,
        "warmup": 10,
        "chains": 2,
        "seed": 1,
    }
    with warnings.catch_warnings(action="ignore"):  # four draws do not mix
        return bbl.bbl("y ~ text + truth", pd.DataFrame(TRAIN), verbose=0, **options)


@cache
def tree():
    return networks.bnc("tan_cl", "y ~ .", table(), 1.0)


@cache
def average():
    return networks.bnc("aode", "y ~ .", table(), 1.0)


@cache
def cells() -> dict:
    row, column = np.divmod(np.arange(48), 6)
    rng = np.random.default_rng(2)
    rating = np.clip(1 + 2 * (row % 2) + (column % 2) + rng.integers(0, 2, 48), 1, 5)
    keep = rng.random(48) < 0.9
    return {
        "u": row[keep],
        "m": column[keep],
        "rating": rating[keep],
        "kind": rating[keep].astype(str),
    }


@cache
def clustering(formula: str, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # four draws do not mix
        return bicluster(formula, cells(), seed=0, verbose=0, **options)


CLUSTERINGS = (
    partial(clustering, "rating ~ u * m", groups=None, max_groups=4, n_init=2),
    partial(clustering, "kind ~ u * m", groups=(2, 2), metric="levels", n_init=2),
    partial(clustering, "rating ~ u * m", method="genetic", generations=5, n_init=1),
    partial(clustering, "~ u * m", method="mcmc", draws=4, warmup=2, n_init=2),
)
