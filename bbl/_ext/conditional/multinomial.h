/* Penalised multinomial regression on dense functions of rows: log-loss, gradient, and L-BFGS directions.

   Conventions: K groups, r functions; rows are arranged in panels of PANEL rows: 32 in double precision, 64 in single
   precision. The last panel is padded with rows of weight 0. The score of group g in row k is T s_kg + b_g + sum_f A_gf
   F_kf. The unknowns are the coefficients A (K, r) of the functions F, the offsets b (K) and ln T. T (`temperature` in
   the code) multiplies the scores s (`fixed_scores`), which come from another model and are not changed. group_weights
   is the weight of each group in each row, row_weight its sum over groups, and the residuals are row_weight P(g | row)
   - group_weights. multinomial_products.h (in double and in single precision) and multinomial_rows.h are included once
   for each vector width; their functions have the prefix NAME and the attribute TARGET. */
#ifndef MULTINOMIAL_H
#define MULTINOMIAL_H
#include "cpu.h"
#include <math.h>
#include <stddef.h>

#define PANEL_BYTES 256  /* bytes of a function's values in a panel; a multiple of the bytes of a tile */
#define BLOCK 4          /* panels between the products with A and those with residuals: 0.6 MB for 600 functions */
#define FUNCTIONS 32     /* whose products with residuals are added over the panels of a block before the next ones */
#define MAX_VECTOR_BYTES 64

/* The functions of multinomial_products.h for one width and precision; see there for their arguments. */
struct multinomial_products {
    ptrdiff_t number_bytes; /* size of a number of this precision */
    void (*round_to)(ptrdiff_t, const double *, void *);
    void (*multiply)(ptrdiff_t, ptrdiff_t, const void *, const void *, double *);
    void (*add_gradient)(ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, const void *, const void *, void *);
    void (*add_lanes)(ptrdiff_t, const void *, double *);
};

/* The rows. Functions, and the scratch `rounded_A` (K, r), `rounded` (BLOCK, K, PANEL) and `sums` (K, r vectors), are
   in the precision of the products; `residuals` (K, PANEL) is also scratch. */
struct multinomial_rows {
    ptrdiff_t n_panels, K, r;
    struct multinomial_products products;
    const void *functions;       /* F (n_panels, r, PANEL) */
    const double *group_weights; /* (n_panels, K, PANEL) */
    const double *row_weight;    /* (n_panels, PANEL) */
    const double *fixed_scores;  /* s (n_panels, K, PANEL), or NULL */
    const char *is_empty;        /* (n_panels): whether all row weights of the panel are 0 */
    double *residuals;
    char *rounded, *rounded_A, *sums;
};

/* The functions of multinomial_rows.h for one width (see there for their arguments), and the products in double and in
   single precision. */
struct multinomial_functions {
    double (*loss)(const struct multinomial_rows *, const double *, const double *, double, double *, double *);
    double (*dot)(ptrdiff_t, const double *, const double *);
    void (*direction)(ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, const double *, const double *, const double *,
                      const double *, double *, double *);
    struct multinomial_products double_products, single_products;
};

#ifdef CPU_X86
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) multinomial64_double_##x
#include "multinomial_products.h"
#define LANES 16
#define TARGET CPU_64_BYTES
#define NAME(x) multinomial64_single_##x
#define SINGLE
#include "multinomial_products.h"
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) multinomial64_##x
#include "multinomial_rows.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) multinomial32_double_##x
#include "multinomial_products.h"
#define LANES 8
#define TARGET CPU_32_BYTES
#define NAME(x) multinomial32_single_##x
#define SINGLE
#include "multinomial_products.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) multinomial32_##x
#include "multinomial_rows.h"
#endif
#ifdef CPU_VECTORS
#define BASE_LANES 2
#define BASE_SINGLE_LANES 4
#else
#define BASE_LANES 1
#define BASE_SINGLE_LANES 1
#endif
#define LANES BASE_LANES
#define TARGET
#define NAME(x) multinomial_base_double_##x
#include "multinomial_products.h"
#define LANES BASE_SINGLE_LANES
#define TARGET
#define NAME(x) multinomial_base_single_##x
#define SINGLE
#include "multinomial_products.h"
#define LANES BASE_LANES
#define TARGET
#define NAME(x) multinomial_base_##x
#include "multinomial_rows.h"

/* Return the variants of the functions for the widest vectors of this processor. */
static struct multinomial_functions multinomial_choose_width(void)
{
#ifdef CPU_X86
    if (cpu_runs(64))
        return multinomial64_functions;
    if (cpu_runs(32))
        return multinomial32_functions;
#endif
    return multinomial_base_functions;
}
#endif
