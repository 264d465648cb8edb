/* Passes over the rows for boosting.pyx: sums of the rows in each cell, and new probabilities after a step.

   Conventions: n rows, K groups. The numbers of a row, one per group, are padded to `width` numbers: the smallest
   multiple of 4 above K, or of 8 if K > 3. A row is then one or more vectors whose lanes are groups. Lane K counts the
   rows. boosting_rows.h is included once for each vector of LANES doubles; its functions have the prefix NAME and the
   attribute TARGET. */
#ifndef BOOSTING_H
#define BOOSTING_H
#include "cpu.h"
#include <stddef.h>
#include <stdint.h>

#define BOOSTING_ALIGNMENT 64  /* bytes: aligning p, `observed` and sums to it keeps every vector within a cache line */
#define BOOSTING_COPIES 4      /* tables of sums for few cells, filled by rows in turn: an addition to a cell does not
                                  have to wait for the addition of the previous row */
#define BOOSTING_LEAST 1e-290  /* added to probabilities, so that they and their logarithms stay finite */

/* The rows. Row y of `observed` (K, width), used for rows of group y, is 1 in lanes y and K, and 0 elsewhere. */
struct boosting_rows {
    ptrdiff_t n, K, width;
    const ptrdiff_t *y;     /* (n) */
    const double *weights;  /* (n) */
    const double *observed;
    double *p;              /* (n, width): probabilities, and 0 or BOOSTING_LEAST in other lanes */
};

/* The functions of boosting_rows.h for one width; see there for their arguments. */
struct boosting_functions {
    void (*add)(const struct boosting_rows *, const int32_t *, ptrdiff_t, double *);
    void (*change)(const struct boosting_rows *, const int32_t *, const uint8_t *, const double *);
};

#ifdef CPU_X86
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) boosting8_##x
#include "boosting_rows.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) boosting4_##x
#include "boosting_rows.h"
#endif
#ifdef CPU_VECTORS
#define LANES 2
#else
#define LANES 1
#endif
#define TARGET
#define NAME(x) boosting_base_##x
#include "boosting_rows.h"

/* Return `width` for K groups. */
static ptrdiff_t boosting_width(ptrdiff_t K) { return K < 4 ? 4 : K / 8 * 8 + 8; }

/* Return the functions of boosting_rows.h for the widest vectors of this processor that divide a row. Changing four
   rows at a time requires vectors of 4 doubles. */
static struct boosting_functions boosting_choose_functions(ptrdiff_t width)
{
#ifdef CPU_X86
    if (width % 8 == 0 && cpu_runs(64))
        return (struct boosting_functions){boosting8_add, boosting4_change};
    if (cpu_runs(32))
        return boosting4_functions;
#endif
    return boosting_base_functions;
}
#endif
