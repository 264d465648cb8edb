/* Newton's method for the pseudo-likelihood of one site, for problems with few parameters.

   Terms: a *site* is a predictor whose conditional distribution given the others is fitted; its q = L - 1 non-reference
   levels are the logits of a multinomial regression. Its C *columns* are the constant (c = 0) and the indicators of the
   non-reference levels of its neighbours (c >= 1). Parameters x (q C,): x[a * C + c] is the coefficient of column c in
   logit a, the field h(a) if c = 0, a coupling J(a; c) otherwise. In the computation of the objective a, b are logits,
   c, d columns, k rows, t, u active columns of a row, and w is a weight; p = q C.

   (a) A row is stored as the list of its *active* columns, whose indicator is 1: the constant and one column for each
       neighbour at a non-reference level. With s active columns a row costs q^2 s^2 / 2 operations in the Hessian
       instead of (q C)^2 / 2.
   (b) The objective is the mean negative log-likelihood plus quadratic penalties, and convex: -sum_k w_k sum_y
       target_k(y) ln p_k(y) + sum_ac penalty_c x_ac^2 / 2 - <x, linear> + the zero-sum penalty, with weights w_k that
       sum to 1, where target_k is the observed level of row k mixed with the uniform distribution; see newton_site. A
       step is accepted if the objective decreases enough (Armijo) or, if rounding hides the decrease, if the gradient
       norm decreases. One more step is taken after the tolerance is met, because Newton's last step squares the error,
       and further steps while each halves the norm.
   (c) If a Hessian is not numerically positive definite (no finite optimum), a ridge is added and increased tenfold
       until the Cholesky factor exists, so that steps stay finite.
   (d) If level 0 never occurs and its parameters are not penalised, the logits of all other levels increase without
       bound, together: gradients and Hessians are then sums that cancel, up to the small probability of level 0, which
       rounding hides. So level 0 is exchanged with a level that occurs (`exchanged`): parameters y are logits of the
       other levels, including level 0, relative to this level. Penalties remain those of x. */
#ifndef NEWTON_H
#define NEWTON_H

#include "solver.h"
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NEWTON_ARMIJO 1e-4     /* fraction of the predicted decrease that a step must achieve (Nocedal & Wright, 3.1) */
#define NEWTON_ROUNDING 1e-13  /* relative rounding error of the objective */
#define NEWTON_PIVOT 1e-14     /* smallest Cholesky pivot, relative to the diagonal entry */
#define NEWTON_RIDGE 1e-13     /* first ridge tried, relative to the mean diagonal entry of the Hessian */
#define NEWTON_HALVINGS 50     /* maximum number of trial points of a line search, each with half the previous step */

typedef struct {
    ptrdiff_t n, q, C, n_params; /* rows, logits, columns, q * C */
    const int32_t *active;      /* (row_start[n],) active columns of all rows, increasing within a row */
    const ptrdiff_t *row_start; /* (n + 1,) position in `active` at which each row starts */
    const int32_t *response;    /* (n,) level of the site in each row */
    const double *weight;       /* (n,) row weights */
    double total;               /* sum of the row weights */
    double uniform_share;       /* weight of the uniform distribution in the target of each row (pseudocount) */
    const double *penalty;      /* (C,) ridge penalty of each column's coefficients */
    const double *linear;       /* (q C,) <x, linear> is subtracted from the objective; or NULL */
    const double *Q;            /* (C, C) symmetric, see newton_add_zero_sum_penalty; or NULL */
    ptrdiff_t exchanged;        /* logit r: levels 0 and r + 1 are exchanged in `response` and in parameters; or -1 */
} newton_site;

/* Exchange levels 0 and r + 1 in parameters x (q C,), in place: x_rc becomes -x_rc, and every other x_ac becomes x_ac -
   x_rc. */
static void newton_exchange(const newton_site *s, double *x)
{
    const ptrdiff_t r = s->exchanged;
    for (ptrdiff_t c = 0; r >= 0 && c < s->C; c++) {
        const double x_rc = x[r * s->C + c];
        for (ptrdiff_t a = 0; a < s->q; a++)
            x[a * s->C + c] = (a == r ? 0.0 : x[a * s->C + c]) - x_rc;
    }
}

