/* Conditional likelihood of the groups by minibatches: residuals of rows, their pair sums, and the step of all tables.

   Conventions: K groups lie side by side. A row is the list of its non-reference columns, rising. Tables are
   f_y(x) = b + sum_i u_i (o_i - m_i) + sum_ij (o_i - m_i)' J_ij (o_j - m_j), with indicators o of the non-reference levels
   and their means m; so J are the couplings of the reference gauge, and its fields are h = u - sum_j J m. Squared norms
   are those of the centred indicators of all levels: with P = I + 11', a step along the gradient g of a table is
   P_i g P_j in these coordinates. J, V (velocities) and S (sums) are (D, D, K), of which c < d is used. */
#ifndef CONDITIONAL_H
#define CONDITIONAL_H
#include <math.h>
#include <stddef.h>
#include "cpu.h"

typedef struct {
    ptrdiff_t D, K, m, n_pairs;
    const ptrdiff_t *start;   /* (m + 1) first column of each predictor */
    const ptrdiff_t *first, *second; /* (n_pairs) predictors of each pair */
    const double *means;      /* (D) */
    double scale[2];          /* factors of single levels and of products in the kernel */
    float *J, *V, *S;
    double *u, *v, *h, *s;    /* (D, K): centred fields, velocities, fields of the reference gauge, sums */
    double *b, *vb, *r0;      /* (K): offsets, velocities, sums */
    double *shift;            /* (K): constant that centring adds */
    float *rounded, *taken, *row; /* (D, K), (D, K), (2, K): s and what couplings take off h; scratch of a row */
} conditional_model;

/* Rows k of a batch are the lists on[first[k]..first[k+1]); those that have column c on are row[below[c]..below[c+1]),
   and stand for it at the positions at[...] of `on`. So a batch goes column by column, and what it needs of a table at a
   time is one row of it, which stays in the cache nearest to the processor. */
typedef struct {
    ptrdiff_t n;
    ptrdiff_t *on, *first;      /* (n m), (n + 1) */
    ptrdiff_t *below, *at, *row; /* (D + 1), (n m), (n m) */
    float *values;              /* (n, K): what couplings give to scores, or residuals */
    double *residual;           /* (n, K) */
} conditional_batch;

#define CONDITIONAL_EACH(K_) for (ptrdiff_t g = 0; g < K_; g++)

/* Sort the entries of a batch by their columns; rows rise within a column. */
static void conditional_sort(const conditional_model *c, const conditional_batch *r)
{
    for (ptrdiff_t d = 0; d <= c->D; d++)
        r->below[d] = 0;
    for (ptrdiff_t e = 0; e < r->first[r->n]; e++)
        r->below[r->on[e] + 1]++;
    for (ptrdiff_t d = 0; d < c->D; d++)
        r->below[d + 1] += r->below[d];
    for (ptrdiff_t k = 0; k < r->n; k++)
        for (ptrdiff_t e = r->first[k]; e < r->first[k + 1]; e++) {
            const ptrdiff_t to = r->below[r->on[e]]++;
            r->at[to] = e;
            r->row[to] = k;
        }
    for (ptrdiff_t d = c->D; d > 0; d--)
        r->below[d] = r->below[d - 1];
    r->below[0] = 0;
}

/* Add what the couplings give to values (n, K), or add values to the pair sums. AFTER_ is done at the end of an entry,
   whose values are `own`. */
#define CONDITIONAL_PAIRS(NAME_, ARRAY_, BODY_, AFTER_)                                                       \
    CPU_INLINE void NAME_(const conditional_model *c, const conditional_batch *r, ptrdiff_t K_)               \
    {                                                                                                        \
        for (ptrdiff_t d = 0; d < c->D; d++) {                                                               \
            float *restrict row = c->ARRAY_ + d * c->D * K_;                                                 \
            for (ptrdiff_t e = r->below[d]; e < r->below[d + 1]; e++) {                                      \
                float *restrict values = r->values + r->row[e] * K_;                                         \
                const ptrdiff_t *restrict other = r->on + r->at[e] + 1;                                      \
                const ptrdiff_t *end = r->on + r->first[r->row[e] + 1];                                      \
                float own[CONDITIONAL_FEW];                                                                  \
                CONDITIONAL_EACH(K_) own[g] = values[g];                                                     \
                for (; other < end; other++) {                                                               \
                    float *restrict cell = row + *other * K_;                                                \
                    BODY_                                                                                    \
                }                                                                                            \
                AFTER_                                                                                       \
            }                                                                                                \
        }                                                                                                    \
    }
