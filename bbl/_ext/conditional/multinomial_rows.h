/* The loss and its gradient for one vector width; multinomial.h includes this file once for each width.

   Before inclusion define LANES, TARGET (the attribute of functions for the vector width) and NAME(x) (their prefix),
   as for vector.h. A `vec` contains the numbers of LANES rows. For other names see multinomial.h. */

#include "vector.h"
#include "vector_math.h"

/* Return the dot product of a and b (size). Four partial sums allow additions to overlap. */
TARGET static double NAME(dot)(ptrdiff_t size, const double *restrict a, const double *restrict b)
{
    vec parts[4] = {vec_fill(0.0), vec_fill(0.0), vec_fill(0.0), vec_fill(0.0)}, all;
    double lanes[LANES], sum = 0.0;
    ptrdiff_t k = 0;
    for (; k + 4 * LANES <= size; k += 4 * LANES)
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

/* Replace the scores F A of a panel by residuals, in place, and return its log-loss, the sum of -group_weights ln P(g |
   row).

   `residuals` (K, panel_rows) contains F A on entry, row_weight P(g | row) - group_weights on return. `cell` points to
   the numbers of group g for the LANES rows from k on. */
TARGET static double NAME(to_residuals)(ptrdiff_t K, ptrdiff_t panel_rows, const double *fixed_scores,
                                        double temperature, const double *b, const double *group_weights,
                                        const double *row_weight, double *residuals)
{
    double lane_loss[LANES], sum = 0.0;
    vec loss = vec_fill(0.0);
    ptrdiff_t k, g;
    for (k = 0; k < panel_rows; k += LANES) {
        vec largest = vec_fill(-INFINITY), total = vec_fill(0.0), observed_score = vec_fill(0.0), scale;
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * panel_rows + k;
            const vec fitted = vec_load(cell) + b[g];
            const vec score =
                fixed_scores ? fitted + temperature * vec_load(fixed_scores + g * panel_rows + k) : fitted;
            vec_store(cell, score);
            largest = NAME(larger)(score, largest);
        }
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * panel_rows + k;
            const vec shifted = vec_load(cell) - largest, exps = NAME(exp)(shifted);
            /* sum over groups: weight x score */
            observed_score += vec_load(group_weights + g * panel_rows + k) * shifted;
            total += exps;
            vec_store(cell, exps);
        }
        loss += vec_load(row_weight + k) * NAME(log)(total) - observed_score;
        scale = vec_load(row_weight + k) / total;
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * panel_rows + k;
            vec_store(cell, vec_load(cell) * scale - vec_load(group_weights + g * panel_rows + k));
        }
    }
    memcpy(lane_loss, &loss, sizeof loss);
    for (k = 0; k < LANES; k++)
        sum += lane_loss[k];
    return sum;
}

/* Return the log-loss at A (K, r), the offsets b (K) and the temperature; write its gradient with respect to A (K, r),
   b (K) and ln T (1, after b).

   Panels are processed BLOCK at a time, so that their functions stay in the cache until their residuals are known.
   `rounded` and `rounded_A` are in the precision of the products; `number_bytes` is the size of their numbers. */
TARGET static double NAME(loss)(const struct multinomial_rows *rows, const double *A, const double *b,
                                double temperature, double *gradient_A, double *gradient_b)
{
    const struct multinomial_products *products = &rows->products;
    const ptrdiff_t K = rows->K, r = rows->r, number_bytes = products->number_bytes;
    const ptrdiff_t panel_rows = PANEL_BYTES / number_bytes;
    const char *functions = rows->functions;
    double sum = 0.0;
    ptrdiff_t first, panel, f, g, k;
    memset(rows->sums, 0, (size_t)(K * r * MAX_VECTOR_BYTES));
    products->round_to(K * r, A, rows->rounded_A);
    for (g = 0; g < K + 1; g++)
        gradient_b[g] = 0.0;
    for (first = 0; first < rows->n_panels; first += BLOCK) {
        const ptrdiff_t last = first + BLOCK < rows->n_panels ? first + BLOCK : rows->n_panels;
        for (panel = first; panel < last; panel++) {
            const ptrdiff_t at = panel * K * panel_rows; /* position of the panel's numbers (K, panel_rows) */
            const double *fixed_scores = rows->fixed_scores ? rows->fixed_scores + at : NULL;
            double *residuals = rows->residuals;
            if (rows->is_empty[panel])
                continue;
            products->multiply(K, r, functions + panel * r * PANEL_BYTES, rows->rounded_A, residuals);
            sum += NAME(to_residuals)(K, panel_rows, fixed_scores, temperature, b, rows->group_weights + at,
                                      rows->row_weight + panel * panel_rows, residuals);
            for (g = 0; g < K; g++)
                for (k = 0; k < panel_rows; k++)
                    gradient_b[g] += residuals[g * panel_rows + k];
            if (fixed_scores)
                gradient_b[K] += temperature * NAME(dot)(K * panel_rows, residuals, fixed_scores);
            products->round_to(K * panel_rows, residuals, rows->rounded + (panel - first) * K * PANEL_BYTES);
        }
        for (f = 0; f < r; f += FUNCTIONS)
            for (panel = first; panel < last; panel++)
                if (!rows->is_empty[panel])
                    products->add_gradient(K, r, f, r - f < FUNCTIONS ? r - f : FUNCTIONS,
                                           functions + panel * r * PANEL_BYTES,
                                           rows->rounded + (panel - first) * K * PANEL_BYTES, rows->sums);
    }
    products->add_lanes(K * r, rows->sums, gradient_A);
    return sum;
}

/* Write the L-BFGS direction, minus the approximate inverse Hessian times the gradient, to out (size): the two-loop
   recursion over n_pairs curvature pairs, from the newest to the oldest and back.

   A curvature pair is a row of `moves`, a step of the unknowns, and the same row of `gradient_changes`, the change of
   the gradient along it. Both are (capacity, size) and used as ring buffers; `newest` is the row written last.
   inverse_curvature (capacity) contains 1 / (move . gradient change) for each pair. alpha (capacity) is scratch. */
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
static const struct multinomial_functions NAME(functions) = {NAME(loss), NAME(dot), NAME(direction),
                                                             NAME(double_products), NAME(single_products)};

/* including the two headers again undefines their names for the next width */
#include "vector_math.h"
#include "vector.h"