/* Return the penalty x' (M (x) Q) x / 2 of the zero-sum gauge, in which parameters have mean 0 over the L levels. M = I
   - 1 1'/L (q, q) subtracts the means over the site's levels, Q (C, C) contains the penalties and subtracts the means
   over the neighbours' levels, and (x) is the Kronecker product. Add its derivatives to the gradient g_out (q C,) and,
   unless H_out is NULL, to the lower triangle of the Hessian H_out (q C, q C). */
static double newton_add_zero_sum_penalty(const newton_site *s, const double *x, double *g_out, double *H_out)
{
    const ptrdiff_t q = s->q, C = s->C;
    double value = 0.0;
    for (ptrdiff_t c = 0; c < C; c++) {
        const double *Q_row = s->Q + c * C;
        double mean = 0.0; /* of <Q_row, x_a> over all L levels a; level 0 contributes nothing to the sum */
        for (ptrdiff_t a = 0; a < q; a++)
            for (ptrdiff_t d = 0; d < C; d++)
                mean += Q_row[d] * x[a * C + d] / (double)(q + 1);
        for (ptrdiff_t a = 0; a < q; a++) {
            double slope = -mean;
            for (ptrdiff_t d = 0; d < C; d++)
                slope += Q_row[d] * x[a * C + d];
            value += 0.5 * x[a * C + c] * slope;
            g_out[a * C + c] += slope;
            for (ptrdiff_t b = 0; H_out && b <= a; b++) /* row (a, c) up to the diagonal */
                for (ptrdiff_t d = 0; d < (b < a ? C : c + 1); d++)
                    H_out[(a * C + c) * s->n_params + b * C + d] += ((a == b) - 1.0 / (double)(q + 1)) * Q_row[d];
        }
    }
    return value;
}

/* Return the objective at x (q C,); write its gradient g_out (q C,) and, unless H_out is NULL, the lower triangle of
   its Hessian H_out (q C, q C). prob (q,) is scratch: first the logits, then the probabilities of a row's levels 1 ...
   q. */
static double newton_evaluate(const newton_site *s, const double *x, double *g_out, double *H_out, double *prob)
{
    const ptrdiff_t q = s->q, C = s->C, p = s->n_params, r = s->exchanged;
    /* the target probability is target_all for every level, plus target_y for the observed level */
    const double target_y = 1.0 - s->uniform_share, target_all = s->uniform_share / (double)(q + 1);
    double f = 0.0;
    memset(g_out, 0, sizeof(double) * (size_t)p);
    if (H_out)
        memset(H_out, 0, sizeof(double) * (size_t)(p * p));
    for (ptrdiff_t k = 0; k < s->n; k++) {
        const int32_t *active = s->active + s->row_start[k];
        const ptrdiff_t n_active = s->row_start[k + 1] - s->row_start[k];
        const double w = s->weight[k] / s->total;
        const int32_t y = s->response[k]; /* observed level, 0 ... q */
        double max_logit = 0.0, sum, logit_y = 0.0, sum_logits = 0.0; /* including logit 0 for level 0 */
        for (ptrdiff_t a = 0; a < q; a++) {
            double logit = 0.0;
            for (ptrdiff_t t = 0; t < n_active; t++)
                logit += x[a * C + active[t]];
            prob[a] = logit; /* of level a + 1 */
            sum_logits += logit;
            if (logit > max_logit)
                max_logit = logit;
            if (y == a + 1)
                logit_y = logit;
        }
        sum = exp(-max_logit); /* level 0 */
        for (ptrdiff_t a = 0; a < q; a++)
            sum += (prob[a] = exp(prob[a] - max_logit));
        f -= w * (target_y * logit_y + target_all * sum_logits - max_logit - log(sum));
        for (ptrdiff_t a = 0; a < q; a++) {
            prob[a] /= sum;
            const double residual = w * (prob[a] - (target_y * (y == a + 1) + target_all));
            for (ptrdiff_t t = 0; t < n_active; t++)
                g_out[a * C + active[t]] += residual;
        }
        if (!H_out)
            continue;
        for (ptrdiff_t a = 0; a < q; a++)
            for (ptrdiff_t b = 0; b <= a; b++) {
                const double covariance = w * ((a == b ? prob[a] : 0.0) - prob[a] * prob[b]);
                for (ptrdiff_t t = 0; t < n_active; t++) {
                    double *H_row = H_out + (a * C + active[t]) * p + b * C;
                    for (ptrdiff_t u = 0; u <= t; u++) /* columns up to t's column: the lower triangle of each block */
                        H_row[active[u]] += covariance;
                }
            }
    }
    for (ptrdiff_t a = 0; a < q; a++)
        for (ptrdiff_t c = 0; c < C; c++) {
            const ptrdiff_t i = a * C + c;
            const double lambda = s->penalty[c], linear = s->linear ? s->linear[i] : 0.0;
            /* the parameter of level a + 1 relative to level 0, and the slope of the penalty in it */
            const double v = r < 0 ? x[i] : (a == r ? 0.0 : x[i]) - x[r * C + c], slope = lambda * v - linear;
            f += (0.5 * lambda * v - linear) * v;
            if (a != r)
                g_out[i] += slope;
            if (r >= 0)
                g_out[r * C + c] -= slope;
            if (!H_out)
                continue;
            H_out[i * p + i] += a == r ? (double)q * lambda : lambda;
            if (r >= 0 && a != r) /* in the lower triangle */
                H_out[((a > r ? a : r) * C + c) * p + (a > r ? r : a) * C + c] -= lambda;
            for (ptrdiff_t b = 0; b < a; b++) /* blocks (a, b < a) are symmetric: fill their upper half */
                for (ptrdiff_t d = 0; d < c; d++)
                    H_out[(a * C + d) * p + b * C + c] = H_out[i * p + b * C + d];
        }
    return s->Q ? f + newton_add_zero_sum_penalty(s, x, g_out, H_out) : f;
}

