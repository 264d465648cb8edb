/* Penalised multinomial regression on dense functions of rows: residuals of rows, and directions of L-BFGS.

   Conventions: K groups, n rows, r functions. The score of group g at row k is T s_kg + b_g + sum_f A_gf F_kf. The
   unknowns are the coefficients A (K, r) of the functions F, the offsets b (K) and ln T. T, `temperature` in the code,
   is a factor of the scores s, `fixed_scores` (K, n), which come from another model and are not changed. group_weights
   (K, n) is the weight of each group at each row, row_weight (n) its sum over groups, and the residuals (K, n) are
   row_weight P(g | row) - group_weights. n is a multiple of MULTINOMIAL_ROWS: rows of weight 0 with finite scores fill
   it up. multinomial_rows.h is included for each vector of LANES doubles, with functions of the prefix NAME and of the
   attribute TARGET. */
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

#define MULTINOMIAL_ROWS 8 /* n is a multiple of it, as the widest vector holds 8 numbers */

/* A variant of to_residuals in multinomial_rows.h, which has its arguments */
typedef double (*multinomial_to_residuals)(ptrdiff_t, ptrdiff_t, const double *, double, const double *, const double *,
                                           const double *, double *);

/* Return the variant of to_residuals for the widest vectors of this processor. */
static multinomial_to_residuals multinomial_choose_width(void)
{
#ifdef CPU_X86
    if (cpu_runs(64))
        return multinomial8_to_residuals;
    if (cpu_runs(32))
        return multinomial4_to_residuals;
#endif
    return multinomial_base_to_residuals;
}

/* Return the dot product of a and b (size). Four partial sums let additions overlap. */
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

/* Write the L-BFGS direction, minus the approximate inverse Hessian times the gradient, to out (size): the two-loop
   recursion over n_pairs curvature pairs, from the newest to the oldest and back.

   A curvature pair is a row of `moves`, a step of the unknowns, with the same row of `gradient_changes`, the change of
   the gradient along it. Both are (capacity, size) and used as rings, in which row `newest` was written last.
   inverse_curvature (capacity) holds 1 / (move . gradient change) of each pair. alpha (capacity) is scratch. */
static void multinomial_direction(ptrdiff_t size, ptrdiff_t capacity, ptrdiff_t n_pairs, ptrdiff_t newest,
                                  const double *moves, const double *gradient_changes,
                                  const double *inverse_curvature, const double *gradient, double *alpha,
                                  double *out)
{
    for (ptrdiff_t k = 0; k < size; k++)
        out[k] = -gradient[k];
    for (ptrdiff_t age = 0; age < n_pairs; age++) {
        const ptrdiff_t p = (newest - age + capacity) % capacity;
        alpha[p] = inverse_curvature[p] * multinomial_dot(size, moves + p * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] -= alpha[p] * gradient_changes[p * size + k];
    }
    if (n_pairs) {
        const double *newest_change = gradient_changes + newest * size;
        const double scale = 1.0 / (inverse_curvature[newest] * multinomial_dot(size, newest_change, newest_change));
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] *= scale;
    }
    for (ptrdiff_t age = n_pairs - 1; age >= 0; age--) {
        const ptrdiff_t p = (newest - age + capacity) % capacity;
        const double correction =
            alpha[p] - inverse_curvature[p] * multinomial_dot(size, gradient_changes + p * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] += correction * moves[p * size + k];
    }
}
#endif
