/* Residuals of rows, LANES rows at a time, for one vector width; multinomial.h includes this file once for each width.

   Before inclusion define LANES, TARGET (the attribute of functions for the vector width) and NAME(x) (their prefix),
   as vector.h asks. A `vec` holds the numbers of LANES rows. K groups g, n rows k; b (K) are offsets of the groups,
   fixed_scores (K, n) scores of another model and `temperature` their factor, group_weights (K, n) the weight of each
   group at each row, row_weight (n) its sum over groups. */

#include "vector.h"
#include "vector_math.h"

/* Turn scores into residuals, in place, and return the log-loss, the sum of -group_weights ln P(g | row).

   On entry `residuals` (K, n) holds the scores without b (K) and without temperature fixed_scores, which are added
   here; on return it holds row_weight P(g | row) - group_weights. fixed_scores may be NULL. `cell` points to the
   numbers of group g for the LANES rows from k on. */
TARGET static double NAME(to_residuals)(ptrdiff_t n, ptrdiff_t K, const double *fixed_scores, double temperature,
                                        const double *b, const double *group_weights, const double *row_weight,
                                        double *residuals)
{
    double lane_loss[LANES], sum = 0.0;
    vec loss = vec_fill(0.0);
    ptrdiff_t k, g;
    for (k = 0; k < n; k += LANES) {
        vec largest = vec_fill(-INFINITY), total = vec_fill(0.0), observed_score = vec_fill(0.0), scale;
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * n + k;
            const vec fitted = vec_load(cell) + b[g];
            const vec score = fixed_scores ? fitted + temperature * vec_load(fixed_scores + g * n + k) : fitted;
            vec_store(cell, score);
            largest = NAME(larger)(score, largest);
        }
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * n + k;
            const vec shifted = vec_load(cell) - largest, exps = NAME(exp)(shifted);
            observed_score += vec_load(group_weights + g * n + k) * shifted;  /* sum over groups of weight x score */
            total += exps;
            vec_store(cell, exps);
        }
        loss += vec_load(row_weight + k) * NAME(log)(total) - observed_score;
        scale = vec_load(row_weight + k) / total;
        for (g = 0; g < K; g++) {
            double *cell = residuals + g * n + k;
            vec_store(cell, vec_load(cell) * scale - vec_load(group_weights + g * n + k));
        }
    }
    memcpy(lane_loss, &loss, sizeof loss);
    for (k = 0; k < LANES; k++)
        sum += lane_loss[k];
    return sum;
}

/* included again, the two headers undefine their names, for the next width */
#include "vector_math.h"
#include "vector.h"
