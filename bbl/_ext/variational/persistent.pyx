"""Steps of persistent variational inference: gauges, gradients from counts, noise, Adam; see persistent.h.

(a) Reference gauge: fields h (D,) and couplings J (D, D) of the D non-reference levels of m predictors. Simplex coding:
    a vector (size,) of coefficients of contrasts of all levels, fields first, then the couplings of P pairs. The
    feature of a coefficient is the contrast, or product of two contrasts, that it multiplies. For the structures see
    persistent.h: `Tables` contains a persistent_layout; a persistent_source contains counts of states, as a matrix
    `counts` (D, D) or as `bits` (D, words) with level_counts (D).
(b) The coefficients k = cuts[g]..cuts[g + 1] - 1 form group g of G groups and share a scale: x_k = scale_g z_k. The
    posterior of z_k is approximated by a normal distribution, ``mean + sd * noise`` with standard normal noise.
"""

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
    int persistent_to_reference(const persistent_layout *layout, const double *simplex, ptrdiff_t first_pair,
                                ptrdiff_t end_pair, double *h_out, double *J_out)
    ctypedef struct persistent_source:
        const double *counts
        const double *level_counts
        const uint64_t *bits
        ptrdiff_t D, words
    int persistent_feature_sums(const persistent_layout *layout, const persistent_source *source, double total,
                                ptrdiff_t first_pair, ptrdiff_t end_pair, double *simplex_out)
    ptrdiff_t popcount_and(const uint64_t *a, const uint64_t *b, ptrdiff_t words)
    void persistent_draw(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                         const double *noise, const double *scale, double *simplex_out)
    void persistent_gradient_by_scale(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                                      const double *noise, const double *gradient, double *gradient_by_scale_out)
    void persistent_log_scales(ptrdiff_t G, ptrdiff_t n_fields, const double *mean, const double *sd,
                               const double *noise, const double *global_log_scale, double low, double high,
                               double *log_scale_out, double *deviation_out)
    void persistent_slab(ptrdiff_t G, double slab, double *scale, double *slope_out)
    void persistent_step_scales(const persistent_adam *adam, ptrdiff_t n, ptrdiff_t Q, ptrdiff_t n_noise,
                                ptrdiff_t stride, const double *noise, const double *gradient, const double *sd,
                                double *mean, double *log_sd, double *first_moment, double *second_moment)
    double persistent_step(const persistent_adam *adam, const ptrdiff_t *cuts, ptrdiff_t G, ptrdiff_t first_group,
                           ptrdiff_t end_group, ptrdiff_t Q, ptrdiff_t n_noise, ptrdiff_t stride, const double *noise,
                           const double *scale, const double *gradient, const double *sd, double *mean,
                           double *log_sd, double *first_moment, double *second_moment)


cdef class Tables:
    """Positions of the fields and couplings of m predictors and P pairs in simplex coding; see
    `bbl.model.layout.Layout`.

    Shapes: n_levels (m,), start (m + 1,) for the first field of each predictor, pairs (P, 2), pair_start (P + 1,) for
    the first coupling of each pair. `size` is the number of parameters.
    """
    cdef persistent_layout layout
    cdef readonly ptrdiff_t size
    cdef object arrays  # keeps the memory that `layout` points into alive

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

    def couple(self, const double[::1] simplex, double[::1] h, double[:, ::1] J, ptrdiff_t first_pair=0,
               end_pair=None):
        """Write fields h (D,) and couplings J (D, D) of the reference gauge, given a vector in simplex coding.

        With `first_pair` and `end_pair`, only the couplings of the pairs first_pair..end_pair - 1 are written, and h is
        the contribution of these pairs to the fields, plus the fields in simplex coding if first_pair is 0.
        """
        cdef int status
        cdef ptrdiff_t end = self._check_pairs(first_pair, end_pair)
        self._check_shapes(simplex.shape[0], h.shape[0], J.shape[0], J.shape[1])
        with nogil:
            status = persistent_to_reference(&self.layout, &simplex[0], first_pair, end, &h[0], &J[0, 0])
        if status:
            raise MemoryError("no memory for the working arrays of a change of gauge")

    def features(self, const double[:, ::1] counts, double total, double[::1] simplex):
        """Write to `simplex` (size,) the sums of the features in simplex coding over states of total weight `total`.

        counts (D, D) contains the weights of pairs of non-reference levels, and of single levels on the diagonal. With
        total 0 it can be a gradient with respect to the parameters of the reference gauge, with fields on the diagonal;
        `simplex` then becomes the gradient with respect to the parameters in simplex coding, since the change of gauge
        is linear and this function is its transpose.
        """
        cdef int status
        cdef persistent_source s
        self._check_shapes(simplex.shape[0], self.layout.D, counts.shape[0], counts.shape[1])
        s.counts, s.level_counts, s.bits, s.D, s.words = &counts[0, 0], NULL, NULL, self.layout.D, 0
        with nogil:
            status = persistent_feature_sums(&self.layout, &s, total, 0, self.layout.P, &simplex[0])
        if status:
            raise MemoryError("no memory for the working arrays of a change of gauge")

    def features_of_bits(self, const uint64_t[:, ::1] bits, double total, double[::1] simplex, ptrdiff_t first_pair=0,
                         end_pair=None):
        """Write to `simplex` (size,) the sums of the features in simplex coding over `total` states.

        bits (D, words) contains one bit per state, 1 if the state has the level. With `first_pair` and `end_pair`, only
        the pairs first_pair..end_pair - 1 are written, and the fields if first_pair is 0.
        """
        cdef int status
        cdef ptrdiff_t end = self._check_pairs(first_pair, end_pair)
        cdef persistent_source s
        cdef ptrdiff_t a, D = self.layout.D, words = bits.shape[1]
        cdef double[::1] level_counts
        self._check_shapes(simplex.shape[0], D, bits.shape[0], D)  # D: no fields and no columns to check
        if words == 0:
            raise ValueError("bits hold no states")
        level_counts = np.empty(D)
        s.counts, s.level_counts, s.bits, s.D, s.words = NULL, &level_counts[0], &bits[0, 0], D, words
        with nogil:
            for a in range(D):
                level_counts[a] = popcount_and(&bits[a, 0], &bits[a, 0], words)
            status = persistent_feature_sums(&self.layout, &s, total, first_pair, end, &simplex[0])
        if status:
            raise MemoryError("no memory for the working arrays of a change of gauge")

    cdef ptrdiff_t _check_pairs(self, ptrdiff_t first_pair, end_pair) except -1:
        """Return `end_pair`, or P if it is None; raise ValueError unless 0 <= first_pair <= end_pair <= P."""
        cdef ptrdiff_t end = self.layout.P if end_pair is None else end_pair
        if not 0 <= first_pair <= end <= self.layout.P:
            raise ValueError("pairs do not fit the layout")
        return end

    cdef _check_shapes(self, ptrdiff_t size, ptrdiff_t fields, ptrdiff_t rows, ptrdiff_t columns):
        """Raise ValueError unless `size` matches the layout and the other three numbers equal D."""
        cdef ptrdiff_t D = self.layout.D
        if D == 0 or size != self.size or fields != D or rows != D or columns != D:
            raise ValueError("arrays do not fit the layout")


