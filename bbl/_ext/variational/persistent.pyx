"""Steps of persistent variational inference: gauges, gradients from counts, noise, Adam; terms as in persistent.h."""

import numpy as np

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stddef cimport ptrdiff_t

cdef extern from "normal.h" nogil:
    int NORMAL_STREAMS
    void normal_fill(uint32_t *state, ptrdiff_t n, double *out)

cdef extern from "persistent.h" nogil:
    ctypedef struct persistent_layout:
        ptrdiff_t m, D, P
        const int32_t *n_levels
        const ptrdiff_t *start
        const ptrdiff_t *pairs
        const ptrdiff_t *pair_start
    ctypedef struct persistent_adam:
        double rate, decay_first, decay_second, unbias_first, unbias_second
    int persistent_to_reference(const persistent_layout *g, const double *simplex, ptrdiff_t first, ptrdiff_t last,
                                double *h_out, double *J_out)
    ctypedef struct persistent_source:
        const double *counts
        const double *levels
        const uint64_t *bits
        ptrdiff_t D, words
    int persistent_feature_sums(const persistent_layout *g, const persistent_source *s, double total, ptrdiff_t first,
                                ptrdiff_t last, double *simplex_out)
    ptrdiff_t popcount_and(const uint64_t *a, const uint64_t *b, ptrdiff_t words)
    void persistent_draw(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                         const double *noise, const double *scale, double *simplex_out)
    void persistent_products(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                             const double *noise, const double *gradient, double *products_out)
    void persistent_log_scales(ptrdiff_t G, ptrdiff_t n_fields, const double *mean, const double *sd,
                               const double *noise, const double *v, double low, double high, double *u_out,
                               double *w_out)
    void persistent_slab(ptrdiff_t G, double slab, double *scale, double *share_out)
    void persistent_step_scales(const persistent_adam *adam, ptrdiff_t n, ptrdiff_t Q, ptrdiff_t n_noise,
                                ptrdiff_t stride, const double *noise, const double *gradient, const double *sd,
                                double *mean, double *log_sd, double *first_moment, double *second_moment)
    double persistent_step(const persistent_adam *adam, const ptrdiff_t *cuts, ptrdiff_t G, ptrdiff_t first,
                           ptrdiff_t last, ptrdiff_t Q, ptrdiff_t n_noise, ptrdiff_t stride, const double *noise,
                           const double *scale, const double *gradient, const double *sd, double *mean,
                           double *log_sd, double *first_moment, double *second_moment)


