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
# # From discriminant analysis to Boltzmann Bayes
#
# A lesson with exercises at the end. Part 1 takes 45 minutes, and both parts take two hours.
#
# Linear discriminant analysis (LDA), naive Bayes, Boltzmann Bayes and logistic regression all
# estimate $P(y|x)$. They differ in their assumptions. Part 1 introduces the classifiers for numeric
# predictors, then for categorical predictors, and compares them on data with both. Part 2 uses
# simulated data where the assumptions make a difference.
#
# | classifier | models | assumption | log-odds of two groups |
# | --- | --- | --- | --- |
# | LDA | $P(x \mid y)$ | normal predictors, the same covariance in all groups | sum over predictors |
# | quadratic discriminant analysis (QDA) | $P(x \mid y)$ | normal predictors, a covariance for each group | sum over predictors and pairs |
# | naive Bayes | $P(x \mid y)$ | predictors independent within each group | sum over predictors |
# | Boltzmann Bayes | $P(x \mid y)$ | only pairs of predictors interact within groups | sum over predictors and pairs |
# | logistic regression | $P(y \mid x)$ | the log-odds are a sum over predictors | the same sum, fitted directly |
# | the same with all pairs | $P(y \mid x)$ | the log-odds are a sum over pairs | the same sum, fitted directly |
#
# The last column is the key difference. LDA, naive Bayes and logistic regression can only weight
# predictors individually. If two groups differ only in *how predictors are associated*, these
# methods cannot distinguish them, regardless of sample size. For categorical predictors, Boltzmann
# Bayes plays the role that QDA plays for numeric ones: each group has its own couplings.

# %%
import itertools
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import bbl

# %% [markdown]
# ## Part 1: numeric predictors
#
# Fisher (1936) analysed measurements of 150 irises of three species. Can the species of a flower be
# predicted from its petals?

# %%
iris = load_iris(as_frame=True)
flowers = iris.data.rename(columns=lambda name: name.removesuffix(" (cm)").replace(" ", "_"))
flowers["species"] = iris.target_names[iris.target]
print(flowers.groupby("species").mean())

# %% [markdown]
# ### One predictor
#
# Suppose that the length of the petals is normally distributed in each species, with the same
# variance in all species. This is LDA with a single predictor:

# %%
length = bbl.bbl("species ~ petal_length", flowers, numeric=True, covariance="shared")
print(length.means().round(3))
print(length.covariances("setosa").round(4))

# %% [markdown]
# Suppose that a petal is 5 cm long. Its density given each species is proportional to
# $\exp(-(5 - \mu_y)^2 / 2 \sigma^2)$, which is $\exp(-0.74^2 / 0.3704) = 0.228$ for versicolor,
# $\exp(-0.552^2 / 0.3704) = 0.439$ for virginica, and practically 0 for setosa. The species are
# equally frequent, so Bayes' rule gives virginica the probability
# $0.439 / (0.228 + 0.439) = 0.658$:

# %%
print(length.predict({"petal_length": [5.0]}, type="prob").round(3))

# %% [markdown]
# ### Several predictors: lines and curves
#
# `species ~ .^2` uses all four measurements, and each pair of them may be correlated. If all groups
# share one covariance matrix, the boundary between two groups is a line (**linear discriminant
# analysis**). If each group has its own covariance matrix, the boundary is a quadratic curve
# (**quadratic discriminant analysis**). Without pairs, the measurements are independent within each
# group (**Gaussian naive Bayes**).

# %%
NORMAL = {
    "LDA": ("species ~ petal_length*petal_width", {"covariance": "shared"}),
    "QDA": ("species ~ petal_length*petal_width", {}),
    "Gaussian naive Bayes": ("species ~ petal_length + petal_width", {}),
}
fig, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for ax, (name, (formula, options)) in zip(axes, NORMAL.items(), strict=True):
    bbl.bbl(formula, flowers, numeric=True, **options).plot_regions(
        "petal_length", "petal_width", ax=ax
    )
    ax.set_title(name)
plt.show()

