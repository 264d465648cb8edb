"""A user's script over all verbs: it runs, and type checkers pass it in strict mode."""

from pathlib import Path

import numpy as np

import bbl


def main(folder: Path) -> None:
    """Use every verb once; files are written to a folder."""
    titanic, table = bbl.datasets.load_titanic(), np.random.default_rng(1).random((12, 8))
    formula = "Survived ~ Class * Sex + Sex * Age"
    fit = bbl.bbl(formula, titanic, weights="Freq", method="pseudo", lambda_=1e-3, verbose=0)
    print(
        fit,
        fit.summary(),
        fit.coef().h["Yes"]["Class"].round(2),
        fit.coef().J["Yes"]["Class", "Sex"].loc["3rd"],
    )
    print(
        fit.params,
        fit.bse.max(),
        float(fit.logLik()),
        fit.aic,
        fit.score(),
        fit.coef()["h"],
        fit.odds_ratios(),
    )
    print(
        fit.predict(titanic, type="class").tolist()[:2],
        fit.predict(titanic).columns,
        fit.importance().frame,
    )
    print(fit.evaluate(titanic, "Freq").scores, fit.explain(titanic.head(1)).row(), fit.conf_int())
    print(
        fit.inference().table().head(),
        fit.interactions().head(),
        bbl.log_scores(fit, titanic.head(2)),
    )
    fit.plot()[0].figure.savefig(folder / "fit.png")
    fit.save(folder / "fit.bbl")
    fit.report(folder / "fit.html")
    again = bbl.load(folder / "fit.bbl", bbl.BBLResults)
    print(again.coef().to_frame().shape, bbl.load(folder / "fit.bbl").predict(titanic).shape)

    cv = bbl.crossVal(
        formula, titanic, "Freq", lambda_=10.0 ** np.arange(-4, -1), shuffle=True, seed=1, verbose=0
    )
    print(cv.cvframe, cv.regstar, cv.evaluate().confusion, cv.predict(titanic).iloc[0])
    small = bbl.bbl("Survived ~ Class + Sex", titanic, "Freq", method="naive")
    exact = bbl.bbl("Survived ~ Class * Sex + Age", titanic, "Freq", method="ml")
    auto = bbl.bbl("Survived ~ .", titanic, "Freq", method="auto", verbose=0)
    rows = bbl.bbl("~ .", titanic[["Class", "Sex", "Age"]], titanic["Freq"], verbose=0)
    print(
        bbl.anova(small, fit),
        bbl.etable({"small": small, "large": fit}),
        bbl.average([exact, fit]).tuning,
    )
    print(
        exact.goodness_of_fit(),
        exact.cells().head(),
        isinstance(rows, bbl.DensityResults),
        auto.log_loss,
    )
    print(bbl.sample_rows(titanic, 5, seed=1).head())
    sampled = bbl.bbl(
        "Survived ~ Class + Sex",
        titanic[titanic["Freq"] > 0],
        design=bbl.survey("Freq"),
        method="ml",
    )
    print(sampled.avg_comparisons("Sex").frame, sampled.avg_predictions(by="Sex").frame)
    print(
        bbl.step(exact, "backward", verbose=0).fit,
        bbl.enrichment(fit.interactions(), [("Class", "Sex")]),
    )

    sample, levels = (
        bbl.mcSample(fit, nsteps=100, seed=1, verbose=0),
        {"a": ["x", "y"], "b": ["u", "v", "w"]},
    )
    par, other = bbl.randompar(levels, seed=1), bbl.randompar(levels, seed=2)
    drawn = bbl.randomsamp(levels, ["n", "p"], par=[par, other], nsample=200, seed=3)
    alone = bbl.mlestimate(bbl.sample_xi(200, levels, par.h, par.J, code_out=True, seed=4))
    spins = bbl.to_spins(bbl.randompar([[0, 1], [0, 1]], seed=1))
    sample.plot()
    print(
        bbl.from_spins(spins.b, spins.M).h,
        sample.xmax,
        bbl.plot_comparison(par, alone).get_title(),
        bbl.freq2raw(titanic, "Freq").shape,
    )
    print(
        bbl.removeConst(drawn).columns,
        bbl.effective_size(drawn, verbose=0),
        bbl.effective_weights(drawn).sum(),
    )
    sparse = bbl.shooter("y ~ .", drawn, order=2, verbose=0)
    print(
        bbl.graphs(drawn, verbose=0), bbl.lump(bbl.bin(drawn, []), min_count=2).shape, sparse.terms
    )
    print(sparse.predict(drawn).head(), bbl.bicluster(None, table, groups=(2, 2), verbose=0).rows)
    print(bbl.du_process(3, 10).shape)
    (folder / "rna.fa").write_text(">1\nACGU\n>2\nACGA\n")
    print(bbl.readFasta(folder / "rna.fa").shape)

    network = bbl.networks.bnc("tan_cl", "Survived ~ .", titanic, 1, weights="Freq")
    tree = bbl.networks.tan_hc("Survived ~ .", titanic, k=5, smooth=1, weights="Freq", verbose=0)
    graph = bbl.networks.kdb("Survived ~ .", titanic, k=5, weights="Freq", verbose=0)
    kdb = bbl.networks.lp(graph, titanic, 1, weights="Freq")
    joined = bbl.networks.fssj("Survived ~ .", titanic, k=5, weights="Freq", verbose=0)
    print(
        network.params["Sex"],
        network.families,
        tree.arcs,
        joined.features,
        kdb.score(titanic, "Freq"),
    )
    print(bbl.networks.cv([network, kdb], titanic, k=3, weights="Freq", verbose=0))
    right = bbl.networks.accuracy(fit.predict(titanic, "class"), titanic["Survived"])
    print(right, bbl.networks.cmi("Class", "Sex", titanic, weights="Freq"))
