"""Log-loss of calibrated class scores, its derivatives with respect to the calibration, and its minimiser; see
calibration.h.
"""
from libc.math cimport exp, fabs, sqrt

import numpy as np

cdef extern from "calibration.h" nogil:
    ctypedef void (*calibration_sum)(Py_ssize_t n, Py_ssize_t K, const double *scores, const double *share,
                                     double temperature, const double *offset, double *memory, double *out)
    Py_ssize_t CALIBRATION_ROWS
    calibration_sum calibration_choose_width()

cdef double MAX_GRADIENT = 1e-10  # largest derivative of the loss at the optimum
cdef int MAX_STEPS = 200
cdef double LONGEST_STEP = 5.0  # largest change of an offset or of ln T per step
cdef double SMALLEST_PIVOT = 1e-12  # smallest Cholesky pivot, relative to the diagonal entry
cdef double ROUNDING = 1e-15  # relative rounding error of the loss


cdef double largest(const double[::1] values) noexcept nogil:
    """Return the largest absolute value."""
    cdef double out = 0.0
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        out = max(out, fabs(values[i]))
    return out


cdef bint newton_direction(const double[:, ::1] hessian, const double[::1] gradient, double[:, ::1] factor,
                           double[::1] direction) noexcept nogil:
    """Set `direction` to Newton's direction and return True, or return False if the Hessian is not positive definite.

    `factor`, of the shape of the Hessian, is overwritten with its Cholesky factor, a lower triangle.
    """
    cdef Py_ssize_t size = gradient.shape[0], i, j, k
    cdef double value
    for i in range(size):
        for j in range(i + 1):
            value = hessian[i, j]
            for k in range(j):
                value -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = value / factor[j, j]
            elif value > SMALLEST_PIVOT * hessian[i, i]:
                factor[i, i] = sqrt(value)
            else:
                return False
        value = -gradient[i]
        for k in range(i):
            value -= factor[i, k] * direction[k]
        direction[i] = value / factor[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            direction[i] -= factor[k, i] * direction[k]
        direction[i] /= factor[i, i]
    return True


cdef class CalibrationLoss:
    """Penalised log-loss as a function of x = (o, ln T), the offsets of K groups and the log-temperature.

    It is the mean over rows of ``ln sum_g exp(T s_g + o_g) - T s_y - o_y``, where y is the group of a row, plus
    ``ridge/2 |x|^2``.

    Parameters
    ----------
    scores : ndarray, shape (n, K)
        Class scores s of each row; must be finite.
    y : ndarray of intp, shape (n,)
    shares : ndarray, shape (n,)
        Normalised weights of the rows.
    fits_temperature : bool
        Whether T is fitted; otherwise it is fixed at 1.
    ridge : float
    """

    cdef const double[:, ::1] scores  # (K, N) for N rows, including padding
    cdef const double[::1] shares  # (N,)
    cdef const double[::1] observed_shares  # (K,)
    cdef double observed_score  # mean of s_y
    cdef bint fits_temperature
    cdef double ridge
    cdef double[::1] memory, sums
    cdef calibration_sum sum

    def __cinit__(self, scores, y, shares, bint fits_temperature, double ridge):
        n, K = scores.shape
        N = n + -n % CALIBRATION_ROWS
        padded_scores, padded_shares = np.zeros((K, N)), np.zeros(N)
        padded_scores[:, :n], padded_shares[:n] = scores.T, shares
        self.scores, self.shares = padded_scores, padded_shares
        self.fits_temperature, self.ridge = fits_temperature, ridge
        self.observed_shares = np.bincount(y, shares, K)
        self.observed_score = shares @ scores[np.arange(n), y]
        n_sums = 3 + 2 * K + K * (K + 1) // 2
        self.sums, self.memory = np.empty(n_sums), np.empty((n_sums + 2 * K) * CALIBRATION_ROWS)
        self.sum = calibration_choose_width()

    cdef double evaluate(self, const double[::1] x, double[::1] gradient, double[:, ::1] hessian) noexcept nogil:
        """Return the loss at x (K + 1,), and write its gradient (K + 1,) and Hessian (K + 1, K + 1)."""
        cdef Py_ssize_t K = self.scores.shape[0], g, h, pair = 3 + 2 * K
        cdef double temperature = exp(x[K]) if self.fits_temperature else 1.0, loss
        cdef double *sums = &self.sums[0]
        self.sum(self.scores.shape[1], K, &self.scores[0, 0], &self.shares[0], temperature, &x[0], &self.memory[0],
                 sums)
        loss = sums[0] - temperature * self.observed_score
        for g in range(K):
            loss -= self.observed_shares[g] * x[g]
            gradient[g] = sums[3 + g] - self.observed_shares[g]
            for h in range(g + 1):
                hessian[g, h] = hessian[h, g] = -sums[pair]
                pair += 1
            hessian[g, g] += sums[3 + g]
            hessian[g, K] = hessian[K, g] = sums[3 + K + g] if self.fits_temperature else 0.0
        gradient[K] = sums[1] - temperature * self.observed_score if self.fits_temperature else 0.0
        hessian[K, K] = sums[2] + gradient[K] if self.fits_temperature else 0.0
        for g in range(K + 1):
            loss += 0.5 * self.ridge * x[g] * x[g]
            gradient[g] += self.ridge * x[g]
            hessian[g, g] += self.ridge
        return loss

    def __call__(self, const double[::1] x):
        """Return the loss at x, with its gradient and its Hessian.

        If T is not fitted, its derivatives only include the penalty.
        """
        gradient, hessian = np.empty(x.shape[0]), np.empty((x.shape[0], x.shape[0]))
        return self.evaluate(x, gradient, hessian), gradient, hessian

    def minimise(self, start):
        """Return the x that minimises the loss, starting from `start`.

        Uses Newton's method, with the absolute eigenvalues of the Hessian where it is not positive definite, since the
        loss is not convex in ln T.
        """
        cdef Py_ssize_t size = self.scores.shape[0] + 1, i, j
        cdef double[::1] x = np.array(start, dtype=float), gradient = np.empty(size), eigenvalues
        cdef double[::1] direction = np.empty(size), trial = np.empty(size)
        cdef double[:, ::1] hessian = np.empty((size, size)), factor = np.empty((size, size))
        cdef double[:, :] eigenvectors
        cdef double value = self.evaluate(x, gradient, hessian), trial_value, along, slope, step, rounding
        cdef bint is_convex  # at x
        for _ in range(MAX_STEPS):
            if largest(gradient) <= MAX_GRADIENT:
                break
            with nogil:
                is_convex = newton_direction(hessian, gradient, factor, direction)
            if not is_convex:
                eigenvalues, eigenvectors = np.linalg.eigh(hessian)
                direction[:] = 0.0
                for j in range(size):
                    along = 0.0  # the gradient along eigenvector j
                    for i in range(size):
                        along += eigenvectors[i, j] * gradient[i]
                    along /= max(fabs(eigenvalues[j]), self.ridge)
                    for i in range(size):
                        direction[i] -= along * eigenvectors[i, j]
            with nogil:
                slope = 0.0
                step = min(1.0, LONGEST_STEP / largest(direction))
                for i in range(size):
                    direction[i] *= step
                    slope += direction[i] * gradient[i]
                step, rounding = 1.0, ROUNDING * (1.0 + fabs(value))
                while True:  # halve the step by Armijo's rule, unless the expected gain is a rounding error (or NaN)
                    for i in range(size):
                        trial[i] = x[i] + step * direction[i]
                    trial_value = self.evaluate(trial, gradient, hessian)
                    if trial_value <= value + 1e-4 * step * slope or not -step * slope >= rounding:
                        break
                    step *= 0.5
                x[:] = trial
                value = trial_value
            if not -slope >= rounding:  # Newton's step is accurate to the last bits
                break
        return np.asarray(x)
