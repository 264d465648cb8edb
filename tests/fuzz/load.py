"""Any bytes as a model file: loaded whole and usable, or refused."""

import atexit
import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from bbl import storage
from bbl.api import load as verbs
from bbl.rows.sample import code_dtype
from fuzz.harness import ODD
from fuzz.predict import model, model_of_a_fold

RARE = 64  # pandas takes a hundred times as long as all the rest
VALUES = (*ODD, None, True, -1, 0.5, 1e300, "", "x", "number", "bool", "all", "pseudo", [], [0], [[0, 1]], {}, {"a": 1})
DTYPES = ("|b1", "|u1", "<u2", "<i4", "<i8", "<f8")


@cache
def sound(make) -> tuple[Path, bytes, str, dict]:
    """Return a path, and a sound file with its content, the dict as JSON; the folder lives as long as the process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "model.bbl"
    make().save(path, store_data=True)
    meta, arrays = storage.read_model(path)
    return path, path.read_bytes(), json.dumps(meta), arrays


def load(source) -> None:
    """Damage a file, change the content of a sound one, or take any bytes; then use what was loaded."""
    path, good, meta, arrays = sound(source.pick((model, model, model_of_a_fold)))
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
    else:
        fit = load_content(path, *forge(source, json.loads(meta), dict(arrays)), source.maybe(16))
    use(fit, source)


def load_content(path, meta: dict, arrays: dict, by_file: bool):
    """Load what a stranger could write: the checksums are right. Most go around the file, which takes most time."""
    if by_file:
        path.write_bytes(b"".join(map(bytes, storage._pack(meta, arrays, "bbl"))))
        return verbs.load(path)
    try:
        verbs.read_any = lambda *_: ("bbl", meta, arrays)
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
        return array.astype(source.pick(DTYPES))
    if way == 1:
        return array.reshape(source.pick(((-1,), (1, *array.shape), (*array.shape, 1), array.shape[::-1])))
    if way == 2:
        return array[: source.integer(0, len(array))]
    if way == 3:
        return np.resize(array, (len(array) + source.integer(0, 3), *array.shape[1:]))
    array = array.copy()
    if array.size:
        array.reshape(-1)[source.integer(0, 2**32) % array.size] = source.array(array.dtype, 1)[0]
    return array


def use(fit, source) -> None:
    """Score the rows in the file and new ones; rarely, print and predict all there is."""
    if fit.training is not None:
        fit.class_scores(fit.training.codes)
    codes = (fit.params.layout.n_levels - 1)[None].astype(code_dtype(fit.params.layout.n_levels))
    fit.class_scores(codes, codes > 1)
    if source.maybe(RARE):
        new = {f.name: [f.levels[0], f.levels[-1]] for f in fit.design.predictors}
        str(fit), str(fit.summary()), fit.predict(new), fit.tidy(), fit.model_frame, fit.logLik()
