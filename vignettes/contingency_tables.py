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
# # One table, four models: from independence to Simpson's paradox and the logit
#
# A 90-minute lesson, with exercises at the end.
#
# A table of counts leads to several questions. Are two variables independent? Are they still
# independent given a third? Why does the association reverse? And how is this related to logistic
# regression? Each question corresponds to a *log-linear model*, that is, a Boltzmann machine with
# few variables. `method="ml"` fits it by exact maximum likelihood.
#
# | hypothesis | formula |
# | --- | --- |
# | A and B are independent | `~ A + B` |
# | A and B are independent given C | `~ A*C + B*C` |
# | the odds ratio of A and B is the same at each level of C | `~ A*C + B*C + A:B` |
# | none (the saturated model) | `~ A*B*C` |

# %%
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm

import bbl

pd.options.display.width = 120
pd.options.display.max_columns = 12

# %% [markdown]
# ## The table
#
# In 1973, the University of California at Berkeley admitted 44.5 % of the men who applied to its
# six largest departments, and 30.4 % of the women (Bickel, Hammel & O'Connell 1975). Did it
# discriminate against women? The table has 4,526 applicants in $6 \cdot 2 \cdot 2 = 24$ cells. One
# row with a count has the same effect as one row for each applicant.

# %%
LEVELS = {
    "Dept": ["A", "B", "C", "D", "E", "F"],
    "Gender": ["Male", "Female"],
    "Admit": ["Rejected", "Admitted"],
}
COUNTS = [
    313,
    512,
    19,
    89,
    207,
    353,
    8,
    17,
    205,
    120,
    391,
    202,
    279,
    138,
    244,
    131,
    138,
    53,
    299,
    94,
    351,
    22,
    317,
    24,
]
berkeley = pd.DataFrame(itertools.product(*LEVELS.values()), columns=list(LEVELS)).assign(
    Freq=COUNTS
)
by_gender = berkeley.pivot_table("Freq", "Gender", "Admit", "sum")[LEVELS["Admit"]].loc[
    LEVELS["Gender"]
]
print(by_gender.assign(rate=by_gender["Admitted"] / by_gender.sum(axis=1)).round(3))


def fit(formula):
    """Fit a formula to the table; levels keep the order of `LEVELS`, and the first is the
    reference.
    """
    levels = {name: values for name, values in LEVELS.items() if name in formula}
    return bbl.bbl(formula, berkeley, weights="Freq", xlevels=levels, method="ml", verbose=0)


# %% [markdown]
# ## Independence
#
# If admission were independent of gender, the expected count of a cell would be its row total times
# its column total, divided by the number of applicants: of the 1,835 women,
# $1835 \cdot 1755 / 4526 = 711.5$ would be admitted, but only 557 were. The discrepancy between the
# observed counts $n$ and the expected counts $m$ is measured by
#
# $$G^2 = 2 \sum n \ln \frac{n}{m},$$
#
# which is twice a log-likelihood ratio. Here it is computed by hand, and from the model `~ Gender +
# Admit`:

# %%
n = by_gender.to_numpy(dtype=float)
m = np.outer(n.sum(axis=1), n.sum(axis=0)) / n.sum()
print(m.round(1), 2 * (n * np.log(n / m)).sum())

independent = fit("~ Gender + Admit")
print(independent.cells()[["Gender", "Admit", "observed", "fitted"]].round(1))
print(independent.goodness_of_fit())

# %% [markdown]
# Such a large statistic would be extremely unlikely if admission were independent of gender. How
# strong is the dependence? In the model with the interaction, `~ Gender*Admit`, the coupling of two
# levels is the logarithm of their *odds ratio*: a woman's odds of admission divided by a man's.

# %%
columns = ["predictor", "level", "predictor2", "level2", "given", "odds_ratio", "lower", "upper"]
pooled = fit("~ Gender*Admit").odds_ratios()
print(pooled[columns].round(3))
print((557 / 1278) / (1198 / 1493))

# %% [markdown]
# ## Conditional independence
#
# Students do not apply to the university as a whole but to a department. Is admission independent
# of gender *given the department*? This is the model `~ Dept*Gender + Dept*Admit`: within each
# department, an expected count is again the row total times the column total, divided by the number
# of applicants. Therefore, $G^2$ is the sum of six statistics, one for each department, with one
# degree of freedom each.

# %%
conditional = fit("~ Dept*Gender + Dept*Admit")
print(conditional.goodness_of_fit())

