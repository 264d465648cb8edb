/* Penalised multinomial regression on dense functions of rows: the residuals of rows, and directions of L-BFGS.

   Conventions: all tables are row by row. Scores and residuals are (n, K), weights of the functions A (r, K); the
   unknowns are A, then offsets b (K), then ln T, each over its own scale. */
#ifndef MULTINOMIAL_H
#define MULTINOMIAL_H
#include <math.h>
#include <stddef.h>

/* Turn scores F A, in residual, into weight (P(y|x) - hits) of each row; returns the log-loss. The scores get
   heat given + b first; given is NULL for none. of_row are the sums of hits over the groups. */
static double multinomial_residual(ptrdiff_t n, ptrdiff_t K, const double *given, double heat, const double *b,
                                   const double *hits, const double *of_row, double *residual)
{
    double loss = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        double *restrict own = residual + k * K;
        const double *hit = hits + k * K;
        double top = -INFINITY, total = 0.0, told = 0.0;
        for (ptrdiff_t g = 0; g < K; g++) {
            own[g] += b[g] + (given ? heat * given[k * K + g] : 0.0);
            top = own[g] > top ? own[g] : top;
        }
        for (ptrdiff_t g = 0; g < K; g++) {
            told += hit[g] * (own[g] - top);
            total += own[g] = exp(own[g] - top);
        }
        loss += of_row[k] * log(total) - told;
        for (ptrdiff_t g = 0; g < K; g++)
            own[g] = of_row[k] * own[g] / total - hit[g];
    }
    return loss;
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
