"""Named problems: encoded groups to fit, tables for whole calls, models to sample; from files or generated."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bbl.engines import MeanField, PseudoLikelihood
from bbl.model.layout import Layout
from bbl.model.states import random_parameters, sample_groups, sample_states
from bbl.rows.sample import Sample

__all__ = ["PROBLEMS", "TABLES", "Model", "Part", "Problem", "Table", "data_folder", "make_model", "pick_sites"]

LETTERS = np.array(list("acgtdefhiklmnpqrsvwxy"))


@dataclass(frozen=True)
class Part:
    """One group of encoded rows: codes (n, m) with 0 the reference level, and the numbers of levels (m,)."""

    codes: np.ndarray
    n_levels: np.ndarray

    @property
    def sample(self) -> Sample:
        """The rows with weight 1."""
        return Sample(self.codes, np.ones(len(self.codes)))


@dataclass(frozen=True)
class Problem:
    """Groups that are fitted each by itself.

    Attributes
    ----------
    parts : list of Part
        The response groups (of several data sets, one after the other).
    source : {"file", "generated"}
    """

    parts: list[Part]
    source: str

    def stacked(self) -> tuple[np.ndarray, np.ndarray]:
        """Return codes (n, m) and response (n,) of parts that share their predictors."""
        y = np.repeat(np.arange(len(self.parts)), [len(p.codes) for p in self.parts])
        return np.concatenate([p.codes for p in self.parts]), y


@dataclass(frozen=True)
class Table:
    """A data frame as a user has it, with what else a call needs."""

    frame: pd.DataFrame
    source: str


@dataclass(frozen=True)
class Model:
    """A model to sample: fields h (D,), couplings J (D, D), numbers of levels (m,)."""

    h: np.ndarray
    J: np.ndarray
    n_levels: np.ndarray


def data_folder() -> Path | None:
    """Return the folder with the problem files: ``BBL_SHARED``, or ``shared`` beside the checkout, if it is there."""
    folder = Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    return folder if folder.is_dir() else None


def _file(*path: str) -> Path | None:
    folder = data_folder()
    found = folder.joinpath(*path) if folder else None
    return found if found and found.is_file() else None


# -- generators -------------------------------------------------------------------------------------------------------


def potts(
    n: int, m: int, L: int, density: float = 0.05, field: float = 0.5, coupling: float = 0.4, seed: int = 1
) -> Part:
    """Draw `n` rows of a sparse random model: `m` predictors of `L` levels, a share `density` of pairs coupled."""
    rng = np.random.default_rng(seed)
    h, J = _sparse_model(m, L, density, field, coupling, rng)
    levels = np.full(m, L)
    return Part(sample_states(h, J, levels, n, rng, burn_in=200, thin=5).astype(np.uint8), levels)


def _sparse_model(m, L, density, field, coupling, rng) -> tuple[np.ndarray, np.ndarray]:
    A = L - 1
    pairs = np.triu(rng.random((m, m)) < density, 1)
    J = rng.normal(0.0, coupling, (m * A, m * A)) * np.kron(pairs, np.ones((A, A)))
    return rng.normal(0.0, field, m * A), J + J.T


def images(n: int, side: int = 28, groups: int = 10, seed: int = 1) -> list[np.ndarray]:
    """Draw binary images like handwriting: smooth noise around a template of the group, cut to about 14 % ink."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    axis = np.linspace(-1.0, 1.0, side)
    distance = np.hypot(axis[:, None], axis[None, :])
    out = []
    for _ in range(groups):
        template = gaussian_filter(rng.normal(size=(side, side)), 2.5 * side / 28)
        noise = gaussian_filter(rng.normal(size=(n // groups, side, side)), (0, 1.5 * side / 28, 1.5 * side / 28))
        z = template / template.std() + noise / noise.std() - 3.0 * distance**2
        rough = rng.random(z.shape) < 0.002  # a few stray pixels, so that none is constant
        out.append(((z > 0.4) ^ rough).reshape(len(z), -1).astype(np.uint8))
    return out


def mixed(m: int, n: int = 2000, seed: int = 1) -> list[Part]:
    """Draw two groups of `n` / 2 rows with `m` predictors of 2 to 6 levels, all pairs coupled."""
    rng = np.random.default_rng(seed)
    layout = Layout(rng.integers(2, 7, m))
    theta = random_parameters(layout, "norm", dh=0.5, dJ=0.3, rng=rng, n_groups=2)
    parts = []
    for k in range(2):
        codes, _ = sample_groups(layout, theta[[k]], n // 2, rng=rng, burn_in=200, thin=5)
        parts.append(Part(codes.astype(np.uint8), layout.n_levels))
    return parts


# -- problems ---------------------------------------------------------------------------------------------------------

PROBLEMS: dict[str, Callable[..., Problem]] = {}


def problem(function: Callable[..., Problem]) -> Callable[..., Problem]:
    """Register a function ``(quick=False, **options) -> Problem`` under its name; quick ones are small."""
    PROBLEMS[function.__name__] = function
    return function


def _from_npz(name: str) -> Problem | None:
    path = _file("data", "perf", f"{name}.npz")
    if path is None:
        return None
    with np.load(path) as data:
        return Problem([Part(np.ascontiguousarray(data["x"]), data["L"])], "file")


@problem
def W1(quick: bool = False) -> Problem:
    """Return 5,000 rows x 100 binary predictors."""
    if quick:
        return Problem([potts(500, 12, 2)], "generated")
    return _from_npz("W1") or Problem([potts(5000, 100, 2, 0.04, 0.55, 0.39)], "generated")


@problem
def W2(quick: bool = False) -> Problem:
    """Return 6,000 rows x 784 binary predictors, images of all groups together."""
    if quick:
        return Problem([Part(np.concatenate(images(600, side=6)), np.full(36, 2))], "generated")
    return _from_npz("W2") or Problem([Part(np.concatenate(images(6000)), np.full(784, 2))], "generated")


@problem
def W3(quick: bool = False) -> Problem:
    """Return 10,000 rows x 50 predictors of 4 levels."""
    if quick:
        return Problem([potts(800, 6, 4)], "generated")
    return _from_npz("W3") or Problem([potts(10000, 50, 4, 0.09, 0.5, 0.45)], "generated")


@problem
def W4(quick: bool = False) -> Problem:
    """Return 5,000 rows x 60 predictors of 21 levels."""
    if quick:
        return Problem([potts(2000, 4, 8)], "generated")
    return _from_npz("W4") or Problem([potts(5000, 60, 21, 0.066, 1.0, 0.86)], "generated")


@problem
def W5(quick: bool = False) -> Problem:
    """Return 40 data sets of 2,000 rows in two groups, 3 to 12 predictors of 2 to 6 levels."""
    if quick:
        return Problem([p for m in (3, 4) for p in mixed(m, 600, seed=m)], "generated")
    path = _file("data", "perf", "W5.npz")
    if path is None:
        return Problem([p for k in range(40) for p in mixed(3 + k // 4, seed=k)], "generated")
    with np.load(path) as data:
        sets = [(data[f"x_{k}"], data[f"y_{k}"], data[f"L_{k}"]) for k in range(int(data["n"]))]
    return Problem([Part(np.ascontiguousarray(x[y == g]), L) for x, y, L in sets for g in (0, 1)], "file")


def _idx(name: str) -> np.ndarray | None:
    """Return the bytes of an IDX file, images as rows."""
    path = _file("data", "mnist", name)
    if path is None:
        return None
    raw = gzip.decompress(path.read_bytes())
    dims = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(dims)).reshape(dims[0], -1)


@problem
def mnist(quick: bool = False) -> Problem:
    """Return MNIST, binarised at 127: ten groups of about 6,000 rows x 784.

    Where a pixel is constant in a group, the group has the one extra row that the package adds in that case.
    """
    pixels, label = _idx("train-images-idx3-ubyte.gz"), _idx("train-labels-idx1-ubyte.gz")
    if quick:
        groups, source = images(1000, side=6), "generated"
    elif pixels is None or label is None:
        groups, source = images(60000), "generated"
    else:
        groups, source = [(pixels[label[:, 0] == k] > 127).astype(np.uint8) for k in range(10)], "file"
    layout = Layout(np.full(groups[0].shape[1], 2), np.empty((0, 2)))
    samples = [PseudoLikelihood().prepare(Sample(g, np.ones(len(g))), layout) for g in groups]
    return Problem([Part(np.ascontiguousarray(s.codes), layout.n_levels) for s in samples], source)


@problem
def wide(quick: bool = False) -> Problem:
    """Return 1,000 rows x 2,000 binary predictors: more parameters per site than rows."""
    n, m = (60, 80) if quick else (1000, 2000)
    return Problem([potts(n, m, 2, 4.0 / m)], "generated")


@problem
def grid(quick: bool = False, n: int = 2000, m: int = 50, L: int = 2) -> Problem:
    """Return a problem of the given shape, about four coupled pairs per predictor (for the scaling plots)."""
    if quick:
        n, m = max(200, n // 10), max(4, m // 5)
    return Problem([potts(n, m, L, min(1.0, 4.0 / m))], "generated")


def pick_sites(problem: Problem, count: int, seed: int = 0) -> list[tuple[int, int]] | None:
    """Return `count` random (part, predictor) pairs in order; None where that is all of them or `count` is 0."""
    every = [(k, i) for k, part in enumerate(problem.parts) for i in range(len(part.n_levels))]
    if not count or count >= len(every):
        return None
    chosen = np.random.default_rng(seed).choice(len(every), count, replace=False)
    return [every[c] for c in np.sort(chosen)]


# -- tables -----------------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[..., Table]] = {}


def _timing_table(name: str, n: int, m: int, L: int, quick: bool = False) -> Table:
    """Return two groups of n / 2 rows with `m` predictors of `L` letters."""
    path = _file("reference", "timing", f"{name}.csv.gz")
    if path is not None and not quick:
        return Table(pd.read_csv(path, dtype=str), "file")
    if quick:
        n, m = n // 10, min(m, 8)
    return Table(letters([potts(n // 2, m, L, min(1.0, 4.0 / m), seed=k) for k in (1, 2)]), "generated")


def letters(parts: list[Part]) -> pd.DataFrame:
    """Return the rows of two groups in random order: y ("case", "ctrl"), then v1, v2, ... as letters."""
    codes = np.concatenate([p.codes for p in parts])
    y = np.repeat(["case", "ctrl"], [len(p.codes) for p in parts])
    order = np.random.default_rng(0).permutation(len(y))
    columns = {f"v{i + 1}": LETTERS[codes[order, i]] for i in range(codes.shape[1])}
    return pd.DataFrame({"y": y[order], **columns}).astype(object)


for _n, _m, _L in ((2000, 10, 4), (2000, 20, 4), (2000, 50, 4), (10000, 50, 2), (1000, 100, 2), (1000, 200, 2)):
    _name = f"n{_n}_m{_m}_L{_L}"
    TABLES[_name] = lambda quick=False, a=(_name, _n, _m, _L): _timing_table(*a, quick=quick)


def table(function: Callable[..., Table]) -> Callable[..., Table]:
    """Register a function ``(quick=False) -> Table`` under its name."""
    TABLES[function.__name__] = function
    return function


@table
def titanic(quick: bool = False) -> Table:
    """Return the Titanic counts, with column Freq."""
    from bbl.datasets import load_titanic

    return Table(load_titanic(), "file")


@table
def titanic_rows(quick: bool = False) -> Table:
    """Return the Titanic, one row per person, every other one of them (1,101 rows)."""
    counts = titanic().frame
    rows = counts.loc[counts.index.repeat(counts["Freq"])].drop(columns="Freq")
    return Table(rows.sample(frac=1, random_state=1).iloc[:1101].reset_index(drop=True), "file")


@table
def mnist_r(quick: bool = False) -> Table:
    """Return 1,000 binary images as columns y, X1, ..., less the constant pixels, as 0/1 integers."""
    path = _file("data", "bbl-r", "mnist_train.csv.gz")
    if path is not None and not quick:
        frame, source = pd.read_csv(path), "file"
    else:
        groups = images(200 if quick else 1000, side=5 if quick else 28)
        codes = np.concatenate(groups)
        frame = pd.DataFrame(codes, columns=[f"X{i + 1}" for i in range(codes.shape[1])])
        frame.insert(0, "y", np.repeat(np.arange(10), len(groups[0])))
        source = "generated"
    return Table(frame.loc[:, frame.nunique() > 1], source)


@table
def rows4(quick: bool = False, n: int = 1_000_000) -> Table:
    """Return `n` rows x 50 categorical predictors of 4 letters, uniform, to be predicted."""
    n = n // 1000 if quick else n
    codes = np.random.default_rng(3).integers(0, 4, (50, n), dtype=np.int8)
    dtype = pd.CategoricalDtype(list("acgt"))
    columns = {f"v{i + 1}": pd.Categorical.from_codes(codes[i], dtype=dtype) for i in range(50)}
    return Table(pd.DataFrame(columns), "generated")


# -- models -----------------------------------------------------------------------------------------------------------


def make_model(name: str, quick: bool = False) -> Model:
    """Return the mean-field fit (eps 0.5) of problem `name`: dense couplings as a fitted model has them."""
    part = PROBLEMS[name](quick=quick).parts[0]
    layout = Layout(part.n_levels)
    h, J = layout.to_matrix(MeanField(eps=0.5).fit(part.sample, layout).theta)
    return Model(h, J, np.asarray(part.n_levels))
