/* The exchange algorithm (Murray, Ghahramani & MacKay 2006): Metropolis steps that need no ln Z, but drawn rows. */
#ifndef BBL_EXCHANGE_H
#define BBL_EXCHANGE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "posterior_target.h"
#include "random.h"
#include "simplex.h"

typedef struct {
    posterior_target *t;
    const double *information; /* (d, d) minus the Hessian of the log-likelihood, about */
    double *factor;         /* (d, d) lower triangle: Cholesky factor of it and the precision of the prior */
    double scale;
    ptrdiff_t sweeps;       /* Gibbs sweeps of drawn rows, from the rows `data`; 0 for exact draws by enumeration */
    ptrdiff_t n_data;
    const int32_t *data;    /* (n_data, m) */
    int32_t *drawn;         /* (n_data, m) scratch */
    uint64_t *stream;
    const int32_t *stop;
    double *phi, *u, *v;    /* (d,) and, with the horseshoe, ln scales of the groups and of the two families */
    double *next, *sums;    /* (d,) scratch, with (d,) for the normals behind */
    double *normals;
} exchange_chain;

/* Write the contrasts' sums over n rows drawn from coefficients phi, by the probabilities of all states */
static void exchange_draw_states(exchange_chain *c, const double *phi)
{
    posterior_target *t = c->t;
    double left = t->n, rest = 1.0;
    simplex_probabilities(&t->s, phi, t->tensor, t->spare);
    for (ptrdiff_t x = 0; x < t->s.states; x++) {
        const double p = t->tensor[x];
        const double k = x + 1 < t->s.states && p < rest ? random_binomial(c->stream, left, p / rest) : left;
        t->tensor[x] = k;
        left -= k;
        rest -= p;
    }
    simplex_sums(&t->s, t->tensor, t->spare, c->sums);
}

/* The same by Gibbs sweeps that start at the data */
static void exchange_draw_sweeps(exchange_chain *c, const double *phi)
{
    posterior_target *t = c->t;
    const simplex_model *s = &t->s;
    const ptrdiff_t F = s->levels, m = s->m;
    double *f = t->field;
    simplex_tables(s, phi, t->h, t->J);
    memcpy(c->drawn, c->data, (size_t)(c->n_data * m) * sizeof(int32_t));
    for (ptrdiff_t r = 0; r < c->n_data && !c->stop[0]; r++) {
        int32_t *x = c->drawn + r * m;
        memcpy(f, t->h, (size_t)F * sizeof(double));
        for (ptrdiff_t i = 0; i < m; i++) {
            const double *row = t->J + (s->first[i] + x[i]) * F;
            for (ptrdiff_t k = 0; k < F; k++) f[k] += row[k];
        }
        for (ptrdiff_t sweep = 0; sweep < c->sweeps; sweep++)
            for (ptrdiff_t i = 0; i < m; i++) {
                const ptrdiff_t L = s->L[i], first = s->first[i];
                double top = f[first], total = 0.0, at;
                for (ptrdiff_t a = 1; a < L; a++) top = f[first + a] > top ? f[first + a] : top;
                for (ptrdiff_t a = 0; a < L; a++) total += exp(f[first + a] - top);
                at = random_uniform(c->stream) * total;
                int32_t level = 0;
                for (; level < L - 1; level++) {
                    at -= exp(f[first + level] - top);
                    if (at < 0.0) break;
                }
                if (level != x[i]) {
                    const double *before = t->J + (first + x[i]) * F, *after = t->J + (first + level) * F;
                    for (ptrdiff_t k = 0; k < F; k++) f[k] += after[k] - before[k];
                    x[i] = level;
                }
            }
    }
    simplex_row_sums(s, c->drawn, c->n_data, t->gh, t->gJ, c->sums);
}

/* Accept or refuse the coefficients `next`, where the prior has `gain`; returns the probability of acceptance */
static double exchange_accept(exchange_chain *c, double gain, int *accepted_out)
{
    posterior_target *t = c->t;
    const ptrdiff_t d = t->s.d;
    if (c->sweeps)
        exchange_draw_sweeps(c, c->next);
    else
        exchange_draw_states(c, c->next);
    for (ptrdiff_t k = 0; k < d; k++) gain += (c->next[k] - c->phi[k]) * (t->sums[k] - c->sums[k]);
    *accepted_out = log(random_uniform(c->stream)) < gain;
    if (*accepted_out) memcpy(c->phi, c->next, (size_t)d * sizeof(double));
    return gain < 0.0 ? exp(gain) : 1.0;
}

/* The sd of a coefficient's prior given the scales */
static inline double exchange_sd(const exchange_chain *c, ptrdiff_t k)
{
    return c->t->horseshoe ? exp(posterior_log_scale(c->u[c->t->group[k]], c->t->tau)) : c->t->tau;
}

/* Factor the precision of the proposals, which follows the scales; they are held fixed while it is used */
static void exchange_factor(exchange_chain *c)
{
    const ptrdiff_t d = c->t->s.d;
    double *R = c->factor;
    memcpy(R, c->information, (size_t)(d * d) * sizeof(double));
    for (ptrdiff_t k = 0; k < d; k++) {
        const double sd = exchange_sd(c, k);
        R[k * d + k] += 1.0 / (sd * sd) + 1e-8;
        for (ptrdiff_t j = 0; j <= k; j++) {
            double value = R[k * d + j];
            for (ptrdiff_t l = 0; l < j; l++) value -= R[k * d + l] * R[j * d + l];
            if (j < k)
                R[k * d + j] = value / R[j * d + j];
            else
                R[k * d + k] = sqrt(value > 1e-10 ? value : 1e-10);
        }
    }
}

