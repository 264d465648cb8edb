/* Conditional likelihood of the groups on minibatches: residuals of rows, their sums, and gradient steps.

   The score of group y in row x is f_y(x) = b + sum_i u_i (o_i - m_i) + sum_{i<j} (o_i - m_i)' J_ij (o_j - m_j), where
   o_i are the indicators of the non-reference levels of predictor i ("columns", D in all) and m_i their means. J
   therefore also contains the couplings of the reference gauge (tables that are 0 at reference levels), and its fields
   are h = u - sum_j J_ij m_j. Hence f_y(x) = b + shift + sum_i h_i o_i + sum_{i<j} o_i' J_ij o_j with a constant
   `shift`. The residual of a row, the derivative of its loss with respect to f_g, is weight (P(g | row) - 1[y = g]).

   Steps are gradient steps in the parameters of all levels, whose squared norm is penalised. For the parameters of the
   non-reference levels they transform the gradient g of a pair of predictors into P_i g P_j (and of a predictor into
   P_i g), with P = I + 11', times kernel_factors, the weights of fields and of couplings in this norm. The last axis of
   arrays is for the K groups; a (D, D, K) array uses [c][d] with c < d. In names, `a` and `b` are columns of the first
   and second predictor of a pair (but b by itself, with K numbers, contains the offsets).

   Nesterov's method: a parameter x with gradient g has a velocity v, the decaying sum of its past steps. A step sets v
   to momentum v - rate g, then adds momentum v - rate g, with the new v, to x. */
#ifndef CONDITIONAL_H
#define CONDITIONAL_H
#include <math.h>
#include <stddef.h>
#include "cpu.h"

typedef struct {
    ptrdiff_t D, K, m, n_pairs;               /* columns, groups, predictors, pairs of predictors */
    const ptrdiff_t *start;                   /* (m + 1) first column of each predictor */
    const ptrdiff_t *first_predictor, *second_predictor; /* (n_pairs) predictors of each pair, first < second */
    const double *means;                      /* (D) */
    double kernel_factors[2];                 /* factors of the gradients of u and of J */
    float *J, *J_velocity, *pair_sums;        /* (D, D, K); pair_sums: residuals summed over rows with both columns */
    double *u, *u_velocity, *h, *level_sums;  /* (D, K); level_sums: residuals summed over the rows with a column */
    double *b, *b_velocity, *total_sums;      /* (K); total_sums: residuals summed over all rows */
    double *shift;                            /* (K) score of the row of reference levels, minus b */
    float *rounded_sums, *h_decrease;         /* (D, K) scratch: rounded level_sums; sum_i J_ij m_i, lowers h_j */
    float *scratch;                           /* (2, K), for conditional_step_row */
} conditional_model;

/* Batch of n rows. Row k has the columns columns[row_start[k] .. row_start[k + 1]), increasing: its non-reference
   levels. An entry is a pair of a row and one of its columns. conditional_sort lists the entries by column: column d
   has the entries column_start[d] .. column_start[d + 1], each with its row (entry_row) and its index in `columns`
   (entry_index). A loop over sorted entries reads one row J[d] of the table at a time, which stays in the L1 cache. */
typedef struct {
    ptrdiff_t n;
    ptrdiff_t *columns, *row_start;                       /* (n m), (n + 1) */
    ptrdiff_t *column_start, *entry_index, *entry_row;    /* (D + 1), (n m), (n m) */
    float *values;                                        /* (n, K): sums of each row's couplings, later residuals */
    double *residual;                                     /* (n, K) */
} conditional_batch;

/* Loop over groups g; K_ is K, as a constant if the compiler should unroll the loop. */
#define CONDITIONAL_EACH_GROUP(K_) for (ptrdiff_t g = 0; g < K_; g++)

