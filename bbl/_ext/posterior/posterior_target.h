/* Log posterior density of the coefficients of one group of rows, and its gradient, for two likelihoods and two
   priors. */
#ifndef BBL_POSTERIOR_TARGET_H
#define BBL_POSTERIOR_TARGET_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simplex.h"

/* A point x of the density: with the normal prior, the coefficients phi (d). With the horseshoe prior, z (d), which is
   standard normal, then u (G), the log scales of the G groups of coefficients, and v (2), the log scales of the two
   families of groups, fields and couplings: phi = scale z, where scale = sigma / sqrt(1 + (sigma / tau)^2) and sigma =
   exp(u). sigma is half-Cauchy with scale exp(v), and exp(v) is half-Cauchy with scale 1; tau is the slab, an upper
   bound of the scale.

   From simplex.h: a simplex_model has m predictors with L (m) levels each, n_levels in all, where the levels of
   predictor i start at level_start[i]; d coefficients; and n_states states, or 0 if these are not enumerated. */
typedef struct {
    simplex_model s;
    int horseshoe;          /* whether the prior is the horseshoe instead of normal */
    double tau;             /* standard deviation of the normal prior, or slab of the horseshoe */
    ptrdiff_t n_groups;     /* G */
    const int32_t *group;   /* (d) group of each coefficient */
    const int32_t *family;  /* (n_groups) 0 for fields, 1 for couplings */
    double n;               /* number of observations */
    const double *sums;     /* (d) sums over the observations of each contrast, or of the product of two for a pair */
    ptrdiff_t rows;         /* distinct rows of the pseudo-likelihood; 0 for the likelihood by enumeration */
    const int32_t *codes;   /* (rows, m) */
    const double *weights;  /* (rows) */
    /* adjustment of the pseudo-likelihood, or NULL: it is replaced by its value at centre + adjust (phi - centre), plus
       tilt' (phi - centre). `adjust` is chosen so that the curvature at the centre becomes Godambe's information
       (Ribatet, Cooley & Davison 2012), as for a likelihood; the tilt restores the slope there */
    const double *centre, *adjust, *tilt; /* (d), (d, d), (d) */
    /* working arrays: */
    double *tensor, *scratch;              /* (s.n_states) each */
    double *phi, *adjusted_phi, *gradient; /* (d) each */
    double *h, *field, *h_gradient;        /* (s.n_levels) each: fields, log weights of levels, gradient for h */
    double *J, *J_gradient;                /* (s.n_levels, s.n_levels) each: couplings, gradient for J */
} posterior_target;

/* Return the number of coordinates of a point. */
static inline ptrdiff_t posterior_size(const posterior_target *t)
{
    return t->s.d + (t->horseshoe ? t->n_groups + 2 : 0);
}

/* Return 1 / (1 + exp(-x)), and ln(1 + exp(x)), without overflow. */
static inline double posterior_expit(double x) { return x > 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x)); }
static inline double posterior_softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

/* Return the log density, up to a constant, of the log u of a half-Cauchy variable with scale exp(v): the log of exp(u
   - v) / (1 + exp(2 (u - v))). */
static inline double posterior_log_half_cauchy(double u, double v)
{
    return (u - v) - posterior_softplus(2.0 * (u - v));
}

/* Return ln(sigma / sqrt(1 + (sigma / tau)^2)), the log scale of a group, where the slab tau (inf for none) limits
   sigma = exp(u). */
static inline double posterior_log_scale(double u, double tau)
{
    return isinf(tau) ? u : u - 0.5 * posterior_softplus(2.0 * (u - log(tau)));
}

/* Return the log-likelihood sums' phi - n ln Z at coefficients phi (d), by enumeration of all states, and write its
   gradient (d), sums - n times the expected contrasts. */
static double posterior_likelihood(posterior_target *t, const double *phi, double *gradient_out)
{
    const ptrdiff_t d = t->s.d;
    double value = -t->n * simplex_probabilities(&t->s, phi, t->tensor, t->scratch); /* ln Z; tensor: probabilities */
    simplex_sums(&t->s, t->tensor, t->scratch, gradient_out);
    for (ptrdiff_t k = 0; k < d; k++) {
        value += t->sums[k] * phi[k];
        gradient_out[k] = t->sums[k] - t->n * gradient_out[k];
    }
    return value;
}

/* Return the log pseudo-likelihood at coefficients phi (d), the sum over rows r and predictors i of weights[r] times ln
   P(x_i | the other predictors of the row), and write its gradient (d). t->J is 0 within a predictor; entries of
   t->J_gradient within a predictor are written but never read. */
