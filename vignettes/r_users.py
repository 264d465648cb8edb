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
# A session of R's `bbl`, and the same in Python, line by line. Names are R's wherever R has one. A
# dot becomes an underscore (`prior.count`, `prior_count`), a Python keyword gets one at its end
# (`lambda`, `lambda_`), and what is `f(fit)` in R is often `fit.f()` here.
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
# The data can be a pandas or polars frame, an Arrow table or a dictionary of lists.
# The column of frequencies may stay in the table: named as `weights`, it is no predictor of `.`; in
# R it becomes one with 21 levels.
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
# The layout is R's, and so are the factor codes: levels in sorted order, the first as
# the reference. R 1.0.0 prints 1.506740 for the first number, the paper 1.486735, and here it is
# 1.486863: the optimum. R's optimiser stops at a gradient of 1e-4 by default; with a smaller
# `tolerance` its numbers move towards those printed here.
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
# What R's lists have by name, `coef()` has as attributes and by name too:
# `bfit.coef()["h"]["No"]["Class"]`. An argument that is called otherwise here is an error that
# tells its name: `progress_bar=` is `verbose=`.
#
# `tidy()` has all coefficients as a long table. `summary()` shows R's likelihood-ratio tests, and
# more: tests of the fields and of the couplings, and `fit.inference()` has standard errors and tests
# of single parameters, which R does not have.
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
# Further columns, such as *Name*, are ignored; R stops. Groups keep their names in
# the columns, also where R would change them (`Non-binding` to `Non.binding`). A level that the
# model has never seen is an error that says which:

# %%
try:
    bfit.predict(newdata.assign(Class="4th"))
except bbl.errors.LevelError as error:
    print(error)

# %% [markdown]
# ## The same data give the same numbers, counted or row by row
#
# In R, a table with weights and its raw rows predict differently, because $\ln Z$ is summed over
# rows without their weights. For a man of the first class, with the formula `.^2` and otherwise
# defaults:

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
print(f"share of them who survived: {first['Yes'] / first.sum():.4f}")

# %% [markdown]
# R's approximation, eq. (31) without the factor 1/2, counts each coupling twice.
# Hence the default here is the exact sum over all states where that is cheap, and otherwise what
# suits the method; `fit.log_z` shows the values. Pass `log_z="pseudo"` to compare with R.
#
# ## Naive Bayes
#
# ```r
# bbl(Survived ~ Class + Sex + Age, data = titanic, weights = freq, prior.count = 0)
# ```
#
# A formula without interactions is naive Bayes with any method. `method="naive"` computes it in
# closed form, with a prior count of 1 unless told otherwise. In R, `prior.count` is accepted by
# `method = "pseudo"` and has no effect; here it is a pseudocount of every conditional distribution;
# without interactions the fit is naive Bayes with that count.

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
# `-` drops a predictor (R keeps it), and a term of three predictors is one (R takes it for the first two). Mean field,
# which knows pairs alone, refuses it.

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
# As in R, folds are consecutive rows of each group unless asked otherwise. For sorted data that is
# seldom what one wants, and a `DataWarning` (silenced here) says so:

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
# `predict(cv)` of R uses the model of the last fold; `cv.predict()` uses a refit to
# all rows, and `refit=False` gives R's. Any splitter of scikit-learn can be passed as `cv=`.
#
# ## Sampling
#
# ```r
# map <- mcSample(bfit, nstep = 1000, progress.bar = FALSE)
# ```

# %%
print(bbl.mcSample(bfit, nsteps=1000, seed=1, verbose=0))

# %% [markdown]
# R prints energies of 3.394166 and 0 and, for the dead, a configuration that changes
# with the seed: its energy is the field of one predictor, not the sum of eq. (6). Here the energy
# is the sum.
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
# Random numbers come from numpy, so `seed=1` does not give the rows of `set.seed(1)`.
# `par.J[i, j]` counts predictors from 0. The page on binding sites shows R's `sample` in Python,
# for those who need the same rows.
#
# ## And beyond
#
# * `lambda_="cv"` or `eps="cv"` choose the penalty while fitting.
# * `fit.save("model.bbl")` and `bbl.load("model.bbl")` store a model without running code on
#   loading.
# * `bbl.sklearn.BBLClassifier` fits into pipelines and searches of scikit-learn.
# * `n_jobs=` sets the number of threads; results do not depend on it.
# * A fit tells whether it has converged, and warns if not:

# %%
print(
    "converged:", bfit.converged, "| log-likelihood:", bfit.logLik(), "| observations:", bfit.nobs()
)
