/* The sums of calibration.h, LANES rows at a time; calibration.h includes this file once for each vector width.

   Before inclusion define LANES, TARGET (the attribute of functions for the vector width) and NAME(x) (their prefix),
   as for vector.h. A `vec` contains the numbers of LANES rows. */

#include "vector.h"
#include "vector_math.h"

/* Write the sums (n_sums = 3 + 2 K + K (K + 1) / 2) to out. `memory` has space for (n_sums + 2 K) vectors. */
TARGET static void NAME(sum)(ptrdiff_t n, ptrdiff_t K, const double *scores, const double *share, double temperature,
                             const double *offset, double *memory, double *out)
{
    const ptrdiff_t n_sums = 3 + 2 * K + K * (K + 1) / 2;
    /* sums by lane; then z and p of each group for the current rows */
    double *of_group = memory + 3 * LANES, *of_score = of_group + K * LANES, *of_pair = of_score + K * LANES;
    double *z = memory + n_sums * LANES, *p = z + K * LANES;
    vec loss = vec_fill(0.0), mean_sum = vec_fill(0.0), spread = vec_fill(0.0);
    ptrdiff_t k, g, h, s;
    for (s = 0; s < n_sums * LANES; s++)
        memory[s] = 0.0;
    for (k = 0; k < n; k += LANES) {
        const vec r = vec_load(share + k);
        vec top = vec_fill(-INFINITY), total = vec_fill(0.0), mean = vec_fill(0.0);
        double *pair = of_pair;
        for (g = 0; g < K; g++) {
            const vec own = temperature * vec_load(scores + g * n + k), calibrated = own + offset[g];
            vec_store(z + g * LANES, own);
            vec_store(p + g * LANES, calibrated);
            top = NAME(larger)(calibrated, top);
        }
        for (g = 0; g < K; g++) {
            const vec exps = NAME(exp)(vec_load(p + g * LANES) - top);
            vec_store(p + g * LANES, exps);
            total += exps;
            mean += exps * vec_load(z + g * LANES);
        }
        loss += r * (NAME(log)(total) + top);
        total = 1.0 / total;
        mean *= total;
        mean_sum += r * mean;
        for (g = 0; g < K; g++) {
            const vec own = vec_load(p + g * LANES) * total, weighted = r * own;
            const vec centred = vec_load(z + g * LANES) - mean, moment = weighted * centred;
            vec_store(p + g * LANES, own);
            vec_store(of_group + g * LANES, vec_load(of_group + g * LANES) + weighted);
            vec_store(of_score + g * LANES, vec_load(of_score + g * LANES) + moment);
            spread += moment * centred;
            for (h = 0; h <= g; h++, pair += LANES)
                vec_store(pair, vec_load(pair) + weighted * vec_load(p + h * LANES));
        }
    }
    vec_store(memory, loss);
    vec_store(memory + LANES, mean_sum);
    vec_store(memory + 2 * LANES, spread);
    for (s = 0; s < n_sums; s++) {
        out[s] = 0.0;
        for (k = 0; k < LANES; k++)
            out[s] += memory[s * LANES + k];
    }
}

/* including the two headers again undefines their names for the next width */
#include "vector_math.h"
#include "vector.h"
