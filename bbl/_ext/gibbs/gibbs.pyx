"""Gibbs sweeps over packs of chains (C code in gibbs.h): packing of couplings, initial states, sweeps.

A model of m predictors ("sites") has fields h (D,) and couplings J (D, D) of the D non-reference levels; predictor i
has the levels start[i]..start[i + 1] - 1. The energy of a state is the exponent of its probability. A pack consists of
`width` chains that advance together; the chain is the last axis of its arrays. The fields of the structures are
described in gibbs_model.h; they point to the arguments of `run` with the same names.
"""

import numpy as np

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stddef cimport ptrdiff_t

cdef extern from "gibbs.h" nogil:
    int GIBBS_PACK
    ctypedef struct gibbs_terms:  # the terms of site i are site_term[site_first[i]:site_first[i + 1]]
        ptrdiff_t max_order
        const ptrdiff_t *site_first
        const int32_t *site_term
        const int32_t *members
        const ptrdiff_t *stride
        const ptrdiff_t *first_cell
        const float *values
    ctypedef struct gibbs_model:
        ptrdiff_t m, D, width
        const int32_t *n_levels
        const ptrdiff_t *start
        const float *h
        const float *table
        float beta
        int by_levels
        const gibbs_terms *terms
    ctypedef struct gibbs_pack:
        int32_t *codes
        uint32_t *stream
        float *energy
        float *best
        int32_t *best_codes
        uint64_t *bits
        ptrdiff_t words, chains, first_word
    int gibbs_lanes(int max_lanes)
    void gibbs_pack_couplings(const double *J, const int32_t *n_levels, const ptrdiff_t *start, ptrdiff_t m,
                              int by_levels, int lanes, float *table_out)
    void gibbs_start_states(const int32_t *n_levels, ptrdiff_t m, ptrdiff_t width, int32_t *codes_out, uint32_t *stream)
    int gibbs_run(const gibbs_model *g, gibbs_pack *p, int lanes, ptrdiff_t n_sweeps, ptrdiff_t thin,
                  ptrdiff_t sweeps_since_draw, ptrdiff_t n_recorded, ptrdiff_t n_draws, int code_bytes,
                  char *draws_out, float *energies_out)


def pack_size():
    """Return the number that the width of a pack of chains must be a multiple of."""
    return GIBBS_PACK


def lanes(int max_lanes=16):
    """Return the number of floats in the kernel's vectors on this processor: 16, 8 or the base width (4 or 1).

    The result is limited to max_lanes, but is at least the base width.
    """
    return gibbs_lanes(max_lanes)


