/* Residuals of rows, LANES of them side by side, for one vector width; multinomial.h includes it once for each.

   Set before inclusion: what vector.h asks for.

   Conventions: those of multinomial.h. */

#include "vector.h"
#include "vector_math.h"

/* Turn scores (K, n), in residual, into weight (P(y|x) - hits) of each row; returns the log-loss. The scores get heat
   given + b first; given is NULL for none. */
TARGET static double NAME(residual)(ptrdiff_t n, ptrdiff_t K, const double *given, double heat, const double *b,
                                    const double *hits, const double *of_row, double *residual)
{
    double parts[LANES], sum = 0.0;
    vec loss = vec_fill(0.0);
    ptrdiff_t k, g;
    for (k = 0; k < n; k += LANES) {
        vec top = vec_fill(-INFINITY), total = vec_fill(0.0), told = vec_fill(0.0), scale;
        for (g = 0; g < K; g++) {
            double *own = residual + g * n + k;
            const vec score = vec_load(own) + b[g];
            const vec all = given ? score + heat * vec_load(given + g * n + k) : score;
            vec_store(own, all);
            top = NAME(larger)(all, top);
        }
        for (g = 0; g < K; g++) {
            double *own = residual + g * n + k;
            const vec below = vec_load(own) - top, e = NAME(exp)(below);
            told += vec_load(hits + g * n + k) * below;
            total += e;
            vec_store(own, e);
        }
        loss += vec_load(of_row + k) * NAME(log)(total) - told;
        scale = vec_load(of_row + k) / total;
        for (g = 0; g < K; g++) {
            double *own = residual + g * n + k;
            vec_store(own, vec_load(own) * scale - vec_load(hits + g * n + k));
        }
    }
    memcpy(parts, &loss, sizeof loss);
    for (k = 0; k < LANES; k++)
        sum += parts[k];
    return sum;
}

#include "vector_math.h"
#include "vector.h"
