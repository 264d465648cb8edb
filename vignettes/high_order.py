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
# # Sparse high-order Boltzmann machines: the tables of the paper
#
# Min, Ning, Cheng and Gerstein (2014, *Interpretable Sparse High-Order Boltzmann Machines*) compare
# classifiers (Table 1), rankings of interactions (Table 2), reconstructions of masked features
# (Table 3) and pseudo-likelihoods (Tables 4 and 5). Except for MNIST, their data are not public.
# This page follows their protocols with small data sets, so that it runs within a minute. Expect
# the same ranking of the methods, but not the same values.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import bbl

# %% [markdown]
# ## Table 1: classification with products of grey pixels
#
# The paper uses grey levels in [0, 1] as predictors, which `numeric=True` allows. Here we use the
# 1,797 digits included in scikit-learn. At this resolution, 0 and 6 can be separated without
# products, so we classify digits as even or odd instead. As in the paper, 20 % of the images are
# used for testing, and the penalties 3.5, 0.7 and 0.7 apply to the sum of the losses.

# %%
digits = load_digits()
pixels = digits.data[:, digits.data.std(axis=0) > 0.1] / 16
images = pd.DataFrame(pixels).add_prefix("p")
images["parity"] = np.where(digits.target % 2, "odd", "even")
rng = np.random.default_rng(1)
test = rng.permutation(len(images)) < len(images) // 5

rows = []
for order, penalties in ((1, 3.5), (2, (3.5, 0.7)), (3, (3.5, 0.7, 0.7))):
    fit = bbl.shooter(
        "parity ~ .",
        images[~test],
        order=order,
        lambda_=penalties,
        numeric=True,
        refit=False,
        novarOk=True,
        verbose=0,
    )
    name = "L1 logistic regression" if order == 1 else f"shooter, order {order}"
    rows.append((name, len(fit.chosen), 1 - fit.score(images[test])))
for name, model in (
    ("logistic regression", LogisticRegression(C=np.inf, max_iter=5000)),
    ("linear SVM", LinearSVC(C=1)),
):
    model.fit(pixels[~test], images["parity"][~test])
    rows.append((name, pixels.shape[1], 1 - model.score(pixels[test], images["parity"][test])))
table_1 = pd.DataFrame(rows, columns=["method", "terms", "test error"])
print(table_1.round(4).to_string(index=False))

# %% [markdown]
# On all 13,779 MNIST images of 0 and 6, with the same penalties, the test errors in a single run
# were 0.87 % at order 1, 0.33 % at order 2, 0.40 % at order 3, 1.27 % for logistic regression and
# 1.02 % for the linear SVM. The paper reports 1.1 % at order 1, 0.9 % at order 3, and 1.4 % for the
# other two methods.
#
# The paper's synthetic data are covered on the page *Interactions of order three among very many
# predictors*; for 200,000 predictors, see the time, memory and errors in
# `benchmarks/results/shooter_large.md`.
#
# ## Data with three-way interactions
#
# Instead of the paper's 116 transcription factors (TF), we simulate 24 features in six groups of
# four, each with one three-way and one two-way interaction, sampled exactly. To use your own table
# of genes and factors, put these files into the folder given by the environment variable
# `BBL_DATA`: `tf/binding.csv` with one column of 0 and 1 for each factor and one row for each gene,
# and `tf/known_pairs.csv` with two columns of factor names.

# %%
STATES = (np.arange(16)[:, None] >> np.arange(4)) & 1


def draw_features(n, rng):
    """Return n rows of 24 features, and the pairs that interact."""
    columns = []
    pairs = []
    for k in range(6):
        energy = -1.2 * STATES[:, :3].sum(axis=1) + (2 + 0.3 * k) * STATES[:, :3].prod(axis=1)
        energy = energy + (1.5 - 0.2 * k) * STATES[:, 2] * STATES[:, 3] - 0.5 * STATES[:, 3]
        p = np.exp(energy)
        columns.append(STATES[rng.choice(16, n, p=p / p.sum())])
        pairs += [(f"f{4 * k + i}", f"f{4 * k + j}") for i, j in ((0, 1), (0, 2), (1, 2), (2, 3))]
    return pd.DataFrame(np.concatenate(columns, axis=1)).add_prefix("f"), pairs


def read_factors(folder):
    """Return the rows and the known pairs of a folder, or None if it has no such files."""
    files = Path(folder, "tf", "binding.csv"), Path(folder, "tf", "known_pairs.csv")
    if not all(path.is_file() for path in files):
        return None
    pairs = pd.read_csv(files[1]).iloc[:, :2].astype(str)
    return pd.read_csv(files[0]), list(pairs.itertuples(index=False, name=None))