def streams():
    """Return the number of parallel streams of random numbers in the state of `normal`."""
    return NORMAL_STREAMS


def normal(uint32_t[:, ::1] state, double[::1] out):
    """Fill `out` (n,) with standard normal numbers, and advance the state of the streams, (4, streams())."""
    if state.shape[0] != 4 or state.shape[1] != NORMAL_STREAMS:
        raise ValueError("the state is not that of the streams")
    if out.shape[0]:
        with nogil:
            normal_fill(&state[0, 0], out.shape[0], &out[0])


def draw(const ptrdiff_t[::1] cuts, const double[::1] mean, const double[::1] sd, const double[::1] noise,
         const double[::1] scale, double[::1] simplex):
    """Write ``simplex[k] = scale[g] * (mean[k] + sd[k] * noise[k])``, where group g is ``cuts[g] <= k < cuts[g + 1]``.

    Shapes: cuts (G + 1,), scale (G,), simplex (size,); mean, sd and noise (size or more).
    """
    cdef ptrdiff_t G = cuts.shape[0] - 1
    if G < 1 or scale.shape[0] != G or min(mean.shape[0], sd.shape[0], noise.shape[0]) < cuts[G] or cuts[G] == 0:
        raise ValueError("arrays do not fit the groups")
    if simplex.shape[0] != cuts[G]:
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_draw(&cuts[0], G, &mean[0], &sd[0], &noise[0], &scale[0], &simplex[0])


def log_scales(ptrdiff_t n_fields, const double[::1] mean, const double[::1] sd, const double[::1] noise,
               const double[::1] global_log_scale, double low, double high, double[::1] log_scale_out,
               double[::1] deviation_out):
    """Write the log scale of each group, clipped to [low, high], and its deviation from the global log scale, both
    (G,).

    The log scales are ``mean + sd * noise``, from the first G entries, or the global ones if these arrays are empty.
    global_log_scale (2,) contains one number for the first n_fields groups (fields) and one for the others (couplings).
    """
    cdef ptrdiff_t G = log_scale_out.shape[0], n = mean.shape[0]
    if (G < 1 or deviation_out.shape[0] != G or global_log_scale.shape[0] != 2 or not 0 <= n_fields <= G
            or (n and n < G) or sd.shape[0] != n or noise.shape[0] != n):
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_log_scales(G, n_fields, &mean[0] if n else NULL, &sd[0] if n else NULL, &noise[0] if n else NULL,
                              &global_log_scale[0], low, high, &log_scale_out[0], &deviation_out[0])


def slab(double slab_scale, double[::1] scale, double[::1] slope_out):
    """Limit `scale` (G,), in place, to ``scale / sqrt(1 + (scale / slab_scale)^2)``; write slopes to slope_out (G,).

    A slope is d ln(scale after) / d ln(scale before); see `bbl.engines.variational.priors.slabbed`.
    """
    cdef ptrdiff_t G = scale.shape[0]
    if G < 1 or slope_out.shape[0] != G:
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_slab(G, slab_scale, &scale[0], &slope_out[0])


