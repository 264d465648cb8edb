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
# # From your own CSV to a decision
#
# Real tables contain numeric columns, dates, several codes for missing values, and rare levels.
# This page shows a complete analysis of such a table: reading the file, binning numeric columns,
# merging rare levels, tuning and evaluating a model, explaining predictions, making cost-sensitive
# decisions, saving the model, writing a report, and doing the same on the command line. Replace the
# file generated here with your own. The page "Your own table" of the user guide lists common
# problems and their solutions.

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
# The passengers' class, sex and survival are real Titanic data. Ages in years, fares, ports and
# dates are simulated for this page, so they contain no information about the real passengers.

# %%
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(1912)
people = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq").sample(
    frac=1, random_state=0, ignore_index=True
)
n = len(people)
child = people["Age"] == "Child"
crew = people["Class"] == "Crew"
people["Age"] = np.where(child, rng.integers(0, 13, n), rng.integers(15, 70, n))
level = people["Class"].map({"1st": 60.0, "2nd": 20.0, "3rd": 9.0, "Crew": 0.0}).to_numpy(float)
people["fare"] = (level * rng.lognormal(0.0, 0.4, n)).round(2).astype(str)
ports = ["Southampton", "Cherbourg", "Queenstown", "Belfast", "Glasgow", "Le Havre"]
people["port"] = rng.choice(ports, n, p=[0.7, 0.2, 0.09, 0.004, 0.003, 0.003])
booked = pd.Timestamp("1912-04-10") - pd.to_timedelta(rng.geometric(0.02, n), unit="D")
people["booked"] = booked.strftime("%Y-%m-%d")
people["ticket"] = [f"{number:06d}" for number in rng.permutation(n)]
for column, marker in [("Age", "?"), ("fare", "unknown"), ("port", "-"), ("booked", "n/a")]:
    people[column] = people[column].astype(object).mask(rng.random(n) < 0.04, marker)
people.to_csv(folder / "people.csv", index=False)
print((folder / "people.csv").read_text()[:430])

# %% [markdown]
# ## Read the file
#
# You need to specify which strings stand for missing values, and which columns are dates or codes.
# A ticket such as `000042` is an identifier, so read it as text. First, check how `read_csv` parsed
# the file.

# %%
markers = ["?", "-", "unknown", "n/a"]
table = pd.read_csv(
    folder / "people.csv", na_values=markers, parse_dates=["booked"], dtype={"ticket": str}
)
print(
    pd.DataFrame({"type": table.dtypes, "values": table.nunique(), "missing": table.isna().sum()})
)

# %% [markdown]
# A date cannot be used as a predictor, but you can derive predictors from it, such as the month,
# the weekday or the elapsed time. A full date, like a ticket number, has almost as many distinct
# values as there are rows. A model with such a predictor would memorise the rows, so `bbl` refuses
# it.

# %%
weeks = (pd.Timestamp("1912-04-10") - table["booked"]).dt.days // 7
table["weeks_ahead"] = weeks
try:
    bbl.bbl("Survived ~ ticket", table)
except bbl.BBLError as error:
    print(error)
table = table.drop(columns=["booked", "ticket"])

# %% [markdown]
# ## Hold out test rows
#
# From here on, everything, including the cut points, is chosen from the training rows only. Using
# the responses of the test rows would make the evaluation too optimistic.

# %%
test = np.random.default_rng(0).random(n) < 0.3
train = table[~test]
held_out = table[test]

# %% [markdown]
# ## Bin numeric columns and merge rare levels
#
# By default, `bin` cuts at quantiles. It can also form intervals of equal width, or, with `"mdl"`,
# choose the cuts that reduce the description length of the response (Fayyad and Irani 1993). `lump`
# merges levels that occur fewer than ten times.

# %%
ready = bbl.bin(train, "Age", method="width", bins=5)
ready = bbl.bin(ready, "fare", method="mdl", response="Survived")
ready = bbl.bin(ready, "weeks_ahead", bins=3)
ready = bbl.lump(ready, min_count=10, response="Survived")
for column in ("Age", "fare", "weeks_ahead", "port"):
    print(ready[column].value_counts(sort=False, dropna=False).to_string(), end="\n\n")

# %% [markdown]
# ## Fit and tune
#
# Rows with missing values are kept: missing predictors are marginalised (`missing="marginal"`). The
# penalty on the couplings is chosen by cross-validation within the fit. `fit.plot(kind="cv")` shows
# how strongly the loss depends on the penalty.

