"""Hints about formulas, tables, sampling designs, structural zeros and data read in batches."""

import io
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import bbl
from advice.common import (
    DATA,
    FITTED,
    GAPS,
    NUMBERS,
    QUIET,
    RATINGS,
    SEEN,
    WIDE,
    blocks,
    case,
    fit,
    in_folder,
    patched,
    raising,
    shot,
    survey_fit,
)
from bbl.design.streams.adapters import lazy_source

DIGITS = DATA.rename(columns={"a": "1", "b": "2"})
SAMPLE = DATA.assign(
    w=1.0, h=np.arange(60) // 30, c=np.arange(60) // 5, v=np.arange(60) // 10, N=500, M=10
)
RATED_TWICE = pd.DataFrame({"user": [0, 0, 1, 1], "movie": [0, 0, 0, 1], "rating": [0, 1, 1, 1]})
NOISE = DATA[["a", "y"]].assign(d=np.arange(60) % 40 / 8)
NESTED = DATA.assign(d=[[b, c] for b, c in zip(DATA["b"], DATA["c"], strict=True)])
MATRIX = RATINGS.pivot(index="user", columns="movie", values="rating")


def rewritten(wrong: str, says: str, *right: str, data: Any = DATA, **options: Any) -> Any:
    """Return the case of a formula that is rewritten as its hint says."""
    return case(
        says,
        lambda: fit(wrong, data),
        *(lambda formula=formula: fit(formula, data, **options) for formula in right),
    )


FORMULAS = {
    "a formula after the data": case(
        r"Pass the formula before the data\.",
        lambda: bbl.bbl(DATA, "y ~ a", **QUIET),
        lambda: bbl.bbl("y ~ a", DATA, **QUIET),
    ),
    "a text where data belong": case(
        r"Pass the formula first, then the data\.",
        lambda: bbl.bbl("d.parquet", "y ~ a", **QUIET),
        lambda: bbl.bbl("y ~ a", DATA, **QUIET),
    ),
    "a long formula": rewritten(
        "y ~ " + "a + " * 400_000 + "b",
        r"Write at most [\d,]+ characters, for example with '\.' for all",
        "y ~ .",
    ),
    "a formula without a tilde": rewritten(
        "y + a", "Write it like 'y ~ a \\+ b'", "y ~ a + b", "y ~ a*b", "y ~ (a + b + c)^2"
    ),
    "a response that is a number": rewritten(
        "1 ~ c",
        "Put an unusual name in backticks",
        "`1` ~ c",
        data=DIGITS,
    ),
    "a response without a name": case(
        "Rename it",
        lambda: fit("None ~ a", DATA.set_axis(pd.Index([*"abc", None], dtype=object), axis=1)),
        lambda: fit("y ~ a", DATA),
    ),
    "weights as the response": case(
        "Choose another column",
        lambda: fit("b ~ a", DATA, weights="b"),
        lambda: fit("y ~ a", DATA, weights="b"),
    ),
    "weights as a predictor": case(
        "Use the column for only one purpose",
        lambda: fit("y ~ a + b", DATA, weights="b"),
        lambda: fit("y ~ a", DATA, weights="b"),
        lambda: fit("y ~ a + b", DATA),
    ),
    "no such column": rewritten("y ~ aa", "Choose one of its columns: a, b, c, y", "y ~ a"),
    "a formula that repeats itself": rewritten(
        "~ " + "+".join([".^2"] * 8_000), "Shorten it", "~ v0*v1", data=WIDE
    ),
    "the intercept in a product": rewritten(
        "y ~ 1:c",
        "If you mean a column named 1, put its name in backticks",
        "y ~ `1`:c",
        data=DIGITS,
    ),
    "no predictors": case(
        "Add at least one column to the right",
        lambda: shot("y ~ a - a"),
        lambda: shot("y ~ a"),
    ),
    "the response as a predictor": rewritten("y ~ y + a", r"Drop it\.", "y ~ a"),
    "a character of ours": rewritten(
        "y ~ \ua66e",
        "put unusual column names in backticks",
        "y ~ `\ua66e`",
        data=DATA.rename(columns={"a": "\ua66e"}),
    ),
    "a character without meaning": rewritten(
        "y ~ a$b",
        r"Write the column 'a\$b' in backticks: `a\$b`",
        "y ~ `a$b`",
        data=DATA.rename(columns={"a": "a$b"}),
    ),
    "an exponent of 0": rewritten("y ~ (a + b)^0", r"Write \^2 for all pairs", "y ~ (a + b)^2"),
    "an exponent that is a name": rewritten(
        "y ~ (a + b)^c", r"Write \^2 for all pairs", "y ~ (a + b)^2"
    ),
    "an exponent twice": rewritten("y ~ (a + b)^2^2", r"Write \^2 for all pairs", "y ~ (a + b)^2"),
    "a function": case(
        "compute the column first",
        lambda: fit("y ~ log(a)", DATA),
        lambda: fit("y ~ log_a", DATA.assign(log_a=np.log1p(DATA["a"]))),
    ),
    "a reference level": case(
        r"Write only the column name, .* xlevels=\{'a': \[\.\.\.\]\}",
        lambda: fit("y ~ relevel(a, ref='1')", DATA),
        lambda: fit("y ~ a", DATA, xlevels={"a": [1, 0]}),
    ),
    "a formula that cannot be read": rewritten("y ~ (a + b", "Write it like", "y ~ a + b"),
    "two names side by side": rewritten("y ~ a b", "Write it like", "y ~ a + b"),
    "a number as a column": rewritten(
        "y ~ 2 + c",
        "If this is a column name, put it in backticks: `2`",
        "y ~ `2` + c",
        data=DIGITS,
    ),
    "an operator without meaning": rewritten("y ~ a :: b", "Write it like", "y ~ a + b"),
    "parentheses in parentheses": rewritten(
        "y ~ " + "(" * 101 + "a" + ")" * 101, "Use fewer nested parentheses", "y ~ a"
    ),
}