#define CONDITIONAL_FEW 16 /* groups whose values fit into registers */
/* Compilers make vectors of all loads before any store, of one after the other they do not. */
#define CONDITIONAL_ADD(K_)                                  \
    float sum[CONDITIONAL_FEW];                              \
    CONDITIONAL_EACH(K_) sum[g] = cell[g] + own[g];          \
    CONDITIONAL_EACH(K_) cell[g] = sum[g];
CONDITIONAL_PAIRS(conditional_lookup_few, J, CONDITIONAL_EACH(K_) own[g] += cell[g];,
                  CONDITIONAL_EACH(K_) values[g] = own[g];)
CONDITIONAL_PAIRS(conditional_collect_few, S, CONDITIONAL_ADD(K_), )

/* The same for any number of groups. */
static void conditional_many(const conditional_model *c, const conditional_batch *r, int collect)
{
    const ptrdiff_t K = c->K;
    for (ptrdiff_t d = 0; d < c->D; d++) {
        float *row = (collect ? c->S : c->J) + d * c->D * K;
        for (ptrdiff_t e = r->below[d]; e < r->below[d + 1]; e++) {
            float *restrict values = r->values + r->row[e] * K;
            for (ptrdiff_t q = r->at[e] + 1; q < r->first[r->row[e] + 1]; q++) {
                float *restrict cell = row + r->on[q] * K;
                if (collect)
                    CONDITIONAL_EACH(K) cell[g] += values[g];
                else
                    CONDITIONAL_EACH(K) values[g] += cell[g];
            }
        }
    }
}

/* the numbers of groups that are common have their loops unrolled */
#define CONDITIONAL_CALL(f, collect, c, r)       \
    switch ((c)->K) {                            \
    case 2: f(c, r, 2); break;                   \
    case 3: f(c, r, 3); break;                   \
    case 4: f(c, r, 4); break;                   \
    case 5: f(c, r, 5); break;                   \
    case 6: f(c, r, 6); break;                   \
    case 8: f(c, r, 8); break;                   \
    case 10: f(c, r, 10); break;                 \
    default: conditional_many(c, r, collect);    \
    }

/* Work out the residuals of a batch, weight (P(y|x) - 1[y]), and add them to all sums. `given` are scores (n, K) by row
   of `which`, or NULL; returns the log-losses times their weights. `scale` makes the weights' sum 1. */
CPU_INLINE double conditional_residuals_of(const conditional_model *c, const conditional_batch *r,
                                           const ptrdiff_t *which, const double *given, const ptrdiff_t *y,
                                           const double *weights, double scale)
{
    const ptrdiff_t K = c->K;
    double loss = 0.0;
    for (ptrdiff_t k = 0; k < r->n * K; k++)
        r->values[k] = 0.0f;
    if (c->n_pairs) {
        conditional_sort(c, r);
        CONDITIONAL_CALL(conditional_lookup_few, 0, c, r);
    }
    for (ptrdiff_t k = 0; k < r->n; k++) {
        const ptrdiff_t at = which[k];
        const double weight = weights[at] * scale;
        double *residual = r->residual + k * K, top = -INFINITY, total = 0.0, own;
        float *values = r->values + k * K;
        CONDITIONAL_EACH(K) residual[g] = c->b[g] + c->shift[g] + values[g] + (given ? given[at * K + g] : 0.0);
        for (ptrdiff_t e = r->first[k]; e < r->first[k + 1]; e++)
            CONDITIONAL_EACH(K) residual[g] += c->h[r->on[e] * K + g];
        CONDITIONAL_EACH(K) top = residual[g] > top ? residual[g] : top;
        own = residual[y[at]] - top;
        CONDITIONAL_EACH(K) total += residual[g] = exp(residual[g] - top);
        CONDITIONAL_EACH(K) residual[g] *= weight / total;
        residual[y[at]] -= weight;
        loss += weight * (log(total) - own);
        CONDITIONAL_EACH(K) {
            c->r0[g] += residual[g];
            values[g] = (float)residual[g];
        }
        for (ptrdiff_t e = r->first[k]; e < r->first[k + 1]; e++)
            CONDITIONAL_EACH(K) c->s[r->on[e] * K + g] += residual[g];
    }
    if (c->n_pairs)
        CONDITIONAL_CALL(conditional_collect_few, 1, c, r);
    return loss;
}

/* One step of Nesterov's method: x is where the gradient was taken. */
static inline double conditional_move(double x, double *velocity, double gradient, double rate, double momentum)
{
    *velocity = momentum * *velocity - rate * gradient;
    return x + momentum * *velocity - rate * gradient;
}

