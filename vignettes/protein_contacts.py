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
# # A protein family from FASTA to contacts
#
# Protein sites that are in contact coevolve. A Boltzmann machine fitted to the aligned sequences of
# a family separates such direct couplings from indirect correlations through other sites, so
# contacts can be predicted from sequences (Ekeberg et al. 2013, doi:10.1103/PhysRevE.87.012707).
# The same steps apply to RNA alignments.
#
# The family on this page is simulated, so its contacts are known. To analyse your own family, save
# its alignment in FASTA format as `family.fasta` in the folder given by the environment variable
# `BBL_DATA`.

# %%
import os
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

# %% [markdown]
# ## A family with known contacts
#
# The family has 36 sites. The letters are the 20 amino acids and a gap. Fourteen pairs of sites are
# in contact. They form a hairpin, where the first site touches the last, the third touches the
# third from last, and so on. In addition, a few pairs nine sites apart are in contact. We draw 400
# unrelated sequences from this model. To make the sample as biased as real samples, we then add 60
# close relatives of each of forty sequences, with an eighth of the letters replaced by other
# letters that occur at the site.

# %%
rng = np.random.default_rng(5)
LETTERS = list("-ACDEFGHIKLMNPQRSTVWY")
m = 36
sites = {str(i + 1): LETTERS for i in range(m)}
pairs = [(i, m - 1 - i) for i in range(0, 15, 2)] + [(i, i + 9) for i in range(3, 24, 4)]
contacts = [(str(i + 1), str(j + 1)) for i, j in pairs]

truth = bbl.randompar(sites, "norm", dh=1.5, dJ=0.7, seed=rng)
unrelated = bbl.sample_xi(
    400, sites, truth.h, {pair: truth.J[pair] for pair in pairs}, seed=rng
).to_numpy()
relatives = np.repeat(unrelated[:40], 60, axis=0)
other_letters = unrelated[rng.integers(0, len(unrelated), relatives.shape), np.arange(m)]
relatives = np.where(rng.random(relatives.shape) < 0.12, other_letters, relatives)
sequences = ["".join(row) for row in np.vstack([unrelated, relatives])]

folder = tempfile.TemporaryDirectory()
simulated = Path(folder.name) / "simulated.fasta"
simulated.write_text(
    "".join(f">sequence {k + 1}\n{letters}\n" for k, letters in enumerate(sequences))
)
print(simulated.read_text()[:170])

# %%
own = Path(os.environ.get("BBL_DATA", "")) / "family.fasta"
is_simulated = not ("BBL_DATA" in os.environ and own.exists())
alignment = bbl.readFasta(simulated if is_simulated else own)
print(alignment.shape, "sequences and sites;", "simulated" if is_simulated else own.name)

# %% [markdown]
# ## Effective number of sequences
#
# Each sequence is weighted by 1 / (number of sequences that agree with it at more than 80 % of the
# sites). The sum of the weights is the effective number of sequences. In this example, it is much
# closer to the 400 independent sequences than to the 2,800 in the file.

# %%
weights = bbl.effective_weights(alignment, identity=0.8)
print(f"{len(alignment)} sequences, effective number {weights.sum():.0f}")
fig, ax = plt.subplots(figsize=(5.6, 3.0), layout="constrained")
ax.hist(1.0 / weights, bins=30, color="0.45")
ax.set(xlabel="Number of similar sequences (itself included)", ylabel="Sequences")
plt.show()

# %% [markdown]
# ## The model
#
# Without a response, all sequences form one group. The formula `~ .^2` includes the fields of all
# sites and the couplings of all pairs. `lambda_=0.01` is a typical penalty for alignments. Standard
# errors are not available, because the weights are not counts. The warning about this is silenced
# here.

# %%
with warnings.catch_warnings(action="ignore", category=bbl.DataWarning):
    fit = bbl.bbl("~ .^2", alignment, weights=weights, lambda_=0.01, verbose=0)
print(
    f"{fit.estimate.parameters.layout.n_terms:,} pairs of sites, {fit.estimate.parameters.layout.size:,} parameters"
)

# %% [markdown]
# ## Strength of the couplings
#
# The strength of a pair is the norm of its 21 x 21 couplings, in the zero-sum gauge. Sites where
# many letters occur have large norms with every other site. The average product correction
# (`apc=True`) removes the part of a pair's norm that is due to its two sites alone.

# %%
ranking = fit.interactions(apc=True)
print(ranking[["predictor", "predictor2", "strength"]].head(20).to_string(float_format="%.3f"))

# %% [markdown]
# Both the weights and the correction improve the predictions. The following table shows the number
# of true contacts among the top 14 pairs:

