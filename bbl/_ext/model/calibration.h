/* Sums over rows needed for the log-loss of calibrated class scores and its derivatives.

   Conventions: K groups g, n rows. The calibrated score of group g in a row is z_g + o_g, where z = T s, with the class
   scores s (K, n), the temperature T and the offsets o (K); p_g are the probabilities and r (n) the normalised weights
   of the rows. n is a multiple of CALIBRATION_ROWS; it is padded by rows with weight 0 and finite scores. The sums are,
   in this order: ``r ln sum_g exp(z_g + o_g)``; ``r m``, where m is the mean of z under p; ``r sum_g p_g (z_g - m)^2``;
   r p_g (K sums); ``r p_g (z_g - m)`` (K sums); r p_g p_h for each group g and h = 0 ... g. */
#ifndef CALIBRATION_H
#define CALIBRATION_H
#include "cpu.h"
#include <math.h>
#include <stddef.h>

#define CALIBRATION_ROWS 8 /* n is a multiple of this: the widest vector contains 8 numbers */

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

/* A variant of `sum` in calibration_rows.h; see there for the arguments */
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
