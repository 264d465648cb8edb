/* The exchange algorithm (Murray, Ghahramani & MacKay 2006): Metropolis steps that avoid ln Z by drawing rows from the
   model at the proposed coefficients. */
#ifndef BBL_EXCHANGE_H
#define BBL_EXCHANGE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "posterior_target.h"
#include "random.h"
#include "simplex.h"

/* One chain. G is the number of groups of coefficients; each group has a scale exp(u) and belongs to one of two
   families, fields and couplings, which have a scale exp(v) each; see posterior_target.h. The target t contains the
   prior (`horseshoe`, or normal with standard deviation tau; the slab tau bounds scales of the horseshoe), the number n
   of observations, their `sums` of contrasts (d), the group (d) of each coefficient, the family (G) of each group, and
   scratch memory. t->s is the model of simplex.h: m predictors with L (m) levels, n_levels in all; the levels of
   predictor i start at level_start[i].

   Scratch memory of t: tensor and scratch (n_states); h (n_levels), fields of all levels; J (n_levels, n_levels), their
   symmetric couplings, which start at 0 and stay 0 between levels of one predictor; field (n_levels), log weights;
   h_gradient and J_gradient, with the shapes of h and J, which here only contain counts of rows by level and by
   pair. */
typedef struct {
    posterior_target *t;
    const double *information; /* (d, d) approximately minus the Hessian of the log-likelihood */
    double *factor;         /* (d, d) lower Cholesky factor of information + precision of the prior */
    double scale;           /* of the proposals; their covariance is scale^2 (factor factor')^-1 */
    ptrdiff_t sweeps;       /* Gibbs sweeps per draw of rows, starting at `data`; 0 for exact draws by enumeration */
    ptrdiff_t n_data;       /* number of rows */
    const int32_t *data;    /* (n_data, m) */
    int32_t *drawn;         /* (n_data, m) scratch */
    uint64_t *stream;       /* state of the random number generator, see random.h */
    const int32_t *stop;    /* a flag that ends Gibbs sweeps early */
    double *phi, *u, *v;    /* state: coefficients (d); with the horseshoe, log scales of groups (G) and families (2) */
    double *new_phi;        /* (d) proposed coefficients */
    double *sums;           /* (d) sums of the contrasts over drawn rows */
    double *normal;         /* (d) scratch: standard normal numbers, then the step of the proposal without its scale */
} exchange_chain;

/* Draw n rows at coefficients phi, as multinomial counts of states, and write their sums of contrasts to c->sums. */
static void exchange_draw_states(exchange_chain *c, const double *phi)
{
    posterior_target *t = c->t;
    double n_left = t->n, p_left = 1.0; /* number of rows, and probability, of the states from x on */
    simplex_probabilities(&t->s, phi, t->tensor, t->scratch);
    for (ptrdiff_t x = 0; x < t->s.n_states; x++) {
        const double p = t->tensor[x];
        const int is_last = x + 1 == t->s.n_states || !(p < p_left);
        const double count = is_last ? n_left : random_binomial(c->stream, n_left, p / p_left);
        t->tensor[x] = count; /* replaces the probability */
        n_left -= count;
        p_left -= p;
    }
    simplex_sums(&t->s, t->tensor, t->scratch, c->sums);
}

/* Draw rows at coefficients phi by Gibbs sweeps that start at the data; write their sums of contrasts to c->sums. */
static void exchange_draw_sweeps(exchange_chain *c, const double *phi)
{
    posterior_target *t = c->t;
    const simplex_model *s = &t->s;
    const ptrdiff_t n_levels = s->n_levels, m = s->m;
    double *field = t->field; /* log weights of all levels given the row */
    simplex_tables(s, phi, t->h, t->J); /* writes the tables of all levels, h and J, from the coefficients */
    memcpy(c->drawn, c->data, (size_t)(c->n_data * m) * sizeof(int32_t));
    for (ptrdiff_t r = 0; r < c->n_data && !c->stop[0]; r++) {
        int32_t *x = c->drawn + r * m;
        memcpy(field, t->h, (size_t)n_levels * sizeof(double));
        for (ptrdiff_t i = 0; i < m; i++) { /* also adds 0 to the levels of i itself, where J is 0 */
            const double *J_row = t->J + (s->level_start[i] + x[i]) * n_levels;
            for (ptrdiff_t k = 0; k < n_levels; k++) field[k] += J_row[k];
        }
        for (ptrdiff_t sweep = 0; sweep < c->sweeps; sweep++)
            for (ptrdiff_t i = 0; i < m; i++) {
                const ptrdiff_t L = s->L[i], start_i = s->level_start[i];
                double largest = field[start_i], total = 0.0, remaining;
                for (ptrdiff_t a = 1; a < L; a++) largest = field[start_i + a] > largest ? field[start_i + a] : largest;
                for (ptrdiff_t a = 0; a < L; a++) total += exp(field[start_i + a] - largest);
                remaining = random_uniform(c->stream) * total;
                int32_t level = 0; /* drawn by inversion */
                for (; level < L - 1; level++) {
                    remaining -= exp(field[start_i + level] - largest);
                    if (remaining < 0.0) break;
                }
                if (level != x[i]) {
                    const double *old_row = t->J + (start_i + x[i]) * n_levels,
                                 *new_row = t->J + (start_i + level) * n_levels;
                    for (ptrdiff_t k = 0; k < n_levels; k++) field[k] += new_row[k] - old_row[k];
                    x[i] = level;
                }
            }
    }
    /* here the two gradients are scratch for counts of rows */
    simplex_row_sums(s, c->drawn, c->n_data, t->h_gradient, t->J_gradient, c->sums);
}

