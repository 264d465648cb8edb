/* Models in simplex coding: coefficients to tables over all levels and to the energies of all states, and the
   transposed maps, which turn gradients and counts back. */
#ifndef BBL_SIMPLEX_H
#define BBL_SIMPLEX_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Coefficients phi (d): those of the contrasts of each predictor, L - 1 each, then those of the pairs (i, j) of
   predictors, (L_i - 1, L_j - 1) each in C order. V_i (L_i, L_i) = [1 | C_i] has a row for each level: a one, then the
   level's contrasts. A tensor is an array over all states, shape (L_1, ..., L_m) in C order. */
typedef struct {
    ptrdiff_t m, d, n_pairs;        /* predictors, coefficients, pairs of predictors that interact */
    ptrdiff_t levels;               /* number of levels of all predictors together */
    ptrdiff_t states;               /* number of states, the product of the L_i; 0 if states are not enumerated */
    const int32_t *L;               /* (m) number of levels */
    const ptrdiff_t *first;         /* (m) index of a predictor's first level among all */
    const ptrdiff_t *start;         /* (m + 1) index of a predictor's first coefficient */
    const ptrdiff_t *pairs;         /* (n_pairs, 2) */
    const ptrdiff_t *pair_start;    /* (n_pairs + 1) index of a pair's first coefficient */
    const ptrdiff_t *v_start;       /* (m) index of a predictor's V */
    const double *V;
    const ptrdiff_t *place;         /* (d) cell of each coefficient in the tensor to which every V_i is applied */
} simplex_model;

/* Return the dot product, in four partial sums that the compiler can vectorise. */
static inline double simplex_dot(const double *a, const double *b, ptrdiff_t n)
{
    double total[4] = {0.0, 0.0, 0.0, 0.0};
    ptrdiff_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int l = 0; l < 4; l++) total[l] += a[k + l] * b[k + l];
    for (; k < n; k++) total[0] += a[k] * b[k];
    return (total[0] + total[1]) + (total[2] + total[3]);
}

