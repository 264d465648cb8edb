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
# # Simulated data: recovering the true parameters
#
# This page follows section 3.3 of Woo & Wang (2022, doi:10.18637/jss.v101.i05). The first part
# simulates one group that is large enough for pseudo-likelihood to recover every parameter (figure
# 4). The second part simulates two groups of a few hundred rows each, where mean field needs
# regularisation, which is chosen by cross-validation (figure 5).
#
# All 33 values in the paper's cross-validation table are reproduced on the paper's own sample.
# Figure 4 uses a different sample, because the paper did not set a seed.

# %%
import base64

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl
from bbl.report.machine.plot import plot_comparison

# %% [markdown]
# ## One group: pseudo-likelihood
#
# `randompar` draws fields $h_i(x)$ and couplings $J_{ij}(x, x')$ uniformly between -1 and 1 for
# five predictors of three levels; `sample_xi` draws configurations from eq. 6. With so few states,
# the draws are exact and independent. For large systems, which are infeasible in the R package,
# Gibbs sampling is used.

# %%
predictors = [[0, 1, 2]] * 5
par = bbl.randompar(predictors, seed=1)
xi = bbl.sample_xi(10_000, predictors, par.h, par.J, code_out=True, seed=2)
print(xi.head())

# %% [markdown]
# With a single group, classes cannot be predicted, but `mlestimate` fits the distribution of this
# group.

# %%
fit = bbl.mlestimate(xi, method="pseudo", lambda_=0)
print("converged:", fit.converged, "after", fit.n_iter.tolist(), "iterations per predictor")
plot_comparison(par, fit, title="Figure 4: 10,000 rows")
plt.show()

# %% [markdown]
# How accurate is this? Errors are proportional to $1/\sqrt n$, so ten times as many rows should
# reduce them by a factor of about 3.2, up to sampling variation.


# %%
def rms(fit):
    """Return the root mean square errors of the fields and of the couplings."""
    h = np.concatenate(fit.h) - np.concatenate(par.h)
    J = np.concatenate([(fit.J[pair] - par.J[pair]).ravel() for pair in par.J])
    return np.sqrt(np.mean(h**2)), np.sqrt(np.mean(J**2))


sizes = [1_000, 10_000, 100_000]
fits = [
    bbl.mlestimate(bbl.sample_xi(n, predictors, par.h, par.J, code_out=True, seed=3), lambda_=0)
    for n in sizes
]
print(
    pd.DataFrame(
        [rms(f) for f in fits], columns=["rms error of h", "rms error of J"], index=sizes
    ).round(4)
)

# %% [markdown]
# ## Two groups: mean field
#
# In the paper, 1,000 rows of five predictors with the levels a, c, g, t and a response with the
# groups *case* and *ctrl* are drawn with R's `set.seed(135)`. The rows and the true parameters are
# included below in packed form, so that the same table can be computed here. To draw a new sample,
# use `bbl.randomsamp(predictors, ["case", "ctrl"], par=[...])`.

