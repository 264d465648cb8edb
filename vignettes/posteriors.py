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
# # Titanic: estimates, intervals and posteriors side by side
#
# This page fits the Titanic data by several methods of the package and compares their estimates and
# uncertainties for the interactions of class, sex and age, among survivors and among those who
# died.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

pd.options.display.width = 120
titanic = bbl.datasets.load_titanic()
FORMULA = "Survived ~ Class * Sex + Sex * Age"

# %% [markdown]
# ## Fits
#
# Sandwich standard errors are available for pseudo-likelihood, but not for mean field. The
# posterior is computed in three ways: with the exact likelihood (there are only 16 states, so ln Z
# is a short sum); by the exchange algorithm, which never computes ln Z; and with the
# pseudo-likelihood instead of the likelihood, with and without adjustment. The last two fits have a
# horseshoe prior, which shrinks couplings with little support in the data to zero. One uses MCMC;
# the other uses persistent variational inference, which does not need ln Z and approximates the
# posterior by independent normal distributions.

# %%
common = {"testNull": False, "verbose": 0, "seed": 1}
methods = {
    "pseudo": {"method": "pseudo", "lambda_": 1e-3},
    "mean field": {"method": "mf", "eps": 0.9},
    "exact": {"method": "bayes"},
    "exchange": {"method": "bayes", "sampler": "exchange"},
    "pseudo-posterior": {"method": "bayes", "sampler": "pseudo"},
    "not adjusted": {"method": "bayes", "sampler": "pseudo", "adjust": False},
    "horseshoe": {"method": "bayes", "prior": "horseshoe"},
    "variational": {"method": "pvi", "n_iter": 2000},
}
fits = {
    name: bbl.bbl(FORMULA, titanic, weights="Freq", **options, **common)
    for name, options in methods.items()
}
exact = fits["exact"]
print(exact.posterior)
print(exact.posterior.summary().drop(columns=["mcse", "ess_tail"]).round(3).to_string(index=False))

# %% [markdown]
# ## Estimates and intervals
#
# The tables and the figure show the couplings among survivors, with 95 % intervals from sandwich
# standard errors or from posterior draws. Without adjustment, the intervals of the pseudo-posterior
# are too narrow, because it counts each coupling twice. The variational intervals are close to the
# MCMC intervals under the same prior, but narrower for the coupling that the prior shrinks to zero.


# %%
def couplings(fit, group="Yes"):
    """Return the couplings of a group, with confidence limits."""
    try:
        table = fit.inference().table()
    except bbl.errors.OptionError:  # mean field has no intervals
        table = fit.tidy().assign(lower=np.nan, upper=np.nan)
    own = table[(table["group"] == group) & (table["term"] == "J")]
    names = [f"{r.predictor}[{r.level}] : {r.predictor2}[{r.level2}]" for r in own.itertuples()]
    return own[["estimate", "lower", "upper"]].set_axis(pd.Index(names, name="coupling"))


tables = pd.concat({name: couplings(fit) for name, fit in fits.items()}, axis=1)
print(tables.xs("estimate", axis=1, level=1).round(2).to_string())
widths = {
    name: tables[name]["upper"] - tables[name]["lower"] for name in fits if name != "mean field"
}
print(pd.DataFrame(widths).round(2).to_string())

# %%
fig, ax = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
at = np.arange(len(tables))
for k, (name, shift) in enumerate(zip(fits, np.linspace(-0.33, 0.33, len(fits)), strict=True)):
    own = tables[name]
    ax.hlines(at + shift, own["lower"], own["upper"], color=f"C{k}", linewidth=1.5)
    ax.plot(own["estimate"], at + shift, "o", color=f"C{k}", markersize=5, label=name)
ax.set_yticks(at, tables.index)
ax.invert_yaxis()
ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
ax.set_xlabel("Coupling among survivors, with 95 % interval")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# The crew included no children and very few women, so the prior determines how large these
# couplings can become. Only four first-class women died, so the couplings of class and sex among
# those who died are uncertain, and their posterior is skewed.

# %%
exact.posterior.plot("forest")
plt.show()

# %% [markdown]
# ## Have the chains mixed?
#
# The exchange algorithm takes smaller steps than the no-U-turn sampler, so its effective sample
# size is smaller, but R-hat and the rank histograms show that its chains agree.

# %%
for name in ("exact", "exchange", "horseshoe"):
    summary = fits[name].posterior.summary()
    print(
        f"{name:10} largest R-hat {summary['rhat'].max():.3f}, smallest bulk-ESS "
        f"{summary['ess_bulk'].min():.0f}"
    )
fits["exchange"].posterior.plot("rank", top=6)
plt.show()

# %% [markdown]
# ## Predictions
#
# Predicted probabilities are averaged over draws. With 2,201 passengers, the result is close to a
# prediction from the posterior mean. The difference matters in small samples: in a fit to 5 % of
# the passengers, averaged probabilities are less extreme.

# %%
frame = titanic.drop_duplicates(["Class", "Sex", "Age"])[["Class", "Sex", "Age"]]
few = titanic.assign(Freq=np.rint(titanic["Freq"] / 20).astype(int))
small = bbl.bbl(FORMULA, few, weights="Freq", method="bayes", **common)
compared = frame.assign(
    all_rows=exact.predict(frame, type="prob")["Yes"],
    all_rows_mean=exact.predict(frame, type="prob", draws="mean")["Yes"],
    few_rows=small.predict(frame, type="prob")["Yes"],
    few_rows_mean=small.predict(frame, type="prob", draws="mean")["Yes"],
)
print(compared.round(3).to_string(index=False))