/* Make the sums of pair (i, j) the gradient P_i g P_j, where a predictor has more than two levels. sums is (K) scratch. */
CPU_INLINE void conditional_spread(const conditional_model *c, ptrdiff_t i, ptrdiff_t j, double *restrict sums)
{
    const ptrdiff_t K = c->K, D = c->D, a0 = c->start[i], a1 = c->start[i + 1], b0 = c->start[j], b1 = c->start[j + 1];
    const double *restrict m = c->means;
    for (ptrdiff_t a = a0; a < a1; a++) {
        CONDITIONAL_EACH(K) sums[g] = 0.0;
        for (ptrdiff_t b = b0; b < b1; b++) {
            float *restrict S = c->S + (a * D + b) * K;
            CONDITIONAL_EACH(K) {
                S[g] += (float)(c->r0[g] * m[a] * m[b] - c->s[a * K + g] * m[b] - c->s[b * K + g] * m[a]);
                sums[g] += S[g];
            }
        }
        for (ptrdiff_t b = b0; b < b1; b++)
            CONDITIONAL_EACH(K) c->S[(a * D + b) * K + g] += (float)sums[g];
    }
    for (ptrdiff_t b = b0; b < b1; b++) {
        CONDITIONAL_EACH(K) sums[g] = 0.0;
        for (ptrdiff_t a = a0; a < a1; a++)
            CONDITIONAL_EACH(K) sums[g] += c->S[(a * D + b) * K + g];
        for (ptrdiff_t a = a0; a < a1; a++)
            CONDITIONAL_EACH(K) c->S[(a * D + b) * K + g] += (float)sums[g];
    }
}

/* Step of the couplings of column a with columns b0 to b1, and what centring takes off h for them. Of `narrow` pairs,
   of two predictors of two levels, the sums are not yet the gradient. It is all in single precision, as J is. */
CPU_INLINE void conditional_step_row(const conditional_model *c, ptrdiff_t a, ptrdiff_t b0, ptrdiff_t b1, int narrow,
                                     ptrdiff_t K_, double rate_, double momentum_, double ridge_)
{
    const float rate = (float)rate_, momentum = (float)momentum_, ridge = (float)ridge_, mean = (float)c->means[a];
    const float factor = (float)(narrow ? 4.0 * c->scale[1] : c->scale[1]);
    float *restrict centre = c->row, *restrict off = c->row + K_, *restrict J = c->J + (a * c->D + b0) * K_;
    float *restrict V = c->V + (a * c->D + b0) * K_, *restrict S = c->S + (a * c->D + b0) * K_;
    const float *restrict sums = c->rounded + b0 * K_;
    float *restrict taken = c->taken + b0 * K_;
    CONDITIONAL_EACH(K_) {
        centre[g] = narrow ? (float)(c->r0[g] * c->means[a] - c->s[a * K_ + g]) : 0.0f;
        off[g] = 0.0f;
    }
    for (ptrdiff_t b = b0; b < b1; b++) {
        const float other = (float)c->means[b];
        for (ptrdiff_t g0 = 0; g0 < K_; g0 += CONDITIONAL_FEW) {
            const ptrdiff_t some = K_ - g0 < CONDITIONAL_FEW ? K_ - g0 : CONDITIONAL_FEW;
            float velocity[CONDITIONAL_FEW], moved[CONDITIONAL_FEW], left[CONDITIONAL_FEW], right[CONDITIONAL_FEW];
            CONDITIONAL_EACH(some) {
                const ptrdiff_t k = g0 + g;
                const float sum = narrow ? S[k] + centre[k] * other - sums[k] * mean : S[k];
                const float gradient = factor * sum + ridge * J[k];
                velocity[g] = momentum * V[k] - rate * gradient;
                moved[g] = J[k] + momentum * velocity[g] - rate * gradient;
                left[g] = off[k] + moved[g] * other;
                right[g] = taken[k] + moved[g] * mean;
            }
            CONDITIONAL_EACH(some) V[g0 + g] = velocity[g];
            CONDITIONAL_EACH(some) J[g0 + g] = moved[g];
            CONDITIONAL_EACH(some) S[g0 + g] = 0.0f;
            CONDITIONAL_EACH(some) off[g0 + g] = left[g];
            CONDITIONAL_EACH(some) taken[g0 + g] = right[g];
        }
        J += K_, V += K_, S += K_, sums += K_, taken += K_;
    }
    CONDITIONAL_EACH(K_) {
        c->h[a * K_ + g] -= off[g];
        c->shift[g] += c->means[a] * off[g];
    }
}