# %% [markdown]
# An ellipse contains 95 % of a group's distribution. With LDA, the ellipses have the same shape in
# all groups, whereas with QDA each has its own shape. With naive Bayes, their axes are parallel to
# the axes of the figure.
#
# Do the groups have a common covariance matrix? Box's M test says no. Nevertheless, LDA predicts
# new flowers as well as QDA, because it has 22 parameters instead of 42:

# %%
lda = bbl.bbl("species ~ .^2", flowers, numeric=True, covariance="shared")
qda = bbl.bbl("species ~ .^2", flowers, numeric=True)
print(bbl.anova(lda, qda))
folds = {"nfold": 10, "shuffle": True, "seed": 1}
for name, options in {"LDA": {"covariance": "shared"}, "QDA": {}}.items():
    found = bbl.crossVal("species ~ .^2", flowers, numeric=True, **folds, **options).evaluate()
    print(f"\n{name}\n{found.scores.round(3).to_string()}")

# %% [markdown]
# ### Axes that separate the groups
#
# The **linear discriminants** are the weighted sums of the measurements with the largest variance
# between groups relative to the variance within groups. Three groups need only two axes, and the
# first axis accounts for nearly all of the variance between the groups:

# %%
print(lda.discriminants().round(3))
lda.plot_discriminants()
plt.show()

# %% [markdown]
# ## Part 1: Bayes' rule with categorical predictors
#
# For categorical predictors, level frequencies replace the normal densities.
#
# Of 100 patients, 20 have the flu and 80 have a cold. Of these, 18 patients with the flu and 16
# with a cold have a fever. A patient comes in with a fever. Of the $18 + 16 = 34$ patients with a
# fever, 18 have the flu, so
#
# $$P(\mathrm{flu} \mid \mathrm{fever}) = \frac{P(\mathrm{flu})\,P(\mathrm{fever} \mid \mathrm{flu})}
# {P(\mathrm{flu})\,P(\mathrm{fever} \mid \mathrm{flu}) + P(\mathrm{cold})\,P(\mathrm{fever} \mid
# \mathrm{cold})} = \frac{0.2 \cdot 0.9}{0.2 \cdot 0.9 + 0.8 \cdot 0.2} = 0.529.$$
#
# Naive Bayes and Boltzmann Bayes perform this calculation. They differ in how they estimate
# $P(x \mid y)$ when $x$ has more than one predictor. With one predictor they agree:

# %%
patients = pd.DataFrame(
    {
        "illness": ["flu", "flu", "cold", "cold"],
        "fever": ["yes", "no", "yes", "no"],
        "patients": [18, 2, 16, 64],
    }
)
clinic = bbl.bbl("illness ~ fever", patients, weights="patients", method="naive", prior_count=0)
print(clinic.predict({"fever": ["yes", "no"]}, type="prob").round(3))

# %% [markdown]
# In an epidemic, half of the patients have the flu. The likelihood of a fever given each illness
# has not changed, but the prior has: $0.5 \cdot 0.9 / (0.5 \cdot 0.9 + 0.5 \cdot 0.2) = 0.818$. No
# refit is needed:

# %%
print(clinic.predict({"fever": ["yes"]}, type="prob", priors={"flu": 0.5, "cold": 0.5}).round(3))

# %% [markdown]
# ## Part 1: numeric and categorical predictors together
#
# Who survived the Titanic? Class and sex are categorical, and age is numeric. LDA treats categories
# as 0/1 columns and assumes that they are normally distributed (`bbl` warns about this). Naive
# Bayes uses the frequencies of levels and a normal distribution of age in each group. Boltzmann
# Bayes adds the pairs: class and sex are associated within groups, and the mean of age depends on
# both.


