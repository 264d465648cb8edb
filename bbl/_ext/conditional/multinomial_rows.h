/* Residuals of rows, LANES rows at a time, for one vector width; multinomial.h includes this file once for each width.

   Set before inclusion: the names that vector.h asks for. Conventions: those of multinomial.h. */

#include "vector.h"
#include "vector_math.h"

/* Replace the scores (K, n) in `residual` by row_weight P(g | row) - hits; return the log-loss, the sum of - hits ln P.

   Before, heat given_scores + b is added to the scores; given_scores may be NULL. */
TARGET static double NAME(residual)(ptrdiff_t n, ptrdiff_t K, const double *given_scores, double heat, const double *b,
                                    const double *hits, const double *row_weight, double *residual)
{
    double lane_loss[LANES], sum = 0.0;
    vec loss = vec_fill(0.0);
    ptrdiff_t k, g;
    for (k = 0; k < n; k += LANES) {
        vec largest = vec_fill(-INFINITY), total = vec_fill(0.0), hits_score = vec_fill(0.0), scale;
        for (g = 0; g < K; g++) {
            double *cell = residual + g * n + k;
            const vec fitted = vec_load(cell) + b[g];
            const vec score = given_scores ? fitted + heat * vec_load(given_scores + g * n + k) : fitted;
            vec_store(cell, score);
            largest = NAME(larger)(score, largest);
        }
        for (g = 0; g < K; g++) {
            double *cell = residual + g * n + k;
            const vec shifted = vec_load(cell) - largest, exps = NAME(exp)(shifted);
            hits_score += vec_load(hits + g * n + k) * shifted;
            total += exps;
            vec_store(cell, exps);
        }
        loss += vec_load(row_weight + k) * NAME(log)(total) - hits_score;
        scale = vec_load(row_weight + k) / total;
        for (g = 0; g < K; g++) {
            double *cell = residual + g * n + k;
            vec_store(cell, vec_load(cell) * scale - vec_load(hits + g * n + k));
        }
    }
    memcpy(lane_loss, &loss, sizeof loss);
    for (k = 0; k < LANES; k++)
        sum += lane_loss[k];
    return sum;
}

#include "vector_math.h"
#include "vector.h"
