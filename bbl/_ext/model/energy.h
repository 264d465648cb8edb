/* Energy of one row under K models: sums of fields h (D, K) and couplings J (D, D, K) of the row's columns. */
#ifndef ENERGY_H
#define ENERGY_H
#include <stddef.h>

/* Body of energy_row for K_ models, K_ constant so that the compiler unrolls the loops; LOOP_K = K_ */
#define ENERGY_ROW(K_, LOOP_K)                                                          \
    do {                                                                                \
        double energy[LOOP_K];                                                          \
        for (ptrdiff_t g = 0; g < K_; g++)                                              \
            energy[g] = 0.0;                                                            \
        for (ptrdiff_t p = 0; p < n_columns; p++) {                                     \
            const double *field = h + columns[p] * K_;                                  \
            for (ptrdiff_t g = 0; g < K_; g++)                                          \
                energy[g] += field[g];                                                  \
            if (!J)                                                                     \
                continue;                                                               \
            const double *J_row = J + columns[p] * D * K_;                              \
            for (ptrdiff_t q = p + 1; q < n_columns; q++) {                             \
                const double *cell = J_row + columns[q] * K_;                           \
                for (ptrdiff_t g = 0; g < K_; g++)                                      \
                    energy[g] += cell[g];                                               \
            }                                                                           \
        }                                                                               \
        for (ptrdiff_t g = 0; g < K_; g++)                                              \
            energy_out[g] = energy[g];                                                  \
    } while (0)

/* energy_row for any K */
static void energy_row_any(const double *h, const double *J, const ptrdiff_t *columns, ptrdiff_t n_columns,
                           ptrdiff_t D, ptrdiff_t K, double *energy_out)
{
    for (ptrdiff_t g = 0; g < K; g++)
        energy_out[g] = 0.0;
    for (ptrdiff_t p = 0; p < n_columns; p++) {
        const double *field = h + columns[p] * K;
        for (ptrdiff_t g = 0; g < K; g++)
            energy_out[g] += field[g];
        if (!J)
            continue;
        const double *J_row = J + columns[p] * D * K;
        for (ptrdiff_t q = p + 1; q < n_columns; q++) {
            const double *cell = J_row + columns[q] * K;
            for (ptrdiff_t g = 0; g < K; g++)
                energy_out[g] += cell[g];
        }
    }
}

/* Write the energies of a row under K models to energy_out (K); columns (n_columns) rise, J may be NULL. */
static void energy_row(const double *h, const double *J, const ptrdiff_t *columns, ptrdiff_t n_columns, ptrdiff_t D,
                       ptrdiff_t K, double *energy_out)
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
    default: energy_row_any(h, J, columns, n_columns, D, K, energy_out);
    }
}
#endif