# %%
passengers = bbl.datasets.load_titanic_passengers()
known = passengers.dropna()
columns = pd.get_dummies(known, columns=["Class", "Sex"], drop_first=True, dtype=float)
columns.columns = [name.replace(" ", "_") for name in columns]
SHIP = {
    "LDA on 0/1 columns": ("Survived ~ .^2", columns, {"numeric": True, "covariance": "shared"}),
    "naive Bayes": ("Survived ~ .", known, {"numeric": "Age", "method": "naive"}),
    "Boltzmann Bayes": ("Survived ~ .^2", known, {"numeric": "Age", "method": "ml"}),
}
fits = {}
losses = {}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", bbl.DataWarning)
    for name, (formula, data, options) in SHIP.items():
        fits[name] = bbl.bbl(formula, data, **options)
        losses[name] = bbl.crossVal(formula, data, **folds, **options).evaluate().scores
print(pd.concat(losses).xs("log-loss", level=1).round(3))

# %% [markdown]
# In the figure below, lines show the predicted probabilities of survival, and points show the
# proportions of survivors in groups of at least eight passengers of similar age. LDA and naive
# Bayes add up the effects of sex and class. In fact, the advantage of women was smaller in the
# third class, and all boys in the second class survived. Boltzmann Bayes describes both better, but
# as long as age is normally distributed within the groups, the predicted probability for these boys
# cannot be close to 1.

# %%
ages = np.linspace(1, 65, 65)
COLOURS = {"LDA on 0/1 columns": "#E69F00", "naive Bayes": "#0072B2", "Boltzmann Bayes": "#D55E00"}
fig, axes = plt.subplots(2, 3, figsize=(10.5, 5.6), layout="constrained", sharex=True, sharey=True)
panels = itertools.product(["Female", "Male"], ["1st", "2nd", "3rd"])
for (sex, level), ax in zip(panels, axes.flat, strict=True):
    new = pd.DataFrame({"Class": level, "Sex": sex, "Age": ages})
    indicators = pd.DataFrame(
        {
            "Age": ages,
            "Class_2nd": float(level == "2nd"),
            "Class_3rd": float(level == "3rd"),
            "Sex_Male": float(sex == "Male"),
        }
    )
    for name, fit in fits.items():
        rows = indicators if name.startswith("LDA") else new
        ax.plot(ages, fit.predict(rows, type="prob")["Yes"], color=COLOURS[name], label=name)
    own = known[(known["Class"] == level) & (known["Sex"] == sex)]
    bands = own.groupby(pd.cut(own["Age"], [0, 12, 20, 30, 40, 50, 65]), observed=True)
    for _, band in bands:
        if len(band) >= 8:
            ax.plot(band["Age"].mean(), (band["Survived"] == "Yes").mean(), "o", color="0.35")
    ax.set_title(f"{sex}, {level} class", fontsize="medium")
    ax.set_ylim(-0.02, 1.02)
    ax.spines[["top", "right"]].set_visible(False)
for ax in axes[1]:
    ax.set_xlabel("Age")
fig.supylabel("Probability of survival", fontsize="medium")
fig.legend(
    *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
)
plt.show()

# %% [markdown]
# The age of 263 passengers is unknown. With `missing="marginal"`, the model averages over it
# exactly, given class and sex:

# %%
model = bbl.bbl("Survived ~ .^2", known, numeric="Age", method="ml", missing="marginal")
unknown = passengers[passengers["Age"].isna()]
print(model.evaluate(unknown).scores.round(3))

# %% [markdown]
# Effects are averaged over passengers, with all other predictors unchanged:

# %%
print(model.avg_comparisons(["Class", "Sex", "Age"], step={"Age": 10}))

# %% [markdown]
# Errors may have different costs. Suppose that these predictions guide a search: giving up on a
# survivor is a disaster, whereas searching for a victim only wastes time. Assume that the first
# error costs four times as much as the second. The class with the lowest expected cost is then no
# longer always the most probable one.

# %%
for costs in (None, {"Yes": {"No": 4}, "No": {"Yes": 1}}):
    print(model.evaluate(known, costs=costs).confusion, "\n")

