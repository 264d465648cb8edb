/* Conditional likelihood of the groups by minibatches: residuals of rows, their pair sums, and the step of all tables.

   Conventions: K groups lie side by side. A row is the list on[0..n_on) of its non-reference columns, rising. Tables are
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

#define CONDITIONAL_EACH(K_) for (ptrdiff_t g = 0; g < K_; g++)

/* Add what the couplings give to scores (K), or add residuals (K) to the pair sums. */
#define CONDITIONAL_PAIRS(NAME_, ARRAY_, BODY_)                                                              \
    static inline void NAME_(const conditional_model *c, const ptrdiff_t *on, ptrdiff_t n_on, ptrdiff_t K_,  \
                             float *restrict values)                                                         \
    {                                                                                                        \
        for (ptrdiff_t p = 0; p < n_on; p++) {                                                               \
            float *restrict row = c->ARRAY_ + on[p] * c->D * K_;                                             \
            for (ptrdiff_t q = p + 1; q < n_on; q++) {                                                       \
                float *restrict cell = row + on[q] * K_;                                                     \
                CONDITIONAL_EACH(K_) BODY_;                                                                  \
            }                                                                                                \
        }                                                                                                    \
    }
CONDITIONAL_PAIRS(conditional_lookup, J, values[g] += cell[g])
CONDITIONAL_PAIRS(conditional_collect, S, cell[g] += values[g])

/* the numbers of groups that are common have their loops unrolled */
#define CONDITIONAL_CALL(f, c, on, n_on, values)                   \
    switch ((c)->K) {                                              \
    case 2: f(c, on, n_on, 2, values); break;                      \
    case 3: f(c, on, n_on, 3, values); break;                      \
    case 4: f(c, on, n_on, 4, values); break;                      \
    case 5: f(c, on, n_on, 5, values); break;                      \
    case 6: f(c, on, n_on, 6, values); break;                      \
    case 8: f(c, on, n_on, 8, values); break;                      \
    case 10: f(c, on, n_on, 10, values); break;                    \
    default: f(c, on, n_on, (c)->K, values);                       \
    }

/* Turn given scores (K) of a row, or NULL for none, into its residuals, weight (P(y|x) - 1[y]); returns its log-loss
   times the weight. pairs is (K) scratch. */
static double conditional_residual(const conditional_model *c, const ptrdiff_t *on, ptrdiff_t n_on, const double *given,
                                   ptrdiff_t y, double weight, float *pairs, double *residual_out)
{
    const ptrdiff_t K = c->K;
    double top = -INFINITY, total = 0.0, own;
    CONDITIONAL_EACH(K) pairs[g] = 0.0f;
    if (c->n_pairs)
        CONDITIONAL_CALL(conditional_lookup, c, on, n_on, pairs);
    CONDITIONAL_EACH(K) residual_out[g] = c->b[g] + c->shift[g] + pairs[g] + (given ? given[g] : 0.0);
    for (ptrdiff_t p = 0; p < n_on; p++)
        CONDITIONAL_EACH(K) residual_out[g] += c->h[on[p] * K + g];
    CONDITIONAL_EACH(K) top = residual_out[g] > top ? residual_out[g] : top;
    own = residual_out[y] - top;
    CONDITIONAL_EACH(K) total += residual_out[g] = exp(residual_out[g] - top);
    CONDITIONAL_EACH(K) residual_out[g] *= weight / total;
    residual_out[y] -= weight;
    return weight * (log(total) - own);
}

/* Add the residuals (K) of a row to all sums; pairs is (K) scratch. */
static void conditional_add(const conditional_model *c, const ptrdiff_t *on, ptrdiff_t n_on, const double *residual,
                            float *pairs)
{
    const ptrdiff_t K = c->K;
    CONDITIONAL_EACH(K) c->r0[g] += residual[g];
    for (ptrdiff_t p = 0; p < n_on; p++)
        CONDITIONAL_EACH(K) c->s[on[p] * K + g] += residual[g];
    CONDITIONAL_EACH(K) pairs[g] = (float)residual[g];
    if (c->n_pairs)
        CONDITIONAL_CALL(conditional_collect, c, on, n_on, pairs);
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
