"""A user's script over all verbs: it runs, and type checkers pass it in strict mode."""

from pathlib import Path

import numpy as np

import bbl


def main(folder: Path) -> None:
    """Use every verb once; files are written to a folder."""
    titanic = bbl.datasets.load_titanic()
    formula = "Survived ~ Class * Sex + Sex * Age"

    fit = bbl.bbl(formula, titanic, weights="Freq", method="pseudo", lambda_=1e-3, verbose=0)
    fields = fit.coef().h["Yes"]["Class"]
    couplings = fit.coef().J["Yes"]["Class", "Sex"]
    print(
        fit,
        fit.summary(),
        fields.round(2),
        couplings.loc["3rd"],
        fit.params,
        fit.bse.max(),
        float(fit.logLik()),
        fit.aic,
    )
    print(fit.predict(titanic, type="class").tolist()[:2], fit.predict(titanic).columns, fit.score())
    print(fit.evaluate(titanic, "Freq").scores, fit.explain(titanic.head(1)).row(), fit.importance().frame)
    print(fit.inference().table().head(), fit.conf_int(), fit.interactions().head(), fit.odds_ratios())
    fit.plot()[0].figure.savefig(folder / "fit.png")
    fit.save(folder / "fit.bbl")
    fit.report(folder / "fit.html")
    again = bbl.load(folder / "fit.bbl", bbl.BBLResults)
    print(again.coef().to_frame().shape, bbl.load(folder / "fit.bbl").predict(titanic).shape)

    cv = bbl.crossVal(formula, titanic, "Freq", lambda_=10.0 ** np.arange(-4, -1), shuffle=True, seed=1, verbose=0)
    print(cv.cvframe, cv.regstar, cv.evaluate().confusion, cv.predict(titanic).iloc[0])
    small = bbl.bbl("Survived ~ Class + Sex", titanic, "Freq", method="naive")
    exact = bbl.bbl("Survived ~ Class * Sex + Age", titanic, "Freq", method="ml")
    print(exact.goodness_of_fit(), exact.cells().head(), fit.coef()["h"])
    auto = bbl.bbl("Survived ~ .", titanic, "Freq", method="auto", verbose=0)
    rows = bbl.bbl("~ .", titanic[["Class", "Sex", "Age"]], titanic["Freq"], verbose=0)
    print(
        bbl.anova(small, fit),
        bbl.etable({"small": small, "large": fit}),
        bbl.average([exact, fit]).tuning,
        auto.log_loss,
    )
    print(
        isinstance(rows, bbl.DensityResults),
        bbl.step(exact, "backward", verbose=0).fit,
        bbl.log_scores(fit, titanic.head(2)),
    )

    sample = bbl.mcSample(fit, nsteps=100, seed=1, verbose=0)
    levels = {"a": ["x", "y"], "b": ["u", "v", "w"]}
    par = bbl.randompar(levels, seed=1)
    drawn = bbl.randomsamp(levels, ["n", "p"], par=[par, bbl.randompar(levels, seed=2)], nsample=200, seed=3)
    alone = bbl.mlestimate(bbl.sample_xi(200, levels, par.h, par.J, code_out=True, seed=4))
    print(bbl.plot_comparison(par, alone).get_title())
    sample.plot()
    print(
        sample.xmax,
        bbl.freq2raw(titanic, "Freq").shape,
        bbl.removeConst(drawn).columns,
        bbl.effective_size(drawn, verbose=0),
    )
    print(
        bbl.effective_weights(drawn).sum(),
        bbl.graphs(drawn, verbose=0),
        bbl.lump(bbl.bin(drawn, []), min_count=2).shape,
    )
    sparse = bbl.shooter("y ~ .", drawn, order=2, verbose=0)
    table = np.random.default_rng(1).random((12, 8))
    print(sparse.terms, sparse.predict(drawn).head(), bbl.bicluster(None, table, groups=(2, 2), verbose=0).rows)
    print(bbl.enrichment(fit.interactions(), [("Class", "Sex")]))
    (folder / "rna.fa").write_text(">1\nACGU\n>2\nACGA\n")
    print(bbl.readFasta(folder / "rna.fa").shape)

    network = bbl.networks.bnc("tan_cl", "Survived ~ .", titanic, 1, weights="Freq")
    tree = bbl.networks.tan_hc("Survived ~ .", titanic, k=5, smooth=1, weights="Freq", verbose=0)
    kdb = bbl.networks.lp(
        bbl.networks.kdb("Survived ~ .", titanic, k=5, weights="Freq", verbose=0), titanic, 1, weights="Freq"
    )
    joined = bbl.networks.fssj("Survived ~ .", titanic, k=5, weights="Freq", verbose=0)
    print(network.params["Sex"], network.families, tree.arcs, joined.features, kdb.score(titanic, "Freq"))
    print(bbl.networks.cv([network, kdb], titanic, k=3, weights="Freq", verbose=0))
    print(
        bbl.networks.cmi("Class", "Sex", titanic, weights="Freq"),
        bbl.networks.accuracy(fit.predict(titanic, "class"), titanic["Survived"]),
    )
