/* Energy of one row under K models whose parameters lie side by side; the common K are unrolled by the compiler. */
#ifndef BBL_ENERGY_H
#define BBL_ENERGY_H
#include <stddef.h>

/* h (D, K), J (D, D, K) or NULL, on[0..n_on) increasing columns, out (K). */
#define BBL_ROW_ENERGY(K_, LOOP_K)                                                      \
    do {                                                                                \
        double acc[LOOP_K];                                                             \
        for (ptrdiff_t g = 0; g < K_; ++g)                                              \
            acc[g] = 0.0;                                                               \
        for (ptrdiff_t p = 0; p < n_on; ++p) {                                          \
            const double *hp = h + on[p] * K_;                                          \
            for (ptrdiff_t g = 0; g < K_; ++g)                                          \
                acc[g] += hp[g];                                                        \
            if (!J)                                                                     \
                continue;                                                               \
            const double *row = J + on[p] * D * K_;                                     \
            for (ptrdiff_t q = p + 1; q < n_on; ++q) {                                  \
                const double *cell = row + on[q] * K_;                                  \
                for (ptrdiff_t g = 0; g < K_; ++g)                                      \
                    acc[g] += cell[g];                                                  \
            }                                                                           \
        }                                                                               \
        for (ptrdiff_t g = 0; g < K_; ++g)                                              \
            out[g] = acc[g];                                                            \
    } while (0)

static void bbl_row_energy_chunk(const double *h, const double *J, const ptrdiff_t *on, ptrdiff_t n_on,
                                 ptrdiff_t D, ptrdiff_t K, double *out)
{
    for (ptrdiff_t g = 0; g < K; ++g)
        out[g] = 0.0;
    for (ptrdiff_t p = 0; p < n_on; ++p) {
        const double *hp = h + on[p] * K;
        for (ptrdiff_t g = 0; g < K; ++g)
            out[g] += hp[g];
        if (!J)
            continue;
        const double *row = J + on[p] * D * K;
        for (ptrdiff_t q = p + 1; q < n_on; ++q) {
            const double *cell = row + on[q] * K;
            for (ptrdiff_t g = 0; g < K; ++g)
                out[g] += cell[g];
        }
    }
}

static void bbl_row_energy(const double *h, const double *J, const ptrdiff_t *on, ptrdiff_t n_on,
                           ptrdiff_t D, ptrdiff_t K, double *out)
{
    switch (K) {
    case 1: BBL_ROW_ENERGY(1, 1); break;
    case 2: BBL_ROW_ENERGY(2, 2); break;
    case 3: BBL_ROW_ENERGY(3, 3); break;
    case 4: BBL_ROW_ENERGY(4, 4); break;
    case 5: BBL_ROW_ENERGY(5, 5); break;
    case 6: BBL_ROW_ENERGY(6, 6); break;
    case 8: BBL_ROW_ENERGY(8, 8); break;
    case 10: BBL_ROW_ENERGY(10, 10); break;
    default: bbl_row_energy_chunk(h, J, on, n_on, D, K, out);
    }
}
#endif