# %% tags=["hide-input"]
ROWS = """
+S-I-X->?Zlueg(m!_dMcJXtITGzdtL@C6vzh_edo1>?>Sl^wQGQ;$I_}_#4{%>-EhTx?U)8g!<hgapksaL=GFQIZ7%P?J1+L5$r(|(eEi>p(K
rfsT5xu<s)YL#xNauofyYuMZ<u5BsGSK?_F*)pd482@1J=Xw|U9%*VrgWc$7cITy?6h-47Ya$wvzG>LmyQXPb*|Aiescg1nWh!Y_YHOur(X42C
qLHLa*m1Oc-#S`~wN;W*wx?oerty*Kf0@!Gjll|Yr}tl(ja(~AX+IsADg@?zojXy>_1tnb>!FcHiYHA;s8rePm?~P<Ln}P#m3(RF)|Gf(sKuIv
Stb{<kzChV$NNM*nU)<trAE3$9Vld#r<@Y%k#*%?1~!=-exUl5B-vh#x~YGvowgHZUon}|7&>~X{?6u_Xhc@i^!~{jYF@2XnqHA@nA%L!mOyBS
ik4-vHmJN!nkt!ZYZu*x>8Tf5iL9K{`H*plew7h<xK9|7Evc$kwEjkWrv40xW+4%fOC*10?O$fvo814pOb?W;s8P+lV`?9@eoLta*{P{!^EHXl
dYQ+{Z=K?{(cC$1m-Xm);g)IA7}F+ZX-|q-23uNIm##=^Hhs<!GS%y)o_^Vzrs*jP^@phmnpKXlDpB=vL%xQSre!xq(fxlICG|P{6OsO}?jzb<
xtCTe^`mLT<eiPI+W;7(EGk8H?5P>rmX~pRg~^m(8v50AWOts5tVuT=(vkjk-ImDvM<j-FrRa1qx~1sT#StB91;_el%*Gg}B&tD?q;;$9`)o|a
S5-1~9i#hnVi7L&cAul`&wfUnBUNuLJr{Y#xs#{SeRf@E-gbW%SK5WMr{~eddDBO`en%d6(=Oj0*VPcYAK}A&4_#q3cHdqkS@L|nyN2z*9x3~L
emD5+c0U|l`+wqc#nHAKUT^ojPd8!wcHbO_*id#JSJBjacLDi^zg}4R*B!EB4fK6dTK>Fgw}g{GO<Y#l?1nSf)33cVxzIL7hSl4A-^bULbRTE$
_4c<feEfc~xBUZsn>WezIBCPi71ys{a1!+ovoGjndr`|lrhQyRme7QUE&FVHx60w>y%JYIcg~(-GQ%x1Mc92`7xLpiUYBL{eRcQK`+a<mYeuBJ
t|!xc&ojsSe9v#k&2+~n2i2$_zrhf&-`{1?<$bp$@vb9KeDiK^I)2WuaMw-40C|VU)AjF*)!wjOxA)fa>~EXO@Xxp7f%qS=Yf<FStoYaP!*55L
-Fr7j`u2Z^&&B?I7gvCF^j;O!_8lW5`q8W{MA&?JoNL>EeXmv1V%3LhU$K2}^3;ZO3+LJNypP9{nRZ9VF93L_aPjoL06`hj-w>wPe#=*GioAVp
Np=1mGsMw-O*ceW@b4qd#pQpVXBCC0t=E?@-(T-LeqUc{aq!!oZU}c@-v*iR@4xg5ep|ow*k*nA-1y~upHH>!-}8L&n58AxnO1$b=G7Lo_-aw`
X`f^D;JqG=@TPxXP5h7;H`m+=QS*7x<yFSq_2qqRW79Q#&KH}0bzc|mrVV2k{q}r2S0=u7Uuwf_bk9`vX7sEC%6|Vo2~GBOGbfq$S;uEo{XbS|
{WN$U;gfwI>*4y;4jV^oh<N
"""
TRUE = """
xYrYt_0>~5xkt%KI3pSs0KkN)l~QOeZq%gGAzSq5jbh(XK=!!?vlfHh+@SxPZ(4cE`c1X2V<s`i7uZl<aZumBu{AzOwFJi~$Qwu^QLI(ojGN>`
z`<-*eCj|RP2EW!VIjHB$s2vUPY1&;CA-Uy&&M<mzd+yq0#c(F*za`Q-D7$b<HIFb)(p=u&s_Sj|Gj5H8wrD}X94E=3R9|1`Z?wKbL-m#uStwi
HPiR<qg-YfBLcysj!PL(!yr8L(;Ye}M3Kn+O}t_QtFmv)N#PXI4m+@;E)0P-mNZBTBD7KL1!0La)|r+CQd!$s5xDcHw)R%iv8LMWSj?@|YY`3|
!WdioEJSYV`C|gYA>dQqQU&~5eAz5Rw41%JSxQdBJmWAK%l8VvQy-)JS{T5juABR*;z54e#azf@(B%ZFo20IE26Z?R1YLz8{|DI=06~9JJ!#8w
+~!#y2Iuf4dbUgwdrmpe((@Gc2-=em&$@O!2}({c=wvyt6lG}6^8;?a^&%s>%*^DW&J;@1(dIy!@+`yme*a=&
"""


# %%
def unpack(text):
    return np.frombuffer(base64.b85decode(text.replace("\n", "")), dtype=np.uint8)


names = ["v1", "v2", "v3", "v4", "v5"]
bits = np.unpackbits(unpack(ROWS)).reshape(1000, 5, 2)
dat = pd.DataFrame(np.array(list("acgt"))[bits[..., 0] * 2 + bits[..., 1]], columns=names)
dat.insert(0, "y", ["ctrl"] * 487 + ["case"] * 513)
# Each group has 5 x 3 fields, followed by ten 3 x 3 tables of couplings.
numbers = unpack(TRUE).view("<i2").reshape(2, 105) / 30_000
truth = {
    g: (row[:15].reshape(5, 3), row[15:].reshape(10, 3, 3))
    for g, row in zip(["ctrl", "case"], numbers, strict=True)
}
print(dat.groupby("y").size())

