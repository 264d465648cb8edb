/* Conditional likelihood of the groups by minibatches: residuals of rows, their sums, and gradient steps.

   The score of group y at row x is f_y(x) = b + sum_i u_i (o_i - m_i) + sum_{i<j} (o_i - m_i)' J_ij (o_j - m_j). The
   o_i are the indicators of the non-reference levels of predictor i ("columns", D in all), the m_i their means. So J
   are also the couplings of the reference gauge (tables that are 0 at reference levels), and its fields are h = u -
   sum_j J_ij m_j. The residual of a row is weight (P(g | row) - 1[y = g]).

   The gradient is taken in the squared norm of the centred indicators of all levels: with P = I + 11', the gradient g
   of a pair of predictors becomes P_i g P_j. Arrays end with the K groups; a (D, D, K) array uses [c][d] with c < d. */
#ifndef CONDITIONAL_H
#define CONDITIONAL_H
#include <math.h>
#include <stddef.h>
#include "cpu.h"

typedef struct {
    ptrdiff_t D, K, m, n_pairs;               /* columns, groups, predictors, pairs of predictors */
    const ptrdiff_t *start;                   /* (m + 1) first column of each predictor */
    const ptrdiff_t *first, *second;          /* (n_pairs) predictors of each pair */
    const double *means;                      /* (D) */
    double scale[2];                          /* factors of the gradients of u and of J */
    float *J, *J_velocity, *pair_sums;        /* (D, D, K); pair_sums: residuals summed over rows with both columns */
    double *u, *u_velocity, *h, *level_sums;  /* (D, K); level_sums: residuals summed over the rows with a column */
    double *b, *b_velocity, *total_sums;      /* (K); total_sums: residuals summed over all rows */
    double *shift;                            /* (K) score of the row of reference levels, less b */
    float *level_sums_f, *h_drop;             /* (D, K) scratch: level_sums rounded; the decrease of h by a step */
    float *scratch;                           /* (2, K) */
} conditional_model;

/* Batch of n rows. Row k has the columns columns[row_start[k] .. row_start[k + 1]), rising. Sorted by column, the
   entries column_start[d] .. column_start[d + 1] have column d; entry_row is the row and entry_at the index in
   `columns` of an entry. A loop over sorted entries reads one row J[d] of the table at a time, which stays in the
   nearest cache. */
typedef struct {
    ptrdiff_t n;
    ptrdiff_t *columns, *row_start;                 /* (n m), (n + 1) */
    ptrdiff_t *column_start, *entry_at, *entry_row; /* (D + 1), (n m), (n m) */
    float *values;                                  /* (n, K): sums of couplings, later the residuals */
    double *residual;                               /* (n, K) */
} conditional_batch;

#define CONDITIONAL_EACH(K_) for (ptrdiff_t g = 0; g < K_; g++)

/* Sort the entries of a batch by column; rows rise within a column. */
static void conditional_sort(const conditional_model *c, const conditional_batch *batch)
{
    for (ptrdiff_t d = 0; d <= c->D; d++)
        batch->column_start[d] = 0;
    for (ptrdiff_t e = 0; e < batch->row_start[batch->n]; e++)
        batch->column_start[batch->columns[e] + 1]++;
    for (ptrdiff_t d = 0; d < c->D; d++)
        batch->column_start[d + 1] += batch->column_start[d];
    for (ptrdiff_t k = 0; k < batch->n; k++)
        for (ptrdiff_t e = batch->row_start[k]; e < batch->row_start[k + 1]; e++) {
            const ptrdiff_t position = batch->column_start[batch->columns[e]]++;
            batch->entry_at[position] = e;
            batch->entry_row[position] = k;
        }
    for (ptrdiff_t d = c->D; d > 0; d--)
        batch->column_start[d] = batch->column_start[d - 1];
    batch->column_start[0] = 0;
}

/* Define a loop over the pairs of columns d < *other of every row of a batch, with the statements PAIR_ for each pair
   and AFTER_ for each d: `sums` are copies in registers of the row's K values, `cell` is ARRAY_[d][*other] (K). */
