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
    vec loss = fill(0.0);
    ptrdiff_t k, g;
    for (k = 0; k < n; k += LANES) {
        vec top = fill(-INFINITY), total = fill(0.0), told = fill(0.0), scale;
        for (g = 0; g < K; g++) {
            double *own = residual + g * n + k;
            const vec score = load(own) + b[g];
            const vec all = given ? score + heat * load(given + g * n + k) : score;
            store(own, all);
            top = NAME(larger)(all, top);
        }
        for (g = 0; g < K; g++) {
            double *own = residual + g * n + k;
            const vec below = load(own) - top, e = NAME(exp)(below);
            told += load(hits + g * n + k) * below;
            total += e;
            store(own, e);
        }
        loss += load(of_row + k) * NAME(log)(total) - told;
        scale = load(of_row + k) / total;
        for (g = 0; g < K; g++) {
            double *own = residual + g * n + k;
            store(own, load(own) * scale - load(hits + g * n + k));
        }
    }
    memcpy(parts, &loss, sizeof loss);
    for (k = 0; k < LANES; k++)
        sum += parts[k];
    return sum;
}

#include "vector_math.h"
#include "vector.h"