# %% [markdown]
# The shorter lesson ends here, with exercise 1, or exercises 1 to 4 as homework.
#
# ## Part 2: lines, curves and steps
#
# The groups below have equal means but correlations of opposite sign, so a linear boundary cannot
# separate them. Regularised discriminant analysis (Friedman 1989) lies between LDA and QDA: with
# `shrink=0.5`, each covariance is moved halfway towards the diagonal of the pooled covariance.
#
# In the last two panels, both variables are cut into five intervals. The methods ignore the order
# of these intervals. Naive Bayes does no better than a linear boundary; Boltzmann Bayes finds the
# interaction between the two variables, and its boundary is a step function.

# %%
GROUPS = ["A", "B"]
rng = np.random.default_rng(0)
cloud = np.vstack(
    [rng.multivariate_normal([0, 0], [[1, sign * 0.8], [sign * 0.8, 1]], 200) for sign in (1, -1)]
)
points = pd.DataFrame(cloud, columns=["u", "v"]).assign(y=np.repeat(GROUPS, 200))
side = np.linspace(-3, 3, 81)
grid = pd.DataFrame({"u": np.tile(side, 81), "v": np.repeat(side, 81)})
binned = bbl.bin(points, bins=5, response="y")
MODELS = {
    "LDA": ("y ~ u*v", points, {"numeric": True, "covariance": "shared"}),
    "QDA": ("y ~ u*v", points, {"numeric": True}),
    "QDA, shrink=0.5": ("y ~ u*v", points, {"numeric": True, "shrink": 0.5}),
    "naive Bayes, intervals": ("y ~ .", binned, {"method": "naive", "prior_count": 1}),
    "Boltzmann Bayes, intervals": ("y ~ .^2", binned, {"lambda_": 0.005, "lambdah": 0.001}),
}


def draw_probabilities(ax, fit, rows):
    """Draw P(B) on the grid with its contour 0.5, and the rows; return P(B)."""
    p = fit.predict(grid, type="prob")["B"].to_numpy().reshape(81, 81)
    ax.contourf(side, side, p, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.7)
    ax.contour(side, side, p, levels=[0.5], colors="black", linewidths=1)
    for group, colour in (("A", "#053061"), ("B", "#67001f")):
        part = rows[rows["y"] == group]
        ax.scatter(
            part["u"],
            part["v"],
            s=14,
            color=colour,
            edgecolors="white",
            linewidth=0.4,
            label=f"group {group}",
        )
    ax.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal", xlabel="u")


fig, axes = plt.subplots(1, 5, figsize=(13, 3.6), layout="constrained", sharex=True, sharey=True)
for ax, (name, (formula, data, options)) in zip(axes, MODELS.items(), strict=True):
    draw_probabilities(ax, bbl.bbl(formula, data, testNull=False, **options), points)
    ax.set_title(name, fontsize="medium")
axes[0].set_ylabel("v")
handles = axes[0].get_legend_handles_labels()
fig.legend(*handles, loc="outside lower center", ncols=2, frameon=False, markerscale=1.5)
plt.show()

# %% [markdown]
# ## Generative, conditional, and in between
#
# The same fields and couplings can be fitted in two ways: generatively, to $P(x \mid y)$,
# separately in each group, which is Boltzmann Bayes; or conditionally, to $P(y \mid x)$, jointly
# for all groups. The latter is `method="conditional"`, which is logistic regression with all
# pairwise interactions and a common penalty on levels and pairs of levels. With `start="pseudo"`,
# the conditional fit starts from the generative fit and is penalised for departures from it, which
# is a compromise between the two. Below, group B is a ring around group A, and each variable is cut
# into seven intervals. The groups can be separated by main effects without interactions.

