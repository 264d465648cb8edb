/* The loss and its gradient for one vector width; multinomial.h includes this file once for each width.

   Before inclusion define LANES, TARGET (the attribute of functions for the vector width) and NAME(x) (their prefix),
   as vector.h asks. A `vec` holds the numbers of LANES rows. The other names are those of multinomial.h. */

#include "vector.h"
#include "vector_math.h"

#define TILE (4 * LANES)              /* rows that are multiplied at once */
#define GROUPS (LANES == 8 ? 4 : 2)   /* and groups: the sums of a tile fill half of the registers */
#define UNROLLED TARGET CPU_INLINE    /* compiled for each number of groups, which is a constant */

/* Return the dot product of a and b (size). Four partial sums let additions overlap. */
TARGET static double NAME(dot)(ptrdiff_t size, const double *restrict a, const double *restrict b)
{
    vec parts[4] = {vec_fill(0.0), vec_fill(0.0), vec_fill(0.0), vec_fill(0.0)}, all;
    double lanes[LANES], sum = 0.0;
    ptrdiff_t k = 0;
    for (; k + TILE <= size; k += TILE)
        for (int v = 0; v < 4; v++)
            parts[v] += vec_load(a + k + v * LANES) * vec_load(b + k + v * LANES);
    for (; k < size; k++)
        sum += a[k] * b[k];
    all = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    memcpy(lanes, &all, sizeof all);
    for (k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* Write the products F A of G groups at the rows of a panel to `scores` (G, PANEL); F (r, PANEL), A (G, r). */
UNROLLED void NAME(multiply_groups)(const int G, ptrdiff_t r, const double *F, const double *A, double *scores)
{
    for (ptrdiff_t t = 0; t < PANEL; t += TILE) {
        vec sum[GROUPS][4];
        for (int g = 0; g < G; g++)
            for (int v = 0; v < 4; v++)
                sum[g][v] = vec_fill(0.0);
        for (ptrdiff_t f = 0; f < r; f++) {
            const double *value = F + f * PANEL + t;
            for (int g = 0; g < G; g++)
                for (int v = 0; v < 4; v++)
                    sum[g][v] += vec_load(value + v * LANES) * A[g * r + f];
        }
        for (int g = 0; g < G; g++)
            for (int v = 0; v < 4; v++)
                vec_store(scores + g * PANEL + t + v * LANES, sum[g][v]);
    }
}

/* Add the products of functions and residuals (G, PANEL) of G groups to `sums` (G, r, LANES), which stay apart for the
   lanes, for `count` functions from `first` on. */
UNROLLED void NAME(add_gradient_of_groups)(const int G, ptrdiff_t r, ptrdiff_t first, ptrdiff_t count, const double *F,
                                           const double *residuals, double *sums)
{
    for (ptrdiff_t t = 0; t < PANEL; t += TILE) {
        vec residual[GROUPS][4];
        for (int g = 0; g < G; g++)
            for (int v = 0; v < 4; v++)
                residual[g][v] = vec_load(residuals + g * PANEL + t + v * LANES);
        for (ptrdiff_t f = first; f < first + count; f++) {
            const double *value = F + f * PANEL + t;
            for (int g = 0; g < G; g++) {
                double *sum = sums + (g * r + f) * LANES;
                const vec low = vec_load(value) * residual[g][0] + vec_load(value + LANES) * residual[g][1];
                const vec high = vec_load(value + 2 * LANES) * residual[g][2] +
                    vec_load(value + 3 * LANES) * residual[g][3];
                vec_store(sum, vec_load(sum) + (low + high));
            }
        }
    }
}

/* Write F A for all groups at the rows of a panel to `scores` (K, PANEL); F (r, PANEL), A (K, r). */
TARGET static void NAME(multiply)(ptrdiff_t K, ptrdiff_t r, const double *F, const double *A, double *scores)
{
    for (ptrdiff_t g = 0; g < K; g += GROUPS)
        switch (K - g < GROUPS ? K - g : GROUPS) {
        case 1: NAME(multiply_groups)(1, r, F, A + g * r, scores + g * PANEL); break;
        case 2: NAME(multiply_groups)(2, r, F, A + g * r, scores + g * PANEL); break;
#if GROUPS == 4
        case 3: NAME(multiply_groups)(3, r, F, A + g * r, scores + g * PANEL); break;
        case 4: NAME(multiply_groups)(4, r, F, A + g * r, scores + g * PANEL); break;
#endif
        }
}

/* Add the products of functions and residuals (K, PANEL) of all groups to `sums` (K, r, LANES), for `count` functions
   from `first` on. */
TARGET static void NAME(add_gradient)(ptrdiff_t K, ptrdiff_t r, ptrdiff_t first, ptrdiff_t count, const double *F,
                                      const double *residuals, double *sums)
{
    for (ptrdiff_t g = 0; g < K; g += GROUPS) {
        const double *own = residuals + g * PANEL;
        double *to = sums + g * r * LANES;
        switch (K - g < GROUPS ? K - g : GROUPS) {
        case 1: NAME(add_gradient_of_groups)(1, r, first, count, F, own, to); break;
        case 2: NAME(add_gradient_of_groups)(2, r, first, count, F, own, to); break;
#if GROUPS == 4
        case 3: NAME(add_gradient_of_groups)(3, r, first, count, F, own, to); break;
        case 4: NAME(add_gradient_of_groups)(4, r, first, count, F, own, to); break;
#endif
        }
    }
}

/* Turn the scores F A of a panel into residuals, in place, and return its log-loss, the sum of -group_weights
   ln P(g | row).

   `residuals` (K, PANEL) are F A on entry, row_weight P(g | row) - group_weights on return. `cell` points to the numbers
   of group g for the LANES rows from k on. */
TARGET static double NAME(to_residuals)(ptrdiff_t K, const double *fixed_scores, double temperature, const double *b,
                                        const double *group_weights, const double *row_weight, double *residuals)
{
    double lane_loss[LANES], sum = 0.0;
    vec loss = vec_fill(0.0);
    ptrdiff_t k, g;
    for (k = 0; k < PANEL; k += LANES) {
        vec largest = vec_fill(-INFINITY), total = vec_fill(0.0), observed_score = vec_fill(0.0), scale;
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * PANEL + k;
            const vec fitted = vec_load(cell) + b[g];
            const vec score = fixed_scores ? fitted + temperature * vec_load(fixed_scores + g * PANEL + k) : fitted;
            vec_store(cell, score);
            largest = NAME(larger)(score, largest);
        }
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * PANEL + k;
            const vec shifted = vec_load(cell) - largest, exps = NAME(exp)(shifted);
            observed_score += vec_load(group_weights + g * PANEL + k) * shifted; /* sum over groups: weight x score */
            total += exps;
            vec_store(cell, exps);
        }
        loss += vec_load(row_weight + k) * NAME(log)(total) - observed_score;
        scale = vec_load(row_weight + k) / total;
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * PANEL + k;
            vec_store(cell, vec_load(cell) * scale - vec_load(group_weights + g * PANEL + k));
        }
    }
    memcpy(lane_loss, &loss, sizeof loss);
    for (k = 0; k < LANES; k++)
        sum += lane_loss[k];
    return sum;
}