static double posterior_pseudo(posterior_target *t, const double *phi, double *gradient_out)
{
    const simplex_model *s = &t->s;
    const ptrdiff_t n_levels = s->n_levels;
    double value = 0.0;
    simplex_tables(s, phi, t->h, t->J);
    memset(t->h_gradient, 0, (size_t)n_levels * sizeof(double));
    memset(t->J_gradient, 0, (size_t)(n_levels * n_levels) * sizeof(double));
    for (ptrdiff_t r = 0; r < t->rows; r++) {
        const int32_t *x = t->codes + r * s->m;
        const double w = t->weights[r];
        double *field = t->field; /* log weights of all levels given the row, then w (1[level is in the row] - P) */
        memcpy(field, t->h, (size_t)n_levels * sizeof(double));
        for (ptrdiff_t i = 0; i < s->m; i++) {
            const double *J_row = t->J + (s->level_start[i] + x[i]) * n_levels;
            for (ptrdiff_t c = 0; c < n_levels; c++) field[c] += J_row[c];
        }
        for (ptrdiff_t i = 0; i < s->m; i++) {
            double *field_i = field + s->level_start[i], largest = field_i[0], total = 0.0;
            const double field_x = field_i[x[i]];
            for (ptrdiff_t a = 1; a < s->L[i]; a++) largest = field_i[a] > largest ? field_i[a] : largest;
            for (ptrdiff_t a = 0; a < s->L[i]; a++) total += field_i[a] = exp(field_i[a] - largest);
            value += w * (field_x - largest - log(total));
            for (ptrdiff_t a = 0; a < s->L[i]; a++) field_i[a] *= -w / total;
            field_i[x[i]] += w;
        }
        for (ptrdiff_t c = 0; c < n_levels; c++) t->h_gradient[c] += field[c];
        for (ptrdiff_t i = 0; i < s->m; i++) {
            double *J_row = t->J_gradient + (s->level_start[i] + x[i]) * n_levels;
            for (ptrdiff_t c = 0; c < n_levels; c++) J_row[c] += field[c];
        }
    }
    simplex_tables_transposed(s, t->h_gradient, t->J_gradient, gradient_out);
    return value;
}

/* Return the log pseudo-likelihood at phi (d), adjusted if t->adjust is not NULL, and write its gradient (d). */
static double posterior_adjusted(posterior_target *t, const double *phi, double *gradient_out)
{
    const ptrdiff_t d = t->s.d;
    if (!t->adjust) return posterior_pseudo(t, phi, gradient_out);
    for (ptrdiff_t k = 0; k < d; k++) t->gradient[k] = phi[k] - t->centre[k]; /* used as scratch */
    for (ptrdiff_t k = 0; k < d; k++)
        t->adjusted_phi[k] = t->centre[k] + simplex_dot(t->adjust + k * d, t->gradient, d); /* a dot product */
    double value = posterior_pseudo(t, t->adjusted_phi, t->gradient);
    for (ptrdiff_t k = 0; k < d; k++) {
        value += t->tilt[k] * (phi[k] - t->centre[k]);
        gradient_out[k] = t->tilt[k];
    }
    for (ptrdiff_t k = 0; k < d; k++)
        for (ptrdiff_t l = 0; l < d; l++) gradient_out[l] += t->adjust[k * d + l] * t->gradient[k];
    return value;
}

/* Write the coefficients of a point x to phi_out (d). */
static void posterior_coefficients(const posterior_target *t, const double *x, double *phi_out)
{
    const ptrdiff_t d = t->s.d;
    for (ptrdiff_t k = 0; k < d; k++)
        phi_out[k] = t->horseshoe ? x[k] * exp(posterior_log_scale(x[d + t->group[k]], t->tau)) : x[k];
}

/* Return the log posterior density at a point x, up to a constant, and write its gradient with respect to x: the
   log-(pseudo-)likelihood at phi; minus |x|^2 / (2 tau^2) with the normal prior; with the horseshoe minus |z|^2 / 2
   plus the log densities of u given v, and of v. */
static double posterior_value(posterior_target *t, const double *x, double *gradient_out)
{
    const ptrdiff_t d = t->s.d, G = t->n_groups;
    posterior_coefficients(t, x, t->phi);
    double value = t->rows ? posterior_adjusted(t, t->phi, gradient_out)
                           : posterior_likelihood(t, t->phi, gradient_out);
    if (!t->horseshoe) {
        const double precision = 1.0 / (t->tau * t->tau);
        for (ptrdiff_t k = 0; k < d; k++) {
            value -= 0.5 * precision * x[k] * x[k];
            gradient_out[k] -= precision * x[k];
        }
        return value;
    }
    const double *u = x + d, *v = u + G;
    double *u_gradient = gradient_out + d, *v_gradient = u_gradient + G;
    memset(u_gradient, 0, (size_t)(G + 2) * sizeof(double));
    for (ptrdiff_t k = 0; k < d; k++) {
        const ptrdiff_t g = t->group[k];
        u_gradient[g] += t->phi[k] * gradient_out[k]; /* with respect to ln scale; times d ln scale / du below */
        gradient_out[k] = gradient_out[k] * exp(posterior_log_scale(u[g], t->tau)) - x[k];
        value -= 0.5 * x[k] * x[k];
    }
    for (ptrdiff_t g = 0; g < G; g++) {
        const ptrdiff_t family = t->family[g];
        const double slope = 1.0 - 2.0 * posterior_expit(2.0 * (u[g] - v[family])); /* of the half-Cauchy density */
        u_gradient[g] *= isinf(t->tau) ? 1.0 : 1.0 - posterior_expit(2.0 * (u[g] - log(t->tau)));
        u_gradient[g] += slope;
        v_gradient[family] -= slope;
        value += posterior_log_half_cauchy(u[g], v[family]);
    }
    for (int family = 0; family < 2; family++) {
        value += posterior_log_half_cauchy(v[family], 0.0);
        v_gradient[family] += 1.0 - 2.0 * posterior_expit(2.0 * v[family]);
    }
    return value;
}
#endif