#define CONDITIONAL_PAIRS(NAME_, ARRAY_, PAIR_, AFTER_)                                            \
    CPU_INLINE void NAME_(const conditional_model *c, const conditional_batch *batch, ptrdiff_t K_)\
    {                                                                                              \
        for (ptrdiff_t d = 0; d < c->D; d++) {                                                     \
            float *restrict table_row = c->ARRAY_ + d * c->D * K_;                                 \
            for (ptrdiff_t e = batch->column_start[d]; e < batch->column_start[d + 1]; e++) {      \
                const ptrdiff_t k = batch->entry_row[e];                                           \
                float *restrict values = batch->values + k * K_;                                   \
                const ptrdiff_t *restrict other = batch->columns + batch->entry_at[e] + 1;         \
                const ptrdiff_t *end = batch->columns + batch->row_start[k + 1];                   \
                float sums[CONDITIONAL_FEW];                                                       \
                CONDITIONAL_EACH(K_) sums[g] = values[g];                                          \
                for (; other < end; other++) {                                                     \
                    float *restrict cell = table_row + *other * K_;                                \
                    PAIR_                                                                          \
                }                                                                                  \
                AFTER_                                                                             \
            }                                                                                      \
        }                                                                                          \
    }
#define CONDITIONAL_FEW 16 /* most groups whose values fit into registers */
/* Two loops, because compilers vectorise them only if all loads come before any store */
#define CONDITIONAL_ADD(K_)                                  \
    float new_cell[CONDITIONAL_FEW];                         \
    CONDITIONAL_EACH(K_) new_cell[g] = cell[g] + sums[g];    \
    CONDITIONAL_EACH(K_) cell[g] = new_cell[g];
/* Add the couplings of each row to values; add values to pair_sums */
CONDITIONAL_PAIRS(conditional_lookup_few, J, CONDITIONAL_EACH(K_) sums[g] += cell[g];,
                  CONDITIONAL_EACH(K_) values[g] = sums[g];)
CONDITIONAL_PAIRS(conditional_collect_few, pair_sums, CONDITIONAL_ADD(K_), )

/* Either of the two for any number of groups: pair_sums += values if `collect`, else values += J */
static void conditional_many(const conditional_model *c, const conditional_batch *batch, int collect)
{
    const ptrdiff_t K = c->K;
    for (ptrdiff_t d = 0; d < c->D; d++) {
        float *table_row = (collect ? c->pair_sums : c->J) + d * c->D * K;
        for (ptrdiff_t e = batch->column_start[d]; e < batch->column_start[d + 1]; e++) {
            float *restrict values = batch->values + batch->entry_row[e] * K;
            for (ptrdiff_t q = batch->entry_at[e] + 1; q < batch->row_start[batch->entry_row[e] + 1]; q++) {
                float *restrict cell = table_row + batch->columns[q] * K;
                if (collect)
                    CONDITIONAL_EACH(K) cell[g] += values[g];
                else
                    CONDITIONAL_EACH(K) values[g] += cell[g];
            }
        }
    }
}

/* Call f with loops unrolled for common numbers of groups, conditional_many for others */
#define CONDITIONAL_CALL(f, collect, c, batch)       \
    switch ((c)->K) {                                \
    case 2: f(c, batch, 2); break;                   \
    case 3: f(c, batch, 3); break;                   \
    case 4: f(c, batch, 4); break;                   \
    case 5: f(c, batch, 5); break;                   \
    case 6: f(c, batch, 6); break;                   \
    case 8: f(c, batch, 8); break;                   \
    case 10: f(c, batch, 10); break;                 \
    default: conditional_many(c, batch, collect);    \
    }

/* Write the residuals of a batch and add them to all sums; return the weighted sum of the log-losses.

   row_index (n) are the batch's rows in given_scores (rows, K), which are added to the scores and may be NULL, in the
   groups y and in the weights, which are multiplied by `scale`. */
