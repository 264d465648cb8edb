/* Models in simplex coding: maps from coefficients to tables over all levels and to the energies of all states, and the
   transposed maps from gradients with respect to tables to gradients with respect to coefficients, and from counts to
   sums of contrasts. */
#ifndef BBL_SIMPLEX_H
#define BBL_SIMPLEX_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Coefficients phi (d): L - 1 for the contrasts of each predictor, then (L_i - 1, L_j - 1) for each pair (i, j) of
   predictors, in C order. V_i (L_i, L_i) = [1 | C_i] has a row for each level: a one, then the level's contrasts. The
   rows of C_i (L_i, L_i - 1) are the corners of a regular simplex centred at 0. A tensor is an array over all states,
   shape (L_1, ..., L_m) in C order. The energies of all states are the tensor of coefficients (0 where there are none),
   multiplied by V_i along every axis i. */
typedef struct {
    ptrdiff_t m, d, n_pairs;        /* predictors, coefficients, pairs of predictors that interact */
    ptrdiff_t n_levels;             /* total number of levels of all predictors */
    ptrdiff_t n_states;             /* number of states, the product of the L_i; 0 if states are not enumerated */
    const int32_t *L;               /* (m) number of levels */
    const ptrdiff_t *level_start;   /* (m) index of a predictor's first level among all levels */
    const ptrdiff_t *start;         /* (m + 1) index of a predictor's first coefficient */
    const ptrdiff_t *pairs;         /* (n_pairs, 2) predictors i < j */
    const ptrdiff_t *pair_start;    /* (n_pairs + 1) index of a pair's first coefficient */
    const ptrdiff_t *V_start;       /* (m) index of a predictor's V_i in V */
    const double *V;                /* all V_i, one after another */
    const ptrdiff_t *cell;          /* (d) flat index of each coefficient in the tensor of coefficients */
} simplex_model;

/* Return the dot product of a and b (n), using four partial sums that the compiler can vectorise. */
static inline double simplex_dot(const double *a, const double *b, ptrdiff_t n)
{
    double total[4] = {0.0, 0.0, 0.0, 0.0};
    ptrdiff_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int l = 0; l < 4; l++) total[l] += a[k + l] * b[k + l];
    for (; k < n; k++) total[0] += a[k] * b[k];
    return (total[0] + total[1]) + (total[2] + total[3]);
}

/* The same as simplex_transform along one axis of two levels, without a copy of the tensor (outer, 2, inner). */
static inline void simplex_transform_two(const double *V, double *tensor, ptrdiff_t outer, ptrdiff_t inner,
                                         int transposed)
{
    const double V_01 = transposed ? V[2] : V[1], V_10 = transposed ? V[1] : V[2];
    for (ptrdiff_t block = 0; block < outer; block++) {
        double *restrict first = tensor + 2 * block * inner, *restrict second = first + inner;
        for (ptrdiff_t x = 0; x < inner; x++) {
            const double a = first[x], b = second[x];
            first[x] = V[0] * a + V_01 * b;
            second[x] = V_10 * a + V[3] * b;
        }
    }
}

/* Multiply the tensor by V_i, or by its transpose, along every axis i, in place; scratch is (n_states). For axis i the
   tensor is an array (outer, L, inner). */
static void simplex_transform(const simplex_model *s, double *tensor, double *scratch, int transposed)
{
    ptrdiff_t inner = s->n_states, outer = 1;
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const ptrdiff_t L = s->L[i];
        const double *V = s->V + s->V_start[i];
        inner /= L;
        if (L == 2) {
            simplex_transform_two(V, tensor, outer, inner, transposed);
            outer *= 2;
            continue;
        }
        memcpy(scratch, tensor, (size_t)s->n_states * sizeof(double));
        for (ptrdiff_t block = 0; block < outer; block++) {
            double *product = tensor + block * L * inner;
            const double *factor = scratch + block * L * inner;
            for (ptrdiff_t a = 0; a < L; a++) {
                double V_ak = transposed ? V[a] : V[a * L];
                /* k = 0 overwrites the product, other k are added */
                for (ptrdiff_t x = 0; x < inner; x++) product[a * inner + x] = V_ak * factor[x];
                for (ptrdiff_t k = 1; k < L; k++) {
                    V_ak = transposed ? V[k * L + a] : V[a * L + k];
                    for (ptrdiff_t x = 0; x < inner; x++) product[a * inner + x] += V_ak * factor[k * inner + x];
                }
            }
        }
        outer *= L;
    }
}

/* Write the probabilities exp(energy) / Z of all states at coefficients phi (d) to tensor_out (n_states), and return
   ln Z, the log of the sum of exp(energy); scratch is (n_states). */
static double simplex_probabilities(const simplex_model *s, const double *phi, double *tensor_out, double *scratch)
{
    double largest = -INFINITY, total = 0.0;
    memset(tensor_out, 0, (size_t)s->n_states * sizeof(double));
    for (ptrdiff_t k = 0; k < s->d; k++) tensor_out[s->cell[k]] = phi[k];
    simplex_transform(s, tensor_out, scratch, 0);
    for (ptrdiff_t x = 0; x < s->n_states; x++) largest = tensor_out[x] > largest ? tensor_out[x] : largest;
    for (ptrdiff_t x = 0; x < s->n_states; x++) {
        tensor_out[x] = exp(tensor_out[x] - largest);
        total += tensor_out[x];
    }
    for (ptrdiff_t x = 0; x < s->n_states; x++) tensor_out[x] /= total;
    return largest + log(total);
}