# %%
if is_simulated:
    unweighted = bbl.bbl("~ .^2", alignment, lambda_=0.01, verbose=0)
    rows = []
    for name, model in (("all sequences alike", unweighted), ("weights", fit)):
        for apc in (False, True):
            first = model.interactions(apc=apc).head(len(contacts))
            found = {
                frozenset(pair)
                for pair in zip(first["predictor"], first["predictor2"], strict=True)
            }
            hits = len(found & {frozenset(pair) for pair in contacts})
            rows.append((name, "with" if apc else "without", f"{hits} of {len(contacts)}"))
    print(pd.DataFrame(rows, columns=["fit", "correction", "contacts"]).to_string(index=False))
    print(bbl.enrichment(ranking, contacts, top=[5, 10, 14, 20]))

# %% [markdown]
# ## The map of contacts
#
# The strength of every pair is above the diagonal. Below the diagonal are the top pairs (as many as
# there are contacts), with rings around the true contacts. In a real family, pairs fewer than five
# sites apart are usually excluded, because neighbours along the chain are in contact anyway.

# %%
names = list(alignment.columns)
at = {name: i for i, name in enumerate(names)}
strength = np.full((len(names), len(names)), np.nan)
for a, b, value in zip(
    ranking["predictor"], ranking["predictor2"], ranking["strength"], strict=True
):
    i, j = sorted((at[a], at[b]))
    strength[i, j] = value
fig, ax = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
extent = (0.5, len(names) + 0.5, len(names) + 0.5, 0.5)
image = ax.imshow(np.maximum(strength, 0.0), cmap="Blues", extent=extent)
n_first = len(contacts) if is_simulated else len(names)
first = [
    sorted((at[a] + 1, at[b] + 1))
    for a, b in ranking[["predictor", "predictor2"]].head(n_first).to_numpy()
]
ax.plot(*np.array(first).T, "s", ms=5, color="C0", label="strongest pairs")
if is_simulated:
    ax.plot(
        *np.array([(i + 1, j + 1) for i, j in pairs]).T,
        "o",
        ms=9,
        mfc="none",
        color="C1",
        label="contacts",
    )
ax.plot([0.5, len(names) + 0.5], [0.5, len(names) + 0.5], lw=0.8, color="0.6")
ax.set(xlabel="Site", ylabel="Site", title="Couplings (above) and predicted contacts (below)")
fig.legend(loc="outside lower center", ncols=2, frameon=False)
fig.colorbar(image, label="Strength (APC)")
plt.show()

# %% [markdown]
# ## Does the model reproduce the statistics of the alignment?
#
# We draw sequences from the model by Gibbs sampling and compare their statistics with the weighted
# statistics of the alignment: the frequency of each letter at each site, and the covariance of each
# pair of letters at two sites. Under a model of independent sites, all covariances would be 0. The
# penalty shrinks the couplings and therefore also the model's covariances. Much of the scatter is
# sampling error, because the effective number of sequences is only about 500.

# %%
draws = bbl.mcSample(fit, nsteps=400, nchains=100, draws=True, thin=10, seed=1, verbose=0).draws[
    "all"
]
print(f"{len(draws):,} sequences from the model, such as {''.join(draws.iloc[-1])}")


def statistics(rows, row_weights):
    """Return frequencies (D,) of letters at sites, and covariances (pairs) of letters at different
    sites.
    """
    indicators = np.hstack(
        [(rows[:, [i]] == np.array(levels)) for i, levels in enumerate(fit.labels.levels)]
    )
    indicators = indicators.astype(float)
    share = row_weights / row_weights.sum()
    single = share @ indicators
    covariance = (indicators * share[:, None]).T @ indicators - np.outer(single, single)
    site = np.repeat(np.arange(len(names)), [len(levels) for levels in fit.labels.levels])
    return single, covariance[site[:, None] < site]


family = statistics(alignment.to_numpy(), weights)
model = statistics(draws.to_numpy(), np.ones(len(draws)))
fig, axes = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
for ax, in_family, in_model, title in zip(
    axes, family, model, ("Letters", "Pairs of letters"), strict=True
):
    r = np.corrcoef(in_family, in_model)[0, 1]
    ends = [min(in_family.min(), in_model.min()), max(in_family.max(), in_model.max())]
    ax.plot(ends, ends, lw=0.8, color="0.6")
    ax.plot(in_family, in_model, ".", ms=3, rasterized=True)
    ax.set(
        xlabel="Alignment", ylabel="Sequences from the model", title=f"{title}: correlation {r:.2f}"
    )
plt.show()
folder.cleanup()

# %% [markdown]
# ## Large families
#
# `bbl.effective_weights` compares 100,000 sequences of 200 sites in about 15 seconds. For a fit of
# that size, use `precision="single"`, which halves the memory, and `tolerance=1e-4`; it takes two
# to three minutes on one core (see the page *Performance*). `method="shbm"` searches for
# interactions of three or more sites.