/* Sort the entries of a batch by column, by counting: write column_start, entry_index and entry_row. Rows are in
   increasing order within a column. */
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
            batch->entry_index[position] = e;
            batch->entry_row[position] = k;
        }
    /* each column_start[d] has advanced to the start of column d + 1 */
    for (ptrdiff_t d = c->D; d > 0; d--)
        batch->column_start[d] = batch->column_start[d - 1];
    batch->column_start[0] = 0;
}

/* Define a function NAME_ that visits the pairs of columns d < *other of every row of a batch, with the statements
   PAIR_ for each pair and AFTER_ after the pairs of d. `other` points to the row's columns after d. The statements use
   `sums`, copies in registers of the row's K `values`, and `cell`, the K numbers ARRAY_[d][*other] of the model's (D,
   D, K) array ARRAY_. For K_ see CONDITIONAL_EACH_GROUP. */
#define CONDITIONAL_PAIRS(NAME_, ARRAY_, PAIR_, AFTER_)                                             \
    CPU_INLINE void NAME_(const conditional_model *c, const conditional_batch *batch, ptrdiff_t K_) \
    {                                                                                               \
        for (ptrdiff_t d = 0; d < c->D; d++) {                                                      \
            float *restrict table_row = c->ARRAY_ + d * c->D * K_;                                  \
            for (ptrdiff_t e = batch->column_start[d]; e < batch->column_start[d + 1]; e++) {       \
                const ptrdiff_t k = batch->entry_row[e];                                            \
                float *restrict values = batch->values + k * K_;                                    \
                const ptrdiff_t *restrict other = batch->columns + batch->entry_index[e] + 1;       \
                const ptrdiff_t *end = batch->columns + batch->row_start[k + 1];                    \
                float sums[CONDITIONAL_MAX_UNROLLED];                                               \
                CONDITIONAL_EACH_GROUP(K_) sums[g] = values[g];                                     \
                for (; other < end; other++) {                                                      \
                    float *restrict cell = table_row + *other * K_;                                 \
                    PAIR_                                                                           \
                }                                                                                   \
                AFTER_                                                                              \
            }                                                                                       \
        }                                                                                           \
    }
#define CONDITIONAL_MAX_UNROLLED 16 /* maximum number of groups whose values fit into registers at once */
/* Add `sums` to `cell`, for PAIR_. Uses two loops: compilers vectorise them only if all loads precede the stores */
#define CONDITIONAL_ADD(K_)                                     \
    float new_cell[CONDITIONAL_MAX_UNROLLED];                   \
    CONDITIONAL_EACH_GROUP(K_) new_cell[g] = cell[g] + sums[g]; \
    CONDITIONAL_EACH_GROUP(K_) cell[g] = new_cell[g];
/* lookup: add the couplings of each row to its values, via `sums`, which AFTER_ writes back. collect: add the row's
   values, which now contain its residuals and are not changed, to pair_sums */
CONDITIONAL_PAIRS(conditional_lookup_few, J, CONDITIONAL_EACH_GROUP(K_) sums[g] += cell[g];,
                  CONDITIONAL_EACH_GROUP(K_) values[g] = sums[g];)
CONDITIONAL_PAIRS(conditional_collect_few, pair_sums, CONDITIONAL_ADD(K_), )

/* Collect if `collect`, otherwise look up, like the two functions above, for any number of groups. */
static void conditional_many_groups(const conditional_model *c, const conditional_batch *batch, int collect)
{
    const ptrdiff_t K = c->K;
    for (ptrdiff_t d = 0; d < c->D; d++) {
        float *table_row = (collect ? c->pair_sums : c->J) + d * c->D * K;
        for (ptrdiff_t e = batch->column_start[d]; e < batch->column_start[d + 1]; e++) {
            float *restrict values = batch->values + batch->entry_row[e] * K;
            for (ptrdiff_t q = batch->entry_index[e] + 1; q < batch->row_start[batch->entry_row[e] + 1]; q++) {
                float *restrict cell = table_row + batch->columns[q] * K;
                if (collect)
                    CONDITIONAL_EACH_GROUP(K) cell[g] += values[g];
                else
                    CONDITIONAL_EACH_GROUP(K) values[g] += cell[g];
            }
        }
    }
}

