/* Elementary symmetric polynomials, by their logarithms. */
#ifndef SYMMETRIC_H
#define SYMMETRIC_H

#include <math.h>
#include <stddef.h>

/* e_out (top + 1) = ln e_k of exp(log_v) (n) for k = 0..top, by e_k <- e_k + v e_{k-1}, item after item: in plain
   numbers, scaled by what makes e_k large where k is large; in logs where that leaves the range of a double. */
static void symmetric_elementary(const double *log_v, ptrdiff_t n, ptrdiff_t top, int in_logs, double *e_out)
{
    double highest = -INFINITY, total = 0.0, shift;
    ptrdiff_t i, k;
    if (!in_logs) {
        for (i = 0; i < n; i++)
            highest = log_v[i] > highest ? log_v[i] : highest;
        for (i = 0; i < n; i++)
            total += exp(log_v[i] - highest);
        /* about half of top is expected */
        shift = highest + log(total / (double)n) - log(((double)top + 1.0) / (2.0 * (double)n - (double)top + 1.0));
        for (k = 1; k <= top; k++)
            e_out[k] = 0.0;
        e_out[0] = 1.0;
        for (i = 0; i < n; i++) {
            const double v = exp(log_v[i] - shift);
            for (k = i + 1 < top ? i + 1 : top; k > 0; k--)
                e_out[k] += v * e_out[k - 1];
        }
        for (k = 1; k <= top && !in_logs; k++) {
            in_logs = !(e_out[k] > 1e-290 && e_out[k] < 1e290);
            e_out[k] = log(e_out[k]) + (double)k * shift;
        }
        e_out[0] = 0.0;
        if (!in_logs)
            return;
    }
    for (k = 1; k <= top; k++)
        e_out[k] = -INFINITY;
    e_out[0] = 0.0;
    for (i = 0; i < n; i++)
        for (k = i + 1 < top ? i + 1 : top; k > 0; k--) {
            const double a = e_out[k], b = log_v[i] + e_out[k - 1];
            e_out[k] = a > -INFINITY ? (a > b ? a : b) + log1p(exp(-fabs(a - b))) : b;
        }
}
#endif
