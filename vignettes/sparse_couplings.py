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
# # Which couplings are there? A spin glass and a protein
#
# Most of what is correlated is not coupled: it is correlated through others. This page makes data
# whose couplings are known, few among many, and finds them again: by pseudo-likelihood with a
# penalty, and by the posterior under a prior that expects most couplings to be nothing
# (`method="pvi"`, Ingraham & Marks 2017). The second also says how sure it is.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

# %% [markdown]
# ## A spin glass
#
# Fifty spins that are -1 or +1. One pair in twenty-five is coupled, with a strength from a normal
# distribution; no spin prefers a side. There are 500 observations, and 1,225 couplings to be told.

# %%
rng = np.random.default_rng(3)
m = 50
names = [f"s{i:02}" for i in range(m)]
pairs = np.column_stack(np.triu_indices(m, 1))
truth = np.where(rng.random(len(pairs)) < 0.04, rng.normal(0, np.sqrt(0.5), len(pairs)), 0.0)

# %% [markdown]
# The package counts levels from a reference, and so has four times the Ising coupling
# between two spins. `to_reference` turns the one into the other, fields and all, and `to_simplex`
# turns it back.

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
# A formula without a response fits one machine to all rows. 10,000 iterations are
# enough for this size; where they are not, a warning says so.

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
    ax.scatter(
        truth[truth == 0], own[truth == 0], s=9, color="0.55", label="pairs without a coupling"
    )
    ax.scatter(truth[truth != 0], own[truth != 0], s=16, color="#b2182b", label="coupled pairs")
    error = np.sqrt(np.mean((own - truth) ** 2))
    ax.set(
        title=f"{title}\nroot mean square error {error:.3f}",
        xlabel="true coupling",
        ylabel="estimate",
    )
axes[0].legend(loc="upper left", frameon=False)
plt.show()

# %% [markdown]
# A penalty draws all couplings towards zero, and leaves a cloud of small ones where
# there are none. The prior has a scale of its own for each pair: it draws those to zero that have
# little to show for themselves, and leaves the others nearly alone.
#
# `interactions()` ranks the pairs. Beside the strength stand its posterior sd, and the probability
# that the coupling is above 0.05.

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
# The probabilities sort the pairs well. They are no frequencies, though: the
# approximation takes parameters for independent, and so its sds are too small where they are not.
# Weak couplings that the prior took for nothing lie outside of their intervals.

# %%
table = posterior.inference().table().query("term == 'J'")
inside = (4 * truth >= table["lower"]) & (4 * truth <= table["upper"])
print(
    f"95% intervals with the truth: all pairs {inside.mean():.1%}, coupled pairs "
    f"{inside[truth != 0].mean():.1%}"
)

# %% [markdown]
# ## A protein
#
# A chain of 24 beads is folded at random, and the 48 closest pairs of beads touch. Each bead is one
# of eight kinds, has preferences of its own, and couplings to those that it touches: 49 numbers for
# each of 276 pairs, and 300 sequences.

# %%
beads = 24
kinds = 8
touching = 48
steps = rng.normal(size=(beads, 3))
place = np.cumsum(steps / np.linalg.norm(steps, axis=1, keepdims=True), axis=0)
for _ in range(300):  # towards the middle, at a distance of each other
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
# Longer chains of states and one draw suit many levels better: 10 sweeps, 40 chains.
# Real sequences are related to each other; `bbl.effective_weights` weighs each by the number of
# those that are like it, and `method="pvi"` takes such weights. These are independent, and alike by
# chance at most:

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
    ax.scatter(contacts[:, 1], contacts[:, 0], s=40, color="0.8", label="contacts")
    ax.scatter(x[hit], y[hit], s=22, color="#2166ac", label="found, a contact")
    ax.scatter(x[~hit], y[~hit], s=22, marker="x", color="#b2182b", label="found, none")
    ax.set(
        title=f"{title}\n{hit.mean():.0%} of {touching} are contacts",
        xlim=(-1, beads),
        ylim=(beads, -1),
        aspect=1,
    )
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %% [markdown]
# Above the diagonal are the true contacts, below it the strongest pairs. Both rank
# them well. How near the couplings themselves are, new sequences tell: the mean negative log
# pseudo-likelihood of 500 of them. The penalty was taken as it is; cross-validation would find a
# better one, in more time.

# %%
fresh = bbl.sample_xi(500, positions, h, J, seed=6)
print(pd.Series({"penalty": by_penalty.pnll(fresh), "posterior": by_prior.pnll(fresh)}).round(2))

# %% [markdown]
# The guide to posteriors tells more about the options, and about what the sds can and cannot say.
