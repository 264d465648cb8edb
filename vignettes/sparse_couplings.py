# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Finding sparse couplings: a spin glass and a protein
#
# Most correlations between variables are indirect: they are due to couplings with other variables.
# This page simulates data with a few known couplings and recovers them in two ways: by penalised
# pseudo-likelihood, and from the posterior under a sparse prior (`method="pvi"`, Ingraham & Marks
# 2017). The second method also quantifies uncertainty.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

# %% [markdown]
# ## A spin glass
#
# We simulate fifty spins with values -1 or +1. Four per cent of the pairs are coupled, with
# normally distributed strengths, and all fields are zero. There are 500 observations and 1,225
# couplings to estimate.

# %%
rng = np.random.default_rng(3)
m = 50
names = [f"s{i:02}" for i in range(m)]
pairs = np.column_stack(np.triu_indices(m, 1))
truth = np.where(rng.random(len(pairs)) < 0.04, rng.normal(0, np.sqrt(0.5), len(pairs)), 0.0)

# %% [markdown]
# The package uses a reference level, so its coupling of two spins is four times the Ising coupling.
# `to_reference` converts fields and couplings to this gauge, and `to_simplex` converts them back.

# %%
from bbl.model.gauge import to_reference, to_simplex
from bbl.model.layout import Layout

layout = Layout([2] * m)
theta = to_reference(layout, np.concatenate([np.zeros(m), truth]))
h = [layout.table(theta, i) for i in range(m)]
J = {(i, j): layout.table(theta, i, j) for i, j in pairs.tolist()}
spins = bbl.sample_xi(500, {name: ["-", "+"] for name in names}, h, J, seed=4)
print(f"{(truth != 0).sum()} couplings among {len(truth)} pairs")

# %% [markdown]
# Without a response, one machine is fitted to all rows. 10,000 iterations are enough for this
# size; with too few iterations, a warning is issued.

# %%
pseudo = bbl.bbl("~ .^2", spins, lambda_="cv", seed=0, verbose=0)
posterior = bbl.bbl("~ .^2", spins, method="pvi", n_iter=10000, seed=0, verbose=0)
print(f"penalty chosen: {pseudo.engine.lambda_:.3g}")
print(posterior.history.tail(3).round(4))

# %%
found = {
    "pseudo-likelihood, penalty by cross-validation": to_simplex(
        layout, pseudo.estimate.parameters.theta[0]
    )[m:],
    'posterior, method="pvi"': to_simplex(layout, posterior.estimate.parameters.theta[0])[m:],
}
fig, axes = plt.subplots(
    1, 2, figsize=(8.4, 4.2), sharex=True, sharey=True, constrained_layout=True
)
for ax, (title, own) in zip(axes, found.items(), strict=True):
    ax.axline((0, 0), slope=1, color="0.7", lw=1)
    ax.scatter(truth[truth == 0], own[truth == 0], s=9, color="0.55", label="uncoupled pairs")
    ax.scatter(truth[truth != 0], own[truth != 0], s=16, color="#b2182b", label="coupled pairs")
    error = np.sqrt(np.mean((own - truth) ** 2))
    ax.set(
        title=f"{title}\nroot mean square error {error:.3f}",
        xlabel="True coupling",
        ylabel="Estimate",
    )
axes[0].legend(loc="upper left", frameon=False)
plt.show()

# %% [markdown]
# The penalty shrinks all couplings and leaves many small nonzero estimates for uncoupled pairs. The
# prior has a separate scale for each pair: it shrinks weakly supported couplings to zero and leaves
# the others almost unchanged.
#
# `interactions()` ranks the pairs. It also gives the posterior standard deviation of each strength
# and the probability that the coupling exceeds 0.05.

# %%
ranking = posterior.interactions()
print(
    ranking[["predictor", "predictor2", "strength", "sd", "inclusion"]]
    .head(8)
    .round(3)
    .to_string(index=False)
)
known = {(names[i], names[j]) for (i, j), value in zip(pairs, truth, strict=True) if value}
ranking["true"] = [
    pair in known for pair in zip(ranking["predictor"], ranking["predictor2"], strict=True)
]
parts = pd.cut(ranking["inclusion"], [0, 0.1, 0.5, 0.9, 1], include_lowest=True)
print(ranking.groupby(parts, observed=False)["true"].agg(["size", "sum"]))

# %% [markdown]
# The probabilities rank the pairs well, but they are not calibrated: the
# approximation assumes independent parameters, so its standard deviations are too small where
# parameters are correlated. Weak couplings that were shrunk to zero lie outside their intervals.

# %%
table = posterior.inference().table().query("term == 'J'")
inside = (4 * truth >= table["lower"]) & (4 * truth <= table["upper"])
print(
    f"coverage of 95% intervals: all pairs {inside.mean():.1%}, coupled pairs "
    f"{inside[truth != 0].mean():.1%}"
)