# %%
angle = rng.uniform(0, 2 * np.pi, 400)
radius = np.repeat([0.6, 1.9], 200) + rng.normal(0, 0.45, 400)
ring = pd.DataFrame(
    {"u": radius * np.cos(angle), "v": radius * np.sin(angle), "y": np.repeat(["A", "B"], 200)}
)
train = ring.iloc[::2]
fresh = ring.iloc[1::2]
cut = bbl.bin(train, bins=7, response="y")
WAYS = {
    "generative": {"lambda_": "cv", "prior_count": 1, "calibrate": "temperature"},
    "in between": {
        "method": "conditional",
        "start": "pseudo",
        "ridge": "cv",
        "calibrate": "temperature",
    },
    "conditional": {
        "method": "conditional",
        "ridge": "cv",
        "scale": "cv",
        "calibrate": "temperature",
    },
    "their average": {"method": "auto"},
}
fig, axes = plt.subplots(1, 4, figsize=(11, 3.7), layout="constrained", sharex=True, sharey=True)
for ax, (name, options) in zip(axes, WAYS.items(), strict=True):
    fit = bbl.bbl("y ~ .^2", cut, **options)
    draw_probabilities(ax, fit, train)
    loss = log_loss(fresh["y"], fit.predict(fresh, type="prob")["B"])
    ax.set_title(f"{name}: log-loss {loss:.3f}", fontsize="medium")
axes[0].set_ylabel("v")
handles = axes[0].get_legend_handles_labels()
fig.legend(*handles, loc="outside lower center", ncols=2, frameon=False, markerscale=1.5)
plt.show()

# %% [markdown]
# Log-losses are computed on 200 new points. Generative fits need fewer rows when their model of the
# groups is approximately correct; conditional fits do not need this assumption and are better if
# there are enough rows. Use cross-validation to choose between them, or `method="auto"` to average
# them with cross-validated weights.

# %% [markdown]
# ## Three scenarios
#
# Each scenario has two groups and six predictors with three levels each.
#
# * **Independent**: the groups differ in level frequencies, and predictors are independent within
#   each group, as naive Bayes assumes.
# * **Same couplings**: neighbouring predictors tend to have the same level, equally in both groups.
#   The couplings cancel in the log-odds, which are additive in the predictors, as logistic
#   regression assumes. Naive Bayes counts the same evidence several times.
# * **Opposite couplings**: in group A, neighbours tend to have the same level; in group B, they
#   tend to have different levels. All level frequencies are one third in both groups, so no single
#   predictor is informative.


# %%
NAMES = [f"x{i + 1}" for i in range(6)]
L = 3
PREDICTORS = {name: list("rst") for name in NAMES}


def neighbours(strength):
    """Return fields and couplings of a chain that favours equal neighbours by
    `strength`.
    """
    h = [np.zeros(L - 1) for _ in NAMES]
    J = {}
    for i in range(len(NAMES) - 1):
        # of the Kronecker delta, minus the terms of the reference level
        J[i, i + 1] = strength * (np.eye(L - 1) + 1)
        J[i + 1, i] = J[i, i + 1].T
        h[i] -= strength
        h[i + 1] -= strength
    return bbl.GroupParameters(h, J)


def shifted(par, seed, size):
    """Return parameters with random fields added."""
    rng = np.random.default_rng(seed)
    return bbl.GroupParameters([h + rng.uniform(-size, size, L - 1) for h in par.h], par.J)


SCENARIOS = {
    "independent": [shifted(neighbours(0.0), seed, 0.6) for seed in (1, 2)],
    "same couplings": [shifted(neighbours(1.6), seed, 0.3) for seed in (3, 4)],
    "opposite couplings": [neighbours(0.9), neighbours(-0.9)],
}


def draw(scenario, n, seed):
    """Return n rows from a scenario."""
    return bbl.randomsamp(PREDICTORS, GROUPS, par=SCENARIOS[scenario], nsample=n, seed=seed)


example = draw("opposite couplings", 20_000, seed=1)
print(example.groupby("y")["x1"].value_counts(normalize=True).unstack().round(3))
for group, part in example.groupby("y"):
    print(f"\nx1 against x2 in group {group}, in %")
    print(pd.crosstab(part["x1"], part["x2"], normalize="all").mul(100).round(1).to_string())

# %% [markdown]
# ## The classifiers
#
# Each classifier is a function that takes training and test rows and returns probabilities of group
# B. Predictions from the true distributions, which are unknown in practice, give an upper limit on
# performance.