# %%
fit = bbl.bbl("Survived ~ .^2", ready, missing="marginal", lambda_="cv", lambdah=0.001)
ax = fit.plot(kind="cv")
plt.show()

# %% [markdown]
# Is this better than a simpler model? Compare candidates by cross-validation on the training rows.
# Use the test rows only for the final model.

# %%
formulas = {
    "alone": "Survived ~ .",
    "some pairs": "Survived ~ . + Class:Sex + Sex:Age",
    "all pairs": "Survived ~ .^2",
}
settings = {
    "missing": "marginal",
    "lambda_": fit.tuning.values[fit.tuning.chosen],
    "lambdah": 0.001,
}
scores = {}
for name, formula in formulas.items():
    cv = bbl.crossVal(formula, ready, **settings, shuffle=True, seed=1)
    scores[name] = cv.evaluate().scores["estimate"]
print(pd.DataFrame(scores).round(3))

# %% [markdown]
# ## Evaluate
#
# The model stores its intervals and rare levels, so the test rows can be passed as they were read,
# with raw numbers and previously unseen ports.

# %%
found = fit.evaluate(held_out)
print(found)

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4))
found.plot("confusion", ax=axes[0])
found.plot("roc", ax=axes[1])
fig.tight_layout()
plt.show()

# %% [markdown]
# Are the probabilities calibrated? Of the rows with a predicted probability of 70 %,
# about 70 % should be survivors.

# %%
ax = found.plot("calibration")
plt.show()

# %% [markdown]
# ## Importance of predictors, and explanation of a prediction
#
# The importance of a predictor is the increase in loss when it is unknown. The simulated columns
# should have an importance near zero.

# %%
importance = fit.importance(seed=1)
print(importance)

# %%
ax = fit.explain(held_out.head(1)).plot()
plt.show()

# %% [markdown]
# ## Make decisions
#
# A historian searches family archives for survivors. An unsuccessful search costs one day, and
# missing a survivor costs four days. `costs` is `{true: {predicted: cost}}`, and each row is
# assigned to the class with the lowest expected cost. The probabilities do not change, but the
# decisions do, and accuracy decreases because it is no longer the objective.

# %%
costs = {"Yes": {"No": 4}, "No": {"Yes": 1}}
decided = fit.evaluate(held_out, costs=costs)
print(decided.confusion, "\n")
print(decided.scores.loc[["accuracy", "cost"]].round(3), "\n")
plain = (found.confusion.loc["Yes", "No"] * 4 + found.confusion.loc["No", "Yes"]) / len(held_out)
print(f"Cost per row when predicting the more probable class: {plain:.3f}")

# %% [markdown]
# ## Save and report
#
# A model file includes the intervals, and loading it does not execute code. The report is a single
# HTML page with the summary, evaluation and figures, which opens in any browser.

# %%
fit.save(folder / "people.bbl")
fit.report(folder / "report.html", held_out)
again = bbl.load(folder / "people.bbl")
print(again.predict(held_out.head(3), type="prob", costs=costs).round(3))
print(f"{(folder / 'report.html').stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## The same on the command line
#
# ```bash
# python -m bbl "Survived ~ (Class + Sex + Age + fare + port)^2" train.csv \
#     --na "?" --na - --na unknown --na n/a --bin quantile:3 --lump 10 \
#     --missing marginal --lambda cv --lambdah 0.001 --save people.bbl --report report.html
# python -m bbl predict people.bbl new.csv --na "?" --na - --na unknown --na n/a > predicted.csv
# ```
#
# Here we run these two commands on files with the training and test rows:

# %%
every = pd.read_csv(folder / "people.csv", dtype=str, keep_default_na=False)
every[~test].to_csv(folder / "train.csv", index=False)
every[test].to_csv(folder / "new.csv", index=False)
gaps = [word for marker in markers for word in ("--na", marker)]
command = [
    "Survived ~ (Class + Sex + Age + fare + port)^2",
    "train.csv",
    *gaps,
    "--bin",
    "quantile:3",
    "--lump",
    "10",
]
command += ["--missing", "marginal", "--lambda", "cv", "--lambdah", "0.001", "--save", "shell.bbl"]
command += ["--report", "shell.html"]


def run(*arguments):
    """Run the command in the folder and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bbl", *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


print(run(*command)[:700])
print(run("predict", "shell.bbl", "new.csv", *gaps)[:200])
