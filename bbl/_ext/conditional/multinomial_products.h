/* Products of functions with coefficients and with residuals, for one vector width and one precision.

   multinomial.h includes this file once for each combination. Before inclusion define LANES, TARGET, NAME(x), and
   SINGLE for numbers of type float, as for vector.h. A `vec` contains the numbers of LANES rows. Numbers to be
   multiplied are REAL, as returned by `round_to`; scores and sums over rows are returned as doubles. For other names
   see multinomial.h. */

#include "vector.h"

#ifdef SINGLE
#define IS_WIDEST (LANES == 16)
#else
#define IS_WIDEST (LANES == 8)
#endif
#define PANEL (PANEL_BYTES / (ptrdiff_t)sizeof(REAL))
#define TILE (4 * LANES)            /* rows that are multiplied at once */
#define GROUPS (IS_WIDEST ? 4 : 2)  /* groups multiplied at once: the sums of a tile fill half of the registers */
#define UNROLLED TARGET CPU_INLINE  /* compiled for each number of groups, which is a constant */

/* Write `size` numbers to `to`, rounded to the precision of the products. */
TARGET static void NAME(round_to)(ptrdiff_t size, const double *restrict numbers, void *restrict to)
{
    REAL *out = to;
    for (ptrdiff_t k = 0; k < size; k++)
        out[k] = (REAL)numbers[k];
}

/* Write the numbers of a vector to `out` (LANES). */
TARGET static inline void NAME(widen)(vec v, double *out)
{
    REAL lanes[LANES];
    memcpy(lanes, &v, sizeof v);
    for (int k = 0; k < LANES; k++)
        out[k] = lanes[k];
}

/* Write the products F A of G groups at the rows of a panel to `scores` (G, PANEL); F (r, PANEL), A (G, r). */
UNROLLED void NAME(multiply_groups)(const int G, ptrdiff_t r, const REAL *F, const REAL *A, double *scores)
{
    for (ptrdiff_t t = 0; t < PANEL; t += TILE) {
        vec sum[GROUPS][4];
        for (int g = 0; g < G; g++)
            for (int v = 0; v < 4; v++)
                sum[g][v] = vec_fill(0.0);
        for (ptrdiff_t f = 0; f < r; f++) {
            const REAL *value = F + f * PANEL + t;
            for (int g = 0; g < G; g++)
                for (int v = 0; v < 4; v++)
                    sum[g][v] += vec_load(value + v * LANES) * A[g * r + f];
        }
        for (int g = 0; g < G; g++)
            for (int v = 0; v < 4; v++)
                NAME(widen)(sum[g][v], scores + g * PANEL + t + v * LANES);
    }
}

/* Add the products of functions and residuals (G, PANEL) of G groups to `sums` (G, r, LANES), with separate sums for
   the lanes, for `count` functions from `first` on. */
UNROLLED void NAME(add_gradient_of_groups)(const int G, ptrdiff_t r, ptrdiff_t first, ptrdiff_t count, const REAL *F,
                                           const REAL *residuals, REAL *sums)
{
    for (ptrdiff_t t = 0; t < PANEL; t += TILE) {
        vec residual[GROUPS][4];
        for (int g = 0; g < G; g++)
            for (int v = 0; v < 4; v++)
                residual[g][v] = vec_load(residuals + g * PANEL + t + v * LANES);
        for (ptrdiff_t f = first; f < first + count; f++) {
            const REAL *value = F + f * PANEL + t;
            for (int g = 0; g < G; g++) {
                REAL *sum = sums + (g * r + f) * LANES;
                const vec low = vec_load(value) * residual[g][0] + vec_load(value + LANES) * residual[g][1];
                const vec high = vec_load(value + 2 * LANES) * residual[g][2] +
                    vec_load(value + 3 * LANES) * residual[g][3];
                vec_store(sum, vec_load(sum) + (low + high));
            }
        }
    }
}

/* Write F A for all groups at the rows of a panel to `scores` (K, PANEL): F (r, PANEL), A (K, r). */
TARGET static void NAME(multiply)(ptrdiff_t K, ptrdiff_t r, const void *panel, const void *coefficients, double *scores)
{
    const REAL *F = panel, *A = coefficients;
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
TARGET static void NAME(add_gradient)(ptrdiff_t K, ptrdiff_t r, ptrdiff_t first, ptrdiff_t count,
                                      const void *panel, const void *residuals, void *sums)
{
    const REAL *F = panel;
    for (ptrdiff_t g = 0; g < K; g += GROUPS) {
        const REAL *own = (const REAL *)residuals + g * PANEL;
        REAL *to = (REAL *)sums + g * r * LANES;
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

/* Write the totals over lanes of `sums` (size, LANES) to `totals` (size). */
TARGET static void NAME(add_lanes)(ptrdiff_t size, const void *sums, double *totals)
{
    const REAL *lanes = sums;
    for (ptrdiff_t f = 0; f < size; f++) {
        totals[f] = 0.0;
        for (ptrdiff_t k = 0; k < LANES; k++)
            totals[f] += lanes[f * LANES + k];
    }
}
static const struct multinomial_products NAME(products) = {sizeof(REAL), NAME(round_to), NAME(multiply),
                                                           NAME(add_gradient), NAME(add_lanes)};

#undef IS_WIDEST
#undef PANEL
#undef TILE
#undef GROUPS
#undef UNROLLED
/* including the header again undefines its names for the next width or precision */
#include "vector.h"
