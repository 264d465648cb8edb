"""Log-loss of calibrated class scores, with its derivatives by the calibration; see calibration.h."""
from libc.math cimport exp

import numpy as np

cdef extern from "calibration.h" nogil:
    ctypedef void (*calibration_sum)(Py_ssize_t n, Py_ssize_t K, const double *scores, const double *share,
                                     double temperature, const double *offset, double *memory, double *out)
    Py_ssize_t CALIBRATION_ROWS
    calibration_sum calibration_choose_width()


cdef class CalibrationLoss:
    """The mean of ``ln sum_g exp(T s_g + o_g) - T s_y - o_y`` over rows, for the group y of each.

    Parameters
    ----------
    scores : ndarray, shape (n, K)
        Class scores s of each row; finite.
    y : ndarray of intp, shape (n,)
    shares : ndarray, shape (n,)
        Shares of the rows in the weight.
    fits_temperature : bool
        Whether T is fitted, or stays 1.
    """

    cdef const double[:, ::1] scores  # (K, N), N rows with padding
    cdef const double[::1] shares  # (N,)
    cdef const double[::1] observed_shares  # (K,)
    cdef double observed_score  # mean of s_y
    cdef bint fits_temperature
    cdef double[::1] memory, sums
    cdef calibration_sum sum

    def __cinit__(self, scores, y, shares, bint fits_temperature):
        n, K = scores.shape
        N = n + -n % CALIBRATION_ROWS
        padded_scores, padded_shares = np.zeros((K, N)), np.zeros(N)
        padded_scores[:, :n], padded_shares[:n] = scores.T, shares
        self.scores, self.shares, self.fits_temperature = padded_scores, padded_shares, fits_temperature
        self.observed_shares = np.bincount(y, shares, K)
        self.observed_score = shares @ scores[np.arange(n), y]
        n_sums = 3 + 2 * K + K * (K + 1) // 2
        self.sums, self.memory = np.empty(n_sums), np.empty((n_sums + 2 * K) * CALIBRATION_ROWS)
        self.sum = calibration_choose_width()

    def __call__(self, const double[::1] x):
        """Return the loss at x (K + 1,), the offsets and ln T, with its gradient and its Hessian.

        Derivatives by ln T are 0 if it is not fitted.
        """
        cdef Py_ssize_t K = self.scores.shape[0], g, h, pair = 3 + 2 * K
        cdef double temperature = exp(x[K]) if self.fits_temperature else 1.0, loss
        cdef double[::1] gradient = np.zeros(K + 1), sums = self.sums
        cdef double[:, ::1] hessian = np.zeros((K + 1, K + 1))
        with nogil:
            self.sum(self.scores.shape[1], K, &self.scores[0, 0], &self.shares[0], temperature, &x[0], &self.memory[0],
                     &sums[0])
            loss = sums[0] - temperature * self.observed_score
            for g in range(K):
                loss -= self.observed_shares[g] * x[g]
                gradient[g] = sums[3 + g] - self.observed_shares[g]
                for h in range(g + 1):
                    hessian[g, h] = hessian[h, g] = -sums[pair]
                    pair += 1
                hessian[g, g] += sums[3 + g]
            if self.fits_temperature:
                gradient[K] = sums[1] - temperature * self.observed_score
                hessian[K, K] = sums[2] + gradient[K]
                for g in range(K):
                    hessian[g, K] = hessian[K, g] = sums[3 + K + g]
        return loss, np.asarray(gradient), np.asarray(hessian)
