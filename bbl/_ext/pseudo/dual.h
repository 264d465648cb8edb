/* Dual coordinate ascent for the pseudo-likelihood of one site with many levels; selection of the vector width at run
   time.

   The objective of a site is ``f = sum_k s_k (ln(1 + sum_a exp z_ka) - sum_a t_ka z_ka) + lambda/2 |J|^2 + lambdah/2
   |h|^2``, with logits ``z_ka = h_a + sum_c J_ca`` over the columns c that are 1 in row k, shares s_k of the rows in the
   total weight, and targets t: 1 for the observed level and 0 for the others, or a mixture of these and the uniform
   distribution. At the minimum,

       J_ca = (1/lambda) sum_k s_k (t_ka - p_ka)  over the rows k where column c is 1,

   where p are the probabilities. Dual coordinate ascent (Shalev-Shwartz & Zhang 2013; Yu, Huang & Lin 2011) keeps J of
   this form, with *duals* alpha in place of p, and visits the rows in random order: it sets the duals of a row to the
   probabilities that the row has after this change, which increases the dual objective as far as this row can. With
   alpha as before and z the logits before the change, these are

       p = softmax(z + c (alpha - p)),  c = s_k (number of columns / lambda + 1/lambdah),

   the minimiser of ``|u - z - c alpha|^2 / 2 + c ln(1 + sum_a exp u_a)`` in u, found by Newton's method. Convergence is
   linear, and fast if c is not large, however strongly the rows are correlated: correlations slow down methods whose
   steps use a gradient over all rows.

   Fields with a small penalty or none would make c large. A proximal term ``rho/2 |h - centre|^2`` is added to f, and
   the centre is moved to h after each epoch, so that the term is zero at the minimum.

   An *epoch* is a visit to all rows. The gradient over all rows is computed when the changes in an epoch indicate that
   it is below the tolerance; a site has converged only if it is. Fits whose changes decrease slowly are left to another
   solver. This happens if fields diverge, because they are not penalised and a level does not occur. */
#ifndef DUAL_H
#define DUAL_H

#include "cpu.h"
#include "random.h"
#include "solver.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#define DUAL_MAX_LOGITS 64   /* maximum number of non-reference levels of a site */
#define DUAL_PAST 8          /* a fit is slow if its changes do not fall by 40 % in so many epochs */
#define DUAL_STOP_ROWS 1024  /* the stop flag is read before each visit to so many rows */

/* A site and its options. D columns are indicators of the non-reference levels of all predictors; those from `own` to
   own + q - 1 are the site's. Row k is 1 in columns column[row_start[k]] .. column[row_start[k + 1] - 1]. */
typedef struct {
    ptrdiff_t n, D, q, own;
    const uint16_t *column;
    const ptrdiff_t *row_start;  /* (n + 1,) */
    const uint8_t *response;     /* (n,) levels of the site */
    const double *share;         /* (n,) */
    double uniform_share;        /* weight of the uniform distribution in targets */
    double lambda, lambdah, rho, tolerance;
    int32_t max_epochs;
    const int32_t *stop;  /* nonzero: stop */
    int (*check)(void);   /* nonzero: an interrupt */
} dual_site;

typedef struct {
    double value, norm;  /* objective and norm of its gradient */
    int32_t n_epochs, n_gradients, status;
} dual_result;

#ifdef CPU_X86
#define LANES 16
#define TARGET CPU_64_BYTES
#define NAME(x) dual16f_##x
#define SINGLE
#include "dual_rows.h"
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) dual8_##x
#include "dual_rows.h"
#define LANES 8
#define TARGET CPU_32_BYTES
#define NAME(x) dual8f_##x
#define SINGLE
#include "dual_rows.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) dual4_##x
#include "dual_rows.h"
#endif
#ifdef CPU_VECTORS
#define LANES 4
#define TARGET
#define NAME(x) dual4f_##x
#define SINGLE
#include "dual_rows.h"
#define LANES 2
#define TARGET
#define NAME(x) dual2_##x
#include "dual_rows.h"
#endif
#define LANES 1
#define TARGET
#define NAME(x) dual1f_##x
#define SINGLE
#include "dual_rows.h"
#define LANES 1
#define TARGET
#define NAME(x) dual1_##x
#include "dual_rows.h"

/* A variant of `solve` in dual_rows.h; see there for the arguments */
typedef int (*dual_solver)(const dual_site *, double *, dual_result *);

/* Return the bytes of the vectors to use for q logits: the widest of this processor, unless narrower ones need at most
   three quarters of the numbers. With 20 logits, 24 numbers in vectors of 32 bytes are faster than 32 in vectors of 64
   (benchmarks.speed.plmc: 3.8 and 4.4 s). */
static int dual_choose_width(ptrdiff_t q, size_t number_bytes)
{
    int bytes, best = 8;
    ptrdiff_t fewest = PTRDIFF_MAX;  /* numbers needed, including padding */
    for (bytes = 64; bytes >= 16; bytes /= 2) {
        const ptrdiff_t lanes = bytes / (ptrdiff_t)number_bytes, needed = (q + lanes - 1) / lanes * lanes;
        if (cpu_runs(bytes) && needed <= fewest / 4 * 3) {
            fewest = needed;
            best = bytes;
        }
    }
    return best;
}

/* Return the variant of `solve` for q logits. */
static dual_solver dual_choose(ptrdiff_t q, int single)
{
    const int bytes = dual_choose_width(q, single ? sizeof(float) : sizeof(double));
    (void)bytes;
#ifdef CPU_X86
    if (bytes == 64)
        return single ? dual16f_solve : dual8_solve;
    if (bytes == 32)
        return single ? dual8f_solve : dual4_solve;
#endif
#ifdef CPU_VECTORS
    if (bytes == 16)
        return single ? dual4f_solve : dual2_solve;
#endif
    return single ? dual1f_solve : dual1_solve;
}
#endif