/* Call f (lookup or collect) with loops unrolled for common numbers of groups, otherwise conditional_many_groups */
#define CONDITIONAL_CALL(f, collect, c, batch)           \
    switch ((c)->K) {                                    \
    case 2: f(c, batch, 2); break;                       \
    case 3: f(c, batch, 3); break;                       \
    case 4: f(c, batch, 4); break;                       \
    case 5: f(c, batch, 5); break;                       \
    case 6: f(c, batch, 6); break;                       \
    case 8: f(c, batch, 8); break;                       \
    case 10: f(c, batch, 10); break;                     \
    default: conditional_many_groups(c, batch, collect); \
    }

/* Write the residuals of a batch and add them to all sums; return the weighted sum of the log-losses, ln sum_g exp(f_g)
   - f_y with the scores f.

   row_index (n) contains the indices of the batch's rows among all rows. Arrays for all rows: fixed_scores (rows, K) or
   NULL, which are added to the scores; the groups y (rows); the weights (rows), which are multiplied by weight_factor.
   c->total_sums, level_sums and pair_sums are added to; batch->residual is written. */
CPU_INLINE double conditional_residuals_of(const conditional_model *c, const conditional_batch *batch,
                                           const ptrdiff_t *row_index, const double *fixed_scores, const ptrdiff_t *y,
                                           const double *weights, double weight_factor)
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
        const ptrdiff_t row = row_index[k];
        const double weight = weights[row] * weight_factor;
        double *residual = batch->residual + k * K, largest = -INFINITY, total = 0.0, score_y;
        float *values = batch->values + k * K;  /* sums of couplings, later residuals */
        CONDITIONAL_EACH_GROUP(K)  /* `residual` first contains the scores */
            residual[g] = c->b[g] + c->shift[g] + values[g] + (fixed_scores ? fixed_scores[row * K + g] : 0.0);
        for (ptrdiff_t e = batch->row_start[k]; e < batch->row_start[k + 1]; e++)
            CONDITIONAL_EACH_GROUP(K) residual[g] += c->h[batch->columns[e] * K + g];
        CONDITIONAL_EACH_GROUP(K) largest = residual[g] > largest ? residual[g] : largest;
        score_y = residual[y[row]] - largest;
        CONDITIONAL_EACH_GROUP(K) total += residual[g] = exp(residual[g] - largest);  /* exponentials replace scores */
        CONDITIONAL_EACH_GROUP(K) residual[g] *= weight / total;
        residual[y[row]] -= weight;
        loss += weight * (log(total) - score_y);
        CONDITIONAL_EACH_GROUP(K) {
            c->total_sums[g] += residual[g];
            values[g] = (float)residual[g];
        }
        for (ptrdiff_t e = batch->row_start[k]; e < batch->row_start[k + 1]; e++)
            CONDITIONAL_EACH_GROUP(K) c->level_sums[batch->columns[e] * K + g] += residual[g];
    }
    if (c->n_pairs)
        CONDITIONAL_CALL(conditional_collect_few, 1, c, batch);
    return loss;
}

/* Return x after a step of Nesterov's method from x, where the gradient was computed; update the velocity. */
static inline double conditional_move(double x, double *velocity, double gradient, double rate, double momentum)
{
    *velocity = momentum * *velocity - rate * gradient;
    return x + momentum * *velocity - rate * gradient;
}

/* Replace the pair sums of predictors (i, j), in place, by sums over products of centred indicators, the gradient g of
   J_ij, then by P_i g P_j; scratch (K) is for sums over columns. Predictor i has the columns a0 ... a1 - 1, and j the
   columns b0 ... b1 - 1. */
