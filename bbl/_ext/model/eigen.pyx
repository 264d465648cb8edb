"""Eigenvectors and inverse of a symmetric matrix, computed by LAPACK without the GIL."""
import numpy as np

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport INFINITY

# LAPACK takes all arguments by address, and matrices in Fortran order
ctypedef void (*syevr_t)(char *jobz, char *range, char *uplo, int *n, double *a, int *lda, double *vl, double *vu,
                         int *il, int *iu, double *abstol, int *m, double *w, double *z, int *ldz, int *isuppz,
                         double *work, int *lwork, int *iwork, int *liwork, int *info) noexcept nogil

ctypedef void (*potrf_t)(char *uplo, int *n, double *a, int *lda, int *info) noexcept nogil  # also of potri


cdef void *lapack_routine(str name) except NULL:
    """Return the address of the routine `name` in scipy's LAPACK, which can be called without the GIL."""
    from scipy.linalg.cython_lapack import __pyx_capi__ as lapack
    return PyCapsule_GetPointer(lapack[name], PyCapsule_GetName(lapack[name]))


def eigenvectors(double[:, ::1] matrix, double below=INFINITY):
    """Return the eigenvalues (n,), in increasing order, and the eigenvectors (n, n), in columns, of a symmetric matrix.

    The matrix (n, n) may be overwritten. With `below`, only eigenvalues smaller than this and their eigenvectors are
    computed, unless the matrix is small.
    """
    # a length of -1 queries the best length; `unused` and `zero` are arguments needed only to select some eigenvalues
    cdef int n = <int> matrix.shape[0], n_found = 0, info = 0, lwork = -1, liwork = -1, best_liwork, zero = 0
    cdef double best_lwork, unused = 0.0, least = -INFINITY
    cdef char *which = b"A"  # all eigenvalues, or V: those up to `below`
    cdef double[::1] value, work
    cdef double[:, ::1] vector  # one eigenvector per row
    cdef int[::1] support, iwork  # support: output of LAPACK (where eigenvectors are not zero) that is not used
    cdef syevr_t syevr
    if n < 512:  # eigh is faster, and its workspace is small
        try:
            return np.linalg.eigh(matrix)
        except np.linalg.LinAlgError:  # dsyevd fails for some finite matrices with many zero eigenvalues
            if not np.isfinite(matrix).all():
                raise
    # dsyevr is 25% slower than eigh, but avoids a workspace of 2 n^2 numbers, the memory peak of a fit; called directly
    # because scipy.linalg.eigh holds the GIL and would block other threads
    if below < INFINITY:
        which = b"V"
    syevr = <syevr_t> lapack_routine("dsyevr")
    value, vector, support = np.empty(n), np.empty((n, n)), np.empty(2 * n, dtype=np.intc)
    # V: compute eigenvectors, L: from one triangle; this call only queries the best lengths of the workspace
    syevr(b"V", which, b"L", &n, &matrix[0, 0], &n, &least, &below, &zero, &zero, &unused, &n_found, &value[0],
          &vector[0, 0], &n, &support[0], &best_lwork, &lwork, &best_liwork, &liwork, &info)
    lwork, liwork = <int> best_lwork, best_liwork
    work, iwork = np.empty(lwork), np.empty(liwork, dtype=np.intc)
    with nogil:
        syevr(b"V", which, b"L", &n, &matrix[0, 0], &n, &least, &below, &zero, &zero, &unused, &n_found, &value[0],
              &vector[0, 0], &n, &support[0], &work[0], &lwork, &iwork[0], &liwork, &info)
    if info or (n_found < n and below == INFINITY):
        raise np.linalg.LinAlgError(f"no eigenvectors (LAPACK says {info})")
    return np.asarray(value)[:n_found], np.asarray(vector)[:n_found].T


def inverse(double[:, ::1] matrix):
    """Overwrite a symmetric positive definite matrix (n, n) with its inverse, and return it as an array."""
    cdef int n = <int> matrix.shape[0], info = 0, i, j
    cdef potrf_t potrf = <potrf_t> lapack_routine("dpotrf"), potri = <potrf_t> lapack_routine("dpotri")
    with nogil:
        potrf(b"U", &n, &matrix[0, 0], &n, &info)
        if info == 0:
            potri(b"U", &n, &matrix[0, 0], &n, &info)
    if info:
        raise np.linalg.LinAlgError(f"the matrix is not positive definite (LAPACK says {info})")
    with nogil:
        for i in range(n):  # LAPACK's upper triangle, in Fortran order, is the lower triangle here
            for j in range(i):
                matrix[j, i] = matrix[i, j]
    return np.asarray(matrix)
