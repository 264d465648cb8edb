/* Level frequencies of each site and the eigenvectors of their covariance S_i, the site's contribution to the metric.

   For terms see pseudo_problem.h. S_i (A, A) = diag(f) - f f', where f contains the frequencies of site i's A =
   n_levels[i] - 1 non-reference levels. p->rows.half_row is 0.5 / W, with W the sum of the row weights. */
#ifndef PSEUDO_SPREAD_H
#define PSEUDO_SPREAD_H

#include "pseudo_problem.h"

/* Write the eigenvectors (columns of E_out (A, A)) and eigenvalues value_out (A,) of the symmetric matrix S (A, A),
   which is overwritten, by Jacobi rotations until the sum of |entries below the diagonal| is at most `precision` times
   the sum of |diagonal entries| */
static void pseudo_diagonalise(double *S, ptrdiff_t A, double *E_out, double *value_out, double precision)
{
    memset(E_out, 0, (size_t)(A * A) * sizeof *E_out);
    for (ptrdiff_t a = 0; a < A; a++)
        E_out[a * A + a] = 1.0;
    for (ptrdiff_t sweep = 0; sweep < 12; sweep++) {  /* about six suffice: convergence is quadratic */
        double off_diagonal = 0.0, trace = 0.0;
        for (ptrdiff_t a = 0; a < A; a++) {
            trace += fabs(S[a * A + a]);
            for (ptrdiff_t b = 0; b < a; b++)
                off_diagonal += fabs(S[a * A + b]);
        }
        if (off_diagonal <= precision * trace)
            break;
        for (ptrdiff_t a = 1; a < A; a++)
            for (ptrdiff_t b = 0; b < a; b++) {
                double t, cs, sn;  /* tangent, cosine and sine of the angle of the rotation that makes S[a, b] zero */
                if (fabs(S[a * A + b]) <= 0.1 * precision * trace / (double)(A * A))
                    continue;  /* the sum of all such entries is far below the limit */
                t = (S[b * A + b] - S[a * A + a]) / (2.0 * S[a * A + b]);  /* cotangent of twice the angle, at first */
                t = (t < 0.0 ? -1.0 : 1.0) / (fabs(t) + sqrt(t * t + 1.0));
                cs = 1.0 / sqrt(t * t + 1.0);
                sn = t * cs;
                for (ptrdiff_t c = 0; c < A; c++) {
                    const double u = S[c * A + a], v = S[c * A + b];
                    S[c * A + a] = cs * u - sn * v;
                    S[c * A + b] = sn * u + cs * v;
                }
                for (ptrdiff_t c = 0; c < A; c++) {
                    const double u = S[a * A + c], v = S[b * A + c], x = E_out[c * A + a], y = E_out[c * A + b];
                    S[a * A + c] = cs * u - sn * v;
                    S[b * A + c] = sn * u + cs * v;
                    E_out[c * A + a] = cs * x - sn * y;
                    E_out[c * A + b] = sn * x + cs * y;
                }
            }
    }
    for (ptrdiff_t a = 0; a < A; a++)
        value_out[a] = S[a * A + a];
}

/* Write the frequencies of all levels of site i to f_out (n_levels[i],): values below `least` are increased to it, then
   all are divided by their sum */
static void pseudo_compute_frequencies(const pseudo_problem *p, ptrdiff_t i, double least, double *f_out)
{
    const double *mean = p->moments.mean + p->first_column[i];  /* mean[a] is the frequency of level a >= 1 */
    double sum = 0.0;
    f_out[0] = 1.0;
    for (ptrdiff_t a = 1; a < p->n_levels[i]; a++)
        f_out[0] -= mean[a];
    for (ptrdiff_t a = 0; a < p->n_levels[i]; a++) {
        f_out[a] = a ? mean[a] : f_out[0];
        f_out[a] = f_out[a] > least ? f_out[a] : least;
        sum += f_out[a];
    }
    for (ptrdiff_t a = 0; a < p->n_levels[i]; a++)
        f_out[a] /= sum;
}

/* Write metric.rotation (eigenvectors), sigma (eigenvalues) and trace of S_i for every site, and the fields ln
   f(a)/f(0) of the model without couplings, moments.independent_field. For sites with more than PSEUDO_MAX_ROTATED
   logits the diagonal of S_i is used. Without moments all are zero.

   An empty level counts as half a row, but its fitted probability is far smaller. If the metric has leading
   eigenvectors, all other parameters converge fast, and the field of such a level would need most of the iterations:
   S_i then contains only PSEUDO_EMPTY_SHARE of half a row for it, so that steps of this field are longer. */
static void pseudo_set_site_metrics(pseudo_problem *p)
{
    const double least = p->metric.leading ? PSEUDO_EMPTY_SHARE * p->rows.half_row : p->rows.half_row;
    ptrdiff_t i, a, b, max_levels = 1, size = 0;  /* size: numbers in all rotations */
    double *f, *S;  /* frequencies of a site's levels; S_i */
    for (i = 0; i < p->n_sites; i++) {
        max_levels = p->n_levels[i] > max_levels ? p->n_levels[i] : max_levels;
        p->metric.rotation_start[i] = size;
        size += p->n_levels[i] - 1 <= PSEUDO_MAX_ROTATED ? (p->n_levels[i] - 1) * (ptrdiff_t)(p->n_levels[i] - 1) : 0;
    }
    PSEUDO_ALLOCATE(p, p->metric.rotation, size);
    f = malloc((size_t)(max_levels + PSEUDO_MAX_ROTATED * PSEUDO_MAX_ROTATED) * sizeof *f);
    if (p->failed || !f) {
        free(f);  /* f may be NULL */
        p->failed = 1;  /* pseudo_prepare reports it */
        return;
    }
    S = f + max_levels;
    for (i = 0; i < p->n_sites && p->n_counted; i++) {
        const ptrdiff_t A = p->n_levels[i] - 1;
        double *sigma = p->metric.sigma + p->first_column[i];
        pseudo_compute_frequencies(p, i, p->rows.half_row, f);
        for (a = 0; a < A; a++)
            p->moments.independent_field[p->first_column[i] + a] = log(f[a + 1] / f[0]);
        pseudo_compute_frequencies(p, i, least, f);
        for (a = 0; a < A; a++) {
            sigma[a] = f[a + 1] * (1.0 - f[a + 1]);
            p->metric.trace[i] += sigma[a];
            for (b = 0; b < A && A <= PSEUDO_MAX_ROTATED; b++)
                S[a * A + b] = (a == b ? f[a + 1] : 0.0) - f[a + 1] * f[b + 1];
        }
        if (A <= PSEUDO_MAX_ROTATED)  /* 1e-6: a metric needs only a few digits */
            pseudo_diagonalise(S, A, p->metric.rotation + p->metric.rotation_start[i], sigma, 1e-6);
        for (a = 0; a < A; a++)  /* positive and above rounding; this floor only affects the metric */
            sigma[a] = sigma[a] > 0.25 * least ? sigma[a] : 0.25 * least;
    }
    free(f);
}
#endif
