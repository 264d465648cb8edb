"""Base class of the pairwise engines, with penalties on tables in the zero-sum gauge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from bbl.checks import choice, real
from bbl.choices import PairPenalty
from bbl.engines.base import PENALTY, SPARSE_GRID, Engine, check_two_levels
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["PairwiseEngine"]


@dataclass(frozen=True)
class PairwiseEngine(Engine):
    """Base class with the penalty options; see `ProbabilityFlow`."""

    lambda_: float = 1e-5
    lambdah: float = 0.0
    penalty: str = "l2"
    order_reason = "the method uses only two-way tables"
    tuned = PENALTY
    log_z = "half"
    weights = "real"
    # bounds the fields of absent levels, and changes little else
    classifier: ClassVar[dict[str, Any]] = {"lambdah": 1e-4}

    def __post_init__(self):
        for name in ("lambda_", "lambdah"):
            object.__setattr__(self, name, real(name, getattr(self, name), 0.0))
        choice("penalty", self.penalty, get_args(PairPenalty))

    @property
    def grid(self) -> tuple[float, ...]:
        """Values of `lambda_` that ``"cv"`` compares."""
        return self.tuned.grid if self.penalty == "l2" else SPARSE_GRID

    @property
    def penalised(self) -> bool:
        """Whether a penalty shrinks the estimates."""
        return self.lambda_ > 0.0 or self.lambdah > 0.0

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout unchanged, or raise an OptionError if the penalty cannot be used."""
        if self.penalty == "l1":
            check_two_levels(layout)
        return layout
