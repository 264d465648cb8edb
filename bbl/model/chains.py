"""Gibbs sampling from the model of one group: chains, states and draws.

Equation numbers refer to Woo & Wang (2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from bbl._ext.gibbs import gibbs as kernel
from bbl._ext.model import energy as energy_kernel
from bbl.checks import generator, integer
from bbl.errors import DataError, OptionError
from bbl.memory import check_memory
from bbl.model.higher import Tables
from bbl.model.layout import NO_PAIRS, Layout
from bbl.model.moments import pair_counts
from bbl.model.regressors import LARGEST, check_model, check_shapes, to_floats
from bbl.parallel import ThreadPool, n_workers, run_tasks
from bbl.rows.sample import Sample, code_dtype

__all__ = ["Chains", "GibbsDraws", "gibbs"]

SLICE_SECONDS = 0.1  # duration of a slice of sweeps; Ctrl-C is handled between slices
PACK_BY_LEVELS = 128  # chains per pack (chains advanced together) if vectors run over levels
# chains per pack if vectors run over chains; the states of a pack should fit in the cache
PACK_BY_CHAINS = 64
# chains per pack if vectors run over chains and the model has more than `MANY_LEVELS` levels
PACK_OF_MANY_LEVELS = 32
MANY_LEVELS = 256  # non-reference levels of all predictors
LOAD_COST = 5.0  # cost of loading a vector of 16 floats, in multiply-adds of such vectors


@dataclass(frozen=True)
class GibbsDraws:
    """Most probable states visited by `gibbs` (including burn-in), the last states, and the
    draws.
    """

    best: np.ndarray  # (m,) of int: the most probable state over all chains
    best_energy: float  # of `best`, in double precision
    chain_best: np.ndarray  # (n_chains, m) of int: the most probable state of each chain
    # (n_chains,): energies of `chain_best`; if many are equal, the maximum is probably global
    chain_energy: np.ndarray
    last: np.ndarray  # (n_chains, m) of int: state of each chain after the last sweep
    # `draws` and `energy` are None without `thin`
    # (n_chains, n_draws, m) of uint8, uint16 or int32: every thin-th state
    draws: np.ndarray | None = None
    energy: np.ndarray | None = None  # (n_chains, n_draws) of float32: energies of `draws`


# sweeps per draw, sweeps since the last draw, index of the next draw, draws (chains, draws, bytes
# per state), energies (chains, draws)
Recording = tuple[int, int, int, np.ndarray, np.ndarray]


@dataclass
class _Pack:
    """Batch of chains (`first` to ``stop - 1``) that the kernel advances together.

    The last axis of each array is the chain (see gibbs.h). `width` may exceed the number of chains;
    the remaining elements are padding.
    """

    first: int
    stop: int
    codes: np.ndarray  # (m, width): states
    stream: np.ndarray  # (4, width): states of the random generators
    energy: np.ndarray  # (width,): energies of `codes`
    best: np.ndarray  # (width,): highest energies so far
    best_codes: np.ndarray  # (m, width): states of the highest energies


class Chains:
    """Gibbs chains of ``P(x) ~ exp(sum_i h_i(x_i) + sum_{i<j} J_ij(x_i, x_j) + ...)`` (eq. 6) with
    sequential sweeps.

    A sweep draws every predictor once, in order, from its conditional distribution (eq. 13). Each
    chain starts from a random state and has its own random stream (xoshiro128++, seeded with 128
    bits drawn from `rng`), so its states do not depend on the number of chains or on `n_jobs`. The
    kernel works in single precision and does not resolve level probabilities below about 1e-7.

    Parameters
    ----------
    h : array_like, shape (D,)
        Fields.
    J : array_like, shape (D, D)
        Symmetric couplings, zero between levels of one predictor (see
        `bbl.model.regressors.to_matrix`).
    n_levels : array_like of int, shape (m,)
        Number of levels of each predictor.
    n_chains : int
    rng : numpy.random.Generator, int or None
    n_jobs : int, default 1
        Number of threads; None or -1 for all cores.
    more : Tables, optional
        Couplings of terms with three or more predictors (see `bbl.model.higher.split`), with
        positions in `more.terms` and values in `more.values`.

    Attributes
    ----------
    h, J, n_levels, n_chains, n_jobs, more
        The validated arguments; `update` replaces h, J and `more`.
    start : ndarray of intp, shape (m + 1,)
        First column of each predictor's levels among the D columns.
    by_levels : bool
        Whether the kernel vectorises over the levels of a predictor instead of over chains.
    lanes : int
        Number of floats per vector.
    _table : ndarray of float32
        Couplings in the order expected by the kernel.
    _terms : tuple or None
        ``(more.terms, more.values)``, with the values in single precision.
    _packs : list of _Pack
        The chains, in order.

    Raises
    ------
    DataError
        If `h` and `J` do not match `n_levels` or are not finite, or if `J` is not a symmetric
        coupling matrix.
    """

    def __init__(
        self, h, J, n_levels, n_chains, rng, n_jobs: int | None = 1, more: Tables | None = None
    ):
        self.h, self.J, self.n_levels, self.start = check_model(h, J, n_levels)
        if more is not None and not (np.abs(more.values) < LARGEST).all():
            raise DataError(
                f"Couplings are not finite or exceed {LARGEST:g}.",
                argument="more",
                hint="Refit with a penalty.",
            )
        self.more = more
        self._terms = None if more is None else (more.terms, more.values.astype(np.float32))
        self.n_chains = integer("n_chains", n_chains, 1)
        self.n_jobs = n_workers(n_jobs)
        rng = generator(rng)
        m = len(self.n_levels)
        D = len(self.h)
        n_nonreference = self.n_levels.astype(float) - 1.0
        # vectors needed for the levels of each predictor
        n_vectors = np.ceil(n_nonreference / 16.0)
        # Vectors of 16 floats run over levels or over chains, whichever is cheaper. A sweep of one
        # chain takes D D / 16 multiply-adds over chains (`n_nonreference` sums to D), or
        # `n_vectors` loads for every two predictors over levels.
        self.by_levels = bool(D * n_nonreference.sum() / 16.0 > LOAD_COST * m * n_vectors.sum())
        self.lanes = kernel.lanes()  # floats per vector on this processor
        # size of `_table`; over levels it has a row for each level, including reference levels,
        # padded to whole vectors
        table_size = (D + m) * 16.0 * n_vectors.sum() if self.by_levels else float(D) * D
        # bytes: the couplings in single precision; for each chain two states, its random stream and
        # its energies
        check_memory(
            4.0 * table_size + (8.0 * m + 32.0) * self.n_chains,
            f"Gibbs sampling of {D} levels with {self.n_chains} chains",
            "Use fewer predictors or fewer chains.",
        )
        self._table = kernel.pack_couplings(
            self.J, self.n_levels, self.start, self.by_levels, self.lanes
        )
        self._packs = self._make_packs(
            rng.integers(0, 2**32, size=(self.n_chains, 4), dtype=np.uint32)
        )

    def _make_packs(self, seeds: np.ndarray) -> list[_Pack]:
        """Return batches (packs) of chains with random states, given the `seeds` (n_chains, 4) of
        all chains.
        """
        # the width of a pack is a multiple of `unit`
        unit = kernel.pack_size()
        m = len(self.n_levels)
        # rounded up; wide packs are faster, but every worker should get at least one
        chains_per_worker = -(-self.n_chains // self.n_jobs)
        width_by_chains = PACK_BY_CHAINS if len(self.h) <= MANY_LEVELS else PACK_OF_MANY_LEVELS
        width = min(
            PACK_BY_LEVELS if self.by_levels else width_by_chains,
            -(-chains_per_worker // unit) * unit,
        )
        packs = []
        for first in range(0, self.n_chains, width):
            pack_seeds = seeds[first : first + width]
            # surplus chains of the last pack also run
            stream = np.ones((4, width), dtype=np.uint32)
            stream[:, : len(pack_seeds)] = pack_seeds.T
            stream[0, ~stream.any(axis=0)] = 1  # xoshiro must not start from the all-zero state
            codes = np.empty((m, width), dtype=np.int32)
            kernel.start_states(self.n_levels, codes, stream)
            best = np.full(width, -np.inf, dtype=np.float32)
            energy = np.zeros(width, dtype=np.float32)  # set by the kernel in each sweep
            packs.append(
                _Pack(first, first + len(pack_seeds), codes, stream, energy, best, codes.copy())
            )
        return packs

    def update(self, h, J=None, values=None) -> None:
        """Change the parameters. States and random streams are kept, and `best_codes` is reset.

        Parameters
        ----------
        h : array_like, shape (D,)
        J : array_like, shape (D, D), optional
            Symmetric couplings, zero between levels of one predictor; unchanged by default. Only
            the shape is validated, because this method is called every few sweeps.
        values : array_like, optional
            Couplings of terms with three or more predictors, with the same shape as before;
            unchanged by default.
        """
        keeps_J = J is None
        h = to_floats("h", h)
        J = self.J if keeps_J else to_floats("J", J)
        check_shapes(h, J, len(self.h))
        if not keeps_J:  # also for the same array, since its values may have changed
            table_format = (self.n_levels, self.start, self.by_levels, self.lanes)
            self._table = kernel.pack_couplings(J, *table_format, table=self._table)
        if values is not None and self.more is not None:
            values = to_floats("values", values)
            if values.shape != self.more.values.shape:
                raise DataError(
                    f"values has shape {values.shape}, not {self.more.values.shape}.",
                    argument="values",
                )
            self.more = self.more._replace(values=values)
            self._terms = (self.more.terms, values.astype(np.float32))
        self.h = h
        self.J = J
        for pack in self._packs:
            pack.best.fill(-np.inf)

    def restart(self, codes: np.ndarray) -> None:
        """Replace the states of the chains by `codes` (n_chains, m)."""
        for pack in self._packs:
            pack.codes[:, : pack.stop - pack.first] = codes[pack.first : pack.stop].T

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return moments of the chains' current states, ``(means, counts)``.

        `means` (D,) contains the proportion of chains at each non-reference level. `counts` (D, D)
        contains, for each pair of levels, the number of chains that are at both. These are
        integers, so their sums do not depend on the order of summation.
        """
        states = Sample(np.ascontiguousarray(self.codes), np.ones(self.n_chains))
        counts = pair_counts(states, Layout(self.n_levels, NO_PAIRS))
        return counts.diagonal() / self.n_chains, counts

    def sweep_bits(self, n_sweeps: int, pool: ThreadPool | None = None) -> tuple[np.ndarray, int]:
        """Advance all chains by `n_sweeps` sweeps and return the states after every sweep as a bit
        array.

        Parameters
        ----------
        n_sweeps : int
        pool : ThreadPool, optional
            Threads for processing the batches of chains; by default, a single thread. Create the
            chains with ``n_jobs=pool.workers``, which determines a suitable width of the batches.

        Returns
        -------
        bits : ndarray of uint64, shape (D, words)
            One bit per state: 1 if the state has the non-reference level. The order of states is
            arbitrary, and unused bits are 0 (see `bbl._ext.model.moments`).
        n : int
            Number of states, ``n_chains * n_sweeps``.

        Notes
        -----
        `best_codes` is not updated.
        """
        # each sweep of a pack starts a new 64-bit word, with one bit per chain; the words of a pack
        # are contiguous
        words_of_packs = [n_sweeps * (-(-(pack.stop - pack.first) // 64)) for pack in self._packs]
        bits = np.zeros((len(self.h), sum(words_of_packs)), dtype=np.uint64)
        fields = self.h.astype(np.float32)
        word_ends = np.cumsum(words_of_packs)
        tasks = [  # arguments of `_advance_and_mark`
            (pack, fields, n_sweeps, bits, int(word_end - pack_words))
            for pack, pack_words, word_end in zip(
                self._packs, words_of_packs, word_ends, strict=True
            )
        ]
        (ThreadPool(1) if pool is None else pool).run(self._advance_and_mark, tasks)
        return bits, self.n_chains * n_sweeps

    def _advance_and_mark(
        self, pack: _Pack, h: np.ndarray, n_sweeps: int, bits: np.ndarray, first_word: int
    ) -> None:
        """Advance a batch of chains and write their states to `bits` (D, words) from word
        `first_word`.
        """
        # 1.0: the factor `beta` of the couplings
        model = (self._table, h, 1.0, self.n_levels, self.start, self.by_levels, self.lanes)
        no_better = np.full_like(pack.best, np.inf)  # leaves `best_codes` unchanged
        state = (pack.codes, pack.stream, pack.energy, no_better, pack.best_codes, n_sweeps)
        kernel.run(
            *model,
            *state,
            bits=bits,
            first_word=first_word,
            chains=pack.stop - pack.first,
            terms=self._terms,
        )

    def sweep(
        self,
        n_sweeps: int,
        thin: int = 0,
        draws: np.ndarray | None = None,
        energy: np.ndarray | None = None,
        *,
        h: np.ndarray | None = None,
        beta: float = 1.0,
    ) -> None:
        """Advance all chains by `n_sweeps` sweeps.

        The work is split into slices of about 0.1 s, and Ctrl-C is handled between slices.

        Parameters
        ----------
        n_sweeps : int
        thin : int, optional
            Number of sweeps per draw; required with `draws`.
        draws, energy : ndarray, shape (n_chains, n_draws, m) and (n_chains, n_draws), optional
            Output arrays: every `thin`-th state and its energy.
        h : ndarray, shape (D,), optional
            Fields that replace the model's fields in this call only; together with `beta`, they
            define a path between two models.
        beta : float, default 1.0
            Factor that multiplies the couplings.
        """
        fields = np.ascontiguousarray(self.h if h is None else h, dtype=np.float32)
        # the kernel writes codes of any width as bytes
        draw_bytes = None if draws is None else draws.view(np.uint8)
        n_done = 0
        slice_sweeps = 1
        while n_done < n_sweeps:
            n_slice = min(slice_sweeps, n_sweeps - n_done)
            began = perf_counter()
            recording = None
            if draw_bytes is not None and energy is not None:
                recording = (thin, n_done % thin, n_done // thin, draw_bytes, energy)
            tasks = [(pack, fields, beta, n_slice, recording) for pack in self._packs]
            # `shared`: always use threads, because tasks write into the packs
            run_tasks(self._advance, tasks, self.n_jobs, shared=True)
            n_done += n_slice
            # aim for `SLICE_SECONDS` in the next slice, with at most 8 times as many sweeps as in
            # this one
            growth = SLICE_SECONDS / max(perf_counter() - began, 1e-9)
            slice_sweeps = max(1, int(n_slice * min(growth, 8.0)))

    def _advance(
        self, pack: _Pack, h: np.ndarray, beta: float, n_sweeps: int, recording: Recording | None
    ) -> None:
        """Advance a batch of chains by `n_sweeps` sweeps, and record their draws if `recording` is
        given.
        """
        model = (self._table, h, beta, self.n_levels, self.start, self.by_levels, self.lanes)
        state = (pack.codes, pack.stream, pack.energy, pack.best, pack.best_codes, n_sweeps)
        if recording is None:
            kernel.run(*model, *state, terms=self._terms)
        else:
            thin, sweeps_since_draw, next_draw, draws, energies = recording
            chains = slice(pack.first, pack.stop)
            kernel.run(
                *model,
                *state,
                thin,
                sweeps_since_draw,
                next_draw,
                draws[chains],
                energies[chains],
                terms=self._terms,
            )

    @property
    def codes(self) -> np.ndarray:
        """Current states (n_chains, m)."""
        return np.concatenate([pack.codes[:, : pack.stop - pack.first].T for pack in self._packs])

    @property
    def current_energy(self) -> np.ndarray:
        """Energies (n_chains,) of the current states for the last sweep's fields and `beta`."""
        return np.concatenate([pack.energy[: pack.stop - pack.first] for pack in self._packs])

    @property
    def best_codes(self) -> np.ndarray:
        """Most probable state visited by each chain, shape (n_chains, m); in case of ties, the
        first.
        """
        return np.concatenate(
            [pack.best_codes[:, : pack.stop - pack.first].T for pack in self._packs]
        )

    def energy(self, codes: np.ndarray) -> np.ndarray:
        """Return the energies (n,) of `codes` (n, m) in double precision."""
        out = np.empty((len(codes), 1))
        scratch = np.empty(len(self.n_levels), dtype=np.intp)  # holds the columns of a row's levels
        rows = np.ascontiguousarray(codes, dtype=np.int32)
        # the kernel takes any number of models on the last axis; here there is one
        energy_kernel.energies(rows, self.start, self.h[:, None], self.J[:, :, None], scratch, out)
        # members (T, k), strides (T, k) and first coupling (T,) of each term
        if self.more is not None:
            terms = self.more.terms
            values = self.more.values[:, None]
            energy_kernel.add_terms(rows, terms.members, terms.stride, terms.first, values, out)
        return out[:, 0]


def gibbs(
    h,
    J,
    n_levels,
    n_sweeps: int = 1000,
    n_chains: int = 64,
    rng=None,
    burn_in: int = 0,
    thin: int | None = None,
    n_jobs: int | None = 1,
    more: Tables | None = None,
) -> GibbsDraws:
    """Sample one group's predictor distribution ``P(x|y)`` by Gibbs sampling (Woo & Wang, section
    3.2).

    Parameters
    ----------
    h, J, n_levels, more
        The model (see `Chains`).
    n_sweeps : int, default 1000
        Number of sweeps per chain after burn-in.
    n_chains : int, default 64
        Number of chains; up to 32 chains take no longer than one.
    rng : numpy.random.Generator, int or None
        The same seed gives the same result for any `n_jobs`.
    burn_in : int, default 0
        Number of sweeps before the first draw; states visited in these sweeps are still considered
        for `best`.
    thin : int, optional
        Number of sweeps per draw; ``n_sweeps // thin`` draws of each chain are returned. By
        default, draws are not returned.
    n_jobs : int, default 1
        Number of threads; None or -1 for all cores.

    Raises
    ------
    OptionError, BBLTypeError, DataError
        If an argument is invalid (see `Chains`), or if `thin` exceeds `n_sweeps`.

    Examples
    --------
    >>> samples = gibbs([0.5, -1.0], [[0.0, 3.0], [3.0, 0.0]], [2, 2], n_sweeps=100, rng=1)
    >>> samples.best.tolist(), samples.best_energy
    ([1, 1], 2.5)
    """
    n_sweeps = integer("n_sweeps", n_sweeps, 1)
    burn_in = integer("burn_in", burn_in, 0)
    if thin is not None and integer("thin", thin, 1) > n_sweeps:
        raise OptionError(
            f"thin={thin} exceeds n_sweeps={n_sweeps}.",
            argument="thin",
            hint="Use at most n_sweeps.",
        )
    chains = Chains(h, J, n_levels, n_chains, rng, n_jobs, more)
    draws = energy = None
    if thin is not None:
        shape = (chains.n_chains, n_sweeps // thin)
        dtype = code_dtype(chains.n_levels)
        check_memory(
            float(shape[0]) * shape[1] * (len(chains.n_levels) * dtype.itemsize + 4.0),
            f"Storing {shape[1]} draws from each of {shape[0]} chains",
            "Increase thin, or use fewer sweeps or chains.",
        )
        draws = np.empty((*shape, len(chains.n_levels)), dtype=dtype)
        energy = np.empty(shape, dtype=np.float32)
    chains.sweep(burn_in)
    chains.sweep(n_sweeps, thin or 0, draws, energy)
    chain_best = chains.best_codes
    chain_energy = chains.energy(chain_best)
    best_chain = int(np.argmax(chain_energy))
    return GibbsDraws(
        best=chain_best[best_chain].copy(),
        best_energy=float(chain_energy[best_chain]),
        chain_best=chain_best,
        chain_energy=chain_energy,
        last=chains.codes,
        draws=draws,
        energy=energy,
    )
