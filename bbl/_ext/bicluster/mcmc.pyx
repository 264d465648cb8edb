# Biclust_mcmc: a Markov chain over two partitions, of raters and of the items that they choose.
"""Rated and unrated items (section 1.2): a rater of group T picks the n items R with P(R) = prod v_i / e_n(v).

v_i = w_i lambda_T^r, where r = 1, 2, ... is the rank that T gives to the group of item i, and e_n the elementary
symmetric polynomial. Groups are 0..K-1 in any order. Prior: uniform partitions and rankings, logit(lambda) normal
around 0, w Dirichlet (as independent gamma variables, whose sum the likelihood does not see).
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp, expm1, lgamma, log, log1p
from libc.stdint cimport int32_t, uint64_t

cdef extern from "random.h" nogil:
    double random_uniform(uint64_t *s)
    double random_normal(uint64_t *s)
    int32_t random_below(uint64_t *s, int32_t n)
    int32_t random_du_step(uint64_t *s, const int32_t *label, const int32_t *size, int32_t n, int32_t k, int32_t *to)

cdef extern from "symmetric.h" nogil:
    void symmetric_elementary(const double *log_v, Py_ssize_t n, Py_ssize_t top, bint in_logs, double *e_out)


cdef double SLICE = 3e7  # multiplications between two looks at what may tell the chain to stop


cdef void in_order(const int32_t *label, int32_t *out, Py_ssize_t n, int32_t *seen) noexcept nogil:
    """Number groups in order of first appearance."""
    cdef Py_ssize_t i
    cdef int32_t k = 0
    for i in range(n + 1):
        seen[i] = -1
    for i in range(n):
        if seen[label[i]] < 0:
            seen[label[i]] = k
            k += 1
        out[i] = seen[label[i]]


def log_elementary(const double[::1] log_v, Py_ssize_t top, bint in_logs=False):
    """Return ln e_k(v) of the elementary symmetric polynomials for k = 0..top, of v given by logarithms."""
    if not 0 <= top <= log_v.shape[0] or log_v.shape[0] < 1:
        raise ValueError("top must lie in 0..n")
    cdef double[::1] out = np.empty(top + 1)
    with nogil:
        symmetric_elementary(&log_v[0], log_v.shape[0], top, in_logs, &out[0])
    return np.asarray(out)


cdef class Chain:
    """The state of one chain: partitions, and the parameters that belong to their groups."""

    cdef Py_ssize_t items, raters, top, room
    cdef const Py_ssize_t[::1] start
    cdef const int32_t[::1] item
    cdef int32_t[::1] P, Q, sizeP, sizeQ, other_P
    cdef int32_t[:, ::1] rank, other_rank       # (raters + 1, items + 1): of each group of raters, by group of items
    cdef double[::1] gamma, log_lambda, log_w, loglik, other_loglik, log_v, step_w
    cdef double[:, ::1] e, other_e              # (raters + 1, top + 1): ln e_n of each group of raters
    cdef uint64_t[::1] stream
    cdef int32_t KP, KQ
    cdef double alpha, sigma, step
    cdef bint free_w
    cdef const int32_t[::1] stop
    cdef double work

    def __init__(self, const Py_ssize_t[::1] start, const int32_t[::1] item, Py_ssize_t items, double alpha,
                 double sigma, double step, const double[::1] log_w, uint64_t[::1] stream,
                 const int32_t[::1] stop):
        """Take the chosen items of each rater (CSR), the prior, and the start of the weights; alpha 0 fixes them.

        A non-zero `stop` (1), from another thread, ends a run early.
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
        self.P, self.other_P = np.zeros((2, items), dtype=np.int32)
        self.Q = np.zeros(self.raters, dtype=np.int32)
        self.sizeP, self.sizeQ = np.zeros(items + 1, dtype=np.int32), np.zeros(self.raters + 1, dtype=np.int32)
        self.rank, self.other_rank = np.zeros((2, *shape), dtype=np.int32)
        self.gamma, self.log_lambda, self.loglik, self.other_loglik = np.zeros((4, self.raters + 1))
        self.log_w, self.log_v = np.array(log_w), np.zeros(items)
        self.e, self.other_e = np.zeros((2, self.raters + 1, self.top + 1))
        count = np.bincount(np.asarray(item), minlength=items)
        self.step_w = 2.4 / np.sqrt(alpha + count + 1e-9)

    def set(self, const int32_t[::1] P, const int32_t[::1] Q, gamma=None, rank=None):
        """Set the partitions; the parameters of the groups are given, or drawn from their prior."""
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
            self.new_group(T)
            if gamma is not None:
                self.gamma[T] = gamma[T]
                self.log_lambda[T] = -log1p(exp(-self.gamma[T]))
            if rank is not None:
                for i in range(self.KP):
                    self.rank[T, i] = rank[T][i]
        for T in range(self.KQ):
            self.polynomial(T, self.P, self.rank, &self.e[T, 0])
            self.loglik[T] = self.group_loglik(T, self.P, self.rank, &self.e[T, 0])

    cdef void new_group(self, int32_t T) noexcept nogil:
        """Draw the parameters of a group of raters from their prior."""
        cdef int32_t k, at, kept
        self.gamma[T] = self.sigma * random_normal(&self.stream[0])
        self.log_lambda[T] = -log1p(exp(-self.gamma[T]))
        for k in range(self.KP):
            self.rank[T, k] = k + 1
        for k in range(self.KP - 1, 0, -1):
            at = random_below(&self.stream[0], k + 1)
            kept = self.rank[T, k]
            self.rank[T, k] = self.rank[T, at]
            self.rank[T, at] = kept

    cdef void polynomial(self, int32_t T, int32_t[::1] P, int32_t[:, ::1] rank, double *e) noexcept nogil:
        """Write ln e_k for k = 0..top of group T of raters."""
        cdef Py_ssize_t i
        for i in range(self.items):
            self.log_v[i] = self.log_w[i] + rank[T, P[i]] * self.log_lambda[T]
        self.work += <double> self.items * (self.top + 10)
        symmetric_elementary(&self.log_v[0], self.items, self.top, False, e)

    cdef double rater_loglik(self, Py_ssize_t j, int32_t T, int32_t[::1] P, int32_t[:, ::1] rank,
                             const double *e) noexcept nogil:
        """Return the log-likelihood of rater j as one of group T."""
        cdef Py_ssize_t k
        cdef double total = -e[self.start[j + 1] - self.start[j]]
        for k in range(self.start[j], self.start[j + 1]):
            total += self.log_w[self.item[k]] + rank[T, P[self.item[k]]] * self.log_lambda[T]
        return total

    cdef double group_loglik(self, int32_t T, int32_t[::1] P, int32_t[:, ::1] rank, const double *e) noexcept nogil:
        """Return the log-likelihood of all raters of group T."""
        cdef Py_ssize_t j
        cdef double total = 0.0
        for j in range(self.raters):
            if self.Q[j] == T:
                total += self.rater_loglik(j, T, P, rank, e)
        return total

    cdef bint propose(self, int32_t[::1] P, int32_t[:, ::1] rank, double log_prior) noexcept nogil:
        """Accept or refuse what changes all groups of raters; what is accepted is left in loglik and e."""
        cdef int32_t T
        cdef double gain = log_prior
        for T in range(self.KQ):
            self.polynomial(T, P, rank, &self.other_e[T, 0])
            self.other_loglik[T] = self.group_loglik(T, P, rank, &self.other_e[T, 0])
            gain += self.other_loglik[T] - self.loglik[T]
        if log(random_uniform(&self.stream[0])) >= gain:
            return False
        for T in range(self.KQ):
            self.loglik[T] = self.other_loglik[T]
            self.e[T, :] = self.other_e[T, :]
        return True

    cdef bint propose_group(self, int32_t T, double log_prior) noexcept nogil:
        """Accept or refuse what changes group T of raters alone."""
        cdef double other
        self.polynomial(T, self.P, self.rank, &self.other_e[T, 0])
        other = self.group_loglik(T, self.P, self.rank, &self.other_e[T, 0])
        if log(random_uniform(&self.stream[0])) >= other - self.loglik[T] + log_prior:
            return False
        self.loglik[T] = other
        self.e[T, :] = self.other_e[T, :]
        return True

    cdef void move_item(self) noexcept nogil:
        """A step of the Du process on the items: rankings lose a group, or get a new one at a place drawn uniformly.

        The place's probability 1 / (K + 1) is the ratio of the priors of the rankings, so the two cancel.
        """
        cdef int32_t to, T, k, at, own, K = self.KP
        cdef int32_t i = random_du_step(&self.stream[0], &self.P[0], &self.sizeP[0], <int32_t> self.items, K, &to)
        own = self.P[i]
        if to == own:
            return
        for T in range(self.KQ):
            for k in range(K):
                self.other_rank[T, k] = self.rank[T, k]
            if to == K:
                at = random_below(&self.stream[0], K + 1) + 1
                for k in range(K):
                    self.other_rank[T, k] += self.other_rank[T, k] >= at
                self.other_rank[T, K] = at
            elif self.sizeP[own] == 1:
                at = self.other_rank[T, own]
                for k in range(K):
                    self.other_rank[T, k] -= self.other_rank[T, k] > at
        self.other_P[:] = self.P
        self.other_P[i] = to
        if not self.propose(self.other_P, self.other_rank, 0.0):
            return
        self.P[i] = to
        self.sizeP[own] -= 1
        self.sizeP[to] += 1
        if to == K:
            self.KP += 1
            self.sizeP[to] = 1
        elif self.sizeP[own] == 0:  # the last group takes the number of the one that is gone
            self.KP -= 1
            self.sizeP[own] = self.sizeP[self.KP]
            for k in range(<int32_t> self.items):
                if self.P[k] == self.KP:
                    self.P[k] = own
            for T in range(self.KQ):
                self.other_rank[T, own] = self.other_rank[T, self.KP]
        for T in range(self.KQ):
            for k in range(self.KP):
                self.rank[T, k] = self.other_rank[T, k]

    cdef void move_rater(self) noexcept nogil:
        """A step of the Du process on the raters: a new group draws its parameters from their prior, which cancels."""
        cdef int32_t to, k, own, K = self.KQ
        cdef int32_t j = random_du_step(&self.stream[0], &self.Q[0], &self.sizeQ[0], <int32_t> self.raters, K, &to)
        cdef double before, after
        own = self.Q[j]
        if to == own:
            return
        if to == K:
            self.new_group(K)
            self.polynomial(K, self.P, self.rank, &self.e[K, 0])
            self.loglik[K] = 0.0
            self.sizeQ[K] = 0
        before = self.rater_loglik(j, own, self.P, self.rank, &self.e[own, 0])
        after = self.rater_loglik(j, to, self.P, self.rank, &self.e[to, 0])
        if log(random_uniform(&self.stream[0])) >= after - before:
            return
        self.Q[j] = to
        self.sizeQ[own] -= 1
        self.sizeQ[to] += 1
        self.KQ += to == K
        if self.sizeQ[own] == 0:
            self.KQ -= 1
            self.sizeQ[own] = self.sizeQ[self.KQ]
            self.gamma[own], self.log_lambda[own] = self.gamma[self.KQ], self.log_lambda[self.KQ]
            self.rank[own, :] = self.rank[self.KQ, :]
            self.e[own, :] = self.e[self.KQ, :]
            for k in range(<int32_t> self.raters):
                if self.Q[k] == self.KQ:
                    self.Q[k] = own
        if to == self.KQ:  # it had the last number, and took the place of the group that is gone
            to = own
        self.loglik[to] = self.group_loglik(to, self.P, self.rank, &self.e[to, 0])
        if own < self.KQ:
            self.loglik[own] = self.group_loglik(own, self.P, self.rank, &self.e[own, 0])

    cdef void move_gamma(self, int32_t T) noexcept nogil:
        """A random walk of the loyalty of group T of raters."""
        cdef double before = self.gamma[T], after = before + self.step * random_normal(&self.stream[0])
        self.gamma[T], self.log_lambda[T] = after, -log1p(exp(-after))
        if not self.propose_group(T, (before * before - after * after) / (2.0 * self.sigma * self.sigma)):
            self.gamma[T], self.log_lambda[T] = before, -log1p(exp(-before))

    cdef void swap_ranks(self, int32_t T) noexcept nogil:
        """Two neighbours in the ranking of group T of raters change places."""
        cdef int32_t k, low = 1 + random_below(&self.stream[0], self.KP - 1), one = 0, other = 0
        for k in range(self.KP):
            if self.rank[T, k] == low:
                one = k
            elif self.rank[T, k] == low + 1:
                other = k
        self.rank[T, one], self.rank[T, other] = low + 1, low
        if not self.propose_group(T, 0.0):
            self.rank[T, one], self.rank[T, other] = low, low + 1

    cdef void move_weight(self, Py_ssize_t i) noexcept nogil:
        """A random walk of the logarithm of an item's weight, a gamma variable."""
        cdef double before = self.log_w[i], after = before + self.step_w[i] * random_normal(&self.stream[0])
        self.log_w[i] = after
        if not self.propose(self.P, self.rank, self.alpha * (after - before) - exp(before) * expm1(after - before)):
            self.log_w[i] = before

    cdef bint stopped(self) except -1 nogil:
        """Look, now and then, whether somebody wants this to stop."""
        if self.work > SLICE:
            self.work = 0.0
            with gil:
                PyErr_CheckSignals()
        return self.stop[0] != 0

    cdef int sweep(self) except -1 nogil:
        cdef Py_ssize_t k, _each
        cdef int32_t T
        for _each in range(self.items):
            self.move_item()
            if self.stopped():
                return 1
        for _each in range(self.raters):
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
        """Return the log posterior density up to a constant, of w on the simplex."""
        cdef double total = -self.KQ * lgamma(self.KP + 1.0), sum_w = 0.0
        cdef Py_ssize_t i
        cdef int32_t T
        for T in range(self.KQ):
            total += self.loglik[T]
            if self.sigma > 0.0:
                total -= 0.5 * (self.gamma[T] / self.sigma) ** 2 + log(self.sigma) + 0.9189385332046727
        if self.free_w:
            for i in range(self.items):
                sum_w += exp(self.log_w[i])
            for i in range(self.items):
                total += (self.alpha - 1.0) * (self.log_w[i] - log(sum_w))
        return total

    def run(self, Py_ssize_t sweeps):
        """Advance the chain."""
        cdef Py_ssize_t _each
        with nogil:
            for _each in range(sweeps):
                if self.sweep():
                    break

    def record(self, Py_ssize_t thin, int32_t[:, ::1] Q_out, int32_t[:, ::1] P_out, double[::1] value_out,
               double[::1] lambda_out, double[::1] w_out):
        """Write a draw after every `thin` sweeps: labels in order of appearance, and the log posterior.

        Shapes: Q_out (draws, raters), P_out (draws, items), value_out (draws). To lambda_out (raters) and w_out (items)
        the lambda of each rater and the weights are added.
        """
        cdef Py_ssize_t t, i, draws = value_out.shape[0]
        cdef Py_ssize_t _each
        cdef double total
        if (Q_out.shape[0] != draws or P_out.shape[0] != draws or Q_out.shape[1] != self.raters
                or P_out.shape[1] != self.items or lambda_out.shape[0] != self.raters or w_out.shape[0] != self.items):
            raise ValueError("the arrays of draws do not fit the chain")
        cdef int32_t[::1] seen = np.empty(max(self.raters, self.items) + 1, dtype=np.int32)
        with nogil:
            for t in range(draws):
                for _each in range(thin):
                    if self.sweep():
                        break
                if self.stop[0]:
                    break
                in_order(&self.Q[0], &Q_out[t, 0], self.raters, &seen[0])
                in_order(&self.P[0], &P_out[t, 0], self.items, &seen[0])
                value_out[t] = self.log_posterior()
                for i in range(self.raters):
                    lambda_out[i] += exp(self.log_lambda[self.Q[i]])
                total = 0.0
                for i in range(self.items):
                    total += exp(self.log_w[i])
                for i in range(self.items):
                    w_out[i] += exp(self.log_w[i]) / total

    def state(self):
        """Return the labels of items and raters, gamma and rank by group, and w, which sums to one."""
        w = np.exp(np.asarray(self.log_w) - np.max(self.log_w))
        rank = np.array(self.rank)[:self.KQ, :self.KP]
        return np.array(self.P), np.array(self.Q), np.array(self.gamma)[:self.KQ], rank, w / w.sum()

    def value(self):
        """Return the log-likelihood, and the log posterior density up to a constant."""
        return float(np.sum(np.asarray(self.loglik)[:self.KQ])), self.log_posterior()