cells = conditional.cells()
part = 2 * cells["observed"] * np.log(cells["observed"] / cells["fitted"])
print(part.groupby(cells["Dept"], observed=False).sum().round(2))

# %% [markdown]
# Some lack of fit remains, nearly all of it in department A, which admits more women
# than the model predicts. In the mosaic plot, the area of a tile shows the count, and its colour
# shows the residual.

# %%
ax = conditional.plot_mosaic()
ax.figure.set_size_inches(8.5, 5)
plt.show()

# %% [markdown]
# Next we compare three nested models. `anova` compares each model with the previous one by a
# likelihood ratio test. A common odds ratio for all departments does not fit better than
# conditional independence, but separate odds ratios do.

# %%
homogeneous = fit("~ Dept*Gender + Dept*Admit + Gender:Admit")
saturated = fit("~ Dept*Gender*Admit")
print(bbl.anova(conditional, homogeneous, saturated)[["parameters", "BIC", "ratio", "df", "p"]])

# %% [markdown]
# ## Simpson's paradox
#
# In all departments together, women's odds of admission are about half of men's. They are not
# clearly lower in any single department, and in department A they are almost three times as high.

# %%
by_department = saturated.odds_ratios([("Gender", "Admit")])
print(by_department[["given", "odds_ratio", "lower", "upper"]].round(3))

both = pd.concat(
    [by_department.assign(label=by_department["given"].str[-1]), pooled.assign(label="all")]
)
fig, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
for at, row in enumerate(both.itertuples()):
    colour = "C3" if row.label == "all" else "C0"
    ax.plot([row.lower, row.upper], [at, at], color=colour)
    ax.plot(row.odds_ratio, at, "o", color=colour)
ax.axvline(1, color="grey", linewidth=0.8)
ax.set_xscale("log")
ax.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
ax.minorticks_off()
ax.set_yticks(range(len(both)), both["label"])
ax.invert_yaxis()
ax.set(xlabel="Odds ratio of admission (women to men), with 95 % interval", ylabel="Department")
plt.show()

# %% [markdown]
# How can that be? Women and men applied to different departments: 7 % of the women but 51 % of the
# men applied to A or B, which admit almost two thirds of their applicants. Department is associated
# with both gender and admission, and this produces the association in the two-way table.

# %%
total = berkeley.groupby("Dept")["Freq"].sum()
shares = pd.DataFrame(
    {"admitted": berkeley[berkeley["Admit"] == "Admitted"].groupby("Dept")["Freq"].sum() / total}
)
for gender in LEVELS["Gender"]:
    applied = berkeley[berkeley["Gender"] == gender].groupby("Dept")["Freq"].sum()
    shares[f"of {gender}"] = applied / applied.sum()
print(shares.round(3))

# %% [markdown]
# The model makes this explicit. In `conditional`, no department favours either gender. Yet its
# fitted counts, summed over departments, have an odds ratio of about one half:

# %%
margin = cells.pivot_table("fitted", "Gender", "Admit", "sum", observed=False).to_numpy()
print(margin.round(1), margin[1, 1] * margin[0, 0] / (margin[1, 0] * margin[0, 1]))

# %% [markdown]
# An odds ratio is unchanged by marginalising over a third variable if that variable is independent
# of one of the two given the other (the *collapsibility* theorem). Here neither condition holds:
# the third variable is a *confounder*. Whether to use the marginal table or the six departmental
# tables is not a statistical question. Departments selected from their own applicants, so the
# question of whether *they* favoured men must be answered within departments. Why women applied to
# departments that admit few applicants is a different question, for which the marginal table may be
# relevant.
#
# ## The logit is a log-linear model
#
# Logistic regression models the odds of admission given the other two variables,
#
# $$\ln \frac{P(\mathrm{admitted} \mid d, g)}{P(\mathrm{rejected} \mid d, g)} = \alpha + \beta_d + \gamma_g.$$
#
# In the log-linear model `homogeneous`, the probability of a cell is the exponential of a sum of
# fields and couplings. In the ratio of two cells that differ only in admission, all terms that do
# not involve admission cancel. This leaves
#
# $$\ln \frac{P(d, g, \mathrm{admitted})}{P(d, g, \mathrm{rejected})}
# = h_\mathrm{admitted} + J_{d, \mathrm{admitted}} + J_{g, \mathrm{admitted}}.$$
#
# The two models therefore have the same estimates, the same standard errors and the same likelihood
# ratio tests. The log-linear model must include the term `Dept:Gender`: a regression conditions on
# the joint distribution of its predictors, whereas a log-linear model has to fit it.

