/* Penalised multinomial regression on dense functions of rows: the log-loss with its gradient, and directions of L-BFGS.

   Conventions: K groups, r functions, rows in panels of PANEL rows, the last filled up with rows of weight 0. The score
   of group g at row k is T s_kg + b_g + sum_f A_gf F_kf. The unknowns are the coefficients A (K, r) of the functions F,
   the offsets b (K) and ln T. T, `temperature` in the code, is a factor of the scores s, `fixed_scores`, which come from
   another model and are not changed. group_weights is the weight of each group at each row, row_weight its sum over
   groups, and the residuals are row_weight P(g | row) - group_weights. multinomial_rows.h is included for each vector of
   LANES doubles, with functions of the prefix NAME and of the attribute TARGET. */
#ifndef MULTINOMIAL_H
#define MULTINOMIAL_H
#include "cpu.h"
#include <math.h>
#include <stddef.h>

#define PANEL 32      /* rows; a multiple of what all vectors multiply at once */
#define BLOCK 4       /* panels between the products with A and those with residuals: 0.6 MB of 600 functions */
#define FUNCTIONS 32  /* whose products with residuals are added up over the panels of a block before the next ones */
#define MAX_LANES 8

/* The rows; `sums` (K, r, MAX_LANES) and `residuals` (BLOCK, K, PANEL) are scratch. */
struct multinomial_rows {
    ptrdiff_t n_panels, K, r;
    const double *functions;     /* F (n_panels, r, PANEL) */
    const double *group_weights; /* (n_panels, K, PANEL) */
    const double *row_weight;    /* (n_panels, PANEL) */
    const double *fixed_scores;  /* s (n_panels, K, PANEL), or NULL */
    const char *is_empty;        /* (n_panels): whether all row weights of the panel are 0 */
    double *residuals, *sums;
};

/* The functions of multinomial_rows.h of one width, with their arguments there. */
struct multinomial_functions {
    double (*loss)(const struct multinomial_rows *, const double *, const double *, double, double *, double *);
    double (*dot)(ptrdiff_t, const double *, const double *);
    void (*direction)(ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, const double *, const double *, const double *,
                      const double *, double *, double *);
};

#ifdef CPU_X86
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) multinomial8_##x
#include "multinomial_rows.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) multinomial4_##x
#include "multinomial_rows.h"
#endif
#ifdef CPU_VECTORS
#define LANES 2
#else
#define LANES 1
#endif
#define TARGET
#define NAME(x) multinomial_base_##x
#include "multinomial_rows.h"

/* Return the variants of the functions of multinomial_rows.h for the widest vectors of this processor. */
static struct multinomial_functions multinomial_choose_width(void)
{
#ifdef CPU_X86
    if (cpu_runs(64))
        return multinomial8_functions;
    if (cpu_runs(32))
        return multinomial4_functions;
#endif
    return multinomial_base_functions;
}
#endif
