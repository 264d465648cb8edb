/* Inner loops of influence.h for one vector width. Terms and the struct influence_site are defined in influence.h.

   LANES is the number of doubles in a vector `vec`, NAME(f) the name of function f and TARGET its attribute for this
   width. The design has c columns, and a site q logits and p = q c parameters; the parameter a c + t belongs to logit a
   and column t. */
#include "vector.h"

/* Add the curvatures (size,) of a row of data to `sums` (c (c + 1) / 2, size) for all pairs of its `active` (n_active,)
   columns, which are 1, in increasing order; columns c >= d have row c (c + 1) / 2 + d of `sums`. In the code t and u
   are positions in `active`. */
TARGET static void NAME(add_to_pairs)(const ptrdiff_t *active, ptrdiff_t n_active, const double *curvature,
                                      ptrdiff_t size, double *sums)
{
    for (ptrdiff_t t = 0; t < n_active; t++)
        for (ptrdiff_t u = 0; u <= t; u++) {
            double *pair_sum = sums + (active[t] * (active[t] + 1) / 2 + active[u]) * size;
            ptrdiff_t s = 0;
            for (; s + LANES <= size; s += LANES)
                vec_store(pair_sum + s, vec_load(pair_sum + s) + vec_load(curvature + s));
            for (; s < size; s++)
                pair_sum[s] += curvature[s];
        }
}

/* Add the influences of n_rows rows of data on parameters first, ... stop - 1 to `out`, which is site->out shifted to
   the column of the first of these rows: factor times weight times (product - offset), see influence_site. products
   (n_rows, 4 LANES) contains, for 4 LANES parameters from `start` on, the inverse Hessian times each row's residual x
   design. */
TARGET static inline void NAME(add_parameters)(const influence_site *site, ptrdiff_t first, ptrdiff_t stop,
                                               ptrdiff_t start, ptrdiff_t n_rows, const double *products,
                                               const double *weights, double *out)
{
    for (ptrdiff_t j = first; j < stop; j++) {
        double *out_row = out + site->out_row[j] * site->n;
        const double factor = site->factor[j], offset = site->offset[j];
        for (ptrdiff_t k = 0; k < n_rows; k++)
            out_row[k] += factor * weights[k] * (products[k * 4 * LANES + j - start] - offset);
    }
}

/* Add, for the q logits a, residuals[a] times the 4 LANES numbers at column + a * stride to `sums`. */
TARGET CPU_INLINE void NAME(add_column)(const double *column, ptrdiff_t stride, ptrdiff_t q, const double *residuals,
                                        vec sums[4])
{
    for (ptrdiff_t a = 0; a < q; a++) {
        const vec residual = vec_fill(residuals[a]);
        for (int i = 0; i < 4; i++)
            sums[i] += residual * vec_load(column + a * stride + i * LANES);
    }
}

/* Write the inverse Hessian times each row's residual x design to `products` (n_rows, 4 LANES), for the 4 LANES
   parameters whose columns of the inverse are in `inverse` (q c, 4 LANES). The function is compiled for each q that is
   a constant in a call. */
TARGET CPU_INLINE void NAME(multiply_rows)(const double *inverse, ptrdiff_t c, ptrdiff_t q, ptrdiff_t n_rows,
                                           const ptrdiff_t *active, const ptrdiff_t *active_start,
                                           const double *residuals, double *products)
{
    for (ptrdiff_t k = 0; k < n_rows; k++) {
        const ptrdiff_t *column = active + active_start[k], *stop = active + active_start[k + 1];
        /* two sets of sums, for columns taken in turn: an addition waits for the previous one to the same sum */
        vec sums[2][4];
        for (int i = 0; i < 4; i++)
            sums[0][i] = sums[1][i] = vec_fill(0.0);
        for (; column + 1 < stop; column += 2) {
            NAME(add_column)(inverse + column[0] * 4 * LANES, c * 4 * LANES, q, residuals + k * q, sums[0]);
            NAME(add_column)(inverse + column[1] * 4 * LANES, c * 4 * LANES, q, residuals + k * q, sums[1]);
        }
        if (column < stop)
            NAME(add_column)(inverse + column[0] * 4 * LANES, c * 4 * LANES, q, residuals + k * q, sums[0]);
        for (int i = 0; i < 4; i++)
            vec_store(products + (k * 4 + i) * LANES, sums[0][i] + sums[1][i]);
    }
}

/* Add the influences of n_rows rows of data to columns first_row, ... of site->out. In the k-th row the columns
   active[active_start[k]] ... active[active_start[k + 1] - 1] are 1; residuals (n_rows, q), weights (n_rows,).
   Parameters are processed 4 LANES at a time, for all rows: their columns of the inverse are copied to `slice` (p, 4
   LANES), which fits into the L1 cache, and their sums stay in registers. */
TARGET static void NAME(add_rows)(const influence_site *site, ptrdiff_t first_row, ptrdiff_t n_rows,
                                  const ptrdiff_t *active, const ptrdiff_t *active_start, const double *residuals,
                                  const double *weights, double *slice)
{
    const ptrdiff_t p = site->p, c = site->c, q = site->q;
    double products[INFLUENCE_PRODUCTS * 4 * LANES]; /* of INFLUENCE_PRODUCTS rows */
    for (ptrdiff_t first = 0; first < p; first += 4 * LANES) { /* first parameter not yet added */
        /* the last 4 LANES parameters may overlap the previous ones; only those from `first` on are added */
        const ptrdiff_t start = first + 4 * LANES <= p || p < 4 * LANES ? first : p - 4 * LANES;
        const ptrdiff_t width = p < 4 * LANES ? p : 4 * LANES;
        for (ptrdiff_t j = 0; j < p; j++)
            for (ptrdiff_t i = 0; i < 4 * LANES; i++)
                slice[j * 4 * LANES + i] = i < width ? site->inverse[j * p + start + i] : 0.0;
        for (ptrdiff_t k = 0; k < n_rows; k += INFLUENCE_PRODUCTS) {
            const ptrdiff_t rows = k + INFLUENCE_PRODUCTS <= n_rows ? INFLUENCE_PRODUCTS : n_rows - k;
            const double *row_residuals = residuals + k * q;
            if (q == 1)
                NAME(multiply_rows)(slice, c, 1, rows, active, active_start + k, row_residuals, products);
            else if (q == 2)
                NAME(multiply_rows)(slice, c, 2, rows, active, active_start + k, row_residuals, products);
            else if (q == 3)
                NAME(multiply_rows)(slice, c, 3, rows, active, active_start + k, row_residuals, products);
            else
                NAME(multiply_rows)(slice, c, q, rows, active, active_start + k, row_residuals, products);
            NAME(add_parameters)(site, first, start + width, start, rows, products, weights + k,
                                 site->out + first_row + k);
        }
    }
}
#include "vector.h" /* undefine the names of this width */
