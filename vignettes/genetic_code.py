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
# # The genetic code: 21 groups from three letters
#
# This page follows section 3.4 of Woo & Wang (2022, doi:10.18637/jss.v101.i05). The response is the
# amino acid (20 of them, and `*` for a stop), and the predictors are the three bases of a codon. Can
# the code be learnt from 2,000 random codons and their translations?
#
# This page reproduces the best penalty, 0.3162278, its score of 1, and the perfect translation of
# all 64 codons. The codons are those that R draws after `set.seed(351)`.

# %%
import base64
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bbl

# %% [markdown]
# In the paper, the codons are translated with a Bioconductor package. Here, only the table of the
# standard genetic code is needed, and `bbl` includes it:

# %%
code = bbl.datasets.load_genetic_code()
print(
    code.pivot_table(index=["b1", "b3"], columns="b2", values="aa", aggfunc="first").loc[["a", "t"]]
)

# %% [markdown]
# ## The data
#
# The following string contains the paper's 2,000 codons, with two bits per base. To draw other
# codons, sample rows of the table: `code.sample(2000, replace=True, random_state=351)`.

# %% tags=["hide-input"]
CODONS = """
%G??S>5nn^MD~31nja@7ZP9gb&Za&V7$lpbVL2RLTC~uN&iNCrFHQzv3of$ovHr=j^M|c&Hl1B)cV&;pR(rmdwb8)cqb-+P+J-t@ma)O9L`>uM
zhCK7J0S-F3%gd*gQ@ui+n;QO&wyP}Nq(#uO32`UJ|3z{z^B!B8QFiP2~X#f<a3I<s}I%MsF#2(O{tc|1j*0yO&)*KK(5~9_{_mmt+bX>t7DuN
(Y=a(PtpUOq}Q=Zv9J{G)rPCGt@+a5U&(p=wEC)g^+6X!oRC4tNJsj4c*o%YxyB$6xUI?Yg&e0oP0UFVR}5r_BWe2daL=N~P!_VVWVNo<<OJ16
6<35^nlt%$qeff1vsErO!<2TBp?&RuIIE;CC)F5^J<8xFJeLodF&vDP<<(nBJ*@%}JG&q%pp{6%hCo*CfgKQ2ZxAxya0dySdBL<wJ@s<$gaTIn
`@g0-e%$I!2~N2-B5|8mYTo0J&_Q7yd(80*F~^v<jmse8)eu<^%)jSub^U`!u;_F>QHAt?$@<gqHSTIQ7B*3>*+<NdLK*#Kw4yYvu~VRH|I?o%
dCS(5a;Q0<KFbGwc&~jc69W8IRi!}DFZXIiz10*A4pBqHBm>HXcKq**v}OU_nw5Hn@(qIuFH>8I^{9mHcJIuk_pM-NRV;=reSD2vUE#?}B9vF?
I?>bY#b%kBE64MEBVGN7&x04{mKs|>jHYm>K$F3EWUF!5cuxokxN!C;&eLhIty99yHg@<&*CY!r7-SB0n5c0PS2i1FyD{R1?xdy|+EIV#cM=>V
@i!GhVfsexE<e19?@L9Cpk<=<go0uX^!_nVoR(@!GzA4Hp~BzV@rG!ArVVXdkR=r9IS2$ydox`uI`mgc`u(4W`7$)@Rsx4R^1uWgV7zb*+Sn23
6=EYQJO6&{d{}m+RkI95qGC*~jG1_$OXkLWD91Vg`~rmWRE@U}7RIuqVP#F@Z+F=Q%uB}qX_kY^u-<I#1V3`<5JyMZ>1+&)Yw1}anW`pytWWz9
wz_*ey9XJL5XL%#r2{8?EBQX=H`9fMst=zu|ECL*m<f57S#N>B1h){jSU`clyCy5A8E}kII-TEha5Fe=KZ>BPJ|lVe;`TbXv4f^B)$UzrP+yrO
aZ&cDn%UlarEzn8DLz#awIzZBHY$yLKAXs)PJK#xpjCx{EXBBhmMM`o5&eAu!n#U{r>T59>bvDbJHPswXf~DZshUV#EBSfspb$LtlxvY-wpgwG
@H4x6n(fd`I<0*}h*v8+y#iM@v-n-79C8>bb%Iks9lVp$b5H7V6sO?pgEDopT#5j2t~72rXxSqEJBS68?lY!{DAKlfLl>H#N<C)!`6RM(hZHhU
wjoktbrxv=s@NeDsZcXZ=k^OzeRJ!5ZPEE7rT2jXyw+Ct9cu8b+wQ&MwZ*U3wuymd%?EE3c=%e;8;%oQnO?M6_M#E5cPW<Ege*?c<U@xvolcXN
L+l>IU6?Tr3cN0ZOIPZGUuMPE{VRK0n$I&+HoKb(i#pn|S!x63H}UXBhoT?ET2AL&Xt(y<X$b}c1b*X=Jj={fhYQw|+R)$^gEjSx@(2!;ESRiR
d!Vs`Fj6_vDJVM)?bkQVp38=u<f6o#4KI*G4II1lnJfWD(=|Do?LA|^{9I4GJ-H#Mx)H++S;wOa94cH7`WM^kH+A$p!A+k#N{Xp><}Z64iKt~l
{cM`ZMnJ8GvFJh-U9R`PYbqzm0QJuKKx}2upexhLqt0*dC=^TXE`0FHlp97B%~!h5bvcVa`y1jcD{x`{jQv>kTfRI@uFg;hiH44FJ9^n)+0*Ah
MWBCMn9DZD?En0|=pLBBuiPo%d=ewxHkh)L&ptJc-*R(xZ9tuK`<0B^yUj)np<^eYIA8Oa?!XbzgasLc(VG(7ApjZd_VRa-So;S_Lc4nOO99wR
g@UoE
"""