# %%
def dummies(data, pairs=False):
    """Return a 0/1 column for each level but the first, and the products of the columns of two
    predictors.
    """
    single = [np.column_stack([data[name] == level for level in "st"]) for name in NAMES]
    products = [
        (one[:, :, None] * other[:, None]).reshape(len(data), -1)
        for one, other in itertools.combinations(single, 2)
    ]
    return np.hstack(single + products if pairs else single).astype(float)


def naive(train, test):
    # it warns where it predicts worse than the class proportions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.DataWarning)
        return bbl.bbl("y ~ .", train, method="naive", testNull=False).predict(test, type="prob")[
            "B"
        ]


def boltzmann(train, test):
    penalty = 12 / len(train)  # the penalty is per row: the more rows, the smaller
    fit = bbl.bbl("y ~ .^2", train, lambda_=penalty, lambdah=penalty / 10, testNull=False)
    return fit.predict(test, type="prob")["B"]


def lda(train, test):
    # it warns that 0/1 columns are not normally distributed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.DataWarning)
        columns = pd.DataFrame(dummies(train)).add_prefix("z").assign(y=train["y"].to_numpy())
        fit = bbl.bbl("y ~ .^2", columns, numeric=True, covariance="shared")
    return fit.predict(pd.DataFrame(dummies(test)).add_prefix("z"), type="prob")["B"]


def logistic(train, test, pairs=False):
    model = LogisticRegression(solver="newton-cholesky").fit(dummies(train, pairs), train["y"])
    return model.predict_proba(dummies(test, pairs))[:, 1]


def logistic_pairs(train, test):
    return logistic(train, test, pairs=True)


CLASSIFIERS = {
    "naive Bayes": naive,
    "LDA": lda,
    "logistic": logistic,
    "logistic, pairs": logistic_pairs,
    "Boltzmann Bayes": boltzmann,
}


def truth(scenario, test):
    """Return the probabilities under the true distributions."""
    states = np.indices((L,) * len(NAMES)).reshape(len(NAMES), -1).T
    log_p = []
    for par in SCENARIOS[scenario]:
        energy = np.zeros(len(states))
        for i, h in enumerate(par.h):
            energy += np.append(0, h)[states[:, i]]
        for (i, j), J in par.J.items():
            if i < j:
                energy += np.pad(J, ((1, 0), (1, 0)))[states[:, i], states[:, j]]
        log_p.append(energy - np.logaddexp.reduce(energy))
    codes = (test[NAMES] == "s") + 2 * (test[NAMES] == "t")
    row = codes.to_numpy() @ L ** np.arange(len(NAMES) - 1, -1, -1)
    return 1 / (1 + np.exp((log_p[0] - log_p[1])[row]))


# %% [markdown]
# ## Results with 400 rows
#
# We compute two scores on 10,000 new rows, averaged over five training sets: the AUC measures
# ranking, and the log-loss measures the quality of the probabilities (smaller is better; always
# predicting 1/2 gives 0.693).

# %%
rows = []
for scenario in SCENARIOS:
    test = draw(scenario, 10_000, seed=0)
    is_b = test["y"] == "B"
    for seed in range(1, 6):
        train = draw(scenario, 400, seed)
        for name, classify in CLASSIFIERS.items():
            p = classify(train, test)
            rows.append((scenario, name, roc_auc_score(is_b, p), log_loss(is_b, p)))
    p = truth(scenario, test)
    rows.append((scenario, "(true)", roc_auc_score(is_b, p), log_loss(is_b, p)))
scores = pd.DataFrame(rows, columns=["scenario", "classifier", "AUC", "log-loss"])
table = (
    scores.groupby(["classifier", "scenario"], sort=False)
    .mean()
    .unstack(sort=False)
    .swaplevel(axis=1)
)
print(table[list(SCENARIOS)].round(3).to_string())

