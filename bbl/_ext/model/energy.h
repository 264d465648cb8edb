/* Energy of one row under K models whose parameters lie side by side; the common K are unrolled by the compiler. */
#ifndef ENERGY_H
#define ENERGY_H
#include <stddef.h>

/* h (D, K), J (D, D, K) or NULL, on[0..n_on) increasing columns, energy_out (K). */
#define ENERGY_ROW(K_, LOOP_K)                                                          \
    do {                                                                                \
        double acc[LOOP_K];                                                             \
        for (ptrdiff_t g = 0; g < K_; g++)                                              \
            acc[g] = 0.0;                                                               \
        for (ptrdiff_t p = 0; p < n_on; p++) {                                          \
            const double *hp = h + on[p] * K_;                                          \
            for (ptrdiff_t g = 0; g < K_; g++)                                          \
                acc[g] += hp[g];                                                        \
            if (!J)                                                                     \
                continue;                                                               \
            const double *row = J + on[p] * D * K_;                                     \
            for (ptrdiff_t q = p + 1; q < n_on; q++) {                                  \
                const double *cell = row + on[q] * K_;                                  \
                for (ptrdiff_t g = 0; g < K_; g++)                                      \
                    acc[g] += cell[g];                                                  \
            }                                                                           \
        }                                                                               \
        for (ptrdiff_t g = 0; g < K_; g++)                                              \
            energy_out[g] = acc[g];                                                     \
    } while (0)

static void energy_row_any(const double *h, const double *J, const ptrdiff_t *on, ptrdiff_t n_on, ptrdiff_t D,
                           ptrdiff_t K, double *energy_out)
{
    for (ptrdiff_t g = 0; g < K; g++)
        energy_out[g] = 0.0;
    for (ptrdiff_t p = 0; p < n_on; p++) {
        const double *hp = h + on[p] * K;
        for (ptrdiff_t g = 0; g < K; g++)
            energy_out[g] += hp[g];
        if (!J)
            continue;
        const double *row = J + on[p] * D * K;
        for (ptrdiff_t q = p + 1; q < n_on; q++) {
            const double *cell = row + on[q] * K;
            for (ptrdiff_t g = 0; g < K; g++)
                energy_out[g] += cell[g];
        }
    }
}

static void energy_row(const double *h, const double *J, const ptrdiff_t *on, ptrdiff_t n_on, ptrdiff_t D, ptrdiff_t K,
                       double *energy_out)
{
    switch (K) {
    case 1: ENERGY_ROW(1, 1); break;
    case 2: ENERGY_ROW(2, 2); break;
    case 3: ENERGY_ROW(3, 3); break;
    case 4: ENERGY_ROW(4, 4); break;
    case 5: ENERGY_ROW(5, 5); break;
    case 6: ENERGY_ROW(6, 6); break;
    case 8: ENERGY_ROW(8, 8); break;
    case 10: ENERGY_ROW(10, 10); break;
    default: energy_row_any(h, J, on, n_on, D, K, energy_out);
    }
}
#endif