# %% [markdown]
# The regularisation parameter of mean field, $\epsilon$, interpolates between naive Bayes (0) and
# the full inverse of the covariance matrix (1).

# %%
grid = np.linspace(0, 1, 11).round(1)
cv = bbl.crossVal("y ~ .^2", dat, method="mf", eps=grid, log_z="mf", verbose=0)
print(cv)

# %%
paper = pd.DataFrame(
    {
        "AUC": [
            *(0.7849546, 0.8392593, 0.8610941, 0.8708767, 0.8773411, 0.8812357),
            *(0.8831850, 0.8845219, 0.8840456, 0.8815880, 0.8724978),
        ],
        "ci1": [
            *(0.7568076, 0.8149947, 0.8386831, 0.8493991, 0.8565066, 0.8608067),
            *(0.8629906, 0.8644845, 0.8639740, 0.8612527, 0.8511909),
        ],
        "ci2": [
            *(0.8131017, 0.8635240, 0.8835051, 0.8923543, 0.8981756, 0.9016647),
            *(0.9033795, 0.9045594, 0.9041172, 0.9019232, 0.8938047),
        ],
    },
    index=grid,
)
here = cv.cvframe.set_index("epsilon")
print(paper.add_suffix(" (paper)").join(here).to_string(float_format="%.7f"))
print(
    "largest difference from the paper:", f"{np.abs(paper.to_numpy() - here.to_numpy()).max():.1e}"
)

# %% [markdown]
# All printed digits agree with the paper. Interactions increase the AUC by 0.1, the difference
# between $\epsilon = 0$ and the maximum.
#
# Figure 5 shows the score and the parameters of three fits.

# %%
fig, axes = plt.subplots(2, 2, figsize=(9, 8.4), layout="constrained")
cv.plot(ax=axes[0, 0]).set_title("(a) Cross-validation")
pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
for ax, panel, eps in zip(axes.flat[1:], "bcd", (0.2, 0.7, 1.0), strict=True):
    coef = bbl.bbl("y ~ .^2", dat, method="mf", eps=eps).coef()
    inferred = (
        [coef.h[g][name] for g in truth for name in names],
        [coef.J[g][names[i], names[j]] for g in truth for i, j in pairs],
    )
    wanted = [np.concatenate([part[k] for part in truth.values()]) for k in (0, 1)]
    plot_comparison(wanted, inferred, ax=ax, title=rf"({panel}) $\epsilon$ = {eps}")
plt.show()

# %% [markdown]
# At $\epsilon = 0.2$, the couplings are all too small, and at 1, their variance is far too large;
# at 0.7, the value chosen by cross-validation, bias and variance are balanced.
#
# ## Pseudo-likelihood on the same rows
#
# The paper's example ends here. On these rows, pseudo-likelihood predicts slightly better. The true
# parameters give an upper limit: no model can improve on Bayes' rule with the true distributions.

# %%
by_penalty = bbl.crossVal(
    "y ~ .^2", dat, method="pseudo", lambda_=10 ** np.linspace(-3, 0, 7), verbose=0
)
print(by_penalty)

# %%
states = np.indices((4,) * 5).reshape(5, -1).T  # all 1024 configurations
log_p = {}
for group, (h, J) in truth.items():
    h = np.pad(h, ((0, 0), (1, 0)))
    J = np.pad(J, ((0, 0), (1, 0), (1, 0)))
    energy = sum(h[i, states[:, i]] for i in range(5))
    energy = energy + sum(J[k, states[:, i], states[:, j]] for k, (i, j) in enumerate(pairs))
    log_p[group] = energy - np.log(np.exp(energy).sum())
codes = dat[names].map("acgt".index).to_numpy()
row = codes @ 4 ** np.arange(4, -1, -1)
ratio = pd.Series(log_p["ctrl"] - log_p["case"])[row].to_numpy()
positive = ratio[dat["y"] == "ctrl"]
negative = ratio[dat["y"] == "case"]
best = np.mean(positive[:, None] > negative) + 0.5 * np.mean(positive[:, None] == negative)
print(
    f"AUC: mean field {cv.maxscore:.3f}, pseudo-likelihood {by_penalty.maxscore:.3f}, true "
    f"distributions {best:.3f}"
)