/* Write, for each coefficient, the sum of its contrast (for a pair, of the product of its two contrasts) over states
   weighted by `tensor` to sums_out (d); tensor and scratch are overwritten. */
static void simplex_sums(const simplex_model *s, double *tensor, double *scratch, double *sums_out)
{
    simplex_transform(s, tensor, scratch, 1);
    for (ptrdiff_t k = 0; k < s->d; k++) sums_out[k] = tensor[s->cell[k]];
}

/* Write fields h_out (n_levels) and symmetric couplings J_out (n_levels, n_levels) of all levels from coefficients phi
   (d): h_i = C_i b and J_ij = C_i B C_j', with the coefficients b of predictor i and B of the pair. Entries of J_out
   within a predictor and for pairs that do not interact are not changed. */
static void simplex_tables(const simplex_model *s, const double *phi, double *h_out, double *J_out)
{
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const ptrdiff_t L = s->L[i];
        const double *b = phi + s->start[i];
        for (ptrdiff_t a = 0; a < L; a++) {
            const double *v = s->V + s->V_start[i] + a * L + 1; /* contrasts of level a */
            double value = 0.0;
            for (ptrdiff_t k = 0; k < L - 1; k++) value += v[k] * b[k];
            h_out[s->level_start[i] + a] = value;
        }
    }
    for (ptrdiff_t p = 0; p < s->n_pairs; p++) {
        const ptrdiff_t i = s->pairs[2 * p], j = s->pairs[2 * p + 1], Li = s->L[i], Lj = s->L[j];
        const double *B = phi + s->pair_start[p];
        for (ptrdiff_t a = 0; a < Li; a++) {
            const double *v = s->V + s->V_start[i] + a * Li + 1;
            for (ptrdiff_t b = 0; b < Lj; b++) {
                const double *w = s->V + s->V_start[j] + b * Lj + 1;
                double value = 0.0;
                for (ptrdiff_t k = 0; k < Li - 1; k++)
                    for (ptrdiff_t l = 0; l < Lj - 1; l++) value += v[k] * B[k * (Lj - 1) + l] * w[l];
                J_out[(s->level_start[i] + a) * s->n_levels + s->level_start[j] + b] = value;
                J_out[(s->level_start[j] + b) * s->n_levels + s->level_start[i] + a] = value;
            }
        }
    }
}

/* Convert a gradient with respect to tables, h_gradient (n_levels) and J_gradient (n_levels, n_levels; both halves are
   used), to the gradient with respect to coefficients, gradient_out (d): C_i' h_gradient_i, and C_i' (J_gradient_ij +
   J_gradient_ji') C_j. */
static void simplex_tables_transposed(const simplex_model *s, const double *h_gradient, const double *J_gradient,
                                      double *gradient_out)
{
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const ptrdiff_t L = s->L[i];
        for (ptrdiff_t k = 0; k < L - 1; k++) {
            double value = 0.0;
            for (ptrdiff_t a = 0; a < L; a++)
                value += s->V[s->V_start[i] + a * L + 1 + k] * h_gradient[s->level_start[i] + a];
            gradient_out[s->start[i] + k] = value;
        }
    }
    for (ptrdiff_t p = 0; p < s->n_pairs; p++) {
        const ptrdiff_t i = s->pairs[2 * p], j = s->pairs[2 * p + 1], Li = s->L[i], Lj = s->L[j];
        double *out = gradient_out + s->pair_start[p];
        memset(out, 0, (size_t)((Li - 1) * (Lj - 1)) * sizeof(double));
        for (ptrdiff_t a = 0; a < Li; a++) {
            const double *v = s->V + s->V_start[i] + a * Li + 1;
            for (ptrdiff_t b = 0; b < Lj; b++) {
                const double *w = s->V + s->V_start[j] + b * Lj + 1;
                const double g = J_gradient[(s->level_start[i] + a) * s->n_levels + s->level_start[j] + b]
                                 + J_gradient[(s->level_start[j] + b) * s->n_levels + s->level_start[i] + a];
                for (ptrdiff_t k = 0; k < Li - 1; k++)
                    for (ptrdiff_t l = 0; l < Lj - 1; l++) out[k * (Lj - 1) + l] += v[k] * g * w[l];
            }
        }
    }
}

/* Write the sums of simplex_sums over n rows, codes (n, m), to sums_out (d); level_counts (n_levels) and pair_counts
   (n_levels, n_levels) are scratch for the counts of rows. */
static void simplex_row_sums(const simplex_model *s, const int32_t *codes, ptrdiff_t n, double *level_counts,
                             double *pair_counts, double *sums_out)
{
    memset(level_counts, 0, (size_t)s->n_levels * sizeof(double));
    memset(pair_counts, 0, (size_t)(s->n_levels * s->n_levels) * sizeof(double));
    for (ptrdiff_t r = 0; r < n; r++, codes += s->m) {
        for (ptrdiff_t i = 0; i < s->m; i++) level_counts[s->level_start[i] + codes[i]] += 1.0;
        for (ptrdiff_t p = 0; p < s->n_pairs; p++) {
            const ptrdiff_t i = s->pairs[2 * p], j = s->pairs[2 * p + 1];
            pair_counts[(s->level_start[i] + codes[i]) * s->n_levels + s->level_start[j] + codes[j]] += 1.0;
        }
    }
    simplex_tables_transposed(s, level_counts, pair_counts, sums_out);
}
#endif