/* One proposal for all coefficients; returns the probability of its acceptance */
static double exchange_step(exchange_chain *c)
{
    posterior_target *t = c->t;
    const ptrdiff_t d = t->s.d;
    double gain = 0.0;
    for (ptrdiff_t k = 0; k < d; k++) c->normals[k] = random_normal(c->stream);
    for (ptrdiff_t k = d - 1; k >= 0; k--) { /* back substitution */
        for (ptrdiff_t l = k + 1; l < d; l++) c->normals[k] -= c->factor[l * d + k] * c->normals[l];
        c->normals[k] /= c->factor[k * d + k];
        c->next[k] = c->phi[k] + c->scale * c->normals[k];
        const double sd = exchange_sd(c, k);
        gain += 0.5 * (c->phi[k] * c->phi[k] - c->next[k] * c->next[k]) / (sd * sd);
    }
    int accepted;
    return exchange_accept(c, gain, &accepted);
}

/* ln density of a group's u given its coefficients, whose squares sum to `squares`, and v */
static double exchange_group(const exchange_chain *c, double u, double v, double size, double squares)
{
    const double log_scale = posterior_log_scale(u, c->t->tau);
    return posterior_half_cauchy(u, v) - size * log_scale - 0.5 * squares * exp(-2.0 * log_scale);
}

/* ln density of the global scale of a family given the u of its groups */
static double exchange_family(const exchange_chain *c, double v, int family)
{
    double total = posterior_half_cauchy(v, 0.0);
    for (ptrdiff_t g = 0; g < c->t->n_groups; g++)
        if (c->t->family[g] == family) total += posterior_half_cauchy(c->u[g], v);
    return total;
}

/* One draw of a scale by slice sampling (Neal 2003), with steps of one out of the slice and shrinkage back into it:
   of group g, or of family `which` if g < 0 */
static double exchange_slice(const exchange_chain *c, ptrdiff_t g, int which, double size, double squares)
{
    const double v = c->v[which], now = g < 0 ? v : c->u[g];
#define EXCHANGE_DENSITY(x) (g < 0 ? exchange_family(c, x, which) : exchange_group(c, x, v, size, squares))
    const double level = EXCHANGE_DENSITY(now) + log(random_uniform(c->stream));
    double low = now - random_uniform(c->stream), high = low + 1.0;
    for (int k = 0; k < 100 && EXCHANGE_DENSITY(low) > level; k++) low -= 1.0;
    for (int k = 0; k < 100 && EXCHANGE_DENSITY(high) > level; k++) high += 1.0;
    for (int k = 0; k < 200; k++) {
        const double x = low + random_uniform(c->stream) * (high - low);
        if (EXCHANGE_DENSITY(x) > level) return x;
        if (x < now)
            low = x;
        else
            high = x;
    }
    return now;
#undef EXCHANGE_DENSITY
}

/* One proposal for a group's scale, or for all scales of a family if g < 0, with its coefficients in proportion:
   where the rows say little of a coefficient, its scale moves so, and not given the coefficient */
static void exchange_rescale(exchange_chain *c, ptrdiff_t g, int family)
{
    const posterior_target *t = c->t;
    const double step = random_normal(c->stream), v = c->v[family];
    double gain = g < 0 ? posterior_half_cauchy(v + step, 0.0) - posterior_half_cauchy(v, 0.0)
                        : posterior_half_cauchy(c->u[g] + step, v) - posterior_half_cauchy(c->u[g], v);
    int accepted;
    for (ptrdiff_t k = 0; k < t->s.d; k++) {
        const ptrdiff_t own = t->group[k];
        const double u = c->u[own];
        c->next[k] = c->phi[k];
        if (g < 0 ? t->family[own] == family : own == g)
            c->next[k] *= exp(posterior_log_scale(u + step, t->tau) - posterior_log_scale(u, t->tau));
    }
    exchange_accept(c, gain, &accepted);
    if (!accepted) return;
    if (g >= 0) {
        c->u[g] += step;
        return;
    }
    c->v[family] += step;
    for (ptrdiff_t own = 0; own < t->n_groups; own++)
        if (t->family[own] == family) c->u[own] += step;
}

/* Draw all scales of the horseshoe, given the coefficients and together with them */
static void exchange_scales(exchange_chain *c)
{
    const posterior_target *t = c->t;
    for (ptrdiff_t g = 0; g < t->n_groups; g++) exchange_rescale(c, g, t->family[g]);
    for (int family = 0; family < 2; family++) exchange_rescale(c, -1, family);
    for (ptrdiff_t g = 0, k = 0; g < t->n_groups; g++) { /* the coefficients of a group lie together, group by group */
        double size = 0.0, squares = 0.0;
        for (; k < t->s.d && t->group[k] == g; k++) {
            size += 1.0;
            squares += c->phi[k] * c->phi[k];
        }
        c->u[g] = exchange_slice(c, g, t->family[g], size, squares);
    }
    for (int family = 0; family < 2; family++) c->v[family] = exchange_slice(c, -1, family, 0.0, 0.0);
}
#endif
