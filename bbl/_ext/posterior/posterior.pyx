"""Posterior density of coefficients in simplex coding, and its Markov chains: no-U-turn sampler and exchange algorithm.

(a) A `Target` consists of a model, a summary of the rows and a prior; it has a log density with a gradient. The C code
    in simplex.h, posterior_target.h, nuts.h and exchange.h defines the terms and describes the fields of the
    structures. With the normal prior, a point (size,) consists of the coefficients (d,). With the horseshoe it consists
    of standardised coefficients (d,), then the log scales u of the groups and v (2,) of the families; see
    posterior_target.h.
(b) Chains advance in place without the GIL; signals and a stop flag are checked between iterations.
(c) Every chain has its own xoshiro256++ stream of random numbers; the caller keeps its state of four words.
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp, pow, sqrt
from libc.stdint cimport int32_t, uint64_t

cdef extern from "simplex.h" nogil:
    ctypedef struct simplex_model:
        Py_ssize_t m, d, n_pairs, n_levels, n_states
        const int32_t *L
        const Py_ssize_t *level_start
        const Py_ssize_t *start
        const Py_ssize_t *pairs
        const Py_ssize_t *pair_start
        const Py_ssize_t *V_start
        const double *V
        const Py_ssize_t *cell
    double simplex_dot(const double *a, const double *b, Py_ssize_t n)
    double simplex_probabilities(const simplex_model *s, const double *phi, double *tensor_out, double *scratch)

cdef extern from "posterior_target.h" nogil:
    ctypedef struct posterior_target:
        simplex_model s
        int horseshoe
        double tau
        Py_ssize_t n_groups
        const int32_t *group
        const int32_t *family
        double n
        const double *sums
        Py_ssize_t rows
        const int32_t *codes
        const double *weights
        const double *centre
        const double *adjust
        const double *tilt
        double *tensor
        double *scratch
        double *phi
        double *adjusted_phi
        double *gradient
        double *h
        double *field
        double *h_gradient
        double *J
        double *J_gradient
    Py_ssize_t posterior_size(const posterior_target *t)
    void posterior_coefficients(const posterior_target *t, const double *x, double *phi_out)
    double posterior_value(posterior_target *t, const double *x, double *gradient_out)

cdef extern from "nuts.h" nogil:
    int NUTS_SCRATCH
    ctypedef double (*nuts_density)(void *model, const double *q, double *gradient_out)
    ctypedef struct nuts_state:
        double *q
        double *g
        double value
    ctypedef struct nuts_sampler:
        Py_ssize_t n
        nuts_density density
        void *model
        uint64_t *stream
        const int32_t *stop
        double step
        nuts_state current
        double *p
        Py_ssize_t steps
        int diverged
        double *scratch
    double nuts_transition(nuts_sampler *s, nuts_state *state)

cdef extern from "exchange.h" nogil:
    ctypedef struct exchange_chain:
        posterior_target *t
        const double *information
        double *factor
        double scale
        Py_ssize_t sweeps
        Py_ssize_t n_data
        const int32_t *data
        int32_t *drawn
        uint64_t *stream
        const int32_t *stop
        double *phi
        double *u
        double *v
        double *new_phi
        double *sums
        double *normal
    void exchange_factor(exchange_chain *c)
    double exchange_step(exchange_chain *c)
    void exchange_scales(exchange_chain *c)

cdef double EXCHANGE_ACCEPTANCE = 0.25  # mean acceptance of tuned proposals, approximately optimal for random walks
cdef double CHECK_INTERVAL = 3e7  # operations between two checks for signals


# A density of q, where the target's point is x = centre + spread q
ctypedef struct whitened_target:
    posterior_target *t
    const double *centre    # (size)
    const double *spread    # (size, size) lower triangle
    double *x               # (size) point
    double *g               # (size) gradient at the point


cdef double whitened_density(void *model, const double *q, double *gradient_out) noexcept nogil:
    """Return the log density at the point x = centre + spread q, and write its gradient with respect to q; for nuts.h.

    model is a whitened_target; its x and g (the gradient with respect to x) are also written.
    """
    cdef whitened_target *w = <whitened_target *> model
    cdef Py_ssize_t n = posterior_size(w.t), k, i
    cdef double value
    for k in range(n):
        w.x[k] = w.centre[k] + simplex_dot(w.spread + k * n, q, k + 1)
    value = posterior_value(w.t, w.x, w.g)
    for k in range(n):
        gradient_out[k] = 0.0
    for k in range(n):
        for i in range(k + 1):
            gradient_out[i] += w.spread[k * n + i] * w.g[k]
    return value


cdef class Target:
    """Log posterior density of the d coefficients of a model in simplex coding, with m predictors.

    Parameters
    ----------
    n_levels : int32, shape (m,)
    start, pairs, pair_start : intp, shapes (m + 1,), (n_pairs, 2) and (n_pairs + 1,)
        First coefficient of each predictor, and of the pairs; predictors i < j of each pair; first coefficient of each
        pair, then d.
    V : shape (sum L_i^2,)
        The matrix [1 | C_i] of each predictor in C order: a row for each level, containing a one and the level's
        contrasts.
    group : int32, shape (d,)
        Group of each coefficient, increasing.
    family : int32, shape (groups,)
        Kind of each group: 0 for fields, 1 for couplings.
    n : float
        Number of observations.
    sums : shape (d,)
        Sum over the observations of each coefficient's contrast (for pairs, of the product of two contrasts).
    tau : float
        Standard deviation of the normal prior, or slab of the horseshoe prior.
    horseshoe : bool
        Whether the prior is the horseshoe instead of normal.
    enumerate : bool
        Whether to allocate arrays over all states, which are needed for the likelihood and exact draws.
    codes, weights : int32 (rows, m) and (rows,), optional
        Distinct rows; if given, the density uses the pseudo-likelihood instead of the likelihood.
    centre, adjust, tilt : (d,), (d, d) and (d,), optional
        The log pseudo-likelihood is replaced by its value at ``centre + adjust (phi - centre)`` plus ``tilt' (phi -
        centre)``, which gives it the curvature of a likelihood; see posterior_target.h.
    """

    cdef posterior_target t  # initially all zero
    cdef readonly Py_ssize_t size
    cdef object arrays  # keeps the memory that `t` points into alive

    def __cinit__(self, const int32_t[::1] n_levels, const Py_ssize_t[::1] start, const Py_ssize_t[:, ::1] pairs,
                  const Py_ssize_t[::1] pair_start, const double[::1] V, const int32_t[::1] group,
                  const int32_t[::1] family, double n, const double[::1] sums, double tau, bint horseshoe,
                  bint enumerate, const int32_t[:, ::1] codes=None, const double[::1] weights=None,
                  const double[::1] centre=None, const double[:, ::1] adjust=None, const double[::1] tilt=None):
        cdef Py_ssize_t m = n_levels.shape[0], d = sums.shape[0]
        L = np.asarray(n_levels, dtype=np.intp)
        # offset: index of a predictor's first level among all levels; V_start: index of its matrix in V
        cdef Py_ssize_t[::1] offset = np.concatenate([[0], np.cumsum(L)[:m - 1]]).astype(np.intp)
        cdef Py_ssize_t[::1] V_start = np.concatenate([[0], np.cumsum(L ** 2)[:m - 1]]).astype(np.intp)
        cdef Py_ssize_t n_all = L.sum(), n_states = L.prod() if enumerate else 0
        if (start.shape[0] != m + 1 or pair_start.shape[0] != pairs.shape[0] + 1 or group.shape[0] != d or d == 0
                or pair_start[pairs.shape[0]] != d or V.shape[0] != (L ** 2).sum()):
            raise ValueError("the parts of the model do not fit together")
        if codes is not None and (codes.shape[1] != m or weights.shape[0] != codes.shape[0]):
            raise ValueError("rows and weights do not fit the model")
        if adjust is not None and (centre.shape[0] != d or adjust.shape[0] != d or adjust.shape[1] != d
                                   or tilt.shape[0] != d):
            raise ValueError("the adjustment does not fit the model")
        cdef Py_ssize_t[::1] cell = coefficient_cells(L, np.asarray(start), np.asarray(pairs), d)
        cdef double[::1] scratch = np.zeros(2 * n_states + 3 * d + 3 * n_all + 2 * n_all * n_all)
        self.arrays = (n_levels, start, pairs, pair_start, V, group, family, sums, codes, weights, centre, adjust, tilt,
                       offset, V_start, cell, scratch)
        cdef posterior_target *t = &self.t
        # in simplex.h L is the array `n_levels` (m,), and n_levels is its sum, here n_all
        t.s.m, t.s.d, t.s.n_pairs, t.s.n_levels, t.s.n_states = m, d, pairs.shape[0], n_all, n_states
        t.s.L, t.s.level_start, t.s.start, t.s.V_start, t.s.V = &n_levels[0], &offset[0], &start[0], &V_start[0], &V[0]
        if pairs.shape[0]:
            t.s.pairs = &pairs[0, 0]
        t.s.pair_start, t.s.cell = &pair_start[0], &cell[0]
        t.horseshoe, t.tau, t.n, t.sums = horseshoe, tau, n, &sums[0]
        t.n_groups, t.group, t.family = family.shape[0], &group[0], &family[0]
        t.rows = 0 if codes is None else codes.shape[0]
        if t.rows:
            t.codes, t.weights = &codes[0, 0], &weights[0]
        if adjust is not None:
            t.centre, t.adjust, t.tilt = &centre[0], &adjust[0, 0], &tilt[0]
        # from the array `scratch`: tensor, t.scratch (n_states,); phi ... (d,); h ... (n_all,); J ... (n_all, n_all)
        cdef double *unused_scratch = &scratch[0]  # unused part of scratch; see posterior_target.h for its contents
        t.tensor, t.scratch = unused_scratch, unused_scratch + n_states
        unused_scratch += 2 * n_states
        t.phi, t.adjusted_phi, t.gradient = unused_scratch, unused_scratch + d, unused_scratch + 2 * d
        unused_scratch += 3 * d
        t.h, t.field, t.h_gradient = unused_scratch, unused_scratch + n_all, unused_scratch + 2 * n_all
        unused_scratch += 3 * n_all
        t.J, t.J_gradient = unused_scratch, unused_scratch + n_all * n_all
        self.size = posterior_size(t)

    def value(self, const double[::1] x, double[::1] gradient_out):
        """Return the log density at the point x (size,), up to a constant, and write its gradient (size,)."""
        if x.shape[0] != self.size or gradient_out.shape[0] != self.size:
            raise ValueError("the point does not fit the model")
        return posterior_value(&self.t, &x[0], &gradient_out[0])

    def coefficients(self, const double[:, ::1] points):
        """Return the coefficients (n, d) of `points` (n, size)."""
        cdef double[:, ::1] phi = np.empty((points.shape[0], self.t.s.d))
        cdef Py_ssize_t k
        if points.shape[1] != self.size:
            raise ValueError("the points do not fit the model")
        for k in range(points.shape[0]):
            posterior_coefficients(&self.t, &points[k, 0], &phi[k, 0])
        return np.asarray(phi)

    def probabilities(self, const double[::1] phi):
        """Return ln Z in simplex coding and the probabilities of all states, in C order, at coefficients phi (d,)."""
        if not self.t.s.n_states or phi.shape[0] != self.t.s.d:
            raise ValueError("there are no states, or the coefficients do not fit the model")
        cdef double log_z = simplex_probabilities(&self.t.s, &phi[0], self.t.tensor, self.t.scratch)
        return log_z, np.array(<double[:self.t.s.n_states]> self.t.tensor)

    def nuts(self, const double[::1] centre, const double[:, ::1] spread, double[::1] x, double[::1] tuner,
             double target_acceptance, uint64_t[::1] stream, const int32_t[::1] stop, double[:, ::1] draws_out):
        """Advance a chain by the no-U-turn sampler with the metric (spread spread')^-1, one transition per draw.

        Parameters
        ----------
        centre, spread : (size,) and lower triangle (size, size)
            The sampler operates on q, where x = centre + spread q.
        x : (size,)
            Point of the chain; updated.
        tuner : (6,)
            State of dual averaging, updated: ln step, its average, running error of the acceptance, number of
            transitions, anchor (ln step at zero error); then the number of divergent transitions.
        target_acceptance : float
            Mean acceptance for which the step is tuned; 0 disables tuning.
        stream : (4,)
        stop : (1,)
            Flag set by another thread; a non-zero value ends the chain early.
        draws_out : (draws, size)

        Returns
        -------
        float
            Mean acceptance probability.
        """
        cdef Py_ssize_t n = self.size, k, i, n_draws = draws_out.shape[0]
        if (centre.shape[0] != n or spread.shape[0] != n or spread.shape[1] != n or x.shape[0] != n
                or draws_out.shape[1] != n or tuner.shape[0] != 6 or stream.shape[0] != 4):
            raise ValueError("the arrays of a chain do not fit the model")
        cdef double[::1] scratch = np.zeros((NUTS_SCRATCH + 7) * n)
        cdef double *unused_scratch = &scratch[0]
        cdef whitened_target w
        cdef nuts_sampler s
        cdef nuts_state state
        # work: operations since the last check for signals; cost: approximate number of operations per gradient
        cdef double sum_accepted = 0.0, accepted, gain, residual, work = 0.0, cost = 10.0 * (
            self.t.s.n_states * self.t.s.m + n * n + self.t.rows * self.t.s.n_levels * self.t.s.m)
        w.t, w.centre, w.spread = &self.t, &centre[0], &spread[0, 0]
        w.x, w.g = unused_scratch, unused_scratch + n
        s.n, s.density, s.model, s.stream, s.stop = n, whitened_density, &w, &stream[0], &stop[0]
        s.current.q, s.current.g, s.p = unused_scratch + 2 * n, unused_scratch + 3 * n, unused_scratch + 4 * n
        state.q, state.g, s.scratch = unused_scratch + 5 * n, unused_scratch + 6 * n, unused_scratch + 7 * n
        for k in range(n):  # forward substitution: q of the point
            residual = x[k] - centre[k]
            for i in range(k):
                residual -= spread[k, i] * state.q[i]
            state.q[k] = residual / spread[k, k]
        with nogil:
            state.value = whitened_density(&w, state.q, state.g)
            for k in range(n_draws):
                s.step = exp(tuner[0])
                accepted = nuts_transition(&s, &state)
                if stop[0]:
                    break
                sum_accepted += accepted
                tuner[5] += s.diverged
                if target_acceptance > 0.0:  # dual averaging, with the constants of Hoffman & Gelman (2014)
                    tuner[3] += 1.0
                    gain = 1.0 / (tuner[3] + 10.0)
                    tuner[2] += gain * (target_acceptance - accepted - tuner[2])
                    tuner[0] = tuner[4] - sqrt(tuner[3]) / 0.05 * tuner[2]
                    gain = pow(tuner[3], -0.75)
                    tuner[1] += gain * (tuner[0] - tuner[1])
                whitened_density(&w, state.q, s.current.g)  # writes the point to w.x
                for i in range(n):
                    draws_out[k, i] = w.x[i]
                work += cost * (s.steps + 1)  # leapfrog steps of the transition, plus the density above
                if work > CHECK_INTERVAL:
                    work = 0.0
                    with gil:
                        PyErr_CheckSignals()
        if n_draws:
            for i in range(n):
                x[i] = draws_out[n_draws - 1, i]
        return sum_accepted / max(n_draws, 1)

    def exchange(self, const double[:, ::1] information, double[::1] x, double[::1] tuner, bint tune, Py_ssize_t steps,
                 Py_ssize_t sweeps, const int32_t[:, ::1] data, uint64_t[::1] stream, const int32_t[::1] stop,
                 double[:, ::1] draws_out):
        """Advance a chain by the exchange algorithm, with `steps` proposals per draw.

        Parameters
        ----------
        information : (d, d)
            Approximately minus the Hessian of the log-likelihood. Proposals are normal with covariance
            ``scale^2 (information + precision of the prior)^-1``.
        x : (size,)
            Coefficients of the chain, followed by the log scales u and v with the horseshoe; updated.
        tuner : (2,)
            ln scale of the proposals and number of proposals used to tune it; updated if `tune`.
        sweeps : int
            Gibbs sweeps from the rows `data` (n, m) per proposal; 0 for exact draws by enumeration.
        stream, stop : (4,) and (1,)
            See `nuts`.
        draws_out : (draws, size)

        Returns
        -------
        float
            Mean acceptance probability.
        """
        cdef Py_ssize_t n = self.size, d = self.t.s.d, k, _step, i, n_draws = draws_out.shape[0]
        if (information.shape[0] != d or information.shape[1] != d or x.shape[0] != n or draws_out.shape[1] != n
                or tuner.shape[0] != 2 or stream.shape[0] != 4 or (sweeps == 0) != (self.t.s.n_states > 0)
                or (sweeps and data.shape[1] != self.t.s.m)):
            raise ValueError("the arrays of a chain do not fit the model")
        cdef double[::1] scratch = np.zeros(3 * d + d * d)
        cdef int32_t[:, ::1] drawn = np.zeros_like(data)
        # work: as in `nuts`; cost: approximate number of operations per proposal
        cdef double sum_accepted = 0.0, accepted, work = 0.0, cost = 10.0 * (
            self.t.s.n_states * (self.t.s.m + 2) + d * d + data.shape[0] * sweeps * self.t.s.m * 4)
        cdef exchange_chain c
        c.t, c.information, c.sweeps, c.n_data = &self.t, &information[0, 0], sweeps, data.shape[0]
        if sweeps:
            c.data, c.drawn = &data[0, 0], &drawn[0, 0]
        c.stream, c.stop = &stream[0], &stop[0]
        c.phi, c.new_phi, c.sums, c.normal, c.factor = &x[0], &scratch[0], &scratch[d], &scratch[2 * d], &scratch[3 * d]
        if self.t.horseshoe:
            c.u, c.v = &x[d], &x[n - 2]  # v contains the last two numbers
        with nogil:
            for k in range(n_draws):
                if k == 0 or self.t.horseshoe:  # initially, or after a change of the scales
                    exchange_factor(&c)
                for _step in range(steps):
                    c.scale = exp(tuner[0])
                    accepted = exchange_step(&c)
                    sum_accepted += accepted
                    # Robbins-Monro steps: increase the scale if too many proposals are accepted. Steps start large (3)
                    # and decrease with an exponent in (1/2, 1], as required for convergence
                    if tune:
                        tuner[1] += 1.0
                        tuner[0] += 3.0 * (accepted - EXCHANGE_ACCEPTANCE) * pow(tuner[1], -0.6)
                    work += cost
                    if work > CHECK_INTERVAL:
                        work = 0.0
                        with gil:
                            PyErr_CheckSignals()
                    if stop[0]:
                        break
                if stop[0]:
                    break
                if self.t.horseshoe:
                    exchange_scales(&c)
                for i in range(n):
                    draws_out[k, i] = x[i]
        return sum_accepted / max(n_draws * steps, 1)


def coefficient_cells(levels, start, pairs, d):
    """Return the flat index (d,) of each coefficient in a tensor of shape `levels` (see simplex.h).

    A coefficient has index 0 along the axes of predictors that it does not involve. levels (m,) and pairs (n_pairs, 2)
    are taken from the layout. `start` and the number d of coefficients are not used: the order of the cells determines
    both.
    """
    stride = np.concatenate([np.cumprod(levels[::-1])[::-1][1:], [1]]).astype(np.intp)
    cells = [np.empty(0, dtype=np.intp)] + [np.arange(1, L) * step for L, step in zip(levels, stride, strict=True)]
    for i, j in pairs:
        cells.append((np.arange(1, levels[i])[:, None] * stride[i] + np.arange(1, levels[j]) * stride[j]).ravel())
    return np.ascontiguousarray(np.concatenate(cells))