CPU_INLINE void conditional_transform_pair_sums(const conditional_model *c, ptrdiff_t i, ptrdiff_t j,
                                           double *restrict scratch)
{
    const ptrdiff_t K = c->K, D = c->D, a0 = c->start[i], a1 = c->start[i + 1], b0 = c->start[j], b1 = c->start[j + 1];
    const double *restrict m = c->means; /* not c->m, the number of predictors */
    for (ptrdiff_t a = a0; a < a1; a++) {
        CONDITIONAL_EACH_GROUP(K) scratch[g] = 0.0;
        for (ptrdiff_t b = b0; b < b1; b++) {
            float *restrict sums = c->pair_sums + (a * D + b) * K;
            CONDITIONAL_EACH_GROUP(K) {
                /* sum over rows of (o_a - m_a) (o_b - m_b) times the residual */
                sums[g] += (float)(c->total_sums[g] * m[a] * m[b] - c->level_sums[a * K + g] * m[b]
                                   - c->level_sums[b * K + g] * m[a]);
                scratch[g] += sums[g];
            }
        }
        for (ptrdiff_t b = b0; b < b1; b++) /* g P_j: add the sum over columns b to each */
            CONDITIONAL_EACH_GROUP(K) c->pair_sums[(a * D + b) * K + g] += (float)scratch[g];
    }
    for (ptrdiff_t b = b0; b < b1; b++) { /* P_i (g P_j): add the sum over columns a to each */
        CONDITIONAL_EACH_GROUP(K) scratch[g] = 0.0;
        for (ptrdiff_t a = a0; a < a1; a++)
            CONDITIONAL_EACH_GROUP(K) scratch[g] += c->pair_sums[(a * D + b) * K + g];
        for (ptrdiff_t a = a0; a < a1; a++)
            CONDITIONAL_EACH_GROUP(K) c->pair_sums[(a * D + b) * K + g] += (float)scratch[g];
    }
}

/* Step for the couplings J[a][b0 .. b1), in single precision like J; clear their pair sums.

   h_a and shift are updated for the new couplings; J_ab m_a, the required decrease of h_b, is added to h_decrease.
   is_binary means that both predictors have two levels: pair sums are then centred here, and P_i g P_j = 4 g.
   `centring` contains the factor of m_b in the centred sums (see conditional_transform_pair_sums), or 0 if not
   is_binary. */
