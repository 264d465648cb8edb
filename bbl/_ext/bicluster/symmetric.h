/* Logarithms of elementary symmetric polynomials. */
#ifndef SYMMETRIC_H
#define SYMMETRIC_H

#include <math.h>
#include <stddef.h>

/* Write ln e_k(v), k = 0..top, to log_e_out (top + 1), for the n numbers v = exp(log_v); e_k is the elementary
   symmetric polynomial of degree k, the sum of all products of k of the numbers.

   The recursion adds one number at a time: e_k <- e_k + v e_{k-1}. It uses v / exp(log_scale), and log_e_out contains
   e_k until the end; the scale keeps e_k near k = top / 2 within the range of a double. With in_logs, or if an e_k
   leaves that range, it uses ln v and ln e_k. */
static void symmetric_elementary(const double *log_v, ptrdiff_t n, ptrdiff_t top, int in_logs, double *log_e_out)
{
    double largest = -INFINITY, total = 0.0, log_scale; /* total: sum of v / max v */
    ptrdiff_t i, k;
    if (!in_logs) {
        for (i = 0; i < n; i++)
            largest = log_v[i] > largest ? log_v[i] : largest;
        for (i = 0; i < n; i++)
            total += exp(log_v[i] - largest);
        /* e_k / e_(k-1) = v (n - k + 1) / k for n equal numbers v, the mean; at k = (top + 1) / 2 */
        log_scale = largest + log(total / (double)n) - log(((double)top + 1.0) / (2.0 * (double)n - (double)top + 1.0));
        for (k = 1; k <= top; k++)
            log_e_out[k] = 0.0;
        log_e_out[0] = 1.0;
        for (i = 0; i < n; i++) {
            const double v = exp(log_v[i] - log_scale);
            /* e_k of i + 1 numbers is 0 for k > i + 1; k decreases because the old e_(k-1) is needed */
            for (k = i + 1 < top ? i + 1 : top; k > 0; k--)
                log_e_out[k] += v * log_e_out[k - 1];
        }
        for (k = 1; k <= top && !in_logs; k++) {
            in_logs = !(log_e_out[k] > 1e-290 && log_e_out[k] < 1e290);
            log_e_out[k] = log(log_e_out[k]) + (double)k * log_scale;
        }
        log_e_out[0] = 0.0;
        if (!in_logs)
            return;
    } /* otherwise all e_k are recomputed in logs */
    for (k = 1; k <= top; k++)
        log_e_out[k] = -INFINITY;
    log_e_out[0] = 0.0;
    for (i = 0; i < n; i++)
        for (k = i + 1 < top ? i + 1 : top; k > 0; k--) {
            const double a = log_e_out[k], b = log_v[i] + log_e_out[k - 1]; /* logs of the two terms of the recursion */
            log_e_out[k] = a > -INFINITY ? (a > b ? a : b) + log1p(exp(-fabs(a - b))) : b;
        }
}
#endif