/* Accept or reject the coefficients c->new_phi; return the acceptance probability.

   The probability is min(1, exp(log_ratio + (new_phi - phi)' (sums of data - sums of drawn rows))), where log_ratio is
   the log ratio of the priors of the proposal and the state. The unknown Z^-n at both coefficients cancels between the
   likelihoods of the data and of the rows drawn at the proposal. *accepted_out is set to 1 or 0. */
static double exchange_accept(exchange_chain *c, double log_ratio, int *accepted_out)
{
    posterior_target *t = c->t;
    const ptrdiff_t d = t->s.d;
    if (c->sweeps)
        exchange_draw_sweeps(c, c->new_phi);
    else
        exchange_draw_states(c, c->new_phi);
    for (ptrdiff_t k = 0; k < d; k++) log_ratio += (c->new_phi[k] - c->phi[k]) * (t->sums[k] - c->sums[k]);
    *accepted_out = log(random_uniform(c->stream)) < log_ratio;
    if (*accepted_out) memcpy(c->phi, c->new_phi, (size_t)d * sizeof(double));
    return log_ratio < 0.0 ? exp(log_ratio) : 1.0;
}

/* Return the prior standard deviation of coefficient k, given the scales. */
static inline double exchange_prior_sd(const exchange_chain *c, ptrdiff_t k)
{
    return c->t->horseshoe ? exp(posterior_log_scale(c->u[c->t->group[k]], c->t->tau)) : c->t->tau;
}

/* Write the lower Cholesky factor R of information + diag(1 / sd^2), the precision of the proposals without their
   scale, to c->factor; sd are the prior standard deviations at the current scales. Call it whenever these change. */