# %%
wide = berkeley.pivot_table("Freq", ["Dept", "Gender"], "Admit").reset_index()
X = pd.DataFrame({f"Dept={d}": wide["Dept"] == d for d in LEVELS["Dept"][1:]}).assign(
    **{"Gender=Female": wide["Gender"] == "Female"}
)
logit = sm.GLM(
    wide[["Admitted", "Rejected"]], sm.add_constant(X.astype(float)), sm.families.Binomial()
).fit(tol=1e-12)
couplings = homogeneous.odds_ratios([("Dept", "Admit"), ("Gender", "Admit")])
compared = pd.DataFrame({"logit": logit.params[1:], "se": logit.bse[1:]}, index=X.columns).assign(
    **{"log-linear": couplings["log_odds_ratio"].to_numpy(), "its se": couplings["se"].to_numpy()}
)
print(compared.round(6))
print(logit.deviance, homogeneous.goodness_of_fit().loc["G2", "value"])

# %% [markdown]
# Naive Bayes is also a log-linear model, without the term `Dept:Gender`. It assumes that department
# and gender are independent among the admitted and among the rejected applicants. It therefore
# attributes the effect of department to gender: its odds ratio equals the one in the marginal
# table.

# %%
naive = fit("~ Dept*Admit + Gender*Admit")
print(naive.odds_ratios([("Gender", "Admit")])[columns].round(3))
print(naive.goodness_of_fit().loc["G2", ["value", "df", "p"]])

# %% [markdown]
# ## Exercises
#
# 1. How many degrees of freedom does conditional independence have in a table of $I$ rows, $J$
# columns and $K$ strata?
#
# <details><summary>Answer</summary>
#
# $K (I - 1) (J - 1)$: independence has $(I - 1) (J - 1)$ in each of the $K$ strata. Here,
# $6 \cdot 1 \cdot 1 = 6$.
#
# </details>
#
# 2. On the *Titanic* (`bbl.datasets.load_titanic()`): did survival depend on sex given class? Was
#    the effect the same in each class?
#
# <details><summary>Answer</summary>
#
# Comparing `~ Class*Sex + Class*Survived` with the same model plus `Sex:Survived`, `anova` gives a
# likelihood ratio statistic of 359.6 with one degree of freedom: survival depends on sex. Adding
# `Class:Sex:Survived` gives a statistic of 65.2 with three degrees of freedom: the effect differs
# between classes. The odds ratio is closest to 1 in the third class.
#
# </details>
#
# 3. Exclude department A. Which of the models fits then?
#
# <details><summary>Answer</summary>
#
# Conditional independence. The other five components of its $G^2$ sum to 2.7, with five degrees of
# freedom.
#
# </details>
#
# 4. In the model `conditional`, gender and admission are independent given department. Are gender
#    and department independent given admission?
#
# <details><summary>Answer</summary>
#
# No. Conditional independence of one pair of variables implies nothing about the other two pairs:
# `Dept:Gender` is a term of the model. As a graph, `conditional` is the chain Gender - Dept -
# Admit, and only its ends are separated by the third variable.
#
# </details>
#
# 5. A drug appears to be beneficial for both men and women, but harmful overall. Which of the
#    variables drug, sex and recovery are associated in such a table, and what would a randomised
#    trial change?
#
# <details><summary>Answer</summary>
#
# Sex is associated with recovery and with the drug: the sex with the worse prognosis takes it more
# often. Randomisation makes sex and drug independent. The recovery rates with and without the drug
# are then averages over the sexes with equal weights, so the direction of the difference cannot be
# reversed.
#
# </details>
#
# ## References
#
# - Agresti A (2013). Categorical Data Analysis, third edition, chapters 2, 9 and 10. Wiley.
# - Bickel PJ, Hammel EA, O'Connell JW (1975). Sex bias in graduate admissions: data from Berkeley.
#   Science 187, 398-404.
# - Simpson EH (1951). The interpretation of interaction in contingency tables. Journal of the Royal
#   Statistical Society B 13, 238-241.
# - Whittaker J (1990). Graphical Models in Applied Multivariate Statistics, chapter 12
#   (collapsibility). Wiley.
