"""Markov chain over partitions of raters and of items, given the items chosen by raters; see bbl/biclustering/mcmc.py.

A rater of group T chooses the set R of n items with probability prod_{i in R} v_i / e_n(v), where e_n is the elementary
symmetric polynomial of degree n and v_i = w_i lambda_T^r. Here w_i is the weight of item i, lambda_T in (0, 1) the
loyalty of group T (gamma_T is its logit), and r = 1, 2, ... the rank that T gives to the group of item i.

P (items) and Q (raters) contain the group of each item and rater, 0..KP-1 and 0..KQ-1 in any order. Prior: partitions
and rankings are uniform, gamma is normal with mean 0, and w is Dirichlet, represented by independent gamma variables
whose sum cancels in the likelihood. A step of the Du process moves a random item (or rater) to another group or a new
one, all with equal probability; the reverse step has the same probability.
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp, expm1, lgamma, log, log1p
from libc.stdint cimport int32_t, uint64_t

cdef extern from "partition.h" nogil:
    int32_t partition_renumber(const int32_t *labels, Py_ssize_t n, int32_t *new_label, int32_t *labels_out)

cdef extern from "random.h" nogil:
    double random_uniform(uint64_t *s)
    double random_normal(uint64_t *s)
    int32_t random_below(uint64_t *s, int32_t n)
    int32_t random_du_step(uint64_t *s, const int32_t *label, const int32_t *size, int32_t n, int32_t k, int32_t *to)

cdef extern from "symmetric.h" nogil:
    void symmetric_elementary(const double *log_v, Py_ssize_t n, Py_ssize_t top, bint in_logs, double *e_out)


cdef double CHECK_INTERVAL = 3e7  # multiplications between two checks for signals


def log_elementary(const double[::1] log_v, Py_ssize_t top, bint in_logs=False):
    """Return ln e_k(v), k = 0..top, for the elementary symmetric polynomials; shape (top + 1,).

    log_v (n,) contains ln v; top is the largest degree. The recursion uses plain numbers unless these leave the range
    of a double, or logarithms with `in_logs`.
    """
    if not 0 <= top <= log_v.shape[0] or log_v.shape[0] < 1:
        raise ValueError("top must lie in 0..n")
    cdef double[::1] log_e = np.empty(top + 1)
    with nogil:
        symmetric_elementary(&log_v[0], log_v.shape[0], top, in_logs, &log_e[0])
    return np.asarray(log_e)


cdef class Chain:
    """State of one chain: the partitions P and Q and the parameters of the groups; the prefix `new_` marks a proposal.

    Arrays by group of raters have raters + 1 rows, arrays by group of items have items + 1 columns: one more than the
    maximum number of groups.
    """

    cdef Py_ssize_t items, raters, top          # top: the largest number of items chosen by a rater
    cdef const Py_ssize_t[::1] start            # the items of rater j are item[start[j]:start[j + 1]]
    cdef const int32_t[::1] item
    cdef int32_t[::1] P, Q, sizeP, sizeQ, new_P  # sizeP, sizeQ: number of items and raters in each group
    cdef int32_t[:, ::1] rank, new_rank         # (groups of raters, groups of items)
    cdef double[::1] gamma, log_lambda, loglik, new_loglik  # by group of raters; loglik: sum over its raters
    cdef double[::1] log_w, log_v, step_w       # by item; step_w: standard deviation of a proposal of log_w
    cdef double[:, ::1] log_e, new_log_e        # (groups of raters, top + 1): ln e_k(v)
    cdef uint64_t[::1] stream
    cdef int32_t KP, KQ                         # numbers of groups of items and of raters
    cdef double alpha, sigma, step, work        # work: multiplications since the last check for signals
    cdef bint free_w                            # whether w is sampled
    cdef const int32_t[::1] stop

    def __init__(self, const Py_ssize_t[::1] start, const int32_t[::1] item, Py_ssize_t items, double alpha,
                 double sigma, double step, const double[::1] log_w, uint64_t[::1] stream,
                 const int32_t[::1] stop):
        """Store the choices and the prior; call `set` next.

        alpha is the parameter of the Dirichlet prior of w; 0 fixes w at exp(log_w). sigma is the prior standard
        deviation of gamma; 0 fixes gamma at 0. step is the standard deviation of a proposal of gamma. stream (4) is the
        state of the random number generator. A non-zero stop[0], written by another thread, ends a run early.
        """
        cdef Py_ssize_t i
        self.items, self.raters, self.top = items, start.shape[0] - 1, 0
        if self.raters < 1 or items < 1 or log_w.shape[0] != items or stream.shape[0] != 4:
            raise ValueError("the arrays of the chain do not fit together")
        for i in range(self.raters):
            self.top = max(self.top, start[i + 1] - start[i])
        if self.top > items or start[self.raters] != item.shape[0]:
            raise ValueError("a rater has more items than there are")
        self.start, self.item, self.stream, self.stop, self.work = start, item, stream, stop, 0.0
        self.alpha, self.sigma, self.step, self.free_w = alpha, sigma, step, alpha > 0.0
        shape = (self.raters + 1, items + 1)
        self.P, self.new_P = np.zeros((2, items), dtype=np.int32)
        self.Q = np.zeros(self.raters, dtype=np.int32)
        self.sizeP, self.sizeQ = np.zeros(items + 1, dtype=np.int32), np.zeros(self.raters + 1, dtype=np.int32)
        self.rank, self.new_rank = np.zeros((2, *shape), dtype=np.int32)
        self.gamma, self.log_lambda, self.loglik, self.new_loglik = np.zeros((4, self.raters + 1))
        self.log_w, self.log_v = np.array(log_w), np.zeros(items)
        self.log_e, self.new_log_e = np.zeros((2, self.raters + 1, self.top + 1))
        count = np.bincount(np.asarray(item), minlength=items)
        # about 2.4 standard deviations (the best random-walk step in one dimension) of the log of a gamma variable of
        # shape alpha + count
        self.step_w = 2.4 / np.sqrt(alpha + count + 1e-9)  # 1e-9 avoids a division by 0

    def set(self, const int32_t[::1] P, const int32_t[::1] Q, gamma=None, rank=None):
        """Set the partitions P and Q, and gamma (KQ,) and rank (KQ, KP), which are drawn from their prior if None."""
        cdef int32_t T
        cdef Py_ssize_t i
        self.KP, self.KQ = np.max(P) + 1, np.max(Q) + 1
        self.sizeP[:] = 0
        self.sizeQ[:] = 0
        for i in range(self.items):
            self.P[i] = P[i]
            self.sizeP[P[i]] += 1
        for i in range(self.raters):
            self.Q[i] = Q[i]
            self.sizeQ[Q[i]] += 1
        for T in range(self.KQ):
            self.draw_group(T)
            if gamma is not None:
                self.gamma[T] = gamma[T]
                self.log_lambda[T] = -log1p(exp(-self.gamma[T]))
            if rank is not None:
                for i in range(self.KP):
                    self.rank[T, i] = rank[T][i]
        for T in range(self.KQ):
            self.write_log_e(T, self.P, self.rank, &self.log_e[T, 0])
            self.loglik[T] = self.group_loglik(T, self.P, self.rank, &self.log_e[T, 0])

    cdef void draw_group(self, int32_t T) noexcept nogil:
        """Draw gamma and the ranking of group T of raters from their prior."""
        cdef int32_t k, other, old_rank
        self.gamma[T] = self.sigma * random_normal(&self.stream[0])
        self.log_lambda[T] = -log1p(exp(-self.gamma[T]))  # gamma is the logit of lambda
        for k in range(self.KP):
            self.rank[T, k] = k + 1
        for k in range(self.KP - 1, 0, -1):  # shuffle (Fisher & Yates)
            other = random_below(&self.stream[0], k + 1)
            old_rank = self.rank[T, k]
            self.rank[T, k] = self.rank[T, other]
            self.rank[T, other] = old_rank

    cdef void write_log_e(self, int32_t T, int32_t[::1] P, int32_t[:, ::1] rank, double *log_e_out) noexcept nogil:
        """Write ln e_k(v), k = 0..top, for group T of raters under the partition P and the ranking `rank`."""
        cdef Py_ssize_t i
        for i in range(self.items):
            self.log_v[i] = self.log_w[i] + rank[T, P[i]] * self.log_lambda[T]
        self.work += <double> self.items * (self.top + 10)  # the recursion, plus about 10 for exponentials
        symmetric_elementary(&self.log_v[0], self.items, self.top, False, log_e_out)

    cdef double rater_loglik(self, Py_ssize_t j, int32_t T, int32_t[::1] P, int32_t[:, ::1] rank,
                             const double *log_e) noexcept nogil:
        """Return the log-likelihood of the choices of rater j in group T, given the group's log_e (top + 1,)."""
        cdef Py_ssize_t c
        cdef double total = -log_e[self.start[j + 1] - self.start[j]]
        for c in range(self.start[j], self.start[j + 1]):
            total += self.log_w[self.item[c]] + rank[T, P[self.item[c]]] * self.log_lambda[T]
        return total

    cdef double group_loglik(self, int32_t T, int32_t[::1] P, int32_t[:, ::1] rank, const double *log_e) noexcept nogil:
        """Return the log-likelihood of all raters of group T, given the group's log_e (top + 1,)."""
        cdef Py_ssize_t j
        cdef double total = 0.0
        for j in range(self.raters):
            if self.Q[j] == T:
                total += self.rater_loglik(j, T, P, rank, log_e)
        return total

    cdef bint propose(self, int32_t[::1] P, int32_t[:, ::1] rank, double log_prior_ratio) noexcept nogil:
        """Accept or reject P and rank, which affect all groups of raters; return whether they are accepted.

        log_prior_ratio is ln [prior(new) q(old | new) / (prior(old) q(new | old))], where q is the proposal density. If
        accepted, loglik and log_e are updated; the caller must update P and rank.
        """
        cdef int32_t T
        cdef double log_ratio = log_prior_ratio
        for T in range(self.KQ):
            self.write_log_e(T, P, rank, &self.new_log_e[T, 0])
            self.new_loglik[T] = self.group_loglik(T, P, rank, &self.new_log_e[T, 0])
            log_ratio += self.new_loglik[T] - self.loglik[T]
        if log(random_uniform(&self.stream[0])) >= log_ratio:
            return False
        for T in range(self.KQ):
            self.loglik[T] = self.new_loglik[T]
            self.log_e[T, :] = self.new_log_e[T, :]
        return True

    cdef bint propose_in_group(self, int32_t T, double log_prior_ratio) noexcept nogil:
        """Accept or reject new parameters of group T, which are already in the state; return whether they are accepted.

        If they are rejected, the caller must restore the old ones. For log_prior_ratio see `propose`.
        """
        cdef double new_loglik
        self.write_log_e(T, self.P, self.rank, &self.new_log_e[T, 0])
        new_loglik = self.group_loglik(T, self.P, self.rank, &self.new_log_e[T, 0])
        if log(random_uniform(&self.stream[0])) >= new_loglik - self.loglik[T] + log_prior_ratio:
            return False
        self.loglik[T] = new_loglik
        self.log_e[T, :] = self.new_log_e[T, :]
        return True

    cdef void move_item(self) noexcept nogil:
        """Propose one step of the Du process on the items.

        In each ranking, an item group that disappears loses its rank, and a new one gets a rank drawn uniformly. Its
        probability 1 / (n_groups + 1) equals the ratio of the priors of the rankings, so the two cancel.
        """
        cdef int32_t to_group, T, k, group_rank, from_group, n_groups = self.KP
        cdef int32_t i = random_du_step(&self.stream[0], &self.P[0], &self.sizeP[0], <int32_t> self.items, n_groups,
                                        &to_group)
        from_group = self.P[i]
        if to_group == from_group:
            return
        for T in range(self.KQ):
            for k in range(n_groups):
                self.new_rank[T, k] = self.rank[T, k]
            if to_group == n_groups:  # group_rank: of the new group, or of the one that disappears
                group_rank = random_below(&self.stream[0], n_groups + 1) + 1
                for k in range(n_groups):
                    self.new_rank[T, k] += self.new_rank[T, k] >= group_rank
                self.new_rank[T, n_groups] = group_rank
            elif self.sizeP[from_group] == 1:  # i moves to an existing group: a single item never creates one
                group_rank = self.new_rank[T, from_group]
                for k in range(n_groups):
                    self.new_rank[T, k] -= self.new_rank[T, k] > group_rank
        self.new_P[:] = self.P
        self.new_P[i] = to_group
        if not self.propose(self.new_P, self.new_rank, 0.0):
            return
        self.P[i] = to_group
        self.sizeP[from_group] -= 1
        self.sizeP[to_group] += 1
        if to_group == n_groups:
            self.KP += 1
            self.sizeP[to_group] = 1  # overwrite the value of a former group with this number
        elif self.sizeP[from_group] == 0:  # the last group takes the number of the empty one
            self.KP -= 1
            self.sizeP[from_group] = self.sizeP[self.KP]
            for k in range(<int32_t> self.items):
                if self.P[k] == self.KP:
                    self.P[k] = from_group
            for T in range(self.KQ):
                self.new_rank[T, from_group] = self.new_rank[T, self.KP]
        for T in range(self.KQ):
            for k in range(self.KP):
                self.rank[T, k] = self.new_rank[T, k]

    cdef void move_rater(self) noexcept nogil:
        """Propose one step of the Du process on the raters; the parameters of a new group are drawn from the prior."""
        cdef int32_t to_group, k, from_group, n_groups = self.KQ
        cdef int32_t j = random_du_step(&self.stream[0], &self.Q[0], &self.sizeQ[0], <int32_t> self.raters, n_groups,
                                        &to_group)
        cdef double old_loglik, new_loglik
        from_group = self.Q[j]
        if to_group == from_group:
            return
        if to_group == n_groups:
            self.draw_group(n_groups)
            self.write_log_e(n_groups, self.P, self.rank, &self.log_e[n_groups, 0])
            self.loglik[n_groups] = 0.0
            self.sizeQ[n_groups] = 0
        old_loglik = self.rater_loglik(j, from_group, self.P, self.rank, &self.log_e[from_group, 0])
        new_loglik = self.rater_loglik(j, to_group, self.P, self.rank, &self.log_e[to_group, 0])
        if log(random_uniform(&self.stream[0])) >= new_loglik - old_loglik:
            return
        self.Q[j] = to_group
        self.sizeQ[from_group] -= 1
        self.sizeQ[to_group] += 1
        self.KQ += to_group == n_groups
        if self.sizeQ[from_group] == 0:
            self.KQ -= 1
            self.sizeQ[from_group] = self.sizeQ[self.KQ]  # the last group takes the number of the empty one
            self.gamma[from_group], self.log_lambda[from_group] = self.gamma[self.KQ], self.log_lambda[self.KQ]
            self.rank[from_group, :] = self.rank[self.KQ, :]
            self.log_e[from_group, :] = self.log_e[self.KQ, :]  # loglik is updated below
            for k in range(<int32_t> self.raters):
                if self.Q[k] == self.KQ:
                    self.Q[k] = from_group
        if to_group == self.KQ:  # it was the last group, now renumbered
            to_group = from_group
        self.loglik[to_group] = self.group_loglik(to_group, self.P, self.rank, &self.log_e[to_group, 0])
        if from_group < self.KQ:  # otherwise it was the last group and no longer exists
            self.loglik[from_group] = self.group_loglik(from_group, self.P, self.rank, &self.log_e[from_group, 0])

    cdef void move_gamma(self, int32_t T) noexcept nogil:
        """Propose a random-walk step of the loyalty of group T of raters."""
        cdef double before = self.gamma[T], after = before + self.step * random_normal(&self.stream[0])
        self.gamma[T], self.log_lambda[T] = after, -log1p(exp(-after))
        if not self.propose_in_group(T, (before * before - after * after) / (2.0 * self.sigma * self.sigma)):
            self.gamma[T], self.log_lambda[T] = before, -log1p(exp(-before))

    cdef void swap_ranks(self, int32_t T) noexcept nogil:
        """Propose to swap two neighbours in the ranking of group T of raters."""
        cdef int32_t k, lower_rank = 1 + random_below(&self.stream[0], self.KP - 1), lower_group = 0, upper_group = 0
        for k in range(self.KP):
            if self.rank[T, k] == lower_rank:
                lower_group = k
            elif self.rank[T, k] == lower_rank + 1:
                upper_group = k
        self.rank[T, lower_group], self.rank[T, upper_group] = lower_rank + 1, lower_rank
        if not self.propose_in_group(T, 0.0):
            self.rank[T, lower_group], self.rank[T, upper_group] = lower_rank, lower_rank + 1

    cdef void move_weight(self, Py_ssize_t i) noexcept nogil:
        """Propose a random-walk step of ln w_i; its log prior density is alpha ln w_i - w_i."""
        cdef double before = self.log_w[i], after = before + self.step_w[i] * random_normal(&self.stream[0])
        self.log_w[i] = after
        if not self.propose(self.P, self.rank, self.alpha * (after - before) - exp(before) * expm1(after - before)):
            self.log_w[i] = before

    cdef bint stopped(self) except -1 nogil:
        """Return whether the stop flag is set; also check for signals after every CHECK_INTERVAL multiplications."""
        if self.work > CHECK_INTERVAL:
            self.work = 0.0
            with gil:
                PyErr_CheckSignals()
        return self.stop[0] != 0

    cdef int sweep(self) except -1 nogil:
        """Update every part of the state; return 1 if the chain was stopped, otherwise 0."""
        cdef Py_ssize_t k, _each
        cdef int32_t T
        for _each in range(self.items):
            self.move_item()
            if self.stopped():
                return 1
        for _each in range(self.raters):  # mostly cheap steps, without checks of the flag
            self.move_rater()
        if self.free_w:
            for k in range(self.items):
                self.move_weight(k)
                if self.stopped():
                    return 1
        for T in range(self.KQ):
            if self.sigma > 0.0:
                self.move_gamma(T)
            if self.KP > 1:
                self.swap_ranks(T)
        return 0

    cdef double log_posterior(self) noexcept nogil:
        """Return the log posterior density, up to a constant; w is scaled to sum to 1."""
        cdef double total = -self.KQ * lgamma(self.KP + 1.0), sum_w = 0.0  # a ranking has probability 1 / KP!
        cdef Py_ssize_t i
        cdef int32_t T
        for T in range(self.KQ):
            total += self.loglik[T]
            if self.sigma > 0.0:
                total -= 0.5 * (self.gamma[T] / self.sigma) ** 2 + log(self.sigma) + 0.9189385332046727  # ln sqrt(2 pi)
        if self.free_w:
            for i in range(self.items):
                sum_w += exp(self.log_w[i])
            for i in range(self.items):
                total += (self.alpha - 1.0) * (self.log_w[i] - log(sum_w))
        return total

    def run(self, Py_ssize_t sweeps):
        """Advance the chain by a number of sweeps."""
        cdef Py_ssize_t _each
        with nogil:
            for _each in range(sweeps):
                if self.sweep():
                    break

    def record(self, Py_ssize_t thin, int32_t[:, ::1] Q_out, int32_t[:, ::1] P_out, double[::1] value_out,
               double[::1] lambda_out, double[::1] w_out):
        """Write one draw after every `thin` sweeps, with labels in order of first appearance.

        Shapes: Q_out (draws, raters), P_out (draws, items), value_out (draws,) for the log posterior. The lambda of
        each rater's group is added to lambda_out (raters,), and the weights, scaled to sum to 1, to w_out (items,).
        """
        cdef Py_ssize_t draw, i, n_draws = value_out.shape[0]
        cdef Py_ssize_t _each
        cdef double sum_w
        if (Q_out.shape[0] != n_draws or P_out.shape[0] != n_draws or Q_out.shape[1] != self.raters
                or P_out.shape[1] != self.items or lambda_out.shape[0] != self.raters or w_out.shape[0] != self.items):
            raise ValueError("the arrays of draws do not fit the chain")
        cdef int32_t[::1] new_label = np.empty(max(self.raters, self.items), dtype=np.int32)
        with nogil:
            for draw in range(n_draws):
                for _each in range(thin):
                    if self.sweep():
                        break
                if self.stop[0]:
                    break
                partition_renumber(&self.Q[0], self.raters, &new_label[0], &Q_out[draw, 0])
                partition_renumber(&self.P[0], self.items, &new_label[0], &P_out[draw, 0])
                value_out[draw] = self.log_posterior()
                for i in range(self.raters):
                    lambda_out[i] += exp(self.log_lambda[self.Q[i]])
                sum_w = 0.0
                for i in range(self.items):
                    sum_w += exp(self.log_w[i])
                for i in range(self.items):
                    w_out[i] += exp(self.log_w[i]) / sum_w

    def state(self):
        """Return P, Q, gamma (KQ,), rank (KQ, KP) and w (items,); w sums to 1."""
        w = np.exp(np.asarray(self.log_w) - np.max(self.log_w))
        rank = np.array(self.rank)[:self.KQ, :self.KP]
        return np.array(self.P), np.array(self.Q), np.array(self.gamma)[:self.KQ], rank, w / w.sum()

    def value(self):
        """Return the log-likelihood, and the log posterior density up to a constant."""
        return float(np.sum(np.asarray(self.loglik)[:self.KQ])), self.log_posterior()