/* Return the log-loss at A (K, r), the offsets b (K) and the temperature, and write its gradient by A (K, r), b (K) and
   ln T (1, after b).

   Panels are taken BLOCK at a time, whose functions stay in the cache until their residuals are known. */
TARGET static double NAME(loss)(const struct multinomial_rows *rows, const double *A, const double *b,
                                double temperature, double *gradient_A, double *gradient_b)
{
    const ptrdiff_t K = rows->K, r = rows->r;
    double sum = 0.0;
    ptrdiff_t first, panel, f, g, k;
    for (f = 0; f < K * r * LANES; f++)
        rows->sums[f] = 0.0;
    for (g = 0; g < K + 1; g++)
        gradient_b[g] = 0.0;
    for (first = 0; first < rows->n_panels; first += BLOCK) {
        const ptrdiff_t last = first + BLOCK < rows->n_panels ? first + BLOCK : rows->n_panels;
        for (panel = first; panel < last; panel++) {
            const ptrdiff_t at = panel * K * PANEL; /* of the panel's numbers (K, PANEL) */
            const double *fixed_scores = rows->fixed_scores ? rows->fixed_scores + at : NULL;
            double *residuals = rows->residuals + (panel - first) * K * PANEL;
            if (rows->is_empty[panel])
                continue;
            NAME(multiply)(K, r, rows->functions + panel * r * PANEL, A, residuals);
            sum += NAME(to_residuals)(K, fixed_scores, temperature, b, rows->group_weights + at,
                                      rows->row_weight + panel * PANEL, residuals);
            for (g = 0; g < K; g++)
                for (k = 0; k < PANEL; k++)
                    gradient_b[g] += residuals[g * PANEL + k];
            if (fixed_scores)
                gradient_b[K] += temperature * NAME(dot)(K * PANEL, residuals, fixed_scores);
        }
        for (f = 0; f < r; f += FUNCTIONS)
            for (panel = first; panel < last; panel++)
                if (!rows->is_empty[panel])
                    NAME(add_gradient)(K, r, f, r - f < FUNCTIONS ? r - f : FUNCTIONS,
                                       rows->functions + panel * r * PANEL,
                                       rows->residuals + (panel - first) * K * PANEL, rows->sums);
    }
    for (f = 0; f < K * r; f++) {
        gradient_A[f] = 0.0;
        for (k = 0; k < LANES; k++)
            gradient_A[f] += rows->sums[f * LANES + k];
    }
    return sum;
}