def step_scales(tuple adam, const double[:, ::1] noise, const double[:, ::1] gradient, const double[::1] sd,
                double[::1] mean, double[::1] log_sd, double[:, ::1] first_moment, double[:, ::1] second_moment):
    """Take a step of Adam with mean and log_sd of n log scales, the last n of n_all normal variables.

    The others are standardised parameters (see `step`); the prior of the log scales is not standard normal. gradient
    (Q, n) is the gradient of the log joint density (including the prior) at Q draws, noise (Q, n_all) contains their
    standard normal numbers. mean and log_sd (n_all,) and the moments (2, n_all) for mean and log_sd are updated in
    place; sd (n_all,) is read. For `adam` see `step`.
    """
    cdef persistent_adam settings
    cdef ptrdiff_t Q = gradient.shape[0], n = gradient.shape[1], n_all = mean.shape[0], first_number = n_all - n
    if (Q < 1 or first_number < 0 or noise.shape[0] != Q or noise.shape[1] != n_all or sd.shape[0] != n_all
            or log_sd.shape[0] != n_all or first_moment.shape[0] != 2 or second_moment.shape[0] != 2
            or first_moment.shape[1] != n_all or second_moment.shape[1] != n_all):
        raise ValueError("arrays of the step do not fit together")
    if n == 0:
        return
    settings.rate, settings.decay_first, settings.decay_second, settings.unbias_first, settings.unbias_second = adam
    with nogil:
        persistent_step_scales(&settings, n, Q, n_all, n_all, &noise[0, first_number], &gradient[0, 0],
                               &sd[first_number], &mean[first_number], &log_sd[first_number],
                               &first_moment[0, first_number], &second_moment[0, first_number])


def gradient_by_scale(const ptrdiff_t[::1] cuts, const double[::1] mean, const double[::1] sd, const double[::1] noise,
                      const double[::1] gradient, double[::1] gradient_by_scale_out):
    """Write the gradient of the log-likelihood with respect to the scale of each group to gradient_by_scale_out (G,).

    It is the sum over the group of ``(mean + sd * noise) * gradient``, where gradient (size,) is with respect to x in
    simplex coding. Shapes: cuts (G + 1,); mean, sd and noise (size or more).
    """
    cdef ptrdiff_t G = cuts.shape[0] - 1
    if (G < 1 or cuts[G] == 0 or gradient_by_scale_out.shape[0] != G or gradient.shape[0] != cuts[G]
            or min(mean.shape[0], sd.shape[0], noise.shape[0]) < cuts[G]):
        raise ValueError("arrays do not fit the groups")
    with nogil:
        persistent_gradient_by_scale(&cuts[0], G, &mean[0], &sd[0], &noise[0], &gradient[0], &gradient_by_scale_out[0])


def step(tuple adam, const ptrdiff_t[::1] cuts, const double[:, ::1] noise, const double[:, ::1] scale,
         const double[:, ::1] gradient, const double[::1] sd, double[::1] mean, double[::1] log_sd,
         double[:, ::1] first_moment, double[:, ::1] second_moment, ptrdiff_t first_group=0, end_group=None):
    """Take a step of Adam with mean and log_sd of the standardised parameters z; return |gradient by mean|^2.

    `adam` is (rate, decay of the first moment, decay of the second, bias factor of the first, of the second). Shapes,
    for Q draws: noise (Q, size or more), scale (Q, G), gradient of the log-likelihood with respect to x (Q, size); sd,
    mean and log_sd (size or more), moments (2, size or more), for mean and log_sd. mean, log_sd and the moments are
    updated in place, but only in the groups first_group..end_group - 1; end_group defaults to G.
    """
    cdef persistent_adam settings
    cdef double squares
    cdef ptrdiff_t G = cuts.shape[0] - 1, Q = noise.shape[0], size = gradient.shape[1]
    cdef ptrdiff_t end = G if end_group is None else end_group
    if (G < 1 or Q < 1 or size == 0 or cuts[G] != size or noise.shape[1] < size or scale.shape[0] != Q
            or scale.shape[1] != G or gradient.shape[0] != Q or not 0 <= first_group <= end <= G
            or min(sd.shape[0], mean.shape[0], log_sd.shape[0]) < size
            or min(first_moment.shape[1], second_moment.shape[1]) < size or first_moment.shape[0] != 2
            or second_moment.shape[0] != 2 or first_moment.shape[1] != second_moment.shape[1]):
        raise ValueError("arrays of the step do not fit together")
    settings.rate, settings.decay_first, settings.decay_second, settings.unbias_first, settings.unbias_second = adam
    with nogil:
        squares = persistent_step(&settings, &cuts[0], G, first_group, end, Q, noise.shape[1], first_moment.shape[1],
                                  &noise[0, 0], &scale[0, 0], &gradient[0, 0], &sd[0], &mean[0], &log_sd[0],
                                  &first_moment[0, 0], &second_moment[0, 0])
    return squares
