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
# A lesson of about 90 minutes, with exercises at its end.
#
# A table of counts of a few variables puts one question after another: are two variables
# independent? Are they still, given a third? Why does the answer turn round? And what has that to
# do with logistic regression? Each answer is a *log-linear model*, a Boltzmann machine with few
# variables, and `method="ml"` finds its exact maximum of the likelihood.
#
# | what is claimed | formula |
# | --- | --- |
# | A and B are independent | `~ A + B` |
# | A and B are independent given C | `~ A*C + B*C` |
# | the odds ratio of A and B is the same at each level of C | `~ A*C + B*C + A:B` |
# | nothing | `~ A*B*C` |

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
# In 1973 the University of California at Berkeley admitted 44.5 % of the men who applied to its six
# largest departments, and 30.4 % of the women (Bickel, Hammel & O'Connell 1975). Did it prefer men?
# The table has 4,526 applicants in $6 \cdot 2 \cdot 2 = 24$ cells. Rows with a count are as good as
# single applicants.

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
print(by_gender.assign(share=by_gender["Admitted"] / by_gender.sum(axis=1)).round(3))


def fit(formula):
    """Fit a formula to the table; levels keep the order of `LEVELS`, the first of which is the
    reference.
    """
    levels = {name: values for name, values in LEVELS.items() if name in formula}
    return bbl.bbl(formula, berkeley, weights="Freq", xlevels=levels, method="ml", verbose=0)


# %% [markdown]
# ## Independence
#
# If admission had nothing to do with gender, a cell would hold its row's total times its column's
# total over all applicants: of the 1,835 women $1835 \cdot 1755 / 4526 = 711.5$ would be admitted,
# and 557 were. The distance of all four counts $n$ from the expected ones $m$ is measured by
#
# $$G^2 = 2 \sum n \ln \frac{n}{m},$$
#
# twice the logarithm of a likelihood ratio. By hand, and as the model `~ Gender + Admit`:

# %%
n = by_gender.to_numpy(dtype=float)
m = np.outer(n.sum(axis=1), n.sum(axis=0)) / n.sum()
print(m.round(1), 2 * (n * np.log(n / m)).sum())

independent = fit("~ Gender + Admit")
print(independent.cells()[["Gender", "Admit", "observed", "fitted"]].round(1))
print(independent.goodness_of_fit())

# %% [markdown]
# A sum this large is not chance. How strong is the dependence? In the model with the
# interaction, `~ Gender*Admit`, the coupling of two levels is the logarithm of their *odds ratio*:
# the odds of a woman to be admitted over those of a man.

# %%
columns = ["predictor", "level", "predictor2", "level2", "given", "odds_ratio", "lower", "upper"]
pooled = fit("~ Gender*Admit").odds_ratios()
print(pooled[columns].round(3))
print((557 / 1278) / (1198 / 1493))

# %% [markdown]
# ## Conditional independence
#
# Nobody applies to a university; one applies to a department. Is admission independent of gender
# *given the department*? That is the model `~ Dept*Gender + Dept*Admit`: within each department
# expected counts are again rows times columns over the total. So $G^2$ is the sum of six such
# distances, with one degree of freedom each.

# %%
conditional = fit("~ Dept*Gender + Dept*Admit")
print(conditional.goodness_of_fit())

cells = conditional.cells()
part = 2 * cells["observed"] * np.log(cells["observed"] / cells["fitted"])
print(part.groupby(cells["Dept"], observed=False).sum().round(2))

# %% [markdown]
# Some misfit is left, and nearly all of it comes from one department: department A
# admits more women than the model expects. In the mosaic the area of a tile is its count, and the
# colour its residual.

# %%
ax = conditional.plot_mosaic()
ax.figure.set_size_inches(8.5, 5)
plt.show()

# %% [markdown]
# Three models in a row, each with the one before inside it, and what each adds.
# `anova` compares neighbours by the likelihood ratio: one odds ratio for all departments adds
# nothing to conditional independence; one for each department does.

# %%
homogeneous = fit("~ Dept*Gender + Dept*Admit + Gender:Admit")
saturated = fit("~ Dept*Gender*Admit")
print(bbl.anova(conditional, homogeneous, saturated)[["parameters", "BIC", "ratio", "df", "p"]])

# %% [markdown]
# ## Simpson's paradox
#
# Over all departments the odds of women are about half of those of men. In no department are they
# clearly lower, and in A they are almost three times as high.

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
ax.set(xlabel="odds of admission, women over men, with 95 % limits", ylabel="department")
plt.show()