/* Multiply every axis i of the tensor by V_i, or by its transpose, in place; spare (states) is scratch. */
static void simplex_transform(const simplex_model *s, double *tensor, double *spare, int transposed)
{
    ptrdiff_t inner = s->states, outer = 1;
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const ptrdiff_t L = s->L[i];
        const double *V = s->V + s->v_start[i];
        inner /= L;
        memcpy(spare, tensor, (size_t)s->states * sizeof(double));
        for (ptrdiff_t block = 0; block < outer; block++) {
            double *product = tensor + block * L * inner;
            const double *factor = spare + block * L * inner;
            for (ptrdiff_t a = 0; a < L; a++) {
                double V_ak = transposed ? V[a] : V[a * L];
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

/* Write the probabilities of all states to tensor_out (states) and return ln Z; spare (states) is scratch. */
static double simplex_probabilities(const simplex_model *s, const double *phi, double *tensor_out, double *spare)
{
    double largest = -INFINITY, total = 0.0;
    memset(tensor_out, 0, (size_t)s->states * sizeof(double));
    for (ptrdiff_t k = 0; k < s->d; k++) tensor_out[s->place[k]] = phi[k];
    simplex_transform(s, tensor_out, spare, 0);
    for (ptrdiff_t x = 0; x < s->states; x++) largest = tensor_out[x] > largest ? tensor_out[x] : largest;
    for (ptrdiff_t x = 0; x < s->states; x++) {
        tensor_out[x] = exp(tensor_out[x] - largest);
        total += tensor_out[x];
    }
    for (ptrdiff_t x = 0; x < s->states; x++) tensor_out[x] /= total;
    return largest + log(total);
}

/* Write the sums of the contrasts of states weighted by `tensor` to sums_out (d); tensor and spare are overwritten. */
static void simplex_sums(const simplex_model *s, double *tensor, double *spare, double *sums_out)
{
    simplex_transform(s, tensor, spare, 1);
    for (ptrdiff_t k = 0; k < s->d; k++) sums_out[k] = tensor[s->place[k]];
}

/* Write fields h_out (levels) and symmetric couplings J_out (levels, levels) over all levels; other pairs are left. */
static void simplex_tables(const simplex_model *s, const double *phi, double *h_out, double *J_out)
{
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const ptrdiff_t L = s->L[i];
        const double *b = phi + s->start[i];
        for (ptrdiff_t a = 0; a < L; a++) {
            const double *v = s->V + s->v_start[i] + a * L + 1;
            double value = 0.0;
            for (ptrdiff_t k = 0; k < L - 1; k++) value += v[k] * b[k];
            h_out[s->first[i] + a] = value;
        }
    }
    for (ptrdiff_t p = 0; p < s->n_pairs; p++) {
        const ptrdiff_t i = s->pairs[2 * p], j = s->pairs[2 * p + 1], Li = s->L[i], Lj = s->L[j];
        const double *B = phi + s->pair_start[p];
        for (ptrdiff_t a = 0; a < Li; a++) {
            const double *v = s->V + s->v_start[i] + a * Li + 1;
            for (ptrdiff_t b = 0; b < Lj; b++) {
                const double *w = s->V + s->v_start[j] + b * Lj + 1;
                double value = 0.0;
                for (ptrdiff_t k = 0; k < Li - 1; k++)
                    for (ptrdiff_t l = 0; l < Lj - 1; l++) value += v[k] * B[k * (Lj - 1) + l] * w[l];
                J_out[(s->first[i] + a) * s->levels + s->first[j] + b] = value;
                J_out[(s->first[j] + b) * s->levels + s->first[i] + a] = value;
            }
        }
    }
}

/* Turn a gradient by tables, gh (levels) and gJ (levels, levels, both halves), into one by coefficients (d). */
static void simplex_tables_transposed(const simplex_model *s, const double *gh, const double *gJ, double *gradient_out)
{
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const ptrdiff_t L = s->L[i];
        for (ptrdiff_t k = 0; k < L - 1; k++) {
            double value = 0.0;
            for (ptrdiff_t a = 0; a < L; a++) value += s->V[s->v_start[i] + a * L + 1 + k] * gh[s->first[i] + a];
            gradient_out[s->start[i] + k] = value;
        }
    }
    for (ptrdiff_t p = 0; p < s->n_pairs; p++) {
        const ptrdiff_t i = s->pairs[2 * p], j = s->pairs[2 * p + 1], Li = s->L[i], Lj = s->L[j];
        double *out = gradient_out + s->pair_start[p];
        memset(out, 0, (size_t)((Li - 1) * (Lj - 1)) * sizeof(double));
        for (ptrdiff_t a = 0; a < Li; a++) {
            const double *v = s->V + s->v_start[i] + a * Li + 1;
            for (ptrdiff_t b = 0; b < Lj; b++) {
                const double *w = s->V + s->v_start[j] + b * Lj + 1;
                const double g = gJ[(s->first[i] + a) * s->levels + s->first[j] + b]
                                 + gJ[(s->first[j] + b) * s->levels + s->first[i] + a];
                for (ptrdiff_t k = 0; k < Li - 1; k++)
                    for (ptrdiff_t l = 0; l < Lj - 1; l++) out[k * (Lj - 1) + l] += v[k] * g * w[l];
            }
        }
    }
}

/* Write the sums of the contrasts over n rows, codes (n, m), to sums_out (d); gh and gJ are scratch as above. */
static void simplex_row_sums(const simplex_model *s, const int32_t *codes, ptrdiff_t n, double *gh, double *gJ,
                             double *sums_out)
{
    memset(gh, 0, (size_t)s->levels * sizeof(double));
    memset(gJ, 0, (size_t)(s->levels * s->levels) * sizeof(double));
    for (ptrdiff_t r = 0; r < n; r++, codes += s->m) {
        for (ptrdiff_t i = 0; i < s->m; i++) gh[s->first[i] + codes[i]] += 1.0;
        for (ptrdiff_t p = 0; p < s->n_pairs; p++) {
            const ptrdiff_t i = s->pairs[2 * p], j = s->pairs[2 * p + 1];
            gJ[(s->first[i] + codes[i]) * s->levels + s->first[j] + codes[j]] += 1.0;
        }
    }
    simplex_tables_transposed(s, gh, gJ, sums_out);
}
#endif
