"""Bayesian network classifiers: the public functions of ``bbl.networks``.

Examples
--------
>>> from bbl import datasets, networks
>>> titanic = datasets.load_titanic()
>>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
>>> fit.predict(titanic.head(2), type="class").tolist()
['Yes', 'Yes']
"""

from bbl.api.network.evaluation import accuracy, cmi, cv
from bbl.api.network.fit import bnc, lp, structure
from bbl.api.network.learn import aode, bsej, fssj, kdb, nb, tan_cl, tan_hc, tan_hcsp

__all__ = [
    "accuracy",
    "aode",
    "bnc",
    "bsej",
    "cmi",
    "cv",
    "fssj",
    "kdb",
    "lp",
    "nb",
    "structure",
    "tan_cl",
    "tan_hc",
    "tan_hcsp",
]