/* Write the L-BFGS direction, minus the approximate inverse Hessian times the gradient, to out (size): the two-loop
   recursion over n_pairs curvature pairs, from the newest to the oldest and back.

   A curvature pair is a row of `moves`, a step of the unknowns, with the same row of `gradient_changes`, the change of
   the gradient along it. Both are (capacity, size) and used as rings, in which row `newest` was written last.
   inverse_curvature (capacity) holds 1 / (move . gradient change) of each pair. alpha (capacity) is scratch. */
TARGET static void NAME(direction)(ptrdiff_t size, ptrdiff_t capacity, ptrdiff_t n_pairs, ptrdiff_t newest,
                                   const double *moves, const double *gradient_changes,
                                   const double *inverse_curvature, const double *gradient, double *restrict alpha,
                                   double *restrict out)
{
    for (ptrdiff_t k = 0; k < size; k++)
        out[k] = -gradient[k];
    for (ptrdiff_t age = 0; age < n_pairs; age++) {
        const ptrdiff_t p = (newest - age + capacity) % capacity;
        alpha[p] = inverse_curvature[p] * NAME(dot)(size, moves + p * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] -= alpha[p] * gradient_changes[p * size + k];
    }
    if (n_pairs) {
        const double *newest_change = gradient_changes + newest * size;
        const double scale = 1.0 / (inverse_curvature[newest] * NAME(dot)(size, newest_change, newest_change));
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] *= scale;
    }
    for (ptrdiff_t age = n_pairs - 1; age >= 0; age--) {
        const ptrdiff_t p = (newest - age + capacity) % capacity;
        const double correction =
            alpha[p] - inverse_curvature[p] * NAME(dot)(size, gradient_changes + p * size, out);
        for (ptrdiff_t k = 0; k < size; k++)
            out[k] += correction * moves[p * size + k];
    }
}
static const struct multinomial_functions NAME(functions) = {NAME(loss), NAME(dot), NAME(direction)};

#undef TILE
#undef GROUPS
#undef UNROLLED
/* included again, the two headers undefine their names, for the next width */
#include "vector_math.h"
#include "vector.h"
