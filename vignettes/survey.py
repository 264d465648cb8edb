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
# # A survey from file to sentence
#
# A survey in five regions asked people whether they were considering moving away. The file contains
# weights, strata, sampling points, five-point agreement scales and missing values. The report needs
# one sentence that states by how many percentage points renting changes the probability of moving,
# and how uncertain this estimate is. This page shows all steps from the file to that sentence:
# reading the data, building a scale from items, declaring the sampling design, fitting a model,
# evaluating it on people from other places, estimating effects with intervals, and writing the
# report.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

pd.options.display.width = 120

# %% [markdown]
# ## The data file
#
# The data are simulated, so the true effects are known: tenants are more likely to move, in some
# places more than in others; satisfied and older people are less likely to; and loneliness matters
# only for owners. People from the same sampling point are similar. Two regions were oversampled,
# and the weights compensate for this.

# %%
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(15)
regions = {
    "North": (40, 0.6),
    "South": (40, 0.6),
    "East": (25, 1.4),
    "West": (25, 1.4),
    "Islands": (12, 1.0),
}
region = np.repeat(list(regions), [points for points, _ in regions.values()])  # of each point
asked = 15  # respondents at each of them
point = np.repeat(np.arange(len(region)), asked)
n = len(point)
scale = ["Strongly disagree", "Disagree", "Neither", "Agree", "Strongly agree"]


def yes(log_odds):
    """Draw answers."""
    return rng.random(n) < 1 / (1 + np.exp(-log_odds))


def of_point(spread):
    """Draw the random effects of sampling points."""
    return rng.normal(0, spread, len(region))[point]


age = rng.integers(18, 90, n)
rent = yes(-0.3 + of_point(1.0) - 0.02 * (age - 50))
content = rng.normal(size=n) + of_point(0.6)
lonely = yes(-1.2 - 0.4 * content)
place = of_point(0.7)
of_rent = 1.2 + of_point(0.9)


def log_odds(rent):
    """Return everyone's log-odds of moving, as tenants or as owners."""
    return -1.4 + place + of_rent * rent - 0.9 * content + 0.8 * (age < 35) + 1.2 * (lonely & ~rent)


people = pd.DataFrame(
    {
        "id": np.arange(100_000, 100_000 + n),
        "region": region[point],
        "point": point % 40,  # numbering restarts in each region
        "weight": [regions[name][1] for name in region[point]] * rng.lognormal(0, 0.3, n),
        "Q1. How old are you?": age,
        "Q7. Do you own or rent your home?": np.where(rent, "Rent", "Own"),
        "Q9. Do you often feel lonely?": np.where(lonely, "Yes", "No"),
    }
)
items = {
    "I trust my neighbours": 1,
    "I feel safe here": 1,
    "Everything is too dear": -1,
    "The council listens": 1,
}
for number, (text, sign) in enumerate(items.items(), start=1):
    cut = np.digitize(sign * content + rng.normal(0, 0.8, n), [-1.5, -0.5, 0.5, 1.5])
    people[f"Q8_{number}. {text}"] = np.array(scale)[cut]
answer = np.where(rng.random(n) < 0.06, "Don't know", np.where(yes(log_odds(rent)), "Yes", "No"))
people["Q15. Do you consider moving away within a year?"] = answer
for column in people.columns[4:]:
    people[column] = (
        people[column].astype(object).mask(rng.random(n) < 0.04, rng.choice(["", "NA", "-"], n))
    )
people.to_csv(folder / "survey.csv", index=False)
print((folder / "survey.csv").read_text()[:620])

# %% [markdown]
# ## Read the file
#
# List the strings that stand for missing values; `read_csv` already recognises `""` and `NA`. The
# full questions are too long to be used as names in a formula, so we give the columns short names
# and keep the questions in a dictionary.

# %%
table = pd.read_csv(folder / "survey.csv", na_values=["-"])
short = {name: name.split(".")[0] for name in table.columns if name.startswith("Q")}
table = table.rename(columns=short).rename(
    columns={"Q1": "age", "Q7": "home", "Q9": "lonely", "Q15": "moving"}
)
print(table.isna().sum().to_string())

# %% [markdown]
# ## Build a scale from items
#
# Four statements form one scale, and one of them is reverse-coded. We average the answered items
# and cut the mean into thirds. `bbl.bin` accepts the weights, so each third contains the same
# number of people in the population, but not in the file.

# %%
signs = pd.Series(list(items.values()), index=[f"Q8_{number}" for number in range(1, 5)])
scores = (
    table[signs.index].apply(lambda item: item.map({text: k - 2 for k, text in enumerate(scale)}))
    * signs
)
print(scores.corr().round(2))
table["content"] = scores.mean(axis=1)
table = bbl.bin(table.drop(columns=signs.index), "content", bins=3, weights="weight")
table["age"] = pd.cut(table["age"], [17, 34, 59, 90], labels=["18-34", "35-59", "60+"])
# The first level is the reference level.
table["home"] = pd.Categorical(table["home"], ["Own", "Rent"], ordered=True)
print(table.groupby("content", observed=True)["weight"].sum().round(0))

