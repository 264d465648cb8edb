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
# # Bayesian network classifiers, section by section
#
# Mihaljević, Bielza and Larrañaga describe the methods of the R package bnclassify in a
# four-section document: structures, parameters, model averaging and weights, and prediction. This
# page works through the sections with the Titanic passengers and splice sites, and checks each
# formula against the package's results.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import gammaln

import bbl

titanic = bbl.datasets.load_titanic()
passengers = {"weights": "Freq"}

# %% [markdown]
# ## Structure learning
#
# Chow and Liu's algorithm gives the tree-augmented naive Bayes with maximum likelihood. The weight
# of a pair of features is their conditional mutual information given the class; AIC and BIC
# subtract a penalty for the parameters, so an arc may be left out.

# %%
tree = bbl.networks.tan_cl("Survived ~ .", titanic, root="Class", **passengers)
print(tree.modelstring)
pairs = [("Class", "Sex"), ("Class", "Age"), ("Sex", "Age")]
for a, b in pairs:
    print(
        f"I({a}; {b} | Survived) = {bbl.networks.cmi(a, b, titanic, 'Survived', **passengers):.4f}"
    )

# %%
ax = tree.plot()
ax.set_title("Tree-augmented naive Bayes")
plt.show()

# %% [markdown]
# Maximum likelihood always gives a full tree. To see which arcs a penalty removes, we take splice
# sites of eight letters (the fourth is always G and is dropped, as are the counts), and an equal
# number of controls made by shuffling each position separately. The two classes differ only in the
# associations between letters, which naive Bayes ignores. AIC keeps a full tree here; BIC, with its
# larger penalty, keeps a single arc.

# %%
sites = bbl.removeConst(bbl.datasets.load_splice_sites().drop(columns="count"))
sites = sites.sample(2000, random_state=1).reset_index(drop=True)
rng = np.random.default_rng(1)
control = sites.apply(lambda column: rng.permutation(column))
splice = pd.concat([sites.assign(kind="site"), control.assign(kind="control")], ignore_index=True)
class_ = "kind"
for score in ("loglik", "aic", "bic"):
    found = bbl.networks.tan_cl(class_, splice, score)
    print(
        f"{score:7} {len(found.features)} features, {found.narcs - len(found.features)} arcs among "
        "them"
    )

# %% [markdown]
# Greedy learners maximise cross-validated accuracy by hill climbing, and store their history.

# %%
for learner in (
    bbl.networks.tan_hc,
    bbl.networks.tan_hcsp,
    bbl.networks.fssj,
    bbl.networks.bsej,
    bbl.networks.kdb,
):
    found = learner("Survived ~ .", titanic, k=5, epsilon=0.001, smooth=1, seed=1, **passengers)
    log = ", ".join(f"{s:.4f}" for s in found.score_log)
    print(f"{learner.__name__:9} {found.modelstring}  ({log})")

# %% [markdown]
# ## Parameters
#
# All tables are Dirichlet estimates with one prior count,
# $\theta_{ijk} = (N_{ijk} + \alpha) / (N_{ij} + r_i \alpha)$ (eq. 3.1). With missing cells,
# $N_{ij}$ counts the rows where the feature and all its parents are observed.

# %%
smooth = 1
fit = bbl.networks.lp(tree, titanic, smooth=smooth, **passengers)
counts = titanic.groupby(["Class", "Survived", "Sex"], observed=False)["Freq"].sum().unstack("Sex")
by_hand = (counts + smooth).div(counts.sum(axis=1) + 2 * smooth, axis=0)
table = fit.params["Sex"]
assert np.allclose(table, by_hand.loc[table.index, table.columns], atol=1e-15)
print(pd.concat({"probability": table, "standard error": fit.params_se["Sex"]}, axis=1).round(4))

# %%
ax = fit.plot("Sex")
ax.set_title("Sex, by class and survival")
plt.show()

# %% [markdown]
# ## Averaging over subsets of features
#
# MANB averages naive Bayes over all $2^n$ subsets of its features. The evidence with the arc from
# the class is a product over classes; without the arc, all rows are pooled. (The document has the
# two formulas swapped.)

