/* Sums over the rows in which a column of bytes is set: the inner loops of the sparse solver, for each vector width.

   on (n): 0 or 1. Sums run in LANES partial sums whatever the width, so their order does not depend on it. */
#ifndef SPARSE_H
#define SPARSE_H
#include <stddef.h>
#include <stdint.h>
#include "cpu.h"

#define SPARSE_LANES 16

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
    /* z += curve * (low, or low + step where the column is set); returns the sum of z */                   \
    TARGET static double sparse_add_##suffix(const uint8_t *on, const double *curve, double low,            \
                                             double step, double *z, ptrdiff_t n)                           \
    {                                                                                                       \
        double part[SPARSE_LANES] = {0}, sum = 0.0;                                                         \
        ptrdiff_t i = 0;                                                                                    \
        for (; i + SPARSE_LANES <= n; i += SPARSE_LANES)                                                    \
            for (int l = 0; l < SPARSE_LANES; l++) {                                                        \
                double value = z[i + l] + curve[i + l] * (low + step * (double)on[i + l]);                  \
                z[i + l] = value;                                                                           \
                part[l] += value;                                                                           \
            }                                                                                               \
        for (; i < n; i++) {                                                                                \
            z[i] += curve[i] * (low + step * (double)on[i]);                                                \
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

typedef struct {
    double (*sum)(const uint8_t *on, const double *z, ptrdiff_t n);
    double (*add)(const uint8_t *on, const double *curve, double low, double step, double *z, ptrdiff_t n);
} sparse_loops;

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

/* The loops of the widest vectors that this processor runs. */
static sparse_loops sparse_pick(void)
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
