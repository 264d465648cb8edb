"""Type stubs for `bbl._ext.pseudo.pseudo`."""

from collections.abc import Iterable, Sequence

from numpy.typing import ArrayLike, NDArray

CONVERGED: int
ITMAX: int
STUCK: int

def memory_estimate(
    n: int,
    n_levels: ArrayLike,
    width: str | None = None,
    precision: str = "double",
    sites: int | None = None,
) -> tuple[float, float]: ...

class PseudoProblem:
    def __init__(
        self,
        codes: NDArray,
        weights: ArrayLike | Sequence[float],
        n_levels: ArrayLike,
        mask: ArrayLike,
        width: str | None = None,
        precision: str = "double",
        prior_count: float = 0.0,
        counted: bool = True,
    ) -> None: ...
    @property
    def n_tasks(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def order(self) -> NDArray: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def metric(self) -> str: ...
    def start(self, theta: NDArray | None = None) -> NDArray: ...
    def solve(
        self,
        task: int,
        lambda_: float,
        lambdah: float,
        tolerance: float,
        itmax: int,
        theta: NDArray,
        grad_norm: NDArray | None = None,
        n_iter: NDArray | None = None,
        n_eval: NDArray | None = None,
        status: NDArray | None = None,
        value: NDArray | None = None,
        stop: NDArray | None = None,
        more: NDArray | None = None,
        linear: NDArray | None = None,
        zero_sum: bool = False,
    ) -> dict[str, NDArray]: ...
    def objective(
        self,
        theta: NDArray,
        lambda_: float,
        lambdah: float,
        more: NDArray | None = None,
        linear: NDArray | None = None,
        tasks: Iterable[int] | None = None,
        zero_sum: bool = False,
    ) -> tuple[NDArray, NDArray]: ...
    def log_normaliser(self, theta: NDArray, half: bool = False) -> float: ...
