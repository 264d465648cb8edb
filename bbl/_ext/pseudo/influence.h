/* Sums for influence.pyx over the columns of a sparse design that are 1 in a row. This file selects vectors of 32
   bytes, the widest compiled here, if the processor supports them; the loops are in influence_lanes.h, which is
   included once for each width.

   A *site* is a predictor whose conditional distribution given the others is fitted, by q logits for its non-reference
   levels. The *influence* of a row of data is its effect on the estimates of the site's p parameters. */
#ifndef INFLUENCE_H
#define INFLUENCE_H
#include <stddef.h>
#include "cpu.h"

#define INFLUENCE_ROWS 1024     /* rows of data for which the inverse is copied once */
#define INFLUENCE_PRODUCTS 32   /* rows of data whose influences on some parameters are added at a time */
#define INFLUENCE_SLICE 16      /* columns of the inverse copied at a time, at most (4 LANES) */

/* The inputs and outputs of the influences of rows on the parameters of one site */
typedef struct {
    ptrdiff_t n;                /* rows of data, columns of `out` */
    ptrdiff_t c, q, p;          /* columns of the design and logits of the site; p = q c parameters, logit by logit */
    const double *inverse;      /* (p, p), inverse of the Hessian */
    const double *offset;       /* (p,) subtracted from the influence of each row before it is weighted */
    const ptrdiff_t *out_row;   /* (p,) row of `out` for the influences on each parameter */
    const double *factor;       /* (p,) multiplies the influences on each parameter */
    double *out;                /* (rows, n) */
} influence_site;

#ifdef CPU_X86
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) influence_32_##x
#include "influence_lanes.h"
#endif
#ifdef CPU_VECTORS
#define LANES 2
#else
#define LANES 1
#endif
#define TARGET
#define NAME(x) influence_##x
#include "influence_lanes.h"

/* Add the curvatures (size,) of one row of data to `sums` (c (c + 1) / 2, size), for every pair of columns that are
   both 1 in the row: pair t >= u is row t (t + 1) / 2 + u of `sums`. active (n_active,) lists the columns that are
   1. */
static inline void add_curvatures_of_row(const ptrdiff_t *active, ptrdiff_t n_active, const double *curvature,
                                         ptrdiff_t size, double *sums)
{
#ifdef CPU_X86
    if (cpu_runs(32)) {
        influence_32_add_to_pairs(active, n_active, curvature, size, sums);
        return;
    }
#endif
    influence_add_to_pairs(active, n_active, curvature, size, sums);
}

/* Add the influences of rows first_row ... first_row + n_rows - 1 of the data, at most INFLUENCE_ROWS, to site->out.
   `active` lists the columns that are 1 in these rows, row by row; the k-th row has the columns at active_start[k] ...
   active_start[k + 1] - 1. residuals (n_rows, q) and weights (n_rows,) are for these rows only.
   `slice` (p, INFLUENCE_SLICE) is for intermediate results. */
static inline void add_influences_of_rows(const influence_site *site, ptrdiff_t first_row, ptrdiff_t n_rows,
                                          const ptrdiff_t *active, const ptrdiff_t *active_start,
                                          const double *residuals, const double *weights, double *slice)
{
#ifdef CPU_X86
    if (cpu_runs(32)) {
        influence_32_add_rows(site, first_row, n_rows, active, active_start, residuals, weights, slice);
        return;
    }
#endif
    influence_add_rows(site, first_row, n_rows, active, active_start, residuals, weights, slice);
}
#endif