def stratified(data: Any = SAMPLE, **design: Any) -> Any:
    return fit("y ~ a", data, method="naive", design=bbl.survey("w", **design))


HALVES = {"strata": "h2", "cluster": "c", "nested": True}
PAIRED = SAMPLE.assign(h2=SAMPLE["c"] // 2)

SURVEYS = {
    "a column that the design lacks": case(
        "Choose one of them",
        lambda: stratified(strata="H", cluster="C"),
        lambda: stratified(strata="h", cluster="c"),
    ),
    "a sampling weight of 0": case(
        "Leave this row out. To analyse a subpopulation, pass a column of True and False",
        lambda: stratified(SAMPLE.assign(w=np.arange(60.0))),
        lambda: stratified(SAMPLE.assign(w=np.arange(60.0)).iloc[1:]),
        lambda: stratified(SAMPLE.assign(d=np.arange(60) > 0), domain="d"),
    ),
    "a row without a cluster": case(
        "Fill in the missing values, or leave these rows out",
        lambda: stratified(SAMPLE.assign(c=SAMPLE["c"].where(SAMPLE["c"] > 0)), cluster="c"),
        lambda: stratified(SAMPLE, cluster="c"),
        lambda: stratified(SAMPLE[SAMPLE["c"] > 0], cluster="c"),
    ),
    "clusters that begin anew": case(
        r"pass nested=True\.",
        lambda: stratified(SAMPLE.assign(c=SAMPLE["c"] % 6), strata="h", cluster="c", nested=False),
        lambda: stratified(SAMPLE.assign(c=SAMPLE["c"] % 6), strata="h", cluster="c", nested=True),
    ),
    "two sizes of a population": case(
        "Use the same number in all rows of a stratum",
        lambda: stratified(SAMPLE.assign(N=500 + np.arange(60)), strata="h", fpc="N"),
        lambda: stratified(SAMPLE, strata="h", fpc="N"),
    ),
    "a sampling fraction": case(
        "Pass the number of units",
        lambda: stratified(SAMPLE.assign(N=0.1), fpc="N"),
        lambda: stratified(SAMPLE, fpc="N"),
    ),
    "one cluster in all": case(
        "If rows were sampled individually, omit the cluster argument",
        lambda: stratified(SAMPLE.assign(c=1), cluster="c"),
        lambda: stratified(SAMPLE.assign(c=1)),
    ),
    "one cluster in a stratum": case(
        "Merge them with similar strata, or pass lonely='adjust' .*'average' .* or 'remove'",
        lambda: stratified(SAMPLE.assign(h=SAMPLE["c"].clip(0, 3)), strata="h", cluster="c"),
        lambda: stratified(SAMPLE.assign(h=SAMPLE["c"].clip(2, 3)), strata="h", cluster="c"),
        *(
            lambda lonely=lonely: stratified(
                SAMPLE.assign(h=SAMPLE["c"].clip(0, 3)), strata="h", cluster="c", lonely=lonely
            )
            for lonely in ("adjust", "average", "remove")
        ),
    ),
    "a domain of numbers": case(
        r"Create one, for example data\.assign\(domain=",
        lambda: stratified(domain="c"),
        lambda: stratified(SAMPLE.assign(domain=SAMPLE["c"] >= 3), domain="domain"),
    ),
    "JK1 with strata": case(
        r"Use type='JKn'\.",
        lambda: stratified(strata="h", cluster="c", type="JK1"),
        lambda: stratified(strata="h", cluster="c", type="JKn"),
    ),
    "BRR without pairs": case(
        r"Use type='JKn'\.",
        lambda: stratified(strata="h", cluster="c", type="BRR"),
        lambda: stratified(strata="h", cluster="c", type="JKn"),
    ),
    "replicates of a stratum of one cluster": case(
        "Merge it with a similar stratum, or omit the type argument",
        lambda: stratified(
            SAMPLE.assign(h=SAMPLE["c"].clip(0, 3)),
            strata="h",
            cluster="c",
            type="JKn",
            lonely="remove",
        ),
        lambda: stratified(
            SAMPLE.assign(h=SAMPLE["c"].clip(2, 3)),
            strata="h",
            cluster="c",
            type="JKn",
            lonely="remove",
        ),
        lambda: stratified(
            SAMPLE.assign(h=SAMPLE["c"].clip(0, 3)), strata="h", cluster="c", lonely="remove"
        ),
    ),
    "a number of jackknife replicates": case(
        "Set type='bootstrap', or list the columns",
        lambda: survey_fit(replicates=20, type="JK1"),
        lambda: survey_fit(replicates=20, type="bootstrap"),
        lambda: survey_fit(replicates=["r1", "r2"], type="JK1"),
    ),
    "a population of one stage": case(
        "List one column for each stage, or omit the fpc argument",
        lambda: stratified(cluster=["v", "c"], fpc="N"),
        lambda: stratified(cluster=["v", "c"], fpc=["N", "M"]),
        lambda: stratified(cluster=["v", "c"]),
    ),
    "a population of half samples": case(
        "Omit the fpc argument, or use type='JKn' or 'bootstrap'",
        lambda: stratified(PAIRED, **HALVES, fpc="N", type="BRR"),
        lambda: stratified(PAIRED, **HALVES, type="BRR"),
        lambda: stratified(PAIRED, **HALVES, fpc="N", type="JKn"),
        lambda: stratified(PAIRED, **HALVES, fpc="N", type="bootstrap"),
    ),
    "replicates and clusters": case(
        "Pass either replicates with weights, or strata, cluster and fpc",
        lambda: survey_fit(replicates=["r1", "r2"], type="JK1", cluster="c"),
        lambda: survey_fit(replicates=["r1", "r2"], type="JK1"),
        lambda: survey_fit(cluster="c"),
    ),
}


def zeros(table: Any, formula: str = "~ a*b", data: Any = None, **options: Any) -> Any:
    data = DATA[(DATA["a"] == 0) | (DATA["b"] == 0)] if data is None else data
    return fit(formula, data, method="ml", structural_zeros=table, **options)


BOTH = pd.DataFrame({"a": [1], "b": [1]})
MARKED = DATA.assign(z=(DATA["a"] == 1) & (DATA["b"] == 1))

ZEROS = {
    "marks of no column": case(
        "Pass the name of a column that marks rows, or a table",
        lambda: zeros("q"),
        lambda: zeros("z", data=MARKED[~MARKED["z"]]),
        lambda: zeros(BOTH),
    ),
    "zeros of another column": case(
        "Remove all columns from the table that are not in the formula",
        lambda: zeros(BOTH.assign(q=1)),
        lambda: zeros(BOTH),
    ),
    "zeros of no predictor": case(
        "Add a column for each predictor in the impossible combinations",
        lambda: zeros(pd.DataFrame({"y": ["s"]}), "y ~ a*b"),
        lambda: zeros(BOTH, "y ~ a*b"),
    ),
    "marks that are numbers": case(
        "with True or 1, and the others with False or 0",
        lambda: zeros("z", data=DATA.assign(z=DATA["a"] * 2)),
        lambda: zeros("z", data=MARKED[~MARKED["z"]]),
        lambda: zeros("z", data=MARKED[~MARKED["z"]].astype({"z": int})),
    ),
    "a zero of an unknown level": case(
        "Specify a level for every column",
        lambda: zeros(pd.DataFrame({"a": [1], "b": [None]})),
        lambda: zeros(BOTH),
    ),
}


def two_way(data: Any = MATRIX, **options: Any) -> Any:
    return bbl.bicluster(None, data, groups=(2, 2), **options, **QUIET)


def cell(value: Any, data: Any = MATRIX) -> Any:
    changed = data.copy()
    changed.iloc[0, 0] = value
    return changed


TABLES = {
    "new rows without a column": case(
        "Include all of them, with nan for missing cells",
        lambda: two_way().predict(MATRIX.iloc[:2, :5]),
        lambda: two_way().predict(MATRIX.iloc[:2, :5].reindex(columns=MATRIX.columns)),
    ),
    "a missing name of a row": case(
        r"Drop them: data\.dropna\(subset=\['user'\]\)",
        lambda: blocks(data=RATINGS.assign(user=RATINGS["user"].where(RATINGS["user"] > 0))),
        lambda: blocks(
            data=RATINGS.assign(user=RATINGS["user"].where(RATINGS["user"] > 0)).dropna(
                subset=["user"]
            )
        ),
    ),
    "ratings that are text": case(
        r"Convert it to numbers or an ordered category .* or use metric='levels'",
        lambda: blocks(data=RATINGS.assign(rating=RATINGS["rating"].astype(str))),
        lambda: blocks(data=RATINGS.assign(rating=RATINGS["rating"].astype(str).astype(float))),
        lambda: blocks(data=RATINGS.assign(rating=pd.Categorical(RATINGS["rating"], ordered=True))),
        lambda: blocks(data=RATINGS.assign(rating=RATINGS["rating"].astype(str)), metric="levels"),
    ),
    "an infinite rating": case(
        r"Replace it with a missing value \(nan\), or drop the row",
        lambda: blocks(data=RATINGS.assign(rating=cell(np.inf, RATINGS[["rating"]]))),
        lambda: blocks(data=RATINGS.assign(rating=cell(np.nan, RATINGS[["rating"]]))),
        lambda: blocks(data=RATINGS.iloc[1:]),
    ),
    "an infinite cell": case(
        r"Make it missing \(nan\)",
        lambda: two_way(cell(np.inf).to_numpy()),
        lambda: two_way(cell(np.nan).to_numpy()),
    ),
    "an empty matrix": case(
        "Pass at least two rows and two columns",
        lambda: two_way(pd.DataFrame()),
        lambda: two_way(),
    ),
    "a matrix of one row": case(
        "Pass at least two rows and two columns",
        lambda: bbl.bicluster(None, MATRIX.head(1), **QUIET),
        lambda: bbl.bicluster(None, MATRIX.head(2), **QUIET),
    ),
    "weights of a matrix by name": case(
        "Pass an array with one weight for each row",
        lambda: two_way(weights="n"),
        lambda: two_way(weights=np.ones(8)),
    ),
    "a row without cells": case(
        r"Drop it\.",
        lambda: two_way(pd.concat([MATRIX.head(1) * np.nan, MATRIX.iloc[1:]])),
        lambda: two_way(MATRIX.iloc[1:]),
    ),
    "ratings of mcmc": case(
        r"Leave the response out \('~ user\*movie'\)",
        lambda: blocks("rating ~ user*movie", SEEN, None, method="mcmc", draws=20, warmup=20),
        lambda: blocks("~ user*movie", SEEN, None, method="mcmc", draws=20, warmup=20),
    ),
    "rated and unrated": case(
        "Keep only one of the rows of this pair",
        lambda: blocks(
            data=pd.DataFrame(
                {"user": [0, 0, 1, 1], "movie": [0, 0, 0, 1], "rating": [0, 1, 1, 1]}
            ),
            groups=None,
            method="mcmc",
            draws=20,
            warmup=20,
        ),
        lambda: blocks(
            data=RATED_TWICE.iloc[1:],
            groups=None,
            method="mcmc",
            draws=20,
            warmup=20,
        ),
    ),
}

UNORDERED = DATA.assign(a=pd.Categorical.from_codes(DATA["a"], ["lo", "hi"], ordered=True))

COLUMNS = {
    "no complete row": case(
        r"Leave columns .*, such as 'a', out of the formula, or .*\(missing='level'\)",
        lambda: fit("y ~ a + b", DATA.assign(a=np.nan), missing="drop"),
        lambda: fit("y ~ b", DATA.assign(a=np.nan), missing="drop"),
        lambda: fit("y ~ a + b", GAPS, missing="level"),
    ),
    "no complete row of batches": case(
        r"Leave columns .*, such as 'a', out of the formula, or .*\(missing='level'\)",
        lambda: fit("y ~ a + b", lambda: iter([GAPS.assign(a=None)]), missing="drop"),
        lambda: fit("y ~ b", lambda: iter([GAPS.assign(a=None)]), missing="drop"),
        lambda: fit("y ~ a + b", lambda: iter([GAPS]), missing="level"),
    ),
    "a column without values": case(
        "Leave it out of the formula",
        lambda: fit("y ~ a + b", DATA.assign(a=np.nan), missing="marginal"),
        lambda: fit("y ~ b", DATA.assign(a=np.nan), missing="marginal"),
    ),
    "a group without rows": case(
        "Leave it out of xlevels",
        lambda: fit(data=DATA.assign(y=pd.Categorical(DATA["y"])), xlevels={"y": ["s", "t", "u"]}),
        lambda: fit(data=DATA.assign(y=pd.Categorical(DATA["y"])), xlevels={"y": ["s", "t"]}),
    ),
    "rare levels": case(
        "Merge the rare levels, or leave the column out",
        lambda: fit("y ~ a + q", RARE, method="naive"),
        lambda: fit("y ~ a + q", bbl.lump(RARE, columns=["q"], min_count=3), method="naive"),
        lambda: fit("y ~ a", RARE, method="naive"),
    ),
    "numbers without names": case(
        r"Pass a dict such as priors=\{'s': .*\}, or declare the order",
        lambda: fit(priors=[0.4, 0.6]),
        lambda: fit(priors={"s": 0.4, "t": 0.6}),
        lambda: fit(data=DATA.assign(y=pd.Categorical(DATA["y"], ["t", "s"])), priors=[0.4, 0.6]),
        lambda: fit(xlevels={"y": ["t", "s"]}, priors=[0.4, 0.6]),
    ),
    "a prior of no group": case(
        "Choose from 's', 't'",
        lambda: fit(priors={"s": 0.4, "T": 0.6}),
        lambda: fit(priors={"s": 0.4, "t": 0.6}),
    ),
    "a prior too few": case(
        "Include each of 's', 't' exactly once",
        lambda: fit(priors={"s": 1.0}),
        lambda: fit(priors={"s": 0.4, "t": 0.6}),
    ),
    "names that cannot be stored": case(
        r"Rename the columns: data\.columns\.astype\(str\)",
        in_folder(lambda f: fit("y ~ .", DATES).save(f / "m.bbl")),
        in_folder(
            lambda f: fit("y ~ .", DATES.set_axis(DATES.columns.astype(str), axis=1)).save(
                f / "m.bbl"
            )
        ),
    ),
    "a missing level": case(
        "Leave it out",
        lambda: fit(xlevels={"a": [0, 1, None]}),
        lambda: fit(xlevels={"a": [0, 1]}),
    ),
    "a level that is infinite": case(
        "Bin the column, or drop the rows",
        lambda: fit("y ~ x", ENDLESS),
        lambda: fit("y ~ x", ENDLESS.assign(x=pd.cut(ENDLESS["x"], [-1, 0.5, np.inf]))),
        lambda: fit("y ~ x", ENDLESS[np.isfinite(ENDLESS["x"])]),
    ),
    "levels of equal text": case(
        "Replace one with the other, or convert them to different strings",
        lambda: fit("y ~ q", TWINS),
        lambda: fit("y ~ q", TWINS.assign(q=TWINS["q"].map(lambda v: v if v == UNIT else "other"))),
        lambda: fit("y ~ q", TWINS.assign(q=DATA["a"].map({0: UNIT, 1: "other"}))),
    ),
    "no rows": case(
        "Provide at least one row for each response group",
        lambda: fit(data=DATA.head(0)),
        lambda: fit(data=DATA),
    ),
    "weights that were cut": case(
        r"Specify the weights when you bin the table: bbl\.bin\(data, weights=\.\.\.\)",
        lambda: fit("y ~ a + x", bbl.bin(WEIGHTY), weights="w"),
        lambda: fit("y ~ a + x", bbl.bin(WEIGHTY, weights="w"), weights="w"),
    ),
    "weights of the training rows": case(
        "Omit the weights argument, or pass newdata too",
        lambda: FITTED.evaluate(weights=np.ones(60)),
        lambda: FITTED.evaluate(),
        lambda: FITTED.evaluate(DATA, weights=np.ones(60)),
    ),
    "a bin of words": case(
        "Replace these cells with numbers or missing values, or leave the column out",
        lambda: bbl.bin(NUMBERS.assign(x=["?", *NUMBERS["x"][1:]]), columns=["x"]),
        lambda: bbl.bin(NUMBERS.assign(x=[np.nan, *NUMBERS["x"][1:]]), columns=["x"]),
        lambda: bbl.bin(NUMBERS.assign(x=["?", *NUMBERS["x"][1:]]), columns=["a"]),
    ),
    "a bin of booleans": case(
        r"Convert it to numbers: data\['d'\]\.astype\(float\)\.",
        lambda: bbl.bin(DATA.assign(d=True), "d"),
        lambda: bbl.bin(DATA.assign(d=DATA.assign(d=True)["d"].astype(float)), "d"),
    ),
    "a bin without a cut": case(
        "Leave them out of the formula, or cut them with method='quantile'",
        lambda: bbl.bin(NOISE, "d", method="mdl", response="y"),
        lambda: fit("y ~ . - d", bbl.bin(NOISE, method="mdl", response="y")),
        lambda: fit("y ~ .", bbl.bin(NOISE, "d", method="quantile")),
    ),
    "two columns of amounts": case(
        r"bbl\.bin\(data, 'd'\).* Do the same for 'e'\.",
        lambda: fit("y ~ .", NOISE.assign(e=NOISE["d"] / 7)),
        lambda: fit("y ~ .", bbl.bin(NOISE.assign(e=NOISE["d"] / 7), ["d", "e"])),
    ),
    "a column of lists": case(
        "Put each part into a separate column, or convert the values to strings",
        lambda: fit("y ~ a + d", NESTED),
        lambda: fit("y ~ a + first + last", NESTED.assign(first=DATA["b"], last=DATA["c"])),
        lambda: fit("y ~ a + d", NESTED.assign(d=NESTED["d"].astype(str))),
    ),
    "a bin of no column": case(
        "Name columns of the data",
        lambda: bbl.bin(NUMBERS, columns=["X"]),
        lambda: bbl.bin(NUMBERS, columns=["x"]),
    ),
    "a bin of the weights": case(
        "Leave it out",
        lambda: bbl.bin(WEIGHTY, columns=["x", "w"], weights="w"),
        lambda: bbl.bin(WEIGHTY, columns=["x"], weights="w"),
    ),
    "a bin of an infinite number": case(
        "Drop these rows",
        lambda: bbl.bin(ENDLESS, columns=["x"]),
        lambda: bbl.bin(ENDLESS[np.isfinite(ENDLESS["x"])], columns=["x"]),
    ),
    "a column that is named wrongly": case(
        "Choose one of them",
        lambda: FITTED.predict(DATA.drop(columns="a")),
        lambda: FITTED.predict(DATA),
    ),
    "an iterator of rows": case(
        r"Convert it with pandas\.DataFrame\(\.\.\.\), and collect lazy frames first",
        lambda: fit("y ~ a", DATA.itertuples()),
        lambda: fit("y ~ a", pd.DataFrame(DATA.itertuples())),
    ),
    "series of other indices": case(
        r"Align them with pandas\.DataFrame\(\.\.\.\), or pass \.to_numpy\(\)",
        lambda: fit("y ~ a", {"y": DATA["y"], "a": DATA["a"].iloc[::-1]}),
        lambda: fit("y ~ a", pd.DataFrame({"y": DATA["y"], "a": DATA["a"].iloc[::-1]})),
        lambda: fit("y ~ a", {"y": DATA["y"].to_numpy(), "a": DATA["a"].iloc[::-1].to_numpy()}),
    ),
    "a file of no sequences": case(
        "Use a FASTA file: lines '>name', then the sequence",
        lambda: bbl.readFasta(io.StringIO("")),
        lambda: bbl.readFasta(io.StringIO(">one\nACGT\n")),
    ),
    "a file that is not text": case(
        r"Use a FASTA file\.",
        lambda: bbl.readFasta(io.BytesIO(b"\xff\xfe\xfa")),
        lambda: bbl.readFasta(io.BytesIO(b">one\nACGT\n")),
    ),
    "a packed file": case(
        r"Use an uncompressed FASTA file\.",
        lambda: bbl.readFasta(io.BytesIO(b"\0\0")),
        lambda: bbl.readFasta(io.BytesIO(b">one\nACGT\n")),
    ),
    "a file of bare sequences": case(
        r"Use a FASTA file\.",
        lambda: bbl.readFasta(io.StringIO("ACGT\n")),
        lambda: bbl.readFasta(io.StringIO(">one\nACGT\n")),
    ),
}
UNIT = pd.Interval(0, 1)
TWINS = DATA.assign(q=DATA["a"].map({0: UNIT, 1: str(UNIT)}).astype(object))
RARE = pd.DataFrame(
    {
        "a": np.tile([0, 1], 130),
        "q": [f"q{i}" for i in range(130)] * 2,
        "y": ["s", "t", "t", "s"] * 65,
    }
)
RARE.loc[:99, "q"] = "q0"
DATES = DATA.rename(columns={"a": pd.Timestamp("2020-01-01")})
ENDLESS = DATA.assign(x=np.where(np.arange(60) == 5, np.inf, DATA["a"].astype(float)))
WEIGHTY = NUMBERS.assign(w=np.linspace(1.0, 2.0, 60))


def written(table: Any, path: Path) -> str:
    table.to_parquet(path)
    return str(path)


def reader(data: Any = DATA) -> pa.RecordBatchReader:
    return pa.Table.from_pandas(data, preserve_index=False).to_reader()


def changing(first: Any, later: Any) -> Any:
    """Return a source whose later passes give another table: the first call names the columns."""
    calls = []

    def tables() -> Any:
        calls.append(1)
        yield first if len(calls) <= 2 else later

    return tables


AGAIN = "Read the data again when no process is writing to it"


def twice(wrong: Any, says: str) -> Any:
    return case(
        says,
        lambda: fit("y ~ a + b", changing(DATA, wrong)),
        lambda: fit("y ~ a + b", changing(DATA, DATA)),
    )


def failing() -> Any:
    yield DATA
    raise ValueError("broken")


def without(module: str, call: Any) -> Any:
    with mock.patch.dict(sys.modules, {module: None}):
        return call()


def read_twice() -> Any:
    source = lazy_source(reader())
    list(source.batches(["y", "a"]))
    return list(source.batches(["y", "b"]))


def full_disk() -> Any:
    source = reader()
    writer = type("Writer", (), {"write_batch": raising(OSError(28, "No space left"))})
    return patched(
        "pyarrow.ipc.new_stream", lambda *a, **o: writer(), lambda: fit("y ~ a", source)
    )()


def old_polars() -> Any:
    frame = pl.DataFrame(DATA.to_dict("list")).lazy()
    real = hasattr
    with mock.patch(
        "bbl.design.streams.adapters.hasattr",
        lambda o, n: False if n == "collect_batches" else real(o, n),
        create=True,
    ):
        return fit("y ~ a", frame)


def on_workers(data: Any) -> Any:
    from dask import dataframe as dd
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        source = dd.from_pandas(DATA, npartitions=2) if data is None else data
        return fit("y ~ a", source, client=client)


STREAMS = {
    "a reader that was read": case(
        "Pass the object that created it, or a callable that returns a new one",
        lambda: read_twice(),
        lambda: fit("y ~ b", pa.Table.from_pandas(DATA)),
        lambda: fit("y ~ b", lambda: reader()),
    ),
    "a full disk": case(
        "Free some space, or set TMPDIR",
        full_disk,
        lambda: fit("y ~ a", reader()),
    ),
    "an old polars": case(
        r"Update polars, or write the frame with sink_parquet\(\) and pass the file",
        old_polars,
        lambda: fit("y ~ a", pl.DataFrame(DATA.to_dict("list")).lazy()),
        in_folder(
            lambda f: [
                pl.DataFrame(DATA.to_dict("list")).lazy().sink_parquet(f / "d.parquet"),
                fit("y ~ a", str(f / "d.parquet")),
            ]
        ),
    ),
    "a callable that returns a table": case(
        "Yield data frames, pyarrow tables or dicts of lists, and start from the beginning",
        lambda: fit("y ~ a", lambda: DATA),
        lambda: fit("y ~ a", lambda: iter([DATA])),
        lambda: fit("y ~ a", lambda: iter([pa.Table.from_pandas(DATA)])),
        lambda: fit("y ~ a", lambda: iter([DATA.to_dict("list")])),
    ),
    "a callable without batches": case(
        "Provide at least one row for each response group",
        lambda: fit("y ~ a", lambda: iter([])),
        lambda: fit("y ~ a", lambda: iter([DATA])),
    ),
    "batches without rows": case(
        "Provide at least one row for each response group",
        lambda: fit("y ~ a", lambda: iter([DATA.head(0)])),
        lambda: fit("y ~ a", lambda: iter([DATA])),
    ),
    "no such file": case(
        "Check the path. Read files in other formats into a table first",
        lambda: fit("y ~ a", "nowhere.csv"),
        in_folder(lambda f: fit("y ~ a", written(DATA, f / "d.parquet"))),
        lambda: fit("y ~ a", DATA),
    ),
    "a damaged file": case(
        r"Check the file\.",
        in_folder(
            lambda f: [(f / "d.parquet").write_text("text"), fit("y ~ a", str(f / "d.parquet"))]
        ),
        in_folder(lambda f: fit("y ~ a", written(DATA, f / "d.parquet"))),
    ),
    "a file of text": case(
        r"Read it first: data=pandas\.read_csv\(path\)",
        in_folder(lambda f: [DATA.to_csv(f / "d.csv"), fit("y ~ a", str(f / "d.csv"))]),
        in_folder(lambda f: [DATA.to_csv(f / "d.csv"), fit("y ~ a", pd.read_csv(f / "d.csv"))]),
    ),
    "a file without a column": case(
        "Leave the file out, or rewrite it",
        in_folder(
            lambda f: [
                written(DATA, f / "d.parquet"),
                written(DATA.drop(columns="a"), f / "e.parquet"),
                fit("y ~ a", str(f)),
            ]
        ),
        in_folder(lambda f: [written(DATA, f / "d.parquet"), fit("y ~ a", str(f))]),
        in_folder(
            lambda f: [
                written(DATA, f / "d.parquet"),
                written(DATA, f / "e.parquet"),
                fit("y ~ a", str(f)),
            ]
        ),
    ),
    "files of two types": case(
        "Rewrite the files with a common type",
        in_folder(
            lambda f: [
                written(DATA, f / "d.parquet"),
                written(DATA.astype({"a": str}), f / "e.parquet"),
                fit("y ~ a", str(f)),
            ]
        ),
        in_folder(
            lambda f: [
                written(DATA, f / "d.parquet"),
                written(DATA, f / "e.parquet"),
                fit("y ~ a", str(f)),
            ]
        ),
    ),
    "weights beside batches": case(
        "Add them to the data as a column",
        lambda: fit("y ~ a", lambda: iter([DATA]), weights=np.ones(60)),
        lambda: fit("y ~ a", lambda: iter([DATA.assign(w=1)]), weights="w"),
    ),
    "weights of no column of batches": case(
        "Pass the name of a column",
        lambda: fit("y ~ a", lambda: iter([DATA.assign(w=1)]), weights="W"),
        lambda: fit("y ~ a", lambda: iter([DATA.assign(w=1)]), weights="w"),
    ),
    "one name of two columns": case(
        "Rename the columns",
        lambda: fit("y ~ a", pa.table([[1, 0], [1, 0], ["s", "t"]], ["a", "a", "y"]).to_reader()),
        lambda: fit("y ~ a", lambda: iter([DATA])),
    ),
    "weights of 0 in batches": case(
        "Give at least one row a positive weight",
        lambda: fit("y ~ a", lambda: iter([DATA.assign(w=0)]), weights="w"),
        lambda: fit("y ~ a", lambda: iter([DATA.assign(w=1)]), weights="w"),
    ),
    "a level in the second pass alone": twice(
        DATA.assign(a=7), "Read the data again when no process is writing to it"
    ),
    "fewer rows in the second pass": twice(
        DATA.head(50), "Read the data again when no process is writing to it"
    ),
    "other rows in the second pass": twice(
        DATA.assign(a=1 - DATA["a"]), "Read the data again when no process is writing to it"
    ),
    "a source that fails": case(
        "Check the source, or read it again",
        lambda: fit("y ~ a", failing),
        lambda: fit("y ~ a", lambda: iter([DATA])),
    ),
    "no pyarrow": case(
        r"Install the extra: pip install 'boltzmann-bayes\[arrow\]'",
        lambda: without("pyarrow.dataset", lambda: fit("y ~ a", "d.parquet")),
        in_folder(lambda f: fit("y ~ a", written(DATA, f / "d.parquet"))),
    ),
    "workers of a callable": case(
        "Pass a Dask DataFrame, Parquet files",
        lambda: on_workers(lambda: iter([DATA])),
        lambda: on_workers(None),
    ),
}


TABLE = FORMULAS | SURVEYS | ZEROS | TABLES | COLUMNS | STREAMS
