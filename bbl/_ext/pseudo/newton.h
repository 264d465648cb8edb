/* Newton's method for the pseudo-likelihood of one predictor ("site"), for problems with few parameters.
   
   (a) Parameters of a site with q = L-1 non-reference levels and P0 - 1 neighbour columns are x[a*P0 + c]: c = 0 is
       the field, c >= 1 the coupling to neighbour column c. p = q*P0.
   (b) A row enters through its active columns: c = 0 and the columns of its neighbours' non-reference levels. So a
       row costs q^2 s^2/2 operations in the Hessian, s active columns, not p^2/2.
   (c) Objective (mean negative log-likelihood plus penalties) and Hessian are convex; a step is accepted on Armijo
       decrease or, where rounding hides the decrease, on a smaller gradient. One more step is taken after the
       tolerance is met, because Newton's last step squares the error.
   (d) A Hessian that is not positive definite to rounding (no finite optimum) gets a growing ridge: steps stay
       finite. */
#ifndef NEWTON_H
#define NEWTON_H

#include "solver.h"
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    ptrdiff_t n, q, P0, p;      /* rows, non-reference levels, columns with the constant, parameters */
    const int32_t *active;      /* active columns of all rows, increasing inside a row, first is 0 */
    const ptrdiff_t *row_start; /* n + 1 positions in active */
    const int32_t *response;    /* code of the site in each row */
    const double *weight;       /* n, sums to total */
    double total;
    double mix;                 /* share of the uniform distribution in the target of each row */
    const double *penalty;      /* P0, of the field and of each column's couplings */
    const double *linear;       /* p, <x, linear> is taken off the objective; may be NULL */
    const double *metric;       /* (P0, P0) Q of the penalty x' (M (x) Q) x / 2, M = I - 1 1'/L over levels; may be NULL */
} newton_site;

/* Add the penalty of the zero-sum gauge to gradient and lower Hessian; returns its value. */
static double newton_metric(const newton_site *s, const double *x, double *g_out, double *H_out)
{
    const ptrdiff_t q = s->q, P0 = s->P0;
    double f = 0.0;
    for (ptrdiff_t c = 0; c < P0; c++) {
        const double *Q = s->metric + c * P0;
        double mean = 0.0;
        for (ptrdiff_t a = 0; a < q; a++)
            for (ptrdiff_t d = 0; d < P0; d++)
                mean += Q[d] * x[a * P0 + d] / (double)(q + 1);
        for (ptrdiff_t a = 0; a < q; a++) {
            double pull = -mean;
            for (ptrdiff_t d = 0; d < P0; d++)
                pull += Q[d] * x[a * P0 + d];
            f += 0.5 * x[a * P0 + c] * pull;
            g_out[a * P0 + c] += pull;
            for (ptrdiff_t b = 0; H_out && b <= a; b++)
                for (ptrdiff_t d = 0; d < (b < a ? P0 : c + 1); d++)
                    H_out[(a * P0 + c) * s->p + b * P0 + d] += ((a == b) - 1.0 / (double)(q + 1)) * Q[d];
        }
    }
    return f;
}

/* Value, gradient g_out (p) at x, and the lower Hessian H_out (p, p) if it is given. prob: q scratch. */
static double newton_evaluate(const newton_site *s, const double *x, double *g_out, double *H_out, double *prob)
{
    const ptrdiff_t q = s->q, P0 = s->P0, p = s->p;
    const double own = 1.0 - s->mix, each = s->mix / (double)(q + 1);
    double f = 0.0;
    memset(g_out, 0, sizeof(double) * (size_t)p);
    if (H_out)
        memset(H_out, 0, sizeof(double) * (size_t)(p * p));
    for (ptrdiff_t k = 0; k < s->n; k++) {
        const int32_t *on = s->active + s->row_start[k];
        const ptrdiff_t n_on = s->row_start[k + 1] - s->row_start[k];
        const double w = s->weight[k] / s->total;
        const int32_t y = s->response[k];
        double top = 0.0, sum, eta_y = 0.0, eta_all = 0.0;
        for (ptrdiff_t a = 0; a < q; a++) {
            double eta = 0.0;
            for (ptrdiff_t t = 0; t < n_on; t++)
                eta += x[a * P0 + on[t]];
            prob[a] = eta;
            eta_all += eta;
            if (eta > top)
                top = eta;
            if (y == a + 1)
                eta_y = eta;
        }
        sum = exp(-top);
        for (ptrdiff_t a = 0; a < q; a++)
            sum += (prob[a] = exp(prob[a] - top));
        f -= w * (own * eta_y + each * eta_all - top - log(sum));
        for (ptrdiff_t a = 0; a < q; a++) {
            prob[a] /= sum;
            const double r = w * (prob[a] - (own * (y == a + 1) + each));
            for (ptrdiff_t t = 0; t < n_on; t++)
                g_out[a * P0 + on[t]] += r;
        }
        if (!H_out)
            continue;
        for (ptrdiff_t a = 0; a < q; a++)
            for (ptrdiff_t b = 0; b <= a; b++) {
                const double c = w * ((a == b ? prob[a] : 0.0) - prob[a] * prob[b]);
                for (ptrdiff_t t = 0; t < n_on; t++) {
                    double *row = H_out + (a * P0 + on[t]) * p + b * P0;
                    for (ptrdiff_t u = 0; u <= t; u++)
                        row[on[u]] += c;
                }
            }
    }
    for (ptrdiff_t a = 0; a < q; a++)
        for (ptrdiff_t c = 0; c < P0; c++) {
            const ptrdiff_t at = a * P0 + c;
            const double lambda = s->penalty[c];
            f += 0.5 * lambda * x[at] * x[at];
            g_out[at] += lambda * x[at];
            if (s->linear) {
                f -= s->linear[at] * x[at];
                g_out[at] -= s->linear[at];
            }
            if (!H_out)
                continue;
            H_out[at * p + at] += lambda;
            for (ptrdiff_t b = 0; b < a; b++) /* mirror inside off-diagonal blocks: they are symmetric in (c, d) */
                for (ptrdiff_t d = 0; d < c; d++)
                    H_out[(a * P0 + d) * p + b * P0 + c] = H_out[at * p + b * P0 + d];
        }
    return s->metric ? f + newton_metric(s, x, g_out, H_out) : f;
}