CPU_INLINE double conditional_residuals_of(const conditional_model *c, const conditional_batch *batch,
                                           const ptrdiff_t *row_index, const double *given_scores, const ptrdiff_t *y,
                                           const double *weights, double scale)
{
    const ptrdiff_t K = c->K;
    double loss = 0.0;
    for (ptrdiff_t k = 0; k < batch->n * K; k++)
        batch->values[k] = 0.0f;
    if (c->n_pairs) {
        conditional_sort(c, batch);
        CONDITIONAL_CALL(conditional_lookup_few, 0, c, batch);
    }
    for (ptrdiff_t k = 0; k < batch->n; k++) {
        const ptrdiff_t index = row_index[k];
        const double weight = weights[index] * scale;
        double *residual = batch->residual + k * K, largest = -INFINITY, total = 0.0, score_y;
        float *values = batch->values + k * K;
        CONDITIONAL_EACH(K)
            residual[g] = c->b[g] + c->shift[g] + values[g] + (given_scores ? given_scores[index * K + g] : 0.0);
        for (ptrdiff_t e = batch->row_start[k]; e < batch->row_start[k + 1]; e++)
            CONDITIONAL_EACH(K) residual[g] += c->h[batch->columns[e] * K + g];
        CONDITIONAL_EACH(K) largest = residual[g] > largest ? residual[g] : largest;
        score_y = residual[y[index]] - largest;
        CONDITIONAL_EACH(K) total += residual[g] = exp(residual[g] - largest);
        CONDITIONAL_EACH(K) residual[g] *= weight / total;
        residual[y[index]] -= weight;
        loss += weight * (log(total) - score_y);
        CONDITIONAL_EACH(K) {
            c->total_sums[g] += residual[g];
            values[g] = (float)residual[g];
        }
        for (ptrdiff_t e = batch->row_start[k]; e < batch->row_start[k + 1]; e++)
            CONDITIONAL_EACH(K) c->level_sums[batch->columns[e] * K + g] += residual[g];
    }
    if (c->n_pairs)
        CONDITIONAL_CALL(conditional_collect_few, 1, c, batch);
    return loss;
}

/* Return x after a step of Nesterov's method, x being the point at which the gradient was taken. */
static inline double conditional_move(double x, double *velocity, double gradient, double rate, double momentum)
{
    *velocity = momentum * *velocity - rate * gradient;
    return x + momentum * *velocity - rate * gradient;
}

/* Centre the pair sums of predictors (i, j) and replace them by P_i g P_j, in place; scratch is (K). */
CPU_INLINE void conditional_transform_pair(const conditional_model *c, ptrdiff_t i, ptrdiff_t j,
                                           double *restrict scratch)
{
    const ptrdiff_t K = c->K, D = c->D, a0 = c->start[i], a1 = c->start[i + 1], b0 = c->start[j], b1 = c->start[j + 1];
    const double *restrict m = c->means;
    for (ptrdiff_t a = a0; a < a1; a++) {
        CONDITIONAL_EACH(K) scratch[g] = 0.0;
        for (ptrdiff_t b = b0; b < b1; b++) {
            float *restrict sums = c->pair_sums + (a * D + b) * K;
            CONDITIONAL_EACH(K) {
                sums[g] += (float)(c->total_sums[g] * m[a] * m[b] - c->level_sums[a * K + g] * m[b]
                                   - c->level_sums[b * K + g] * m[a]);
                scratch[g] += sums[g];
            }
        }
        for (ptrdiff_t b = b0; b < b1; b++)
            CONDITIONAL_EACH(K) c->pair_sums[(a * D + b) * K + g] += (float)scratch[g];
    }
    for (ptrdiff_t b = b0; b < b1; b++) {
        CONDITIONAL_EACH(K) scratch[g] = 0.0;
        for (ptrdiff_t a = a0; a < a1; a++)
            CONDITIONAL_EACH(K) scratch[g] += c->pair_sums[(a * D + b) * K + g];
        for (ptrdiff_t a = a0; a < a1; a++)
            CONDITIONAL_EACH(K) c->pair_sums[(a * D + b) * K + g] += (float)scratch[g];
    }
}

/* Step of the couplings J[a][b0 .. b1), in single precision as J is; clears their pair sums.

   h_a and shift are updated; the decrease of h_b is added to h_drop. `binary` says that both predictors have
   two levels: then pair sums are still to be centred, and P_i g P_j = 4 g. */
