/* Inner loops of influence.pyx over the columns that are 1 in a row, for the widest vectors of this processor. */
#ifndef INFLUENCE_H
#define INFLUENCE_H
#include <stddef.h>
#include "cpu.h"

#define INFLUENCE_ROWS 32 /* rows whose influences are added at a time */

typedef struct {
    ptrdiff_t n;            /* columns of `out`, one a row of data */
    ptrdiff_t c, q, p;      /* columns and levels of the site, p = q c */
    const double *inverse;  /* (p, p), of the Hessian */
    const double *constant; /* (p,) */
    const ptrdiff_t *index; /* (p,) rows of `out` */
    const double *shares;   /* (p,) */
    double *out;
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

static inline void add_pairs(const ptrdiff_t *ones, ptrdiff_t n_ones, const double *curvature, ptrdiff_t size,
                             double *sums)
{
#ifdef CPU_X86
    if (cpu_runs(32)) {
        influence_32_pairs(ones, n_ones, curvature, size, sums);
        return;
    }
#endif
    influence_pairs(ones, n_ones, curvature, size, sums);
}

static inline void add_rows(const influence_site *site, ptrdiff_t first_row, ptrdiff_t n_rows, const ptrdiff_t *ones,
                            const ptrdiff_t *bounds, const double *residuals, const double *weights)
{
#ifdef CPU_X86
    if (cpu_runs(32)) {
        influence_32_rows(site, first_row, n_rows, ones, bounds, residuals, weights);
        return;
    }
#endif
    influence_rows(site, first_row, n_rows, ones, bounds, residuals, weights);
}
#endif
