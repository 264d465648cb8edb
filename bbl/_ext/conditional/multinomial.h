/* Penalised multinomial regression on dense functions of rows: residuals of rows, and directions of L-BFGS.

   Conventions: K groups, n rows, r functions. Scores, residuals and hits (the weight of each group at each row) are
   (K, n), the coefficients A of the functions (K, r), row_weight (n) the sums of hits over groups. n is a multiple of
   MULTINOMIAL_ROWS: rows of weight 0 with finite scores fill it up. The unknowns are A, the offsets b (K) and ln T, T
   being the factor (inverse temperature, "heat") of given scores. */
#ifndef MULTINOMIAL_H
#define MULTINOMIAL_H
#include "cpu.h"
#include <math.h>
#include <stddef.h>

#ifdef CPU_X86
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) multinomial8_##x
#include "multinomial_rows.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) multinomial4_##x
#include "multinomial_rows.h"
#endif
#ifdef CPU_VECTORS
#define LANES 2
#else
#define LANES 1
#endif
#define TARGET
#define NAME(x) multinomial_base_##x
#include "multinomial_rows.h"

#define MULTINOMIAL_ROWS 8 /* n is a multiple of it: the numbers in the widest vector */

typedef double (*multinomial_residual)(ptrdiff_t, ptrdiff_t, const double *, double, const double *, const double *,
                                       const double *, double *);

/* Return the function of multinomial_rows.h for the widest vectors of this processor. */
static multinomial_residual multinomial_choose(void)
{
#ifdef CPU_X86
    if (cpu_runs(64))
        return multinomial8_residual;
    if (cpu_runs(32))
        return multinomial4_residual;
#endif
    return multinomial_base_residual;
}

/* Return the dot product, in four partial sums. */
static double multinomial_dot(ptrdiff_t size, const double *restrict a, const double *restrict b)
{
    double parts[4] = {0.0, 0.0, 0.0, 0.0};
    ptrdiff_t k = 0;
    for (; k + 4 <= size; k += 4)
        for (ptrdiff_t p = 0; p < 4; p++)
            parts[p] += a[k + p] * b[k + p];
    for (; k < size; k++)
        parts[0] += a[k] * b[k];
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/* Write the L-BFGS direction, minus the approximate inverse Hessian times the gradient, to out (size).

   The last n_pairs moves S and changes Y of the gradient, rows of (capacity, size) arrays used as a ring whose newest
   row is `last`, make up the approximation; inverse (capacity) holds 1 / (S Y) of each row, alpha (capacity) is
   scratch. */
static void multinomial_direction(ptrdiff_t size, ptrdiff_t capacity, ptrdiff_t n_pairs, ptrdiff_t last,
                                  const double *S, const double *Y, const double *inverse, const double *gradient,
                                  double *alpha, double *out)
{
    for (ptrdiff_t k = 0; k < size; k++)
        out[k] = -gradient[k];
    for (ptrdiff_t age = 0; age < n_pairs; age++) {
        const ptrdiff_t p = (last - age + capacity) % capacity;
        alpha[p] = inverse[p] * multinomial_dot(size, S + p * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] -= alpha[p] * Y[p * size + k];
    }
    if (n_pairs) {
        const double *last_Y = Y + last * size;
        const double scale = 1.0 / (inverse[last] * multinomial_dot(size, last_Y, last_Y));
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] *= scale;
    }
    for (ptrdiff_t age = n_pairs - 1; age >= 0; age--) {
        const ptrdiff_t p = (last - age + capacity) % capacity;
        const double beta = alpha[p] - inverse[p] * multinomial_dot(size, Y + p * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] += beta * S[p * size + k];
    }
}
#endif
