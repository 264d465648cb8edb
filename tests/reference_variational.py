"""What the tests of variational inference share: features, rows, the exact likelihood, the evidence
lower bound.
"""

import functools
import json

import numpy as np
from reference import states
from scipy.stats import norm

from bbl.engines import PersistentVI
from bbl.engines.variational.priors import slabbed
from bbl.model.gauge import contrasts
from bbl.model.layout import Layout
from bbl.rows.sample import Sample


def features(layout, x):
    """Return the features of rows in simplex coding, term by term."""
    out = np.empty((len(x), layout.size))
    for i in range(layout.m):
        layout.table(out, i)[...] = contrasts(layout.n_levels[i])[x[:, i]]
    for i, j in layout.pairs:
        left, right = contrasts(layout.n_levels[i])[x[:, i]], contrasts(layout.n_levels[j])[x[:, j]]
        layout.table(out, i, j)[...] = left[:, :, None] * right[:, None, :]
    return out


def rows(layout, n=60, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, layout.n_levels, (n, layout.m)).astype(np.uint8)
    return Sample(codes, rng.integers(1, 4, n).astype(float))


@functools.cache
def settled(path, levels):
    """Return a stored problem, its layout and rows, and a long fit under normal priors with its
    approximation.
    """
    stored, layout = json.loads(path.read_text()), Layout(list(levels))
    counts = np.array(stored["counts"], float)
    sample = Sample(states(list(levels))[counts > 0].astype(np.uint8), counts[counts > 0])
    engine = PersistentVI("gaussian", scale=1.0, n_iter=5000, seed=1, average=0.3)
    fit = engine.fit(sample, layout)
    return stored, layout, sample, fit, engine.approximation(layout, fit)


class Enumerated:
    """The exact likelihood of all rows."""

    def __init__(self, layout, sample):
        self.F = features(layout, states(layout.n_levels))
        self.sums, self.total = sample.weights @ features(layout, sample.codes), sample.total

    def value(self, simplex):
        energy = self.F @ simplex
        top = energy.max()
        return simplex @ self.sums - self.total * (np.log(np.exp(energy - top).sum()) + top)

    def gradient(self, q, simplex, out):
        p = np.exp(self.F @ simplex - (self.F @ simplex).max())
        out[:] = self.sums - self.total * (p / p.sum()) @ self.F


def evidence(likelihood, at, noise):
    """Return the evidence lower bound with fixed noise, written down from its definition (up to a
    constant).
    """
    layout, prior, groups, total = at.layout, at.prior, at.groups, 0.0
    for e in noise:
        x = at.mean + np.exp(at.log_sd) * e
        z = x[: layout.size]
        v = x[-2:] if at.scale is None else np.full(2, np.log(at.scale))
        own = np.repeat(v, [groups.fields, len(groups) - groups.fields])
        u = x[layout.size : layout.size + len(groups)] if prior.slope else own
        sigma = slabbed(u, at.slab)[0][groups.of_parameter]
        if prior.flat:
            total += likelihood.value(z)
        elif at.centred:  # z holds the parameters themselves
            total += likelihood.value(z) + norm.logpdf(z, scale=sigma).sum()
        else:
            total += likelihood.value(sigma * z) + norm.logpdf(z).sum()
        if prior.slope:
            total += prior.log_density(u - own).sum()
        if at.scale is None:
            total += prior.log_hyper(v).sum()
    return total / len(noise) + at.log_sd.sum()