# %%
packed = np.frombuffer(base64.b85decode(CODONS.replace("\n", "")), dtype=np.uint8)
bits = np.unpackbits(packed).reshape(2000, 3, 2)
bases = np.array(list("acgt"))[bits[..., 0] * 2 + bits[..., 1]]
codons = pd.DataFrame(bases, columns=["b1", "b2", "b3"])
xdat = codons.merge(code, on=["b1", "b2", "b3"], how="left")
print(xdat[["aa", "b1", "b2", "b3"]].head(6))

# %% [markdown]
# ## Cross-validation as in the paper
#
# With more than two groups, the score is the accuracy. At a given position, most bases never occur
# for most amino acids: methionine is always `atg`. Without a penalty on the fields, the fields of
# these levels diverge to minus infinity. `bbl` then issues a `ConvergenceWarning`, which is
# expected and therefore silenced here.

# %%
grid = 10 ** np.linspace(-3, 1, 9)
with warnings.catch_warnings(action="ignore", category=bbl.ConvergenceWarning):
    cv = bbl.crossVal("aa ~ .^2", xdat, lambda_=grid, log_z="pseudo", verbose=0)
released = [0.9195, 0.9195, 0.9875, 0.9875, 0.9925, 1, 0.993, 0.977, 0.977]
print(cv)
print(
    pd.DataFrame(
        {"R 1.0.0": released, "here": cv.cvframe["score"].to_numpy()}, index=grid
    ).to_string()
)

# %% [markdown]
# The best penalty, $\lambda^* = 0.3162278$, and its score of 1 agree with the paper. The other
# scores agree with version 1.0.0 of the R package, except for the first: with almost no penalty,
# the fields diverge, so the score depends on where the optimiser stops.
#
# The test set is the complete genetic code:

# %%
right = cv.predict(code, type="class").astype(str) == code["aa"]
print(f"codons translated correctly: {right.sum()} of {len(code)} (paper: all)")

# %% [markdown]
# ## Effect of the exact partition function
#
# In the table above, the score *decreases* for small penalties. This is not overfitting but the
# effect of the approximation of $\ln Z$ in eq. 31, which counts each interaction twice, with a
# different error in each of the 21 groups. With the exact sum over the 64 states, which is the
# default in `bbl`, the code is learnt perfectly at any penalty below 1.

# %%
with warnings.catch_warnings(action="ignore", category=bbl.ConvergenceWarning):
    exact = bbl.crossVal("aa ~ .^2", xdat, lambda_=grid, log_z="exact", verbose=0)
print(
    pd.DataFrame(
        {"eq. (31)": cv.cvframe["score"].to_numpy(), "exact": exact.cvframe["score"].to_numpy()},
        index=grid,
    ).to_string()
)

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
cv.plot(ax=axes[0]).set_title("ln Z by eq. (31)")
exact.plot(ax=axes[1]).set_title("exact ln Z")
plt.show()

# %% [markdown]
# ## What do interactions contribute?
#
# Naive Bayes multiplies the frequencies of the three bases. This is correct for amino acids with a
# block of codons, such as the four codons `gg.` of glycine, but not for others. For example, serine
# has the codons `tc.` as well as `agt` and `agc`, so naive Bayes also assigns probability to `ac.`
# and `tg.`, which code for other amino acids.

# %%
fits = {"naive Bayes": bbl.bbl("aa ~ .", xdat, method="naive")}
with warnings.catch_warnings(action="ignore", category=bbl.ConvergenceWarning):
    fits["Boltzmann Bayes"] = bbl.bbl("aa ~ .^2", xdat, lambda_=0.01, log_z="exact")
rows = {}
for name, fit in fits.items():
    p = fit.predict(code, type="prob")
    right = np.array([p.loc[k, aa] for k, aa in code["aa"].items()])
    correct = int((p["yhat"].astype(str) == code["aa"]).sum())
    rows[name] = {
        "codons right": correct,
        "mean P(right)": right.mean(),
        "smallest P(right)": right.min(),
    }
    print(
        f"{name}: wrong at",
        ["".join(row) for row in code[p["yhat"].astype(str) != code["aa"]].to_numpy()[:, :3]],
    )
print(pd.DataFrame(rows).T.to_string(float_format="%.3f"))

# %% [markdown]
# The following table shows the probability of serine at its six codons under both
# models:

# %%
serine = code[code["aa"] == "S"]
names = serine[["b1", "b2", "b3"]].agg("".join, axis=1)
print(
    pd.DataFrame({name: fit.predict(serine, type="prob")["S"] for name, fit in fits.items()})
    .set_axis(names)
    .to_string(float_format="%.3f")
)