own = read_factors(os.environ["BBL_DATA"]) if "BBL_DATA" in os.environ else None
sample, known = own or draw_features(1500, rng)
shuffled = sample.iloc[rng.permutation(len(sample))]
held_out = shuffled.iloc[: len(sample) // 5]  # a fifth, as in the paper
train = shuffled.iloc[len(sample) // 5 :]

# %% [markdown]
# The paper compares four models: machines with terms up to order 3 (SHBM) or with pairs only (BM),
# with weights estimated by Gibbs sampling (GS, contrastive divergence) or by damped mean field
# (MF). We add the ranking by the regressions alone (the method *shooter* in the paper) and the
# package's default, joint pseudo-likelihood.

# %%
GIBBS = {"refit": "cd", "sweeps": 3, "n_iter": 300}
FIELD = {"refit": "mf", "damping": 0.2, "n_iter": 300}
SETTINGS = {
    "SHBM with GS": {"order": 3, **GIBBS},
    "SHBM with MF": {"order": 3, **FIELD},
    "shooter": {"order": 3, "combine": "max"},
    "BM with GS": {"order": 2, **GIBBS},
    "BM with MF": {"order": 2, **FIELD},
    "SHBM, pseudo-likelihood": {"order": 3},
}
fits = {
    name: bbl.bbl("~ .", train, method="shbm", log_z="half", verbose=0, **options)
    for name, options in SETTINGS.items()
}

# %% [markdown]
# ## Table 2 and Figures 1 to 3: known interactions among the top pairs
#
# With `n_universe=`, the expected number of known pairs is based on their proportion in a larger
# set of factors, as in the paper. The paper's Bayesian network (BN) was learnt with other software.
# This page uses the Chow-Liu tree, which is the maximum likelihood network with at most one parent
# per feature. `tan_cl` finds this network if every row occurs once in each of two classes, because
# the class is then uninformative.

# %%
twice = pd.concat([train.assign(copy=0), train.assign(copy=1)])
tree = bbl.networks.tan_cl("copy ~ .", twice)
arcs = [arc for arc in tree.arcs if "copy" not in arc]


def dependence(arc):
    """Return the mutual information of two features."""
    p = pd.crosstab(train[arc[0]], train[arc[1]], normalize=True).to_numpy()
    alone = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    return (p[p > 0] * np.log(p[p > 0] / alone[p > 0])).sum()


rankings = {name: fit.interactions(order=2, pvalues=None) for name, fit in fits.items()}
rankings["BN (tree)"] = sorted(arcs, key=dependence, reverse=True)
names = {name for pair in known for name in pair} | set(sample.columns)
tables = {
    name: bbl.enrichment(
        ranking, known, list(sample.columns), top=[10, 20], n_universe=len(names)
    ).table.set_index("top")["enrichment"]
    for name, ranking in rankings.items()
}
print(pd.DataFrame(tables).T.round(2).add_prefix("top "))

# %% [markdown]
# The paper draws three networks. Here we draw only the network found by the paper's own method
# (Figure 1). `plot_network` is available for the other fits too.

# %%
fits["SHBM with GS"].plot_network(top=30)
plt.show()

# %% [markdown]
# ## Table 4: pseudo-likelihood of the held-out rows
#
# We report the sum over all rows, as the paper does (`pnll` is the mean).

# %%
table_4 = pd.Series({name: fit.pnll(held_out) * len(held_out) for name, fit in fits.items()})
paper = {"SHBM with GS": 98290, "SHBM with MF": 118460, "BM with GS": 116070, "BM with MF": 114210}
print(pd.DataFrame({"pNLL": table_4, "paper, TF": paper}).loc[list(fits)].round(1))

# %% [markdown]
# ## Table 3: squared error of masked features
#
# In each held-out row, a given number of features is masked and imputed by their conditional
# probabilities given the other features. The error is the sum of squared differences over rows and
# masked features, averaged over 20 random sets of features, as in the paper (which masks 5, 10,
# ..., 30 of 116).


# %%
def reconstruction_error(fit, rows, count, repeats=20):
    """Return the mean squared error with `count` features masked."""
    draws = np.random.default_rng(count)
    mask = np.zeros((repeats, *rows.shape), dtype=bool)
    for masked in mask:
        masked[:, draws.choice(rows.shape[1], count, replace=False)] = True
    repeated = pd.concat([rows] * repeats)
    p = fit.reconstruct(repeated, mask.reshape(repeated.shape), verbose=0)
    squares = (p.xs(1, axis=1, level="level")[rows.columns] - repeated) ** 2
    return squares.to_numpy().sum() / repeats  # known features have no error


table_3 = pd.DataFrame(
    {
        f"{count} masked": {
            name: reconstruction_error(fit, held_out, count) for name, fit in fits.items()
        }
        for count in (5, 10, 15)
    }
)
print(table_3.round(1))

# %% [markdown]
# ## Table 5: hierarchical log-linear models
#
# The paper compares SHBM with the hierarchical log-linear models (HLLM) of Schmidt and Murphy
# (2010) on 1,000 rows of 10 features, and reports negative log pseudo-likelihoods of 2329.39 and
# 2334.81, respectively. Their software selects terms by a group penalty. The closest equivalent
# here is `bbl.step`, which adds or drops one term at a time by BIC, respects the hierarchy of
# terms, and fits each model by exact likelihood.

# %%
ten = sample.columns[:10]
small = train[ten].head(1000)
log_linear = bbl.step(bbl.bbl("~ .", small, method="ml", verbose=0), k="bic", verbose=0).fit
machine = bbl.bbl("~ .", small, method="shbm", log_z="half", verbose=0, **SETTINGS["SHBM with GS"])
table_5 = {"SHBM with GS": machine, "hierarchical, stepwise": log_linear}
for name, fit in table_5.items():
    print(f"{name:24} pNLL {fit.pnll(held_out[ten]) * len(held_out):.2f}")