static void exchange_factor(exchange_chain *c)
{
    const ptrdiff_t d = c->t->s.d;
    double *R = c->factor; /* (d, d); row k of the factor replaces row k of the matrix, up to the diagonal */
    memcpy(R, c->information, (size_t)(d * d) * sizeof(double));
    for (ptrdiff_t k = 0; k < d; k++) {
        const double sd = exchange_prior_sd(c, k);
        R[k * d + k] += 1.0 / (sd * sd) + 1e-8; /* 1e-8 and 1e-10 keep the matrix positive definite */
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

/* Propose new values of all coefficients, and accept or reject them; return the acceptance probability. */
static double exchange_step(exchange_chain *c)
{
    posterior_target *t = c->t;
    const ptrdiff_t d = t->s.d;
    double log_ratio = 0.0; /* of the normal priors given the scales */
    for (ptrdiff_t k = 0; k < d; k++) c->normal[k] = random_normal(c->stream);
    for (ptrdiff_t k = d - 1; k >= 0; k--) { /* back substitution: normal becomes factor'^-1 normal */
        for (ptrdiff_t l = k + 1; l < d; l++) c->normal[k] -= c->factor[l * d + k] * c->normal[l];
        c->normal[k] /= c->factor[k * d + k];
        c->new_phi[k] = c->phi[k] + c->scale * c->normal[k];
        const double sd = exchange_prior_sd(c, k);
        log_ratio += 0.5 * (c->phi[k] * c->phi[k] - c->new_phi[k] * c->new_phi[k]) / (sd * sd);
    }
    int accepted;
    return exchange_accept(c, log_ratio, &accepted);
}

/* Return the log density, up to a constant, of the log scale u of a group, given v of its family and its `size`
   coefficients, which are normal with standard deviation exp(log_scale) and whose squares sum to `squares`. */
static double exchange_group_density(const exchange_chain *c, double u, double v, double size, double squares)
{
    const double log_scale = posterior_log_scale(u, c->t->tau);
    return posterior_log_half_cauchy(u, v) - size * log_scale - 0.5 * squares * exp(-2.0 * log_scale);
}

/* Return the log density, up to a constant, of the log scale v of a family, given the u of its groups. */
static double exchange_family_density(const exchange_chain *c, double v, int family)
{
    double total = posterior_log_half_cauchy(v, 0.0);
    for (ptrdiff_t g = 0; g < c->t->n_groups; g++)
        if (c->t->family[g] == family) total += posterior_log_half_cauchy(c->u[g], v);
    return total;
}

/* Return a draw of u of group g, or of v of `family` if g < 0, by slice sampling (Neal 2003): stepping out by steps of
   1, then shrinkage. For size and squares see exchange_group_density; they are unused if g < 0. If the loops end before
   an edge or a draw is found, the last edge or the current value is used. */
static double exchange_slice(const exchange_chain *c, ptrdiff_t g, int family, double size, double squares)
{
    const double v = c->v[family], current = g < 0 ? v : c->u[g];
#define EXCHANGE_DENSITY(x)                                                                                            \
    (g < 0 ? exchange_family_density(c, x, family) : exchange_group_density(c, x, v, size, squares))
    const double log_height = EXCHANGE_DENSITY(current) + log(random_uniform(c->stream));
    double low = current - random_uniform(c->stream), high = low + 1.0;
    for (int k = 0; k < 100 && EXCHANGE_DENSITY(low) > log_height; k++) low -= 1.0;
    for (int k = 0; k < 100 && EXCHANGE_DENSITY(high) > log_height; k++) high += 1.0;
    for (int k = 0; k < 200; k++) {
        const double x = low + random_uniform(c->stream) * (high - low);
        if (EXCHANGE_DENSITY(x) > log_height) return x;
        if (x < current)
            low = x;
        else
            high = x;
    }
    return current;
#undef EXCHANGE_DENSITY
}

/* Propose to multiply the scale of group g, or of all groups of a family if g < 0, and the coefficients by a log-normal
   factor.

   If the rows have little information on coefficients, scales hardly move while coefficients are fixed, but do move
   together with them. The ratios coefficient / scale do not change: the normal densities change by scale^-size, which
   cancels with the Jacobian of the move. The differences u - v of the groups of a family do not change, either.
   log_ratio therefore contains only the prior of the scale. */
static void exchange_rescale(exchange_chain *c, ptrdiff_t g, int family)
{
    const posterior_target *t = c->t;
    const double log_factor = random_normal(c->stream), v = c->v[family];
    double log_ratio = g < 0 ? posterior_log_half_cauchy(v + log_factor, 0.0) - posterior_log_half_cauchy(v, 0.0)
                             : posterior_log_half_cauchy(c->u[g] + log_factor, v)
                                   - posterior_log_half_cauchy(c->u[g], v);
    int accepted;
    for (ptrdiff_t k = 0; k < t->s.d; k++) {
        const ptrdiff_t group_k = t->group[k];
        const double u = c->u[group_k];
        c->new_phi[k] = c->phi[k];
        if (g < 0 ? t->family[group_k] == family : group_k == g)
            c->new_phi[k] *= exp(posterior_log_scale(u + log_factor, t->tau) - posterior_log_scale(u, t->tau));
    }
    exchange_accept(c, log_ratio, &accepted);
    if (!accepted) return;
    if (g >= 0) {
        c->u[g] += log_factor;
        return;
    }
    c->v[family] += log_factor;
    for (ptrdiff_t group_k = 0; group_k < t->n_groups; group_k++)
        if (t->family[group_k] == family) c->u[group_k] += log_factor;
}

/* Update all scales of the horseshoe: jointly with their coefficients, then by slice sampling given the coefficients;
   groups first, then the two families, for which g = -1. */
static void exchange_scales(exchange_chain *c)
{
    const posterior_target *t = c->t;
    for (ptrdiff_t g = 0; g < t->n_groups; g++) exchange_rescale(c, g, t->family[g]);
    for (int family = 0; family < 2; family++) exchange_rescale(c, -1, family);
    for (ptrdiff_t g = 0, k = 0; g < t->n_groups; g++) { /* the coefficients of a group are contiguous */
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