# %%
fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained", sharex=True, sharey=True)
COLOURS = ["#0072B2", "#56B4E9", "#E69F00", "#009E73", "#D55E00", "0.6"]
colours = dict(zip([*CLASSIFIERS, "(true)"], COLOURS, strict=True))
for ax, scenario in zip(axes, SCENARIOS, strict=True):
    loss = table[scenario]["log-loss"]
    ax.barh(loss.index, loss, color=[colours[name] for name in loss.index])
    ax.axvline(np.log(2), color="0.3", linestyle=":")
    ax.set(title=scenario, xlabel="Log-loss")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].invert_yaxis()
plt.show()

# %% [markdown]
# *Independent*: all methods do well. Naive Bayes does best, and methods with pairwise terms lose
# some accuracy to unnecessary parameters.
#
# *Same couplings*: the groups are hard to separate, and the best possible log-loss is 0.660. LDA
# and logistic regression do best. Naive Bayes ranks the rows at least as well, but it is severely
# overconfident: its log-loss, 0.76, is the worst. Boltzmann Bayes accounts for the shared evidence,
# but estimates the same couplings twice, once in each group. With 400 rows, the cost of this
# outweighs the benefit: its log-loss of 0.70 is no better than always predicting 1/2, and the same
# is true of logistic regression with pairs. Both improve with more rows, as the curves below show,
# while naive Bayes stays worse than predicting 1/2.
#
# *Opposite couplings*: naive Bayes, LDA and additive logistic regression do not predict better than
# chance. Boltzmann Bayes comes close to the true model, as does logistic regression with all
# pairwise interactions.

# %% [markdown]
# ## How many rows are needed?
#
# More rows do not compensate for a wrong assumption, but a correct assumption reduces the number of
# rows needed.

# %%
sizes = [50, 150, 400, 1200]
fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained", sharex=True)
for ax, scenario in zip(axes, SCENARIOS, strict=True):
    test = draw(scenario, 4_000, seed=0)
    is_b = test["y"] == "B"
    for name, classify in CLASSIFIERS.items():
        curve = [
            np.mean(
                [
                    log_loss(is_b, classify(draw(scenario, n, 100 * n + seed), test))
                    for seed in range(2)
                ]
            )
            for n in sizes
        ]
        ax.plot(sizes, curve, "o-", markersize=4, color=colours[name], label=name)
    ax.axhline(
        log_loss(is_b, truth(scenario, test)),
        color=colours["(true)"],
        linestyle="--",
        label="(true)",
    )
    ax.axhline(np.log(2), color="0.3", linestyle=":")
    ax.set(
        xscale="log", title=scenario, xlabel="Training rows", ylabel="Log-loss", ylim=(None, 1.0)
    )
    ax.set_xticks(sizes, sizes, fontsize="small")
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False, fontsize="small")
plt.show()

# %% [markdown]
# ## The distribution of each group
#
# Logistic regression with pairs predicts as well as Boltzmann Bayes in the last scenario, but it
# only estimates *differences* between groups. `bbl` estimates the distribution of each group. With
# opposite couplings, the estimates show that neighbouring predictors tend to agree in A and to
# differ in B, and that there is little other structure:

# %%
fit = bbl.bbl("y ~ .^2", draw("opposite couplings", 3000, seed=7), lambda_=0.01, testNull=False)
fit.plot()
plt.show()

# %%
print(bbl.mcSample(fit, nsteps=500, seed=1, verbose=0).xmax)

# %% [markdown]
# ## Which method to use
#
# * For numeric predictors, use LDA if there are few rows or the groups have a similar spread, and
#   QDA otherwise.
# * For few rows, many predictors or an exploratory analysis, use naive Bayes, but do not trust its
#   probabilities if predictors are associated.
# * To estimate and test the effects of single predictors, use logistic regression.
# * For many groups, or for questions about the distribution of each group and the associations
#   within it, use Boltzmann Bayes, with a penalty chosen by `crossVal` or `lambda_="cv"`. With a
#   large penalty, it becomes naive Bayes, so cross-validation also shows whether interactions
#   improve prediction.