cdef class Tables:
    """Positions of the fields and couplings of a layout of m predictors and P pairs; see `bbl.model.layout.Layout`.

    Shapes: n_levels (m,), start (m + 1,), pairs (P, 2), pair_start (P + 1,). `size` is the number of parameters.
    """
    cdef persistent_layout layout
    cdef readonly ptrdiff_t size
    cdef object arrays  # keeps the memory that `layout` points into

    def __init__(self, const int32_t[::1] n_levels, const ptrdiff_t[::1] start, const ptrdiff_t[:, ::1] pairs,
                 const ptrdiff_t[::1] pair_start):
        cdef ptrdiff_t m = n_levels.shape[0], P = pairs.shape[0], k
        if m == 0 or start.shape[0] != m + 1 or pairs.shape[1] != 2 or pair_start.shape[0] != P + 1:
            raise ValueError("arrays of the layout do not fit together")
        for k in range(P):
            if not 0 <= pairs[k, 0] < pairs[k, 1] < m:
                raise ValueError("pairs are not as in a layout")
        self.arrays = (n_levels, start, pairs, pair_start)
        self.layout.m, self.layout.D, self.layout.P = m, start[m], P
        self.layout.n_levels, self.layout.start, self.layout.pair_start = &n_levels[0], &start[0], &pair_start[0]
        self.layout.pairs = &pairs[0, 0] if P else NULL
        self.size = pair_start[P]

    def couple(self, const double[::1] simplex, double[::1] h, double[:, ::1] J, ptrdiff_t first=0, last=None):
        """Write fields h (D,) and couplings J (D, D) of the reference gauge from a vector in simplex coding.

        With `first` and `last`, only the couplings of the pairs first..last - 1 are written, and h is the share of
        these pairs; fields in simplex coding belong to the share of `first` = 0.
        """
        cdef int status
        cdef ptrdiff_t end = self._end(first, last)
        self._check(simplex.shape[0], h.shape[0], J.shape[0], J.shape[1])
        with nogil:
            status = persistent_to_reference(&self.layout, &simplex[0], first, end, &h[0], &J[0, 0])
        if status:
            raise MemoryError("no memory for the working arrays of a change of gauge")

    def features(self, const double[:, ::1] counts, double total, double[::1] simplex):
        """Write the sums of the features in simplex coding over states of total weight `total`.

        counts (D, D) holds sums over pairs of non-reference levels, and of single levels on the diagonal. With total 0
        it may be a gradient by the parameters of the reference gauge; then simplex is the gradient by simplex coding.
        """
        cdef int status
        cdef persistent_source s
        self._check(simplex.shape[0], self.layout.D, counts.shape[0], counts.shape[1])
        s.counts, s.levels, s.bits, s.D, s.words = &counts[0, 0], NULL, NULL, self.layout.D, 0
        with nogil:
            status = persistent_feature_sums(&self.layout, &s, total, 0, self.layout.P, &simplex[0])
        if status:
            raise MemoryError("no memory for the working arrays of a change of gauge")

    def features_of_bits(self, const uint64_t[:, ::1] bits, double total, double[::1] simplex, ptrdiff_t first=0,
                         last=None):
        """Write the sums of the features in simplex coding over `total` states, one bit each in bits (D, words).

        With `first` and `last`, only for the pairs first..last - 1, and for the fields if `first` is 0.
        """
        cdef int status
        cdef ptrdiff_t end = self._end(first, last)
        cdef persistent_source s
        cdef ptrdiff_t a, D = self.layout.D, words = bits.shape[1]
        cdef double[::1] levels
        self._check(simplex.shape[0], D, bits.shape[0], D)
        if words == 0:
            raise ValueError("bits hold no states")
        levels = np.empty(D)
        s.counts, s.levels, s.bits, s.D, s.words = NULL, &levels[0], &bits[0, 0], D, words
        with nogil:
            for a in range(D):
                levels[a] = popcount_and(&bits[a, 0], &bits[a, 0], words)
            status = persistent_feature_sums(&self.layout, &s, total, first, end, &simplex[0])
        if status:
            raise MemoryError("no memory for the working arrays of a change of gauge")

    cdef ptrdiff_t _end(self, ptrdiff_t first, last) except -1:
        """Return `last`, by default P, after checking the range of pairs."""
        cdef ptrdiff_t end = self.layout.P if last is None else last
        if not 0 <= first <= end <= self.layout.P:
            raise ValueError("pairs do not fit the layout")
        return end

    cdef _check(self, ptrdiff_t size, ptrdiff_t fields, ptrdiff_t rows, ptrdiff_t columns):
        """Raise ValueError unless size is that of the layout and the other numbers are D."""
        cdef ptrdiff_t D = self.layout.D
        if D == 0 or size != self.size or fields != D or rows != D or columns != D:
            raise ValueError("arrays do not fit the layout")


def streams():
    """Return the number of streams of random numbers that `normal` runs in parallel."""
    return NORMAL_STREAMS


def normal(uint32_t[:, ::1] state, double[::1] out):
    """Fill `out` with standard normal numbers; state (4, streams) is advanced."""
    if state.shape[0] != 4 or state.shape[1] != NORMAL_STREAMS:
        raise ValueError("the state is not that of the streams")
    if out.shape[0]:
        with nogil:
            normal_fill(&state[0, 0], out.shape[0], &out[0])


def draw(const ptrdiff_t[::1] cuts, const double[::1] mean, const double[::1] sd, const double[::1] noise,
         const double[::1] scale, double[::1] simplex):
    """Write ``simplex[k] = scale[g] * (mean[k] + sd[k] * noise[k])``, group g being ``cuts[g] <= k < cuts[g + 1]``."""
    cdef ptrdiff_t G = cuts.shape[0] - 1
    if G < 1 or scale.shape[0] != G or min(mean.shape[0], sd.shape[0], noise.shape[0]) < cuts[G] or cuts[G] == 0:
        raise ValueError("arrays do not fit the groups")
    if simplex.shape[0] != cuts[G]:
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_draw(&cuts[0], G, &mean[0], &sd[0], &noise[0], &scale[0], &simplex[0])


def log_scales(ptrdiff_t n_fields, const double[::1] mean, const double[::1] sd, const double[::1] noise,
               const double[::1] v, double low, double high, double[::1] u, double[::1] w):
    """Write the log scales u (G,), ``mean + sd * noise`` cut to [low, high], and w, their differences from v.

    v (2,) holds the global log scales of the first n_fields groups (fields) and of the others (couplings). With empty
    arrays for mean, sd and noise, u is v.
    """
    cdef ptrdiff_t G = u.shape[0], n = mean.shape[0]
    if (G < 1 or w.shape[0] != G or v.shape[0] != 2 or not 0 <= n_fields <= G or (n and n < G)
            or sd.shape[0] != n or noise.shape[0] != n):
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_log_scales(G, n_fields, &mean[0] if n else NULL, &sd[0] if n else NULL, &noise[0] if n else NULL,
                              &v[0], low, high, &u[0], &w[0])