# %% [markdown]
# ## A protein
#
# A chain of 24 beads is folded at random, and the 48 closest pairs of beads are in contact. Each
# bead has one of eight types, with its own fields and with couplings to the beads that it touches:
# 49 parameters for each of 276 pairs, to be estimated from 300 sequences.

# %%
beads = 24
kinds = 8
touching = 48
steps = rng.normal(size=(beads, 3))
place = np.cumsum(steps / np.linalg.norm(steps, axis=1, keepdims=True), axis=0)
for _ in range(300):  # towards the centre, at a distance from each other
    away = place[:, None] - place[None]
    apart = np.linalg.norm(away, axis=2) + np.eye(beads)
    push = (away / apart[..., None] ** 4).sum(axis=1)
    bonds = np.zeros((beads, 3))
    for k, side in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        bonds[k] += place[side] - place[k]
    place += 0.05 * (push + bonds - 0.3 * (place - place.mean(axis=0)))
bead_pairs = np.column_stack(np.triu_indices(beads, 1))
distance = np.linalg.norm(place[bead_pairs[:, 0]] - place[bead_pairs[:, 1]], axis=1)
contacts = bead_pairs[np.argsort(distance)[:touching]]

# %%
shape = Layout([kinds] * beads)
simplex = np.zeros(shape.size)
simplex[: shape.D] = rng.normal(0, 0.5, shape.D)
for i, j in contacts:
    shape.table(simplex, i, j)[...] = rng.normal(0, 1.0, (kinds - 1, kinds - 1))
theta = to_reference(shape, simplex)
h = [shape.table(theta, i) for i in range(beads)]
J = {(i, j): shape.table(theta, i, j) for i, j in contacts.tolist()}
positions = {f"p{i:02}": list("ACDEFGHK") for i in range(beads)}
sequences = bbl.sample_xi(300, positions, h, J, seed=5)
print(sequences.head(3).to_string())

# %% [markdown]
# With many levels, more sweeps and a single draw give better results, so we use 10 sweeps and 40
# chains. Real sequences are related. `bbl.effective_weights` weights each sequence by the
# reciprocal of the number of similar sequences, and `method="pvi"` accepts such weights. In this
# simulation, sequences are independent, so any similarity between them is due to chance:

# %%
print(
    f"sum of the weights: {bbl.effective_weights(sequences).sum():.0f} of {len(sequences)} "
    "sequences"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", bbl.DataWarning)
    by_penalty = bbl.bbl(
        "~ .^2", sequences, xlevels=positions, lambda_=0.01, lambdah=0.01, verbose=0
    )
    by_prior = bbl.bbl(
        "~ .^2",
        sequences,
        method="pvi",
        xlevels=positions,
        seed=0,
        verbose=0,
        n_iter=2500,
        sweeps=10,
        chains=40,
        draws=1,
        scale=0.1,
    )

# %%
number = {name: i for i, name in enumerate(positions)}
touch = {tuple(pair) for pair in contacts.tolist()}
fig, axes = plt.subplots(1, 2, figsize=(8.4, 4.4), constrained_layout=True)
titles = ("pseudo-likelihood, with APC", 'posterior, method="pvi"')
for ax, fit, apc, title in zip(axes, (by_penalty, by_prior), (True, False), titles, strict=True):
    top = fit.interactions(apc=apc).head(touching)
    shown = [
        (number[a], number[b]) for a, b in zip(top["predictor"], top["predictor2"], strict=True)
    ]
    hit = np.array([pair in touch for pair in shown])
    x, y = np.array(shown).T
    ax.scatter(contacts[:, 1], contacts[:, 0], s=40, color="0.8", label="true contact")
    ax.scatter(x[hit], y[hit], s=22, color="#2166ac", label="selected pair, a contact")
    ax.scatter(
        x[~hit], y[~hit], s=22, marker="x", color="#b2182b", label="selected pair, not a contact"
    )
    ax.set(
        title=f"{title}\n{hit.mean():.0%} of {touching} are contacts",
        xlim=(-1, beads),
        ylim=(beads, -1),
        aspect=1,
        xlabel="Bead",
        ylabel="Bead",
    )
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %% [markdown]
# The true contacts are shown above the diagonal, and the strongest pairs below it. Both methods
# rank the pairs well. The mean negative log pseudo-likelihood of 500 new sequences measures the
# accuracy of the couplings themselves. The penalty was not tuned. Cross-validation would find a
# better penalty, but would take longer.

# %%
fresh = bbl.sample_xi(500, positions, h, J, seed=6)
print(pd.Series({"penalty": by_penalty.pnll(fresh), "posterior": by_prior.pnll(fresh)}).round(2))

# %% [markdown]
# The guide to posteriors describes the options and the limitations of the standard deviations.