CPU_INLINE void conditional_step_row(const conditional_model *c, ptrdiff_t a, ptrdiff_t b0, ptrdiff_t b1, int binary,
                                     ptrdiff_t K_, double rate_, double momentum_, double ridge_)
{
    const float rate = (float)rate_, momentum = (float)momentum_, ridge = (float)ridge_, mean_a = (float)c->means[a];
    const float factor = (float)(binary ? 4.0 * c->scale[1] : c->scale[1]);
    const ptrdiff_t cell = (a * c->D + b0) * K_;
    float *restrict J = c->J + cell, *restrict velocity = c->J_velocity + cell, *restrict sums = c->pair_sums + cell;
    float *restrict centring = c->scratch, *restrict h_a_drop = c->scratch + K_;
    const float *restrict level_sums_b = c->level_sums_f + b0 * K_;
    float *restrict h_b_drop = c->h_drop + b0 * K_;
    CONDITIONAL_EACH(K_) {
        centring[g] = binary ? (float)(c->total_sums[g] * c->means[a] - c->level_sums[a * K_ + g]) : 0.0f;
        h_a_drop[g] = 0.0f;
    }
    for (ptrdiff_t b = b0; b < b1; b++) {
        const float mean_b = (float)c->means[b];
        for (ptrdiff_t g0 = 0; g0 < K_; g0 += CONDITIONAL_FEW) {
            const ptrdiff_t n_groups = K_ - g0 < CONDITIONAL_FEW ? K_ - g0 : CONDITIONAL_FEW;
            float new_velocity[CONDITIONAL_FEW], new_J[CONDITIONAL_FEW];
            float new_a_drop[CONDITIONAL_FEW], new_b_drop[CONDITIONAL_FEW];
            CONDITIONAL_EACH(n_groups) {
                const ptrdiff_t k = g0 + g;
                const float sum = binary ? sums[k] + centring[k] * mean_b - level_sums_b[k] * mean_a : sums[k];
                const float gradient = factor * sum + ridge * J[k];
                new_velocity[g] = momentum * velocity[k] - rate * gradient;
                new_J[g] = J[k] + momentum * new_velocity[g] - rate * gradient;
                new_a_drop[g] = h_a_drop[k] + new_J[g] * mean_b;
                new_b_drop[g] = h_b_drop[k] + new_J[g] * mean_a;
            }
            CONDITIONAL_EACH(n_groups) velocity[g0 + g] = new_velocity[g];
            CONDITIONAL_EACH(n_groups) J[g0 + g] = new_J[g];
            CONDITIONAL_EACH(n_groups) sums[g0 + g] = 0.0f;
            CONDITIONAL_EACH(n_groups) h_a_drop[g0 + g] = new_a_drop[g];
            CONDITIONAL_EACH(n_groups) h_b_drop[g0 + g] = new_b_drop[g];
        }
        J += K_, velocity += K_, sums += K_, level_sums_b += K_, h_b_drop += K_;
    }
    CONDITIONAL_EACH(K_) {
        c->h[a * K_ + g] -= h_a_drop[g];
        c->shift[g] += c->means[a] * h_a_drop[g];
    }
}

/* Step of all couplings; scratch is (K). Pairs of binary predictors with the same first and consecutive second ones
   are taken together. */
CPU_INLINE void conditional_step_pairs(const conditional_model *c, ptrdiff_t K_, double rate, double momentum,
                                       double ridge, double *scratch)
{
    const ptrdiff_t *start = c->start, *i = c->first, *j = c->second;
    for (ptrdiff_t k = 0; k < c->D * K_; k++) {
        c->level_sums_f[k] = (float)c->level_sums[k];
        c->h_drop[k] = 0.0f;
    }
    for (ptrdiff_t p = 0, q; p < c->n_pairs; p = q) {
        const int binary = start[i[p] + 1] - start[i[p]] == 1 && start[j[p] + 1] - start[j[p]] == 1;
        q = p + 1;
        if (binary)
            while (q < c->n_pairs && i[q] == i[p] && j[q] == j[q - 1] + 1 && start[j[q] + 1] - start[j[q]] == 1)
                q++;
        else
            conditional_transform_pair(c, i[p], j[p], scratch);
        for (ptrdiff_t a = start[i[p]]; a < start[i[p] + 1]; a++)
            if (binary)
                conditional_step_row(c, a, start[j[p]], start[j[q - 1] + 1], 1, K_, rate, momentum, ridge);
            else
                conditional_step_row(c, a, start[j[p]], start[j[p] + 1], 0, K_, rate, momentum, ridge);
    }
    for (ptrdiff_t k = 0; k < c->D * K_; k++)
        c->h[k] -= c->h_drop[k];
}