# %% [markdown]
# ## The sampling design
#
# `bbl.survey` declares the columns with weights, strata and clusters. People who answered "don't
# know" are neither movers nor stayers: the analysis concerns the others, who form a *domain* of the
# population. Subsetting the table would give the same estimates, but would lose the sampling points
# without such people and therefore underestimate the standard errors.

# %%
table["has_view"] = table["moving"].isin(["Yes", "No"])
design = bbl.survey("weight", strata="region", cluster="point", domain="has_view")
formula = "moving ~ (home + lonely + age + content)^2"
fit = bbl.bbl(formula, table, design=design, method="ml", missing="marginal")
print(fit.survey.text)

# %% [markdown]
# If the design is inconsistent, an error is raised, and its message suggests a solution. Here the
# numbering of sampling points restarts in each region, which is the default assumption, so
# `nested=False` is inconsistent:

# %%
try:
    bbl.bbl(
        formula, table, design=bbl.survey("weight", strata="region", cluster="point", nested=False)
    )
except bbl.BBLError as error:
    print(error)

# %% [markdown]
# To see how much the sampling points matter, we repeat the fit as if each row had been sampled
# independently:

# %%
single = bbl.bbl(
    formula, table, design=bbl.survey("weight", domain="has_view"), method="ml", missing="marginal"
)
errors = pd.DataFrame({"clusters": fit.bse["Yes"], "single rows": single.bse["Yes"]})
print(errors.assign(ratio=errors["clusters"] / errors["single rows"]).head(8).round(3))

# %% [markdown]
# ## Which interactions
#
# Joint tests account for the design too (Rao and Scott 1984); `of=` selects the difference between
# movers and stayers. The interaction of renting and loneliness differs most between movers and
# stayers, as in the simulated population.

# %%
tests = fit.inference().tests(of=("Yes", "No")).sort_values("p")
print(tests.head(6)[["predictor", "predictor2", "chisq", "df", "p", "p_holm"]].round(4))

# %% [markdown]
# ## Evaluate
#
# People from a place in the training data are easier to predict than people from a new place. With
# a design, folds consist of whole sampling points, assigned within regions, so these scores apply
# to new places.

# %%
settings = {"method": "ml", "missing": "marginal", "nfold": 5, "seed": 1, "verbose": 0}
by_point = bbl.crossVal(formula, table, design=design, shuffle=True, **settings)
print(by_point.evaluate().scores.loc[["log-loss", "accuracy", "AUC"]].round(3))

# %% [markdown]
# ## Effects
#
# `home` is set to *Own* and then to *Rent* in every row, with all other predictors unchanged, and
# the two weighted average probabilities are compared. Standard errors are design-based.

# %%
effects = fit.avg_comparisons("home")
print(effects)

# %%
by_loneliness = fit.avg_comparisons("home", by="lonely").frame.query("group == 'Yes'")
print(
    by_loneliness[["lonely", "contrast", "estimate", "std_error", "conf_low", "conf_high"]].round(3)
)

# %%
axes = fit.avg_comparisons(contrast="reference").plot()
plt.show()

# %% [markdown]
# ## The sentence

# %%
row = effects.frame.query("group == 'Yes'").iloc[0]
low, point_estimate, high = (100 * row[name] for name in ("conf_low", "estimate", "conf_high"))
print(
    "At the same age, contentment and loneliness, tenants are more likely to move than owners, by "
    f"{point_estimate:.0f} percentage points (95 % interval {low:.0f} to {high:.0f}; "
    f"{len(fit.survey.rows):,} people from {len(np.unique(fit.survey.clusters))} sampling points "
    f"in {len(regions)} regions)."
)

# %% [markdown]
# Since the survey is simulated, we can compute the true value: the average answer of
# the same people if all rented, minus their average answer if all owned.

# %%
chances = [
    1 / (1 + np.exp(-log_odds(np.full(n, everybody_rents)))) for everybody_rents in (True, False)
]
print(f"{100 * np.average(chances[0] - chances[1], weights=people['weight']):.1f} points")

# %% [markdown]
# Ignoring the sampling points would overstate the precision:

# %%
alone = single.avg_comparisons("home").frame.query("group == 'Yes'").iloc[0]
print(
    f"ignoring the sampling points: {100 * alone['conf_low']:.1f} to "
    f"{100 * alone['conf_high']:.1f} points"
)
print(f"with sampling points: {low:.1f} to {high:.1f} points")

# %% [markdown]
# ## Save and report
#
# The report is a single page with the summary, tests and effects. A model saved with its data can
# compute the same effects later, also on the command line:
#
# ```bash
# python -m bbl effects survey.bbl --variables home
# ```

# %%
fit.report(folder / "report.html")
fit.save(folder / "survey.bbl", store_data=True)
command = [sys.executable, "-m", "bbl", "effects", "survey.bbl", "--variables", "home"]
done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
assert done.returncode == 0, done.stderr
print(done.stdout)
print(f"{(folder / 'report.html').stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## References
#
# Lumley T (2010). Complex Surveys: A Guide to Analysis Using R. Wiley.
#
# Rao JNK, Scott AJ (1984). On chi-squared tests for multiway contingency tables with cell
# proportions estimated from survey data. The Annals of Statistics 12, 46-60.