# %%
prior = 0.1
manb = bbl.networks.bnc("nb", "Survived ~ .", titanic, smooth, manb_prior=prior, **passengers)


def evidence(n):
    """Return the log of the Dirichlet-multinomial probability of counts, for each row of them."""
    r = n.shape[1]
    return gammaln(r) - gammaln(n.sum(axis=1) + r) + gammaln(n + 1).sum(axis=1)


for feature in ("Class", "Sex", "Age"):
    n = (
        titanic.groupby(["Survived", feature], observed=False)["Freq"]
        .sum()
        .unstack()
        .to_numpy(float)
    )
    log_odds = (
        evidence(n).sum() - evidence(n.sum(axis=0, keepdims=True))[0] + np.log(prior / (1 - prior))
    )
    posterior = 1 / (1 + np.exp(-log_odds))
    assert np.isclose(manb.manb_arc_posterior[feature], posterior, rtol=1e-9)
print(manb.manb_arc_posterior)

# %% [markdown]
# ## Weights
#
# WANBIA and AWNB raise the table of each feature to a weight in $[0, 1]$ and normalise it again.
# WANBIA maximises the conditional likelihood over the weights, so plain naive Bayes cannot have a
# higher conditional likelihood; AWNB derives the weights from the depth at which decision trees
# split on the feature.

# %%
plain = bbl.networks.bnc("nb", "Survived ~ .", titanic, 1, **passengers)
wanbia = bbl.networks.bnc("nb", "Survived ~ .", titanic, 1, wanbia=True, **passengers)
awnb = bbl.networks.bnc(
    "nb", "Survived ~ .", titanic, 1, awnb_trees=10, awnb_bootstrap=0.5, **passengers
)
for name, fitted in (("plain", plain), ("WANBIA", wanbia), ("AWNB", awnb)):
    print(f"{name:7} conditional log-likelihood {fitted.cLogLik():.2f}")
assert wanbia.cLogLik() >= plain.cLogLik()
print(pd.DataFrame({"WANBIA": wanbia.wanbia_weights, "AWNB": awnb.awnb_weights}).round(3))

# %% [markdown]
# Normalised and unnormalised powers give different results. With probabilities (0.9, 0.1) and (0.5,
# 0.5) and a weight of 0.5, the likelihood ratio is 1.5 with normalisation and 1.342 without; this
# package normalises, as bnclassify does.

# %%
a = np.array([0.9, 0.1]) ** 0.5
b = np.array([0.5, 0.5]) ** 0.5
print(round((a / a.sum() / (b / b.sum()))[0], 3), round((a / b)[0], 3))

# %% [markdown]
# ## Prediction
#
# For complete rows, the table entries are multiplied. Missing features are marginalised exactly, as
# a comparison with the explicit sum shows:

# %%
rows = pd.DataFrame({"Class": ["1st", "3rd"], "Sex": [None, "Female"], "Age": ["Adult", None]})
print(fit.predict(rows).round(4))
joint = np.zeros(2)
for sex in ("Male", "Female"):
    p = fit.params
    for k, fate in enumerate(fit.classes):
        joint[k] += (
            p["Survived"][fate].iloc[0]
            * p["Class"].loc[fate, "1st"]
            * p["Sex"].loc[("1st", fate), sex]
            * p["Age"].loc[("1st", fate), "Adult"]
        )
assert np.allclose(fit.predict(rows).iloc[0, :2].astype(float), joint / joint.sum(), atol=1e-15)

# %% [markdown]
# Finally we compare all classifiers on the same folds. Naive Bayes is no better than
# chance; the other classifiers use the associations between letters.

# %%
models = [bbl.networks.bnc(name, class_, splice, 1) for name in ("nb", "tan_cl", "aode")]
scores = {
    s: bbl.networks.cv({m.learner: m for m in models}, splice, k=5, score=s)
    for s in ("accuracy", "logloss")
}
print(pd.DataFrame(scores).round(4))