# %% [markdown]
# How can that be? Women applied to other departments than men did: 7 % of them, and
# 51 % of the men, to A and B, which admit almost two thirds of their applicants. Department goes
# with gender and with admission, and its trace is what the table of two shows.

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
# The model says it best. In `conditional` no department prefers anybody. Its fitted
# counts, summed over departments, still have an odds ratio of about a half:

# %%
margin = cells.pivot_table("fitted", "Gender", "Admit", "sum", observed=False).to_numpy()
print(margin.round(1), margin[1, 1] * margin[0, 0] / (margin[1, 0] * margin[0, 1]))

# %% [markdown]
# An odds ratio stays what it is when a third variable is summed out if that variable
# is independent of one of the two given the other (the *collapsibility* theorem). Here neither
# holds: the third variable is a *confounder*. Whether one should look at the table of two or at the
# tables of six is not a matter of statistics. Departments chose among their own applicants, so the
# question of whether *they* preferred men is answered within departments. Why women applied where
# few are admitted is another question, and the table of two may be part of its answer.
#
# ## The logit is a log-linear model
#
# Logistic regression asks for the odds of admission given the two others,
#
# $$\ln \frac{P(\mathrm{admitted} \mid d, g)}{P(\mathrm{rejected} \mid d, g)} = \alpha + \beta_d + \gamma_g.$$
#
# In the log-linear model `homogeneous` the probability of a cell is the exponential of a sum of
# fields and couplings. In the ratio of two cells that differ in admission alone, all terms without
# admission cancel. What is left is
#
# $$\ln \frac{P(d, g, \mathrm{admitted})}{P(d, g, \mathrm{rejected})}
# = h_\mathrm{admitted} + J_{d, \mathrm{admitted}} + J_{g, \mathrm{admitted}}.$$
#
# So it is the same model, with the same maximum, the same standard errors, and the same test
# against more terms. The term `Dept:Gender` must be in it: a regression takes the combinations of
# its predictors as given, and a log-linear model has to be free to fit them.

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
# Naive Bayes is a log-linear model, too: the one that leaves `Dept:Gender` out. As a
# classifier of admission it takes department and gender for independent within each group, and so
# it gives gender what belongs to the department: its odds ratio is that of the table of two.

# %%
naive = fit("~ Dept*Admit + Gender*Admit")
print(naive.odds_ratios([("Gender", "Admit")])[columns].round(3))
print(naive.goodness_of_fit().loc["G2", ["value", "df", "p"]])

# %% [markdown]
# ## Exercises
#
# 1. How many degrees of freedom has conditional independence in a table of $I$ rows, $J$ columns
#    and $K$ strata?
#
# <details><summary>Answer</summary>
#
# $K (I - 1) (J - 1)$: those of independence in each stratum. Here $6 \cdot 1 \cdot 1 = 6$.
#
# </details>
#
# 2. On the *Titanic* (`bbl.datasets.load_titanic()`): did sex matter for survival given the class?
#    As much in each class?
#
# <details><summary>Answer</summary>
#
# `anova` of `~ Class*Sex + Class*Survived` and the same with `+ Sex:Survived` has a ratio of 359.6
# with one degree of freedom: sex matters. Against `~ Class*Sex*Survived` there are 65.2 with three:
# not as much in each class. In the third class the odds ratio is nearest to 1.
#
# </details>
#
# 3. Leave department A out. Which of the models fits then?
#
# <details><summary>Answer</summary>
#
# Conditional independence. The five other parts of its $G^2$ add up to 2.7, with five degrees of
# freedom.
#
# </details>
#
# 4. Given the department and nothing else, gender and admission are independent in the model
#    `conditional`. Are gender and department independent given admission?
#
# <details><summary>Answer</summary>
#
# No. Independence given a third variable says nothing of the other two pairs: `Dept:Gender` is a
# term of the model. A graph shows it: `conditional` is the chain Gender - Dept - Admit, and only
# its ends are separated by what lies between.
#
# </details>
#
# 5. A drug helps men and helps women, and over both it harms. Which of the three variables drug,
#    sex and recovery go together in such a table, and what would a trial that draws lots change?
#
# <details><summary>Answer</summary>
#
# Sex goes with recovery, and with the drug: those with the worse prospects take it more often. Lots
# make sex and drug independent. The shares that recover with and without the drug are then averages
# over the sexes with the same weights, and their order cannot turn round.
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