CPU_INLINE void conditional_step_row(const conditional_model *c, ptrdiff_t a, ptrdiff_t b0, ptrdiff_t b1, int is_binary,
                                     ptrdiff_t K_, double rate_, double momentum_, double ridge_)
{
    const float rate = (float)rate_, momentum = (float)momentum_, ridge = (float)ridge_, mean_a = (float)c->means[a];
    /* 4: P_i = P_j = 2, with one column each */
    const float factor = (float)(is_binary ? 4.0 * c->kernel_factors[1] : c->kernel_factors[1]);
    const ptrdiff_t offset = (a * c->D + b0) * K_;
    float *restrict J = c->J + offset, *restrict velocity = c->J_velocity + offset,
          *restrict sums = c->pair_sums + offset;
    float *restrict centring = c->scratch, *restrict h_a_decrease = c->scratch + K_;
    const float *restrict rounded_sums_b = c->rounded_sums + b0 * K_;
    float *restrict h_b_decrease = c->h_decrease + b0 * K_;
    CONDITIONAL_EACH_GROUP(K_) {
        centring[g] = is_binary ? (float)(c->total_sums[g] * c->means[a] - c->level_sums[a * K_ + g]) : 0.0f;
        h_a_decrease[g] = 0.0f;
    }
    for (ptrdiff_t b = b0; b < b1; b++) {
        const float mean_b = (float)c->means[b];
        for (ptrdiff_t g0 = 0; g0 < K_; g0 += CONDITIONAL_MAX_UNROLLED) {  /* groups that fit into registers at once */
            const ptrdiff_t n_groups = K_ - g0 < CONDITIONAL_MAX_UNROLLED ? K_ - g0 : CONDITIONAL_MAX_UNROLLED;
            float new_velocity[CONDITIONAL_MAX_UNROLLED], new_J[CONDITIONAL_MAX_UNROLLED];
            float new_a_decrease[CONDITIONAL_MAX_UNROLLED], new_b_decrease[CONDITIONAL_MAX_UNROLLED];
            CONDITIONAL_EACH_GROUP(n_groups) {
                const ptrdiff_t k = g0 + g;
                const float sum = is_binary ? sums[k] + centring[k] * mean_b - rounded_sums_b[k] * mean_a : sums[k];
                const float gradient = factor * sum + ridge * J[k];
                new_velocity[g] = momentum * velocity[k] - rate * gradient;
                new_J[g] = J[k] + momentum * new_velocity[g] - rate * gradient;
                new_a_decrease[g] = h_a_decrease[k] + new_J[g] * mean_b;
                new_b_decrease[g] = h_b_decrease[k] + new_J[g] * mean_a;
            }
            CONDITIONAL_EACH_GROUP(n_groups) velocity[g0 + g] = new_velocity[g];
            CONDITIONAL_EACH_GROUP(n_groups) J[g0 + g] = new_J[g];
            CONDITIONAL_EACH_GROUP(n_groups) sums[g0 + g] = 0.0f;
            CONDITIONAL_EACH_GROUP(n_groups) h_a_decrease[g0 + g] = new_a_decrease[g];
            CONDITIONAL_EACH_GROUP(n_groups) h_b_decrease[g0 + g] = new_b_decrease[g];
        }
        J += K_, velocity += K_, sums += K_, rounded_sums_b += K_, h_b_decrease += K_;  /* the next column b */
    }
    CONDITIONAL_EACH_GROUP(K_) {
        c->h[a * K_ + g] -= h_a_decrease[g];
        c->shift[g] += c->means[a] * h_a_decrease[g]; /* the constant sum_{i<j} m_i' J_ij m_j of centred products */
    }
}

/* Step for all couplings, which also reduces the fields h by sum_j J_ij m_j; scratch is (K). Pairs p .. q - 1 of binary
   predictors with the same first and consecutive second predictors are adjacent columns and are updated together. */
CPU_INLINE void conditional_step_pairs(const conditional_model *c, ptrdiff_t K_, double rate, double momentum,
                                       double ridge, double *scratch)
{
    /* predictors of pair p: i[p] and j[p]; a predictor with a single column is binary */
    const ptrdiff_t *start = c->start, *i = c->first_predictor, *j = c->second_predictor;
    for (ptrdiff_t k = 0; k < c->D * K_; k++) {
        c->rounded_sums[k] = (float)c->level_sums[k];
        c->h_decrease[k] = 0.0f;
    }
    for (ptrdiff_t p = 0, q; p < c->n_pairs; p = q) {
        const int is_binary = start[i[p] + 1] - start[i[p]] == 1 && start[j[p] + 1] - start[j[p]] == 1;
        q = p + 1;
        if (is_binary)
            while (q < c->n_pairs && i[q] == i[p] && j[q] == j[q - 1] + 1 && start[j[q] + 1] - start[j[q]] == 1)
                q++;
        else
            conditional_transform_pair_sums(c, i[p], j[p], scratch);
        for (ptrdiff_t a = start[i[p]]; a < start[i[p] + 1]; a++)
            if (is_binary)
                conditional_step_row(c, a, start[j[p]], start[j[q - 1] + 1], 1, K_, rate, momentum, ridge);
            else
                conditional_step_row(c, a, start[j[p]], start[j[p] + 1], 0, K_, rate, momentum, ridge);
    }
    for (ptrdiff_t k = 0; k < c->D * K_; k++)
        c->h[k] -= c->h_decrease[k];
}

/* Move all parameters by one step of Nesterov's method, with the gradient from the sums of a batch; clear the sums.

   scratch is (K); ridge is the penalty of u and J, which adds ridge x to the gradient of x. First set h = u and shift =
   -sum_i u_i m_i; conditional_step_pairs then adds the terms of J. */
