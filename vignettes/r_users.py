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
# # For users of the R package
#
# This page translates a session with R's `bbl` into Python, line by line. Names are the same as in
# R wherever possible. Dots become underscores (`prior.count`, `prior_count`), Python keywords get a
# trailing underscore (`lambda`, `lambda_`), and `f(fit)` in R is often `fit.f()` in Python.
#
# | R | here |
# | --- | --- |
# | `bbl(y ~ .^2, data, weights = Freq)` | `bbl.bbl("y ~ .^2", data, weights="Freq")` |
# | `method = "pseudo"`, `lambda`, `lambdah`, `tolerance`, `itmax`, `symmetrize` | the same, `lambda_` |
# | `method = "mf"`, `eps`, `prior.count` | the same, `prior_count` |
# | `testNull`, `novarOk`, `xlevels` | the same |
# | `lz.half = TRUE` | `log_z="half"`; R's default is `log_z="pseudo"` |
# | `print(fit)`, `summary(fit)`, `plot(fit)` | `print(fit)`, `fit.summary()`, `fit.plot()` |
# | `coef(fit)$h$No$Class` | `fit.coef().h["No"]["Class"]` |
# | `coef(fit)$J$No$Class$Sex` | `fit.coef().J["No"]["Class", "Sex"]` |
# | `predict(fit, newdata, type = "prob")` | `fit.predict(newdata, type="prob")` |
# | `fitted(fit)`, `residuals(fit)` | `fit.fitted()`, `fit.residuals()` |
# | `logLik(fit)`, `nobs(fit)` | `fit.logLik()`, `fit.nobs()` |
# | `crossVal(...)$cvframe`, `$regstar`, `$maxscore` | `bbl.crossVal(...).cvframe`, `.regstar`, `.maxscore` |
# | `use.auc`, `nfold`, `verbose` | `use_auc`, `nfold`, `verbose` |
# | `mcSample(fit, nstep)$xmax`, `$emax` | `bbl.mcSample(fit, nsteps).xmax`, `.emax` |
# | `mlestimate`, `randompar`, `sample_xi`, `randomsamp` | the same |
# | `freq2raw`, `removeConst`, `readFasta` | the same |
#
# ## Data
#
# ```r
# library("bbl")
# titanic <- as.data.frame(Titanic)
# freq <- titanic$Freq
# titanic <- titanic[, 1:4]
# titanic_raw <- freq2raw(data = titanic, freq = freq)
# ```

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

titanic = bbl.datasets.load_titanic()
titanic_raw = bbl.freq2raw(titanic, "Freq")
print(titanic_raw.head(3))

# %% [markdown]
# The data can be a pandas or polars DataFrame, an Arrow table or a dictionary of lists. You do not
# need to remove the column of frequencies: if it is passed as `weights`, `.` does not include it,
# whereas in R it becomes a predictor with 21 levels.
#
# ## Fitting
#
# ```r
# bfit <- bbl(Survived ~ Class * Sex + Sex * Age, data = titanic, weights = freq)
# bfit
# ```

# %%
bfit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", data=titanic, weights="Freq")
print(bfit)

# %% [markdown]
# The layout and the factor coding are the same as in R: levels are sorted, and the first is the
# reference. The first coefficient is 1.506740 in version 1.0.0 of the R package, 1.486735 in the
# paper, and 1.486863 in this package, which is the optimum. By default, R's optimiser stops at a
# gradient of 1e-4. With a smaller `tolerance`, R's estimates approach those printed here.
#
# ```r
# summary(bfit)
# coef(bfit)$h$No$Class
# plot(bfit)
# ```

# %%
print(bfit.coef().h["No"]["Class"])
print(bfit.coef().J["No"]["Class", "Sex"])
print(bfit.tidy().head(3))

# %% [markdown]
# The elements of `coef()` can be accessed as attributes or by name, as in R:
# `bfit.coef()["h"]["No"]["Class"]`. If an argument has a different name in Python, the error
# message gives the new name: `progress_bar=` is `verbose=`.
#
# `tidy()` returns all coefficients as a long table. `summary()` shows R's likelihood ratio tests
# and, unlike R, tests of fields and couplings. `fit.inference()` gives standard errors and tests
# for individual parameters, which R does not provide.
#
# ## Prediction
#
# ```r
# predict(bfit, newdata, type = "prob")
# ```

# %%
newdata = pd.DataFrame(
    {"Class": ["1st", "3rd"], "Sex": ["Male", "Female"], "Age": "Adult", "Name": ["John", "Anna"]}
)
print(bfit.predict(newdata, type="prob"))
print(bfit.predict(newdata, type="class"))

# %% [markdown]
# Extra columns, such as *Name*, are ignored, whereas R's `predict` fails if there are extra
# columns. Column names are the group names, even where R would change them (`Non-binding` to
# `Non.binding`). If `newdata` contains an unknown level, an error names it:

# %%
try:
    bfit.predict(newdata.assign(Class="4th"))
except bbl.errors.LevelError as error:
    print(error)

# %% [markdown]
# ## Counts and raw rows give the same results
#
# In R, a weighted table and the corresponding raw rows give different predictions, because $\ln Z$
# is summed over rows without their weights. For a first-class man, with the formula `.^2` and
# otherwise default options:

# %%
man = pd.DataFrame({"Class": ["1st"], "Sex": ["Male"], "Age": ["Adult"]})
rows = {}
for name, data, weights in (("counted", titanic, "Freq"), ("row by row", titanic_raw, None)):
    rows[name] = [
        bbl.bbl("Survived ~ .^2", data, weights, log_z=log_z)
        .predict(man, type="prob")["Yes"]
        .iloc[0]
        for log_z in ("pseudo", "exact")
    ]
