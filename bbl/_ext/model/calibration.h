/* Sums over rows of which the log-loss of calibrated class scores and its derivatives consist.

   Conventions: K groups g, n rows. The calibrated score of group g at a row is z_g + o_g, with z = T s for the class
   scores s (K, n), the temperature T and the offsets o (K); p_g are the probabilities and r (n) the shares of the rows in
   the weight. n is a multiple of CALIBRATION_ROWS: rows with a share of 0 and finite scores fill it up. The sums are, in
   this order: of ``r ln sum_g exp(z_g + o_g)``; of ``r m``, m being the mean of z under p; of ``r sum_g p_g (z_g -
   m)^2``; of r p_g (K of them); of ``r p_g (z_g - m)`` (K); of r p_g p_h for h = 0 ... g of each group g. */
#ifndef CALIBRATION_H
#define CALIBRATION_H
#include "cpu.h"
#include <math.h>
#include <stddef.h>

#define CALIBRATION_ROWS 8 /* n is a multiple of it, as the widest vector holds 8 numbers */

#ifdef CPU_X86
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) calibration8_##x
#include "calibration_rows.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) calibration4_##x
#include "calibration_rows.h"
#endif
#ifdef CPU_VECTORS
#define LANES 2
#else
#define LANES 1
#endif
#define TARGET
#define NAME(x) calibration_base_##x
#include "calibration_rows.h"

/* A variant of `sum` in calibration_rows.h, which has its arguments */
typedef void (*calibration_sum)(ptrdiff_t, ptrdiff_t, const double *, const double *, double, const double *, double *,
                                double *);

/* Return the variant of `sum` for the widest vectors of this processor. */
static calibration_sum calibration_choose_width(void)
{
#ifdef CPU_X86
    if (cpu_runs(64))
        return calibration8_sum;
    if (cpu_runs(32))
        return calibration4_sum;
#endif
    return calibration_base_sum;
}
#endif
