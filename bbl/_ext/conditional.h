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
    static inline void NAME_(const conditional_model *c, const conditional_batch *r, ptrdiff_t K_)            \
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
                    CONDITIONAL_EACH(K_) BODY_;                                                              \
                }                                                                                            \
                AFTER_                                                                                       \
            }                                                                                                \
        }                                                                                                    \
    }
#define CONDITIONAL_FEW 16 /* groups whose values fit into registers */
CONDITIONAL_PAIRS(conditional_lookup_few, J, own[g] += cell[g], CONDITIONAL_EACH(K_) values[g] = own[g];)
CONDITIONAL_PAIRS(conditional_collect_few, S, cell[g] += own[g], )

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
static double conditional_residuals(const conditional_model *c, const conditional_batch *r, const ptrdiff_t *which,
                                    const double *given, const ptrdiff_t *y, const double *weights, double scale)
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

/* Step of the table of pair (i, j); adds to h and shift what centring takes off. sums is (K) scratch. */
static inline void conditional_step_pair(const conditional_model *c, ptrdiff_t i, ptrdiff_t j, ptrdiff_t K_, double rate,
                                         double momentum, double ridge, double *restrict sums)
{
    const ptrdiff_t D = c->D, a0 = c->start[i], a1 = c->start[i + 1], b0 = c->start[j], b1 = c->start[j + 1];
    const double *restrict m = c->means;
    const int wide = a1 - a0 > 1 || b1 - b0 > 1;
    if (wide) { /* S becomes P_i g P_j */
        for (ptrdiff_t a = a0; a < a1; a++) {
            CONDITIONAL_EACH(K_) sums[g] = 0.0;
            for (ptrdiff_t b = b0; b < b1; b++) {
                float *restrict S = c->S + (a * D + b) * K_;
                CONDITIONAL_EACH(K_) {
                    S[g] += (float)(c->r0[g] * m[a] * m[b] - c->s[a * K_ + g] * m[b] - c->s[b * K_ + g] * m[a]);
                    sums[g] += S[g];
                }
            }
            for (ptrdiff_t b = b0; b < b1; b++)
                CONDITIONAL_EACH(K_) c->S[(a * D + b) * K_ + g] += (float)sums[g];
        }
        for (ptrdiff_t b = b0; b < b1; b++) {
            CONDITIONAL_EACH(K_) sums[g] = 0.0;
            for (ptrdiff_t a = a0; a < a1; a++)
                CONDITIONAL_EACH(K_) sums[g] += c->S[(a * D + b) * K_ + g];
            for (ptrdiff_t a = a0; a < a1; a++)
                CONDITIONAL_EACH(K_) c->S[(a * D + b) * K_ + g] += (float)sums[g];
        }
    }
    for (ptrdiff_t a = a0; a < a1; a++)
        for (ptrdiff_t b = b0; b < b1; b++) {
            const ptrdiff_t at = (a * D + b) * K_;
            float *restrict J = c->J + at, *restrict V = c->V + at, *restrict S = c->S + at;
            CONDITIONAL_EACH(K_) {
                double gradient = S[g];
                if (!wide)
                    gradient = 4.0 * (gradient + c->r0[g] * m[a] * m[b] - c->s[a * K_ + g] * m[b] - c->s[b * K_ + g] * m[a]);
                gradient = c->scale[1] * gradient + ridge * J[g];
                const float velocity = (float)(momentum * V[g] - rate * gradient);
                const float moved = (float)(J[g] + momentum * velocity - rate * gradient);
                V[g] = velocity;
                J[g] = moved;
                S[g] = 0.0f;
                c->h[a * K_ + g] -= moved * m[b];
                c->h[b * K_ + g] -= moved * m[a];
                c->shift[g] += moved * m[a] * m[b];
            }
        }
}

/* Move everything by one step along the gradient that the sums make up, and clear the sums. */
static void conditional_step(const conditional_model *c, double rate, double momentum, double ridge, double *sums)
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
    for (ptrdiff_t p = 0; p < c->n_pairs; p++)
        switch (K) {
        case 2: conditional_step_pair(c, c->first[p], c->second[p], 2, rate, momentum, ridge, sums); break;
        case 3: conditional_step_pair(c, c->first[p], c->second[p], 3, rate, momentum, ridge, sums); break;
        case 10: conditional_step_pair(c, c->first[p], c->second[p], 10, rate, momentum, ridge, sums); break;
        default: conditional_step_pair(c, c->first[p], c->second[p], K, rate, momentum, ridge, sums);
        }
    for (ptrdiff_t k = 0; k < c->D * K; k++)
        c->s[k] = 0.0;
    CONDITIONAL_EACH(K) c->r0[g] = 0.0;
}
#endif