def pack_couplings(const double[:, ::1] J, const int32_t[::1] n_levels, const ptrdiff_t[::1] start, bint by_levels,
                   int lanes, float[::1] table=None):
    """Return the couplings J (D, D) as the float32 table that `run` reads, written into `table` if given.

    With `by_levels` the vectors of `lanes` floats run over the levels of a predictor, otherwise over chains; see
    gibbs_pack_couplings in gibbs.h for the order. Shapes: n_levels (m,), start (m + 1,), table (size,).
    """
    cdef ptrdiff_t m = n_levels.shape[0], D = J.shape[0]
    if J.shape[1] != D or start.shape[0] != m + 1 or D == 0 or start[m] != D:
        raise ValueError("J, n_levels and start do not fit together")
    n_nonreference = np.asarray(n_levels, dtype=np.intp) - 1
    # number of couplings; -(-n // lanes) * lanes is n rounded up to a multiple of lanes
    size = (D + m) * int((-(-n_nonreference // lanes) * lanes).sum()) if by_levels else D * D
    if table is None:
        memory = np.zeros(size + 16, dtype=np.float32)
        offset = -memory.ctypes.data // 4 % 16  # floats up to a cache line, so that no vector crosses one
        table = memory[offset:offset + size]
    elif table.shape[0] != size:
        raise ValueError("the table is of another model")
    with nogil:
        gibbs_pack_couplings(&J[0, 0], &n_levels[0], &start[0], m, by_levels, lanes, &table[0])
    return np.asarray(table)


def start_states(const int32_t[::1] n_levels, int32_t[:, ::1] codes, uint32_t[:, ::1] stream):
    """Draw the states `codes` (m, width) of a pack uniformly, from its streams (4, width)."""
    if codes.shape[0] != n_levels.shape[0] or stream.shape[0] != 4 or stream.shape[1] != codes.shape[1]:
        raise ValueError("codes and stream do not fit together")
    with nogil:
        gibbs_start_states(&n_levels[0], n_levels.shape[0], codes.shape[1], &codes[0, 0], &stream[0, 0])


def run(const float[::1] table, const float[::1] h, float beta, const int32_t[::1] n_levels,
        const ptrdiff_t[::1] start, bint by_levels, int lanes, int32_t[:, ::1] codes, uint32_t[:, ::1] stream,
        float[::1] energy, float[::1] best, int32_t[:, ::1] best_codes, ptrdiff_t n_sweeps, ptrdiff_t thin=0,
        ptrdiff_t sweeps_since_draw=0, ptrdiff_t first_draw=0, unsigned char[:, :, ::1] draws=None,
        float[:, ::1] energies=None, uint64_t[:, ::1] bits=None, ptrdiff_t first_word=0, ptrdiff_t chains=0,
        terms=None):
    """Advance one pack of chains by `n_sweeps` sweeps, in place, without the GIL.

    Shapes: table from `pack_couplings`, h (D,), codes and best_codes (m, width), stream (4, width), energy and best
    (width,). `beta` multiplies the couplings. best contains the highest energies so far, best_codes their states.

    With `draws` (chains, draws, m b), for codes of b = 1, 2 or 4 bytes, and `energies` (chains, draws), the state and
    its energy are written after every `thin` sweeps, starting with draw `first_draw`; `sweeps_since_draw` sweeps have
    passed since the last draw. With `bits` (D, words), the bit of each of the first `chains` chains is set after each
    sweep in the rows of its levels; a sweep uses ``ceil(chains / 64)`` words of a row, starting with word `first_word`.
    `terms`, for three or more predictors: a `bbl.model.higher.Higher`, whose arrays are the fields of gibbs_terms in
    gibbs_model.h (`first` is first_cell, `size` the number of cells), and the couplings of its cells as float32.
    """
    cdef gibbs_model g
    cdef gibbs_terms higher
    cdef const ptrdiff_t[::1] site_first, first_cell
    cdef const ptrdiff_t[:, ::1] stride
    cdef const int32_t[::1] site_term
    cdef const int32_t[:, ::1] members
    cdef const float[::1] values
    cdef gibbs_pack p
    cdef ptrdiff_t m = n_levels.shape[0], width = codes.shape[1], n_recorded = 0, n_draws = 0
    cdef int code_bytes = 0, status
    cdef char *draws_out = NULL
    cdef float *energies_out = NULL
    if (start.shape[0] != m + 1 or h.shape[0] != start[m] or codes.shape[0] != m or best_codes.shape[0] != m
            or best_codes.shape[1] != width or stream.shape[0] != 4 or stream.shape[1] != width or width % GIBBS_PACK
            or width == 0 or energy.shape[0] != width or best.shape[0] != width):
        raise ValueError("arrays of the pack do not fit together")
    if draws is not None:
        n_recorded, n_draws = draws.shape[0], draws.shape[1]
        code_bytes = <int>(draws.shape[2] // m)
        if (code_bytes not in (1, 2, 4) or draws.shape[2] != m * code_bytes or n_recorded > width or energies is None
                or thin < 1 or energies.shape[0] != n_recorded or energies.shape[1] != n_draws or sweeps_since_draw < 0
                or sweeps_since_draw >= thin or first_draw < 0
                or first_draw + (sweeps_since_draw + n_sweeps) // thin > n_draws):
            raise ValueError("draws do not fit the pack")
        if n_recorded and first_draw < n_draws:
            draws_out = <char *>&draws[0, first_draw, 0]
            energies_out = &energies[0, first_draw]
    if bits is not None and (bits.shape[0] != h.shape[0] or not 0 < chains <= width or first_word < 0
                             or first_word + n_sweeps * ((chains + 63) // 64) > bits.shape[1]):
        raise ValueError("bits do not fit the pack")
    g.m, g.D, g.width = m, h.shape[0], width
    g.n_levels, g.start, g.h, g.table = &n_levels[0], &start[0], &h[0], &table[0]
    g.beta, g.by_levels, g.terms = beta, by_levels, NULL
    if terms is not None and len(terms[0]):
        structure, values = terms  # structure: the sites of each term and the position of its table
        site_first, site_term, members = structure.site_first, structure.site_term, structure.members
        stride, first_cell = structure.stride, structure.first
        if site_first.shape[0] != m + 1 or values.shape[0] != structure.size:
            raise ValueError("the terms do not fit the pack")
        higher.max_order, higher.site_first, higher.site_term = members.shape[1], &site_first[0], &site_term[0]
        higher.members, higher.stride, higher.first_cell = &members[0, 0], &stride[0, 0], &first_cell[0]
        higher.values = &values[0]
        g.terms = &higher
    p.codes, p.stream, p.energy, p.best = &codes[0, 0], &stream[0, 0], &energy[0], &best[0]
    p.best_codes = &best_codes[0, 0]
    p.bits, p.words, p.chains, p.first_word = NULL, 0, chains, first_word
    if bits is not None:
        p.bits, p.words = &bits[0, 0], bits.shape[1]
    with nogil:
        status = gibbs_run(&g, &p, lanes, n_sweeps, thin, sweeps_since_draw, n_recorded, n_draws, code_bytes,
                           draws_out, energies_out)
    if status:
        raise MemoryError("no memory for the working arrays of the Gibbs sampler")
