/* Inner loops of the sparse solver over n rows, for each vector width. on (n) is 1 in rows in state 1 of a term with
   two states, otherwise 0; z (n) is the slope of a quadratic model of the loss with respect to the link, a row's linear
   predictor (see sparse.pyx).

   Sums use SPARSE_LANES partial sums for every vector width, so that results do not depend on the processor. From
   cpu.h: CPU_32_BYTES and CPU_64_BYTES are function attributes that select an instruction set with this vector width,
   CPU_X86 is defined if the compiler supports them, and cpu_runs(bytes) returns whether the processor does. */
#ifndef SPARSE_H
#define SPARSE_H
#include <stddef.h>
#include <stdint.h>
#include "cpu.h"

#define SPARSE_LANES 16

/* sparse_sum returns the sum of z over the rows with on = 1. sparse_add adds curve * (change_0 + difference * on) to z,
   in place, and returns the sum of z: curve (n) is the curvature, change_0 the change of the link in rows in state 0,
   and difference the change in state 1 minus change_0. TARGET is the attribute of a width, `suffix` its name, and l a
   lane: the number of a partial sum. */
#define SPARSE_LOOPS(suffix, TARGET)                                                                        \
    TARGET static double sparse_sum_##suffix(const uint8_t *on, const double *z, ptrdiff_t n)               \
    {                                                                                                       \
        double part[SPARSE_LANES] = {0}, sum = 0.0;                                                         \
        ptrdiff_t i = 0;                                                                                    \
        for (; i + SPARSE_LANES <= n; i += SPARSE_LANES)                                                    \
            for (int l = 0; l < SPARSE_LANES; l++)                                                          \
                part[l] += (double)on[i + l] * z[i + l];                                                    \
        for (; i < n; i++)                                                                                  \
            part[0] += (double)on[i] * z[i];                                                                \
        for (int l = 0; l < SPARSE_LANES; l++)                                                              \
            sum += part[l];                                                                                 \
        return sum;                                                                                         \
    }                                                                                                       \
    TARGET static double sparse_add_##suffix(const uint8_t *on, const double *curve, double change_0,       \
                                             double difference, double *z, ptrdiff_t n)                     \
    {                                                                                                       \
        double part[SPARSE_LANES] = {0}, sum = 0.0;                                                         \
        ptrdiff_t i = 0;                                                                                    \
        for (; i + SPARSE_LANES <= n; i += SPARSE_LANES)                                                    \
            for (int l = 0; l < SPARSE_LANES; l++) {                                                        \
                double value = z[i + l] + curve[i + l] * (change_0 + difference * (double)on[i + l]);       \
                z[i + l] = value;                                                                           \
                part[l] += value;                                                                           \
            }                                                                                               \
        for (; i < n; i++) {                                                                                \
            z[i] += curve[i] * (change_0 + difference * (double)on[i]);                                     \
            part[0] += z[i];                                                                                \
        }                                                                                                   \
        for (int l = 0; l < SPARSE_LANES; l++)                                                              \
            sum += part[l];                                                                                 \
        return sum;                                                                                         \
    }

SPARSE_LOOPS(plain, )
#ifdef CPU_X86
SPARSE_LOOPS(32_bytes, CPU_32_BYTES)
SPARSE_LOOPS(64_bytes, CPU_64_BYTES)
#endif

/* sparse_sum and sparse_add for one vector width */
typedef struct {
    double (*sum)(const uint8_t *on, const double *z, ptrdiff_t n);
    double (*add)(const uint8_t *on, const double *curve, double change_0, double difference, double *z, ptrdiff_t n);
} sparse_loops;

/* Return the sum of z (n), in the same partial sums at every vector width. */
static double sparse_total(const double *z, ptrdiff_t n)
{
    double part[SPARSE_LANES] = {0}, sum = 0.0;
    ptrdiff_t i = 0;
    for (; i + SPARSE_LANES <= n; i += SPARSE_LANES)
        for (int l = 0; l < SPARSE_LANES; l++)
            part[l] += z[i + l];
    for (; i < n; i++)
        part[0] += z[i];
    for (int l = 0; l < SPARSE_LANES; l++)
        sum += part[l];
    return sum;
}

/* Return the loops for the widest vectors of this processor. */
static sparse_loops sparse_choose_loops(void)
{
    sparse_loops loops = {sparse_sum_plain, sparse_add_plain};
#ifdef CPU_X86
    if (cpu_runs(64)) {
        loops.sum = sparse_sum_64_bytes;
        loops.add = sparse_add_64_bytes;
    } else if (cpu_runs(32)) {
        loops.sum = sparse_sum_32_bytes;
        loops.add = sparse_add_32_bytes;
    }
#endif
    return loops;
}
#endif