# %% [markdown]
# ## Exercises
#
# 1. In a meadow, there are three plants of versicolor for each plant of virginica. What is the
#    probability that a flower with 5 cm petals is a virginica? Use the densities above.
#
# <details><summary>Answer</summary>
#
# $0.25 \cdot 0.439 / (0.75 \cdot 0.228 + 0.25 \cdot 0.439) = 0.391$. `length.predict(...,
# priors={"setosa": 0, "versicolor": 0.75, "virginica": 0.25})` returns this probability.
#
# </details>
#
# 2. Calculate by hand $P(\mathrm{flu} \mid \mathrm{no\ fever})$ for flu prevalences of 0.2 and 0.5.
#
# <details><summary>Answer</summary>
#
# $0.2 \cdot 0.1 / (0.2 \cdot 0.1 + 0.8 \cdot 0.8) = 0.030$, and $0.5 \cdot 0.1 / (0.5 \cdot 0.1 +
# 0.5 \cdot 0.8) = 0.111$. `clinic.predict({"fever": ["no"]}, type="prob", priors="equal")` returns
# the second probability.
#
# </details>
#
# 3. A second symptom, cough, is a copy of the first: every patient with a fever also coughs. At a
#    flu prevalence of 0.2, what probability of flu does naive Bayes give a patient with both
#    symptoms, and what is the correct probability?
#
# <details><summary>Answer</summary>
#
# It counts the same evidence twice: $0.2 \cdot 0.81 / (0.2 \cdot 0.81 + 0.8 \cdot 0.04) = 0.835$.
# The correct probability is still 0.529, since the cough adds no information. The same happens in
# the scenario *same couplings*, which explains the poor log-loss of naive Bayes there.
#
# </details>
#
# 4. Measuring the temperature costs nothing, a needless flu treatment costs 1, and an untreated flu
#    costs 10. Above which probability of flu should the patient be treated?
#
# <details><summary>Answer</summary>
#
# The expected cost of treating is $1 - p$, and of not treating $10 p$. The two are equal at
# $p = 1/11 = 0.09$, so a patient without a fever should be treated during an epidemic (0.111) but
# not otherwise (0.030).
#
# </details>
#
# 5. In the figure with the five decision regions, set the off-diagonal entries of both covariances
#    to 0.8 and move the mean of B to $(1, -1)$. Which methods improve?
#
# <details><summary>Answer</summary>
#
# The covariances are now equal, so the assumptions of linear discriminant analysis hold, and it has
# the fewest parameters: it correctly classifies 94 % of new rows, which no rule exceeds
# ($\Phi(\sqrt{10}/2) = 0.943$). Quadratic discriminant analysis, which finds nearly the same line,
# does equally well. The methods based on intervals stay at 87 %: five intervals are too coarse for
# a diagonal boundary.
#
# </details>
#
# 6. Draw 100 rows from the scenario *independent* and choose the penalty with `lambda_="cv"`. What
#    is the value of `fit.tuning.values[fit.tuning.chosen]`, and what does it mean?
#
# <details><summary>Answer</summary>
#
# A large penalty is chosen: the couplings are shrunk almost to zero, and the model is nearly naive
# Bayes, which is correct in that scenario.
#
# </details>
#
# ## References
#
# - Domingos P, Pazzani M (1997). On the optimality of the simple Bayesian classifier under zero-one
#   loss. Machine Learning 29, 103-130.
# - Fisher RA (1936). The use of multiple measurements in taxonomic problems. Annals of Eugenics 7,
#   179-188.
# - Friedman JH (1989). Regularized discriminant analysis. Journal of the American Statistical
#   Association 84, 165-175.
# - Hastie T, Tibshirani R, Friedman J (2009). The Elements of Statistical Learning, second edition,
#   chapter 4. Springer.
# - Ng AY, Jordan MI (2001). On discriminative vs. generative classifiers: a comparison of logistic
#   regression and naive Bayes. Advances in Neural Information Processing Systems 14.
# - Woo J, Wang J (2022). bbl: Boltzmann Bayes Learner for High-Dimensional Inference with Discrete
#   Predictors in R. Journal of Statistical Software 101(5).