/* Step of all couplings. Pairs with the same first predictor, and one second one after the other, go together. */
CPU_INLINE void conditional_step_pairs(const conditional_model *c, ptrdiff_t K_, double rate, double momentum,
                                       double ridge, double *sums)
{
    const ptrdiff_t *start = c->start, *i = c->first, *j = c->second;
    for (ptrdiff_t k = 0; k < c->D * K_; k++) {
        c->rounded[k] = (float)c->s[k];
        c->taken[k] = 0.0f;
    }
    for (ptrdiff_t p = 0, q; p < c->n_pairs; p = q) {
        const int narrow = start[i[p] + 1] - start[i[p]] == 1 && start[j[p] + 1] - start[j[p]] == 1;
        q = p + 1;
        if (narrow)
            while (q < c->n_pairs && i[q] == i[p] && j[q] == j[q - 1] + 1 && start[j[q] + 1] - start[j[q]] == 1)
                q++;
        else
            conditional_spread(c, i[p], j[p], sums);
        for (ptrdiff_t a = start[i[p]]; a < start[i[p] + 1]; a++)
            if (narrow)
                conditional_step_row(c, a, start[j[p]], start[j[q - 1] + 1], 1, K_, rate, momentum, ridge);
            else
                conditional_step_row(c, a, start[j[p]], start[j[p] + 1], 0, K_, rate, momentum, ridge);
    }
    for (ptrdiff_t k = 0; k < c->D * K_; k++)
        c->h[k] -= c->taken[k];
}

/* Move everything by one step along the gradient that the sums make up, and clear the sums. */
CPU_INLINE void conditional_step_of(const conditional_model *c, double rate, double momentum, double ridge, double *sums)
{
    const ptrdiff_t K = c->K;
    CONDITIONAL_EACH(K) {
        c->b[g] = conditional_move(c->b[g], &c->vb[g], c->r0[g], rate, momentum);
        c->shift[g] = 0.0;
    }
    for (ptrdiff_t i = 0; i < c->m; i++)
        CONDITIONAL_EACH(K) {
            double all = 0.0;
            for (ptrdiff_t a = c->start[i]; a < c->start[i + 1]; a++)
                all += c->s[a * K + g] - c->r0[g] * c->means[a];
            for (ptrdiff_t a = c->start[i]; a < c->start[i + 1]; a++) {
                const ptrdiff_t at = a * K + g;
                const double gradient = c->scale[0] * (c->s[at] - c->r0[g] * c->means[a] + all) + ridge * c->u[at];
                c->u[at] = conditional_move(c->u[at], &c->v[at], gradient, rate, momentum);
                c->h[at] = c->u[at];
                c->shift[g] -= c->u[at] * c->means[a];
            }
        }
    switch (K) {
    case 2: conditional_step_pairs(c, 2, rate, momentum, ridge, sums); break;
    case 3: conditional_step_pairs(c, 3, rate, momentum, ridge, sums); break;
    case 10: conditional_step_pairs(c, 10, rate, momentum, ridge, sums); break;
    default: conditional_step_pairs(c, K, rate, momentum, ridge, sums);
    }
    for (ptrdiff_t k = 0; k < c->D * K; k++)
        c->s[k] = 0.0;
    CONDITIONAL_EACH(K) c->r0[g] = 0.0;
}

/* Both once for each vector width, and the choice of it. */
#define CONDITIONAL_WIDTH(SUFFIX, TARGET)                                                                                \
    TARGET static double conditional_residuals_##SUFFIX(const conditional_model *c, const conditional_batch *r,          \
                                                        const ptrdiff_t *which, const double *given,                     \
                                                        const ptrdiff_t *y, const double *weights, double scale)         \
    {                                                                                                                    \
        return conditional_residuals_of(c, r, which, given, y, weights, scale);                                          \
    }                                                                                                                    \
    TARGET static void conditional_step_##SUFFIX(const conditional_model *c, double rate, double momentum, double ridge, \
                                                 double *sums)                                                           \
    {                                                                                                                    \
        conditional_step_of(c, rate, momentum, ridge, sums);                                                             \
    }
CONDITIONAL_WIDTH(plain, )
#ifdef CPU_X86
CONDITIONAL_WIDTH(32_bytes, CPU_32_BYTES)
#endif

static double conditional_residuals(const conditional_model *c, const conditional_batch *r, const ptrdiff_t *which,
                                    const double *given, const ptrdiff_t *y, const double *weights, double scale)
{
#ifdef CPU_X86
    if (cpu_runs(32))
        return conditional_residuals_32_bytes(c, r, which, given, y, weights, scale);
#endif
    return conditional_residuals_plain(c, r, which, given, y, weights, scale);
}

static void conditional_step(const conditional_model *c, double rate, double momentum, double ridge, double *sums)
{
#ifdef CPU_X86
    if (cpu_runs(32)) {
        conditional_step_32_bytes(c, rate, momentum, ridge, sums);
        return;
    }
#endif
    conditional_step_plain(c, rate, momentum, ridge, sums);
}
#endif