/* Move all parameters by one step along the gradient that the sums of a batch make up, and clear the sums.

   scratch is (K); ridge is the factor of the squared norm of u and J. */
CPU_INLINE void conditional_step_of(const conditional_model *c, double rate, double momentum, double ridge,
                                    double *scratch)
{
    const ptrdiff_t K = c->K;
    CONDITIONAL_EACH(K) {
        c->b[g] = conditional_move(c->b[g], &c->b_velocity[g], c->total_sums[g], rate, momentum);
        c->shift[g] = 0.0;
    }
    for (ptrdiff_t i = 0; i < c->m; i++)
        CONDITIONAL_EACH(K) {
            double centred_sum = 0.0;
            for (ptrdiff_t a = c->start[i]; a < c->start[i + 1]; a++)
                centred_sum += c->level_sums[a * K + g] - c->total_sums[g] * c->means[a];
            for (ptrdiff_t a = c->start[i]; a < c->start[i + 1]; a++) {
                const ptrdiff_t index = a * K + g;
                const double centred = c->level_sums[index] - c->total_sums[g] * c->means[a];
                const double gradient = c->scale[0] * (centred + centred_sum) + ridge * c->u[index];
                c->u[index] = conditional_move(c->u[index], &c->u_velocity[index], gradient, rate, momentum);
                c->h[index] = c->u[index];
                c->shift[g] -= c->u[index] * c->means[a];
            }
        }
    switch (K) {
    case 2: conditional_step_pairs(c, 2, rate, momentum, ridge, scratch); break;
    case 3: conditional_step_pairs(c, 3, rate, momentum, ridge, scratch); break;
    case 10: conditional_step_pairs(c, 10, rate, momentum, ridge, scratch); break;
    default: conditional_step_pairs(c, K, rate, momentum, ridge, scratch);
    }
    for (ptrdiff_t k = 0; k < c->D * K; k++)
        c->level_sums[k] = 0.0;
    CONDITIONAL_EACH(K) c->total_sums[g] = 0.0;
}

/* Compile both once for each vector width. */
#define CONDITIONAL_WIDTH(SUFFIX, TARGET)                                                                            \
    TARGET static double conditional_residuals_##SUFFIX(                                                             \
        const conditional_model *c, const conditional_batch *batch, const ptrdiff_t *row_index,                      \
        const double *given_scores, const ptrdiff_t *y, const double *weights, double scale)                         \
    {                                                                                                                \
        return conditional_residuals_of(c, batch, row_index, given_scores, y, weights, scale);                       \
    }                                                                                                                \
    TARGET static void conditional_step_##SUFFIX(const conditional_model *c, double rate, double momentum,           \
                                                 double ridge, double *scratch)                                      \
    {                                                                                                                \
        conditional_step_of(c, rate, momentum, ridge, scratch);                                                      \
    }
CONDITIONAL_WIDTH(plain, )
#ifdef CPU_X86
CONDITIONAL_WIDTH(32_bytes, CPU_32_BYTES)
#endif

static double conditional_residuals(const conditional_model *c, const conditional_batch *batch,
                                    const ptrdiff_t *row_index, const double *given_scores, const ptrdiff_t *y,
                                    const double *weights, double scale)
{
#ifdef CPU_X86
    if (cpu_runs(32))
        return conditional_residuals_32_bytes(c, batch, row_index, given_scores, y, weights, scale);
#endif
    return conditional_residuals_plain(c, batch, row_index, given_scores, y, weights, scale);
}

static void conditional_step(const conditional_model *c, double rate, double momentum, double ridge, double *scratch)
{
#ifdef CPU_X86
    if (cpu_runs(32)) {
        conditional_step_32_bytes(c, rate, momentum, ridge, scratch);
        return;
    }
#endif
    conditional_step_plain(c, rate, momentum, ridge, scratch);
}
#endif