table = pd.DataFrame(rows, index=["here, R's ln Z", "here, exact ln Z"]).T
table.insert(0, "R 1.0.0", [0.0067565695, 0.2312995755])
print(table.round(4))
first = titanic.query("Class == '1st' and Sex == 'Male' and Age == 'Adult'").set_index("Survived")[
    "Freq"
]
print(f"proportion who survived: {first['Yes'] / first.sum():.4f}")

# %% [markdown]
# R's approximation, eq. 31 without the factor 1/2, counts each coupling twice. In Python, the
# default is therefore the exact sum over all states if this takes little time, and otherwise an
# approximation that depends on the method. The attribute `fit.log_z` contains the values. Pass
# `log_z="pseudo"` to compare with R.
#
# ## Naive Bayes
#
# ```r
# bbl(Survived ~ Class + Sex + Age, data = titanic, weights = freq, prior.count = 0)
# ```
#
# If a formula has no interactions, pseudo-likelihood and mean field both give naive Bayes.
# `method="naive"` computes it in closed form, with a default prior count of 1. In R,
# `method = "pseudo"` accepts `prior.count` but ignores it. In Python, it is a pseudocount in every
# conditional distribution, so without interactions the fit is naive Bayes with that count.

# %%
print(
    bbl.bbl("Survived ~ Class + Sex + Age", titanic, "Freq", method="naive", prior_count=0)
    .coef()
    .h["No"]["Class"]
)
for options in ({"method": "naive"}, {"method": "pseudo", "prior_count": 1}):
    print(
        bbl.bbl("Survived ~ Class + Sex + Age", titanic, "Freq", **options).coef().h["No"]["Class"]
    )

# %% [markdown]
# ## Formulas
#
# `-` drops a predictor (R keeps it), and a three-way term is a three-way interaction (R uses only
# the first two predictors). Mean field supports only pairs and raises an error.

# %%
print(bbl.bbl("Survived ~ . - Age", titanic, "Freq").coef().h["No"]["Sex"])
print(bbl.bbl("Survived ~ Class:Sex:Age", titanic, "Freq").coef().J["Yes"]["Class", "Sex", "Age"])
try:
    bbl.bbl("Survived ~ Class:Sex:Age", titanic, "Freq", method="mf")
except bbl.errors.FormulaError as error:
    print(error)

# %% [markdown]
# ## Cross-validation
#
# ```r
# cv <- crossVal(Survived ~ .^2, data = titanic_raw, method = "mf", eps = seq(0, 1, 0.25))
# plot(cv)
# ```
#
# As in R, folds are consecutive rows of each group by default. This is rarely appropriate for
# sorted data, so a `DataWarning` is issued (it is silenced here):

# %%
options = {"weights": "Freq", "method": "mf", "eps": np.linspace(0, 1, 5), "verbose": 0}
with warnings.catch_warnings(action="ignore", category=bbl.DataWarning):
    consecutive = bbl.crossVal("Survived ~ .^2", titanic, **options)
shuffled = bbl.crossVal("Survived ~ .^2", titanic, **options, shuffle=True, seed=1)
print(
    consecutive.cvframe[["epsilon", "AUC"]]
    .assign(shuffled=shuffled.cvframe["AUC"])
    .round(4)
    .to_string(index=False)
)

# %%
shuffled.plot()
plt.show()

# %% [markdown]
# In R, `predict(cv)` uses the model of the last fold, whereas `cv.predict()` uses a refit to all
# rows. To reproduce R, pass `refit=False`. Any scikit-learn splitter can be passed as `cv=`.
#
# ## Sampling
#
# ```r
# map <- mcSample(bfit, nstep = 1000, progress.bar = FALSE)
# ```

# %%
print(bbl.mcSample(bfit, nsteps=1000, seed=1, verbose=0))

# %% [markdown]
# R prints energies of 3.394166 and 0. For those who died, the configuration depends on the seed,
# because R's energy is the field of one predictor instead of the sum in eq. 6. In Python, the
# energy is the sum in eq. 6.
#
# ```r
# predictors <- list(); for(i in 1:5) predictors[[i]] <- 0:2
# par <- randompar(predictors)
# xi <- sample_xi(nsample = 10000, predictors = predictors, h = par$h, J = par$J, code_out = TRUE)
# fit <- mlestimate(xi = xi, method = "pseudo", lambda = 0)
# ```

# %%
predictors = [[0, 1, 2]] * 5
par = bbl.randompar(predictors, seed=1)
xi = bbl.sample_xi(10_000, predictors, par.h, par.J, code_out=True, seed=2)
fit = bbl.mlestimate(xi, method="pseudo", lambda_=0)
print("true h of the first predictor:", par.h[0].round(3), "estimated:", fit.h[0].round(3))

# %% [markdown]
# Random numbers come from numpy, so `seed=1` does not give the rows of `set.seed(1)`. In `par.J[i,
# j]`, predictors are numbered from 0. If you need the same rows, use the Python implementation of
# R's `sample` on the page on binding sites.
#
# ## More features
#
# * `lambda_="cv"` or `eps="cv"` chooses the penalty during the fit.
# * `fit.save("model.bbl")` and `bbl.load("model.bbl")` save and load a model; loading does not
#   execute code.
# * `bbl.sklearn.BBLClassifier` can be used in scikit-learn pipelines and parameter searches.
# * `n_jobs=` sets the number of threads; results do not depend on it.
# * A fitted model reports whether the optimiser converged, and a warning is issued if it did not:

# %%
print(
    "converged:", bfit.converged, "| log-likelihood:", bfit.logLik(), "| observations:", bfit.nobs()
)
