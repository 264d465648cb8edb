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
   (n_rows, width) contains, for the `width` parameters from products_first on, the inverse Hessian times each row's
   residual x design. */
TARGET static inline void NAME(add_parameters)(const influence_site *site, ptrdiff_t first, ptrdiff_t stop,
                                               ptrdiff_t products_first, ptrdiff_t width, ptrdiff_t n_rows,
                                               const double *products, const double *weights, double *out)
{
    for (ptrdiff_t j = first; j < stop; j++) {
        double *out_row = out + site->out_row[j] * site->n;
        const double factor = site->factor[j], offset = site->offset[j];
        for (ptrdiff_t k = 0; k < n_rows; k++)
            out_row[k] += factor * weights[k] * (products[k * width + j - products_first] - offset);
    }
}

/* Add the influences of n_rows <= INFLUENCE_ROWS rows of data to columns first_row, ... of site->out. In the k-th row
   the columns active[active_start[k]] ... active[active_start[k + 1] - 1] are 1; residuals (n_rows, q), weights
   (n_rows,). Parameters are processed 4 LANES at a time, for all rows: their columns of the inverse stay in the L1
   cache, their sums in registers. */
TARGET static void NAME(add_rows)(const influence_site *site, ptrdiff_t first_row, ptrdiff_t n_rows,
                                  const ptrdiff_t *active, const ptrdiff_t *active_start, const double *residuals,
                                  const double *weights)
{
    const ptrdiff_t p = site->p, c = site->c, q = site->q;
    double products[INFLUENCE_ROWS * 4 * LANES]; /* (n_rows, 4 LANES) inverse Hessian times residual x design */
    ptrdiff_t first = 0; /* first parameter not yet added */
    for (; p >= 4 * LANES && first < p; first += 4 * LANES) {
        /* the last 4 LANES parameters may overlap the previous ones; only those from `first` on are added */
        const ptrdiff_t start = first + 4 * LANES <= p ? first : p - 4 * LANES;
        for (ptrdiff_t k = 0; k < n_rows; k++) {
            double *row_products = products + k * 4 * LANES;
            vec sum_0 = vec_fill(0.0), sum_1 = sum_0, sum_2 = sum_0, sum_3 = sum_0;
            for (ptrdiff_t a = 0; a < q; a++) {
                const vec residual = vec_fill(residuals[k * q + a]);
                for (ptrdiff_t t = active_start[k]; t < active_start[k + 1]; t++) {
                    const double *inverse_row = site->inverse + (a * c + active[t]) * p + start;
                    sum_0 += residual * vec_load(inverse_row);
                    sum_1 += residual * vec_load(inverse_row + LANES);
                    sum_2 += residual * vec_load(inverse_row + 2 * LANES);
                    sum_3 += residual * vec_load(inverse_row + 3 * LANES);
                }
            }
            vec_store(row_products, sum_0);
            vec_store(row_products + LANES, sum_1);
            vec_store(row_products + 2 * LANES, sum_2);
            vec_store(row_products + 3 * LANES, sum_3);
        }
        NAME(add_parameters)(site, first, start + 4 * LANES, start, 4 * LANES, n_rows, products, weights,
                             site->out + first_row);
    }
    for (; first < p; first++) { /* one by one if there are fewer than 4 LANES parameters */
        for (ptrdiff_t k = 0; k < n_rows; k++) {
            products[k] = 0.0;
            for (ptrdiff_t a = 0; a < q; a++)
                for (ptrdiff_t t = active_start[k]; t < active_start[k + 1]; t++)
                    products[k] += residuals[k * q + a] * site->inverse[(a * c + active[t]) * p + first];
        }
        NAME(add_parameters)(site, first, first + 1, first, 1, n_rows, products, weights, site->out + first_row);
    }
}
#include "vector.h" /* undefine the names of this width */