CPU_INLINE void conditional_step_of(const conditional_model *c, double rate, double momentum, double ridge,
                                    double *scratch)
{
    const ptrdiff_t K = c->K;
    CONDITIONAL_EACH_GROUP(K) {
        c->b[g] = conditional_move(c->b[g], &c->b_velocity[g], c->total_sums[g], rate, momentum);
        c->shift[g] = 0.0;
    }
    for (ptrdiff_t i = 0; i < c->m; i++)
        CONDITIONAL_EACH_GROUP(K) {
            double centred_sum = 0.0;  /* sum of the gradients over all columns of i: P g adds it to each */
            for (ptrdiff_t a = c->start[i]; a < c->start[i + 1]; a++)
                centred_sum += c->level_sums[a * K + g] - c->total_sums[g] * c->means[a];
            for (ptrdiff_t a = c->start[i]; a < c->start[i + 1]; a++) {
                const ptrdiff_t index = a * K + g;
                const double centred = c->level_sums[index] - c->total_sums[g] * c->means[a];
                const double gradient = c->kernel_factors[0] * (centred + centred_sum) + ridge * c->u[index];
                c->u[index] = conditional_move(c->u[index], &c->u_velocity[index], gradient, rate, momentum);
                c->h[index] = c->u[index];
                c->shift[g] -= c->u[index] * c->means[a];
            }
        }
    switch (K) { /* K is constant in the most common cases, so that the compiler unrolls loops over groups */
    case 2: conditional_step_pairs(c, 2, rate, momentum, ridge, scratch); break;
    case 3: conditional_step_pairs(c, 3, rate, momentum, ridge, scratch); break;
    case 10: conditional_step_pairs(c, 10, rate, momentum, ridge, scratch); break;
    default: conditional_step_pairs(c, K, rate, momentum, ridge, scratch);
    }
    for (ptrdiff_t k = 0; k < c->D * K; k++)
        c->level_sums[k] = 0.0;
    CONDITIONAL_EACH_GROUP(K) c->total_sums[g] = 0.0;
}

/* Define conditional_residuals_of and conditional_step_of for one vector width, with the function attribute TARGET and
   names that end in SUFFIX. */
#define CONDITIONAL_WIDTH(SUFFIX, TARGET)                                                                  \
    TARGET static double conditional_residuals_##SUFFIX(                                                   \
        const conditional_model *c, const conditional_batch *batch, const ptrdiff_t *row_index,            \
        const double *fixed_scores, const ptrdiff_t *y, const double *weights, double weight_factor)       \
    {                                                                                                      \
        return conditional_residuals_of(c, batch, row_index, fixed_scores, y, weights, weight_factor);     \
    }                                                                                                      \
    TARGET static void conditional_step_##SUFFIX(const conditional_model *c, double rate, double momentum, \
                                                 double ridge, double *scratch)                            \
    {                                                                                                      \
        conditional_step_of(c, rate, momentum, ridge, scratch);                                            \
    }
CONDITIONAL_WIDTH(plain, )
#ifdef CPU_X86
CONDITIONAL_WIDTH(32_bytes, CPU_32_BYTES)
#endif

/* Call conditional_residuals_of for vectors of 32 bytes (the widest compiled here) if this processor supports them;
   return the weighted log-loss. */
static double conditional_residuals(const conditional_model *c, const conditional_batch *batch,
                                    const ptrdiff_t *row_index, const double *fixed_scores, const ptrdiff_t *y,
                                    const double *weights, double weight_factor)
{
#ifdef CPU_X86
    if (cpu_runs(32))
        return conditional_residuals_32_bytes(c, batch, row_index, fixed_scores, y, weights, weight_factor);
#endif
    return conditional_residuals_plain(c, batch, row_index, fixed_scores, y, weights, weight_factor);
}

/* Call conditional_step_of for vectors of 32 bytes if this processor supports them. */
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
