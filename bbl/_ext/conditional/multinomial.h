/* Penalised multinomial regression on dense functions of rows: the residuals of rows, and directions of L-BFGS.

   Conventions: scores, residuals and hits are (K, n), weights of the functions A (K, r); of_row (n) are the sums of hits
   over the groups. n is a multiple of MULTINOMIAL_ROWS: rows of no weight, whose scores are finite, fill it up. The
   unknowns are A, then offsets b (K), then ln T, each over its own scale. */
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

#define MULTINOMIAL_ROWS 8 /* numbers of rows are multiples of it */

typedef double (*multinomial_residual)(ptrdiff_t, ptrdiff_t, const double *, double, const double *, const double *,
                                       const double *, double *);

/* The residuals for the widest vectors of this processor */
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

/* Write minus the inverse Hessian, as `kept` pairs of moves S and changes Y of the gradient (both (room, size), of
   which the newest is `last`) tell it, times the gradient. inverse are 1 / (S Y), alpha is (room) scratch. */
static void multinomial_direction(ptrdiff_t size, ptrdiff_t room, ptrdiff_t kept, ptrdiff_t last, const double *S,
                                  const double *Y, const double *inverse, const double *gradient, double *alpha,
                                  double *out)
{
    for (ptrdiff_t k = 0; k < size; k++)
        out[k] = -gradient[k];
    for (ptrdiff_t p = 0; p < kept; p++) {
        const ptrdiff_t at = (last - p + room) % room;
        alpha[at] = inverse[at] * multinomial_dot(size, S + at * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] -= alpha[at] * Y[at * size + k];
    }
    if (kept) {
        const double *y = Y + last * size;
        const double scale = 1.0 / (inverse[last] * multinomial_dot(size, y, y));
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] *= scale;
    }
    for (ptrdiff_t p = kept - 1; p >= 0; p--) {
        const ptrdiff_t at = (last - p + room) % room;
        const double beta = alpha[at] - inverse[at] * multinomial_dot(size, Y + at * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] += beta * S[at * size + k];
    }
}
#endif
