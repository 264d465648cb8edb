"""Mistakes of users that type checkers find: where one is not found, its comment is reported as
unused.
"""

from pathlib import Path

import bbl


def main(folder: Path) -> None:
    """Make mistakes; nobody calls this."""
    titanic = bbl.datasets.load_titanic()
    bbl.bbl("Survived ~ .", titanic, mehtod="mf")  # type: ignore[call-overload]
    bbl.bbl("Survived ~ .", titanic, method="meanfield")  # type: ignore[call-overload]
    bbl.bbl("Survived ~ .", titanic, method="mf", epss=0.5)  # type: ignore[call-overload]
    bbl.bbl("Survived ~ .", titanic, missing="skip")  # type: ignore[call-overload]
    bbl.bbl("Survived ~ .", titanic, method="auto", lambda_=0.1)  # type: ignore[call-overload]
    bbl.crossVal("Survived ~ .", titanic, nfolds=5)  # type: ignore[call-overload]
    bbl.networks.bnc("tan", "Survived ~ .", titanic)  # type: ignore[arg-type]
    bbl.networks.fssj("Survived ~ .", titanic, fold=3)  # type: ignore[call-arg]
    fit = bbl.bbl("Survived ~ .", titanic)
    fit.predict(titanic, type="probs")  # type: ignore[call-overload]
    fit.ceof()  # type: ignore[union-attr]
    bbl.load(folder / "fit.bbl").perdict(titanic)  # type: ignore[union-attr]
    print(bbl.load(folder / "fit.bbl", bbl.BBLResults).edges)  # type: ignore[attr-defined]