/* Solve (H + ridge I) d = -g for d_out (p,) by the Cholesky factorisation U' U; only the lower triangle of H (p, p) is
   read. The upper triangle of U (p, p) is written, so that the inner loops run along its rows. Return 1, or 0 if a
   pivot, the square of a diagonal entry of U, is not numerically positive. */
static int newton_cholesky(const double *H, double ridge, const double *g, double *U, double *d_out, ptrdiff_t p)
{
    double *row = d_out; /* d_out is scratch until U is complete: row i of U', which becomes column i of U */
    for (ptrdiff_t i = 0; i < p; i++) {
        ptrdiff_t t = 0;
        memcpy(row, H + i * p, sizeof(double) * (size_t)(i + 1));
        row[i] += ridge;
        for (; t + 1 < i; t += 2) { /* entries t and t + 1 at once: half the passes over the rest of the row */
            const double *u = U + t * p, *v = u + p; /* rows t and t + 1 of U */
            const double a = row[t] /= u[t], b = row[t + 1] = (row[t + 1] - a * u[t + 1]) / v[t + 1];
            for (ptrdiff_t j = t + 2; j < i; j++)
                row[j] = row[j] - a * u[j] - b * v[j];
            row[i] = row[i] - a * a - b * b;
        }
        if (t < i) { /* the last entry if their number is odd */
            row[t] /= U[t * p + t];
            row[i] -= row[t] * row[t];
        }
        if (!(row[i] > NEWTON_PIVOT * (H[i * p + i] + ridge)) || row[i] <= 0.0)
            return 0;
        row[i] = sqrt(row[i]);
        for (t = 0; t <= i; t++)
            U[t * p + i] = row[t];
    }
    for (ptrdiff_t i = 0; i < p; i++) /* U is complete: solve U' z = -g, then U d = z */
        d_out[i] = -g[i];
    for (ptrdiff_t t = 0; t < p; t++) {
        const double *u = U + t * p, v = d_out[t] /= u[t]; /* row t of U, entry t of z */
        for (ptrdiff_t i = t + 1; i < p; i++)
            d_out[i] -= u[i] * v;
    }
    for (ptrdiff_t i = p; i-- > 0;) {
        double v = d_out[i]; /* entry i of z, then of d times the diagonal entry */
        for (ptrdiff_t t = i + 1; t < p; t++)
            v -= U[i * p + t] * d_out[t];
        d_out[i] = v / U[i * p + i];
    }
    return 1;
}

