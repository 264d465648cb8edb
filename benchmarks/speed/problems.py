"""Named problems: encoded groups to fit, tables for whole calls, models to sample; from files or
generated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

import bbl
from bbl.engines import MeanField, PseudoLikelihood
from bbl.model.layout import Layout
from bbl.model.regressors import to_matrix
from bbl.model.states import random_parameters, sample_groups, sample_states
from bbl.rows.sample import Sample
from benchmarks import files

LETTERS = np.array(list("acgtdefhiklmnpqrsvwxy"))


@dataclass(frozen=True)
class Part:
    """One group of encoded rows: codes (n, m) with 0 the reference level, and the numbers of levels
    (m,).
    """

    codes: np.ndarray
    n_levels: np.ndarray

    @property
    def sample(self) -> Sample:
        """The rows with weight 1."""
        return Sample(self.codes, np.ones(len(self.codes)))


@dataclass(frozen=True)
class Problem:
    """Groups that are fitted each by itself: the response groups (of several data sets, one after
    the other).
    """

    parts: list[Part]
    source: str  # "file" or "generated"

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
    source: str


# -- generators ------------------------------------------------------------------------------------


def potts(
    n: int,
    m: int,
    L: int,
    density: float = 0.05,
    field: float = 0.5,
    coupling: float = 0.4,
    seed: int = 1,
) -> Part:
    """Draw `n` rows of a sparse random model: `m` predictors of `L` levels, a share `density` of
    pairs coupled.
    """
    rng = np.random.default_rng(seed)
    A, levels = L - 1, np.full(m, L)
    pairs = np.triu(rng.random((m, m)) < density, 1)
    J = rng.normal(0.0, coupling, (m * A, m * A)) * np.kron(pairs, np.ones((A, A)))
    states = sample_states(
        rng.normal(0.0, field, m * A), J + J.T, levels, n, rng, burn_in=200, thin=5
    )
    return Part(states.astype(np.uint8), levels)


def images(n: int, side: int = 28, groups: int = 10, seed: int = 1) -> list[np.ndarray]:
    """Draw binary images like handwriting: smooth noise around a template of the group, cut to
    about 14 % ink.
    """
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    axis = np.linspace(-1.0, 1.0, side)
    distance = np.hypot(axis[:, None], axis[None, :])
    out = []
    for _ in range(groups):
        template = gaussian_filter(rng.normal(size=(side, side)), 2.5 * side / 28)
        noise = gaussian_filter(
            rng.normal(size=(n // groups, side, side)), (0, 1.5 * side / 28, 1.5 * side / 28)
        )
        z = template / template.std() + noise / noise.std() - 3.0 * distance**2
        rough = rng.random(z.shape) < 0.002  # a few stray pixels, so that none is constant
        out.append(((z > 0.4) ^ rough).reshape(len(z), -1).astype(np.uint8))
    return out


def mixed(m: int, n: int = 2000, seed: int = 1) -> list[Part]:
    """Draw two groups of `n` / 2 rows with `m` predictors of 2 to 6 levels, all pairs coupled."""
    rng = np.random.default_rng(seed)
    layout = Layout(rng.integers(2, 7, m))
    theta = random_parameters(layout, "norm", dh=0.5, dJ=0.3, rng=rng, n_groups=2)
    drawn = [sample_groups(layout, t[None], n // 2, rng=rng, burn_in=200, thin=5)[0] for t in theta]
    return [Part(codes.astype(np.uint8), layout.n_levels) for codes in drawn]


def alignment(
    n: int,
    m: int,
    L: int = 21,
    mutations: float = 0.1,
    coupling: float = 0.7,
    seed: int = 1,
    recent: int = 0,
) -> Part:
    """Draw `n` sequences of `m` sites as of an alignment: each descends from a random earlier one.

    With `recent`, it descends from one of so many preceding sequences, which are more closely
    related. A share `mutations` of the sites is drawn anew from the profiles of the sites; by
    default, two sequences agree in about a third of 200 sites. One pair of sites in every ten is
    coupled: after a mutation of either, the second follows from the first in a share `coupling` of
    the cases. Levels are in the order of their frequency in the profile, and of the rarest some are
    absent.
    """
    rng = np.random.default_rng(seed)
    cuts = np.cumsum(-np.sort(-rng.dirichlet(np.full(L, 0.3), m), axis=1), axis=1)[:, :-1]
    first = np.arange(0, m - 5, 10)  # each is coupled to the site five further
    partner = np.array([rng.permutation(L) for _ in first], dtype=np.uint8).reshape(len(first), L)
    codes = np.zeros((n, m), dtype=np.uint8)
    for k in range(n):
        mutated = (rng.random(m) < mutations) | (k == 0)
        drawn = (rng.random(m)[:, None] > cuts).sum(axis=1, dtype=np.uint8)
        parent = rng.integers(max(0, k - recent) if recent else 0, max(k, 1))
        row = np.where(mutated, drawn, codes[parent])
        follows = (mutated[first] | mutated[first + 5]) & (rng.random(len(first)) < coupling)
        row[first + 5] = np.where(
            follows, partner[np.arange(len(first)), row[first]], row[first + 5]
        )
        codes[k] = row
    return Part(codes, np.full(m, L))


# -- problems --------------------------------------------------------------------------------------

PROBLEMS: dict[str, Callable[..., Problem | Table]] = {}


def problem(function: Callable[..., Problem | Table]) -> Callable[..., Problem | Table]:
    """Register a function ``(quick=False, **options)`` under its name; quick ones are small."""
    PROBLEMS[function.__name__] = function
    return function


def _images(*arguments, **options) -> Part:
    codes = np.concatenate(images(*arguments, **options))
    return Part(codes, np.full(codes.shape[1], 2))


def _one_group(
    name: str, full: Callable[[], Part], small: Callable[[], Part], quick: bool = False
) -> Problem:
    path = files.shared_file("data", "perf", f"{name}.npz")
    if quick or path is None:
        return Problem([small() if quick else full()], "generated")
    with np.load(path) as data:
        return Problem([Part(np.ascontiguousarray(data["x"]), data["L"])], "file")


for _name, *_makers in (
    ("W1", partial(potts, 5000, 100, 2, 0.04, 0.55, 0.39), partial(potts, 500, 12, 2)),
    ("W2", partial(_images, 6000), partial(_images, 600, side=6)),
    ("W3", partial(potts, 10000, 50, 4, 0.09, 0.5, 0.45), partial(potts, 800, 6, 4)),
    ("W4", partial(potts, 5000, 60, 21, 0.066, 1.0, 0.86), partial(potts, 2000, 4, 8)),
    ("wide", partial(potts, 1000, 2000, 2, 4.0 / 2000), partial(potts, 60, 80, 2, 4.0 / 80)),
):
    PROBLEMS[_name] = partial(_one_group, _name, *_makers)


@problem
def W5(quick: bool = False) -> Problem:
    """Return 40 data sets of 2,000 rows in two groups, 3 to 12 predictors of 2 to 6 levels."""
    if quick:
        return Problem([p for m in (3, 4) for p in mixed(m, 600, seed=m)], "generated")
    path = files.shared_file("data", "perf", "W5.npz")
    if path is None:
        return Problem([p for k in range(40) for p in mixed(3 + k // 4, seed=k)], "generated")
    with np.load(path) as data:
        sets = [(data[f"x_{k}"], data[f"y_{k}"], data[f"L_{k}"]) for k in range(int(data["n"]))]
    return Problem(
        [Part(np.ascontiguousarray(x[y == g]), L) for x, y, L in sets for g in (0, 1)], "file"
    )


@problem
def mnist(quick: bool = False) -> Problem:
    """Return MNIST, binarised at 127: ten groups of about 6,000 rows x 784.

    Where a pixel is constant in a group, the group has the one extra row that the package adds in
    that case.
    """
    frame = None if quick else files.mnist("train")
    if frame is None:
        groups, source = images(1000, side=6) if quick else images(60000), "generated"
    else:
        groups, source = (
            [rows.iloc[:, 1:].to_numpy(dtype=np.uint8) for _, rows in frame.groupby("y")],
            "file",
        )
    layout = Layout(np.full(groups[0].shape[1], 2), np.empty((0, 2)))
    samples = [PseudoLikelihood().prepare(Sample(g, np.ones(len(g))), layout) for g in groups]
    return Problem([Part(np.ascontiguousarray(s.codes), layout.n_levels) for s in samples], source)


@problem
def grid(quick: bool = False, n: int = 2000, m: int = 50, L: int = 2) -> Problem:
    """Return a problem of the given shape, about four coupled pairs per predictor (for the scaling
    plots).
    """
    if quick:
        n, m = max(200, n // 10), max(4, m // 5)
    return Problem([potts(n, m, L, min(1.0, 4.0 / m))], "generated")


@problem
def family(quick: bool = False, n: int = 5000, m: int = 60) -> Problem:
    """Return rows like those of an alignment of `n` sequences with `m` sites of 21 levels."""
    return Problem([alignment(n // 20, 20, 5) if quick else alignment(n, m)], "generated")


def close_family(n: int, m: int) -> Part:
    """Draw sequences that each descend from one of the 200 preceding ones."""
    return alignment(n, m, mutations=0.35, recent=200)


def pick_sites(problem: Problem, count: int, seed: int = 0) -> list[tuple[int, int]] | None:
    """Return `count` random (part, predictor) pairs in order; None where that is all of them or
    `count` is 0.
    """
    every = [(k, i) for k, part in enumerate(problem.parts) for i in range(len(part.n_levels))]
    if not count or count >= len(every):
        return None
    chosen = np.random.default_rng(seed).choice(len(every), count, replace=False)
    return [every[c] for c in np.sort(chosen)]


# -- tables ----------------------------------------------------------------------------------------


def _timing_table(name: str, n: int, m: int, L: int, quick: bool = False) -> Table:
    """Return two groups of n / 2 rows with `m` predictors of `L` letters, in random order: y, v1,
    v2, ...
    """
    path = None if quick else files.shared_file("reference", "timing", f"{name}.csv.gz")
    if path:
        return Table(pd.read_csv(path, dtype=str), "file")
    if quick:
        n, m = n // 10, min(m, 8)
    codes = np.concatenate([potts(n // 2, m, L, min(1.0, 4.0 / m), seed=k).codes for k in (1, 2)])
    y = np.repeat(["case", "ctrl"], n // 2)
    order = np.random.default_rng(0).permutation(n)
    columns = {f"v{i + 1}": LETTERS[codes[order, i]] for i in range(m)}
    return Table(pd.DataFrame({"y": y[order], **columns}).astype(object), "generated")


for _n, _m, _L in (
    (2000, 10, 4),
    (2000, 20, 4),
    (2000, 50, 4),
    (10000, 50, 2),
    (1000, 100, 2),
    (1000, 200, 2),
):
    PROBLEMS[f"n{_n}_m{_m}_L{_L}"] = partial(_timing_table, f"n{_n}_m{_m}_L{_L}", _n, _m, _L)


@problem
def titanic(quick: bool = False) -> Table:
    """Return the Titanic counts, with column Freq."""
    return Table(bbl.datasets.load_titanic(), "file")


@problem
def titanic_rows(quick: bool = False) -> Table:
    """Return the Titanic, one row per person, every other one of them (1,101 rows)."""
    rows = bbl.freq2raw(titanic().frame, "Freq")
    return Table(rows.sample(frac=1, random_state=1).iloc[:1101].reset_index(drop=True), "file")


@problem
def mnist_r(quick: bool = False) -> Table:
    """Return 1,000 binary images as columns y, X1, ..., less the constant pixels, as 0/1
    integers.
    """
    frame, source = None if quick else files.mnist_sample("train"), "file"
    if frame is None:
        codes, source = _images(200, side=5).codes if quick else _images(1000).codes, "generated"
        frame = pd.DataFrame(codes, columns=[f"X{i + 1}" for i in range(codes.shape[1])])
        frame.insert(0, "y", np.repeat(np.arange(10), len(codes) // 10))
    return Table(frame.loc[:, frame.nunique() > 1], source)


@problem
def rows4(quick: bool = False, n: int = 1_000_000) -> Table:
    """Return `n` rows x 50 categorical predictors of 4 letters, uniform, to be predicted."""
    n = n // 1000 if quick else n
    codes = np.random.default_rng(3).integers(0, 4, (50, n), dtype=np.int8)
    dtype = pd.CategoricalDtype(list("acgt"))
    columns = {f"v{i + 1}": pd.Categorical.from_codes(codes[i], dtype=dtype) for i in range(50)}
    return Table(pd.DataFrame(columns), "generated")


# -- models ----------------------------------------------------------------------------------------


def make_model(name: str, quick: bool = False) -> Model:
    """Return the mean-field fit (eps 0.5) of problem `name`: dense couplings as a fitted model has
    them.
    """
    made = PROBLEMS[name](quick=quick)
    part = made.parts[0]
    layout = Layout(part.n_levels)
    h, J = to_matrix(layout, MeanField(eps=0.5).fit(part.sample, layout).theta)
    return Model(h, J, np.asarray(part.n_levels), made.source)
