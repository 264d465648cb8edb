"""Literal types of the string arguments in public signatures, which are also used to check the
values.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = [
    "CalibrationKind",
    "Covariance",
    "Criterion",
    "Divisor",
    "EvaluationFigure",
    "Gauge",
    "LevelCoding",
    "LogZ",
    "Logits",
    "Method",
    "MissingPolicy",
    "NetworkLearner",
    "NumberTransform",
    "PairPenalty",
    "PredictionType",
    "ScoreName",
    "TuningRule",
    "Unseen",
]

Method: TypeAlias = Literal[
    "pseudo",
    "ml",
    "mf",
    "naive",
    "conditional",
    "blanket",
    "boosting",
    "pvi",
    "bayes",
    "shbm",
    "pcd",
    "mpf",
]
NetworkLearner: TypeAlias = Literal[
    "nb", "tan_cl", "tan_hc", "tan_hcsp", "fssj", "bsej", "kdb", "aode"
]
MissingPolicy: TypeAlias = Literal["raise", "drop", "level", "marginal"]
LogZ: TypeAlias = Literal["auto", "exact", "pseudo", "half", "mf", "ais"]
CalibrationKind: TypeAlias = Literal["none", "offset", "temperature"]
Gauge: TypeAlias = Literal["reference", "zero-sum"]
PairPenalty: TypeAlias = Literal["l2", "l1", "group"]
LevelCoding: TypeAlias = Literal["nominal", "linear", "cumulative"]
Logits: TypeAlias = Literal["nominal", "adjacent", "cumulative"]
PredictionType: TypeAlias = Literal["link", "prob", "class"]
Unseen: TypeAlias = Literal["raise", "ignore"]
EvaluationFigure: TypeAlias = Literal["confusion", "roc", "calibration"]
ScoreName: TypeAlias = Literal["auc", "accuracy", "logloss", "brier", "pnll"]
TuningRule: TypeAlias = Literal["cv", "cv-1se"]
Covariance: TypeAlias = Literal["group", "shared", "cv"]
Divisor: TypeAlias = Literal["moment", "ml"]
NumberTransform: TypeAlias = Literal["none", "normal", "cv"]
Criterion: TypeAlias = Literal["loglik", "aic", "bic"]