/* Return the Euclidean norm of v (n,) */
static double newton_norm(const double *v, ptrdiff_t n)
{
    double s = 0.0;
    for (ptrdiff_t i = 0; i < n; i++)
        s += v[i] * v[i];
    return sqrt(s);
}

/* Minimise the objective from x (p,), in place, p = q C, until the gradient norm is at most `tolerance` and one more
   step has been taken (see (b)), or `itmax` steps have been taken. Write the objective, its gradient norm and the
   number of steps. scratch (2 p^2 + 3 p + q,): Hessian H, its factor U, gradient g, direction d, trial point,
   probabilities. Returns a solver_status. */
static int newton_solve(const newton_site *s, double tolerance, int itmax, double *x, double *scratch,
                        double *value_out, double *grad_norm_out, int32_t *n_iter_out)
{
    const ptrdiff_t p = s->n_params;
    double *H = scratch, *U = H + p * p, *g = U + p * p, *d = g + p, *trial = d + p, *prob = trial + p;
    double f = newton_evaluate(s, x, g, H, prob), norm = newton_norm(g, p);
    int tolerance_met = norm <= tolerance, status = SOLVER_ITMAX;
    *n_iter_out = 0;
    while (*n_iter_out < itmax) {
        double ridge = 0.0, trace = 0.0, slope = 0.0, step = 1.0, f_new = f, norm_new = norm; /* slope: <g, d> */
        int accepted = 0;
        for (ptrdiff_t i = 0; i < p; i++)
            trace += H[i * p + i];
        /* 1e-300: the ridge is positive and increases, even if H = 0. If H is not finite it has no factor and d is
           meaningless, but then f is not finite either, and no trial point is accepted */
        while (!newton_cholesky(H, ridge, g, U, d, p) && isfinite(ridge) && isfinite(trace))
            ridge = ridge == 0.0 ? NEWTON_RIDGE * trace / (double)p + 1e-300 : 10.0 * ridge;
        for (ptrdiff_t i = 0; i < p; i++)
            slope += g[i] * d[i];
        for (int n_halved = 0; n_halved < NEWTON_HALVINGS && !accepted; ++n_halved, step *= 0.5) {
            for (ptrdiff_t i = 0; i < p; i++)
                trial[i] = x[i] + step * d[i];
            f_new = newton_evaluate(s, trial, g, H, prob);
            norm_new = newton_norm(g, p);
            accepted = isfinite(f_new) && isfinite(norm_new)
                && (f_new <= f + NEWTON_ARMIJO * step * slope
                    || (f_new <= f + NEWTON_ROUNDING * fabs(f) && norm_new < norm));
            if (tolerance_met && n_halved == 0) /* the additional step is taken completely or not at all */
                break;
        }
        if (!accepted) {
            status = tolerance_met ? SOLVER_CONVERGED : isfinite(f) ? SOLVER_STUCK : SOLVER_NOT_FINITE;
            f = newton_evaluate(s, x, g, NULL, prob); /* f is unchanged; g was the gradient at a trial point */
            break;
        }
        const int norm_halved = norm_new < 0.5 * norm;
        memcpy(x, trial, sizeof(double) * (size_t)p);
        f = f_new;
        norm = norm_new;
        ++*n_iter_out;
        if (tolerance_met || (norm == 0.0)) { /* this was the additional step, or none is needed */
            status = SOLVER_CONVERGED;
            if (!norm_halved || norm < 1e-14) /* the gradient is rounding error; otherwise take another step */
                break;
        }
        tolerance_met = tolerance_met || norm <= tolerance;
    }
    *value_out = f;
    *grad_norm_out = norm;
    /* the additional step may have increased the norm above the tolerance again */
    return norm <= tolerance ? SOLVER_CONVERGED : status == SOLVER_CONVERGED ? SOLVER_STUCK : status;
}
#endif
