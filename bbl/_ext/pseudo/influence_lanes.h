/* Inner loops of influence.h for one width of vectors; see vector.h for LANES, TARGET and NAME. */
#include "vector.h"

/* Add the curvatures (size,) of a row to the sums of all pairs of its columns, pair t >= u at t (t + 1) / 2 + u. */
TARGET static void NAME(pairs)(const ptrdiff_t *ones, ptrdiff_t n_ones, const double *curvature, ptrdiff_t size,
                               double *sums)
{
    for (ptrdiff_t t = 0; t < n_ones; t++)
        for (ptrdiff_t u = 0; u <= t; u++) {
            double *total = sums + (ones[t] * (ones[t] + 1) / 2 + ones[u]) * size;
            ptrdiff_t s = 0;
            for (; s + LANES <= size; s += LANES)
                vec_store(total + s, vec_load(total + s) + vec_load(curvature + s));
            for (; s < size; s++)
                total[s] += curvature[s];
        }
}

/* Add the influences of some rows on parameters first, ... stop - 1 to `out` at the first of the rows. `sums` holds
   `width` numbers a row, the first of them of parameter `start`. */
TARGET static inline void NAME(put)(const influence_site *site, ptrdiff_t first, ptrdiff_t stop, ptrdiff_t start,
                                    ptrdiff_t width, ptrdiff_t n_rows, const double *sums, const double *weights,
                                    double *out)
{
    for (ptrdiff_t j = first; j < stop; j++) {
        double *added = out + site->index[j] * site->n;
        const double share = site->shares[j], constant = site->constant[j];
        for (ptrdiff_t k = 0; k < n_rows; k++)
            added[k] += share * weights[k] * (sums[k * width + j - start] - constant);
    }
}

/* Add the influences of at most INFLUENCE_ROWS rows to columns `first_row`, ... of `out`. Row k has the columns `ones`
   between its two `bounds`, `residuals` (n_rows, q) of the levels, and a weight. A few parameters at a time, of all
   rows: their part of the inverse stays in the first cache, their sums in registers. */
TARGET static void NAME(rows)(const influence_site *site, ptrdiff_t first_row, ptrdiff_t n_rows, const ptrdiff_t *ones,
                              const ptrdiff_t *bounds, const double *residuals, const double *weights)
{
    const ptrdiff_t p = site->p, c = site->c, q = site->q;
    double sums[INFLUENCE_ROWS * 4 * LANES];
    ptrdiff_t first = 0;
    for (; p >= 4 * LANES && first < p; first += 4 * LANES) {
        const ptrdiff_t start = first + 4 * LANES <= p ? first : p - 4 * LANES; /* the last may overlap another */
        for (ptrdiff_t k = 0; k < n_rows; k++) {
            double *at = sums + k * 4 * LANES;
            vec sum_0 = vec_fill(0.0), sum_1 = sum_0, sum_2 = sum_0, sum_3 = sum_0;
            for (ptrdiff_t a = 0; a < q; a++) {
                const vec r = vec_fill(residuals[k * q + a]);
                for (ptrdiff_t t = bounds[k]; t < bounds[k + 1]; t++) {
                    const double *row = site->inverse + (a * c + ones[t]) * p + start;
                    sum_0 += r * vec_load(row);
                    sum_1 += r * vec_load(row + LANES);
                    sum_2 += r * vec_load(row + 2 * LANES);
                    sum_3 += r * vec_load(row + 3 * LANES);
                }
            }
            vec_store(at, sum_0);
            vec_store(at + LANES, sum_1);
            vec_store(at + 2 * LANES, sum_2);
            vec_store(at + 3 * LANES, sum_3);
        }
        NAME(put)(site, first, start + 4 * LANES, start, 4 * LANES, n_rows, sums, weights, site->out + first_row);
    }
    for (; first < p; first++) {
        for (ptrdiff_t k = 0; k < n_rows; k++) {
            sums[k] = 0.0;
            for (ptrdiff_t a = 0; a < q; a++)
                for (ptrdiff_t t = bounds[k]; t < bounds[k + 1]; t++)
                    sums[k] += residuals[k * q + a] * site->inverse[(a * c + ones[t]) * p + first];
        }
        NAME(put)(site, first, first + 1, first, 1, n_rows, sums, weights, site->out + first_row);
    }
}
#include "vector.h"