/* Solve (H + ridge I) d = -g by Cholesky; U (p, p) gets the upper factor, whose rows the inner loops go along. Returns 0
   where a pivot is not positive. */
static int newton_cholesky(const double *H, double ridge, const double *g, double *U, double *d_out, ptrdiff_t p)
{
    double *row = d_out; /* of the lower factor, first */
    for (ptrdiff_t i = 0; i < p; i++) {
        ptrdiff_t t = 0;
        memcpy(row, H + i * p, sizeof(double) * (size_t)(i + 1));
        row[i] += ridge;
        for (; t + 1 < i; t += 2) {
            const double *u = U + t * p, *v = u + p;
            const double a = row[t] /= u[t], b = row[t + 1] = (row[t + 1] - a * u[t + 1]) / v[t + 1];
            for (ptrdiff_t j = t + 2; j < i; j++)
                row[j] = row[j] - a * u[j] - b * v[j];
            row[i] = row[i] - a * a - b * b;
        }
        if (t < i) {
            row[t] /= U[t * p + t];
            row[i] -= row[t] * row[t];
        }
        if (!(row[i] > 1e-14 * (H[i * p + i] + ridge)) || row[i] <= 0.0)
            return 0;
        row[i] = sqrt(row[i]);
        for (t = 0; t <= i; t++)
            U[t * p + i] = row[t];
    }
    for (ptrdiff_t i = 0; i < p; i++)
        d_out[i] = -g[i];
    for (ptrdiff_t t = 0; t < p; t++) {
        const double *u = U + t * p, v = d_out[t] /= u[t];
        for (ptrdiff_t i = t + 1; i < p; i++)
            d_out[i] -= u[i] * v;
    }
    for (ptrdiff_t i = p; i-- > 0;) {
        double v = d_out[i];
        for (ptrdiff_t t = i + 1; t < p; t++)
            v -= U[i * p + t] * d_out[t];
        d_out[i] = v / U[i * p + i];
    }
    return 1;
}

static double newton_norm(const double *v, ptrdiff_t n)
{
    double s = 0.0;
    for (ptrdiff_t i = 0; i < n; i++)
        s += v[i] * v[i];
    return sqrt(s);
}

/* Minimise from x. scratch: 2 p^2 + 3 p + q doubles. Returns a solver_status. */
static int newton_solve(const newton_site *s, double tolerance, int itmax, double *x, double *scratch,
                        double *value_out, double *grad_norm_out, int32_t *n_iter_out)
{
    const ptrdiff_t p = s->p;
    double *H = scratch, *C = H + p * p, *g = C + p * p, *d = g + p, *trial = d + p, *prob = trial + p;
    double f = newton_evaluate(s, x, g, H, prob), norm = newton_norm(g, p);
    int met = norm <= tolerance, status = SOLVER_ITMAX;
    *n_iter_out = 0;
    while (*n_iter_out < itmax) {
        double ridge = 0.0, trace = 0.0, slope = 0.0, t = 1.0, f_new = f, norm_new = norm;
        int accepted = 0;
        for (ptrdiff_t i = 0; i < p; i++)
            trace += H[i * p + i];
        while (!newton_cholesky(H, ridge, g, C, d, p) && isfinite(ridge) && isfinite(trace))
            ridge = ridge == 0.0 ? 1e-13 * trace / (double)p + 1e-300 : 10.0 * ridge;
        for (ptrdiff_t i = 0; i < p; i++)
            slope += g[i] * d[i];
        for (int half = 0; half < 50 && !accepted; ++half, t *= 0.5) {
            for (ptrdiff_t i = 0; i < p; i++)
                trial[i] = x[i] + t * d[i];
            f_new = newton_evaluate(s, trial, g, H, prob);
            norm_new = newton_norm(g, p);
            accepted = isfinite(f_new) && isfinite(norm_new)
                && (f_new <= f + 1e-4 * t * slope || (f_new <= f + 1e-13 * fabs(f) && norm_new < norm));
            if (met && half == 0)
                break;
        }
        if (!accepted) {
            status = met ? SOLVER_CONVERGED : isfinite(f) ? SOLVER_STUCK : SOLVER_NOT_FINITE;
            f = newton_evaluate(s, x, g, NULL, prob);
            break;
        }
        const int gained = norm_new < 0.5 * norm;
        memcpy(x, trial, sizeof(double) * (size_t)p);
        f = f_new;
        norm = norm_new;
        ++*n_iter_out;
        if (met || (norm == 0.0)) {
            status = SOLVER_CONVERGED;
            if (!gained || norm < 1e-14)
                break;
        }
        met = met || norm <= tolerance;
    }
    *value_out = f;
    *grad_norm_out = norm;
    return norm <= tolerance ? SOLVER_CONVERGED : status == SOLVER_CONVERGED ? SOLVER_STUCK : status;
}
#endif