def slab(double slab_scale, double[::1] scale, double[::1] share_out):
    """Limit `scale` (G,), in place, to ``scale / sqrt(1 + (scale / slab_scale)^2)``; write slopes to share_out (G,).

    A slope is d ln(scale after) / d ln(scale before); see `variational.priors.slabbed`.
    """
    cdef ptrdiff_t G = scale.shape[0]
    if G < 1 or share_out.shape[0] != G:
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_slab(G, slab_scale, &scale[0], &share_out[0])


def step_scales(tuple adam, const double[:, ::1] noise, const double[:, ::1] gradient, const double[::1] sd,
                double[::1] mean, double[::1] log_sd, double[:, ::1] first_moment, double[:, ::1] second_moment):
    """Take a step of Adam with the last n parameters, whose gradients are `gradient` (Q, n); otherwise as `step`."""
    cdef persistent_adam o
    cdef ptrdiff_t Q = gradient.shape[0], n = gradient.shape[1], n_all = mean.shape[0], first = n_all - n
    if (Q < 1 or first < 0 or noise.shape[0] != Q or noise.shape[1] != n_all or sd.shape[0] != n_all
            or log_sd.shape[0] != n_all or first_moment.shape[0] != 2 or second_moment.shape[0] != 2
            or first_moment.shape[1] != n_all or second_moment.shape[1] != n_all):
        raise ValueError("arrays of the step do not fit together")
    if n == 0:
        return
    o.rate, o.decay_first, o.decay_second, o.unbias_first, o.unbias_second = adam
    with nogil:
        persistent_step_scales(&o, n, Q, n_all, n_all, &noise[0, first], &gradient[0, 0], &sd[first], &mean[first],
                               &log_sd[first], &first_moment[0, first], &second_moment[0, first])


def products(const ptrdiff_t[::1] cuts, const double[::1] mean, const double[::1] sd, const double[::1] noise,
             const double[::1] gradient, double[::1] products_out):
    """Write the sum of ``(mean + sd * noise) * gradient`` over each group to products_out (G,)."""
    cdef ptrdiff_t G = cuts.shape[0] - 1
    if (G < 1 or cuts[G] == 0 or products_out.shape[0] != G or gradient.shape[0] != cuts[G]
            or min(mean.shape[0], sd.shape[0], noise.shape[0]) < cuts[G]):
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_products(&cuts[0], G, &mean[0], &sd[0], &noise[0], &gradient[0], &products_out[0])


def step(tuple adam, const ptrdiff_t[::1] cuts, const double[:, ::1] noise, const double[:, ::1] scale,
         const double[:, ::1] gradient, const double[::1] sd, double[::1] mean, double[::1] log_sd,
         double[:, ::1] first_moment, double[:, ::1] second_moment, ptrdiff_t first=0, last=None):
    """Take a step of Adam with mean and log_sd of the standardised parameters z; return |gradient by mean|^2.

    `adam` is (rate, decay of the first moment, decay of the second, bias factor of the first, of the second). Shapes:
    noise (Q, size or more), scale (Q, G), gradient of the log-likelihood (Q, size); sd, mean and log_sd (size or more),
    moments (2, size or more), for mean and log_sd. Only the groups first..last - 1 are moved.
    """
    cdef persistent_adam o
    cdef double squares
    cdef ptrdiff_t G = cuts.shape[0] - 1, Q = noise.shape[0], size = gradient.shape[1]
    cdef ptrdiff_t end = G if last is None else last
    if (G < 1 or Q < 1 or size == 0 or cuts[G] != size or noise.shape[1] < size or scale.shape[0] != Q
            or scale.shape[1] != G or gradient.shape[0] != Q or not 0 <= first <= end <= G
            or min(sd.shape[0], mean.shape[0], log_sd.shape[0]) < size
            or min(first_moment.shape[1], second_moment.shape[1]) < size or first_moment.shape[0] != 2
            or second_moment.shape[0] != 2 or first_moment.shape[1] != second_moment.shape[1]):
        raise ValueError("arrays of the step do not fit together")
    o.rate, o.decay_first, o.decay_second, o.unbias_first, o.unbias_second = adam
    with nogil:
        squares = persistent_step(&o, &cuts[0], G, first, end, Q, noise.shape[1], first_moment.shape[1], &noise[0, 0],
                                  &scale[0, 0], &gradient[0, 0], &sd[0], &mean[0], &log_sd[0], &first_moment[0, 0],
                                  &second_moment[0, 0])
    return squares
