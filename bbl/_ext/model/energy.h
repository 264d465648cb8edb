/* Energy of one row of data under K models: the sum of the fields h (D, K) of the row's columns c, its non-reference
   levels, and of the couplings J (D, D, K) of their pairs c < d. In the code, p < q are positions in the list of the
   row's columns and g is a model; field, J_row and cell point to h[c], J[c] and J[c, d] for c = columns[p], d =
   columns[q]. */
#ifndef ENERGY_H
#define ENERGY_H
#include <stddef.h>

/* Body of energy_row for a constant number K_ of models, so that the compiler unrolls the loops over models g and keeps
   the sums in registers. ARRAY_K, the length of the array of sums, equals K_ */
#define ENERGY_ROW(K_, ARRAY_K)                                                         \
    do {                                                                                \
        double energy[ARRAY_K];                                                         \
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

/* energy_row for any K: the same loops, with the sums in energy_out (K,) */
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

/* Write the energies of a row under K models to energy_out (K,). `columns` (n_columns,) are the row's columns in
   increasing order; J is NULL for models without couplings. */
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
