/* The passes of boosting.h for one vector width; boosting.h includes this file once for each.

   Before inclusion define LANES, TARGET (the attribute of functions for the vector width) and NAME(x) (their prefix),
   as for vector.h. A `vec` contains the numbers of LANES groups in one row. The first `used` numbers of a row (a
   multiple of 4) belong to groups or pad a vector. */

#include "vector.h"

#define UNROLLED TARGET CPU_INLINE /* compiled for each `width` up to 16 and `used`, which are constants */
/* Call a function with `width` and `used`, which are constants if rows are short. */
#define BY_WIDTH(function, ...)                                             \
    do {                                                                    \
        const ptrdiff_t width = rows->width, used = (rows->K + 3) / 4 * 4;  \
        if (width == 4 && LANES <= 4)                                       \
            function(4, 4, __VA_ARGS__);                                    \
        else if (width == 8 && used == 4)                                   \
            function(8, 4, __VA_ARGS__);                                    \
        else if (width == 8)                                                \
            function(8, 8, __VA_ARGS__);                                    \
        else if (width == 16 && used == 8)                                  \
            function(16, 8, __VA_ARGS__);                                   \
        else                                                                \
            function(width, used, __VA_ARGS__);                             \
    } while (0)
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (words){__VA_ARGS__})
#endif

/* Add a row of probabilities p to the sums (2, width) of its cell. */
UNROLLED void NAME(add_row)(const ptrdiff_t width, const ptrdiff_t used, const double *p, const double *observed,
                            double weight, double *sums)
{
    for (ptrdiff_t k = 0; k < width; k += LANES) {
        const vec own = vec_load(p + k);
        vec_store(sums + k, vec_load(sums + k) + weight * (vec_load(observed + k) - own));
        if (k < used)
            vec_store(sums + width + k, vec_load(sums + width + k) + weight * (own - own * own));
    }
}

UNROLLED void NAME(add_of_width)(const ptrdiff_t width, const ptrdiff_t used, const struct boosting_rows *rows,
                                 const int32_t *cell, ptrdiff_t copy_size, double *sums)
{
    const double *p = rows->p, *observed = rows->observed, *weights = rows->weights;
    const ptrdiff_t n = rows->n, *y = rows->y;
    ptrdiff_t r = 0;
    for (; r + BOOSTING_COPIES <= n; r += BOOSTING_COPIES)
        for (int copy = 0; copy < BOOSTING_COPIES; copy++)
            NAME(add_row)(width, used, p + (r + copy) * width, observed + y[r + copy] * width, weights[r + copy],
                          sums + copy * copy_size + cell[r + copy] * 2 * width);
    for (; r < n; r++)
        NAME(add_row)(width, used, p + r * width, observed + y[r] * width, weights[r], sums + cell[r] * 2 * width);
}

/* Add each row, times its weight, to the sums (cells, 2, width) of its cell: ``observed - p``, then ``p (1 - p)``.
   `cell` (n) is the cell of each row. There are BOOSTING_COPIES tables of sums, `copy_size` numbers apart, or a single
   one if copy_size is 0. */
TARGET static void NAME(add)(const struct boosting_rows *rows, const int32_t *cell, ptrdiff_t copy_size, double *sums)
{
    BY_WIDTH(NAME(add_of_width), rows, cell, copy_size, sums);
}

/* Set `scale` to the reciprocals of the sums of the lanes of four vectors. */
TARGET static inline void NAME(reciprocals)(const vec total[4], double scale[4])
{
#if LANES == 4
    const vec first = SHUFFLE(total[0], total[1], 0, 4, 2, 6) + SHUFFLE(total[0], total[1], 1, 5, 3, 7);
    const vec second = SHUFFLE(total[2], total[3], 0, 4, 2, 6) + SHUFFLE(total[2], total[3], 1, 5, 3, 7);
    const vec sums = SHUFFLE(first, second, 0, 1, 4, 5) + SHUFFLE(first, second, 2, 3, 6, 7);
    vec_store(scale, 1.0 / sums);
#else
    double lanes[LANES];
    for (int row = 0; row < 4; row++) {
        double sum = 0.0;
        memcpy(lanes, &total[row], sizeof lanes);
        for (int lane = 0; lane < LANES; lane++)
            sum += lanes[lane];
        scale[row] = 1.0 / sum;
    }
#endif
}

/* Update `count` rows, at most four, using a common division. */
UNROLLED void NAME(change_rows)(const ptrdiff_t width, const ptrdiff_t used, const int count, const int32_t *cell,
                                const uint8_t *part, const double *factors, double *p)
{
    vec total[4] = {vec_fill(0.0), vec_fill(0.0), vec_fill(0.0), vec_fill(0.0)};
    double scale[4];
    for (int row = 0; row < count; row++) {
        const double *factor = factors + part[cell[row]] * width;
        for (ptrdiff_t k = 0; k < used; k += LANES) {
            const vec product = vec_load(p + row * width + k) * vec_load(factor + k);
            vec_store(p + row * width + k, product);
            total[row] = k == 0 ? product : total[row] + product;
        }
    }
    NAME(reciprocals)(total, scale);
    for (int row = 0; row < count; row++)
        for (ptrdiff_t k = 0; k < used; k += LANES)
            vec_store(p + row * width + k, vec_load(p + row * width + k) * scale[row] + BOOSTING_LEAST);
}

UNROLLED void NAME(change_of_width)(const ptrdiff_t width, const ptrdiff_t used, const struct boosting_rows *rows,
                                    const int32_t *cell, const uint8_t *part, const double *factors)
{
    const ptrdiff_t n = rows->n;
    double *p = rows->p;
    ptrdiff_t r = 0;
    for (; r + 4 <= n; r += 4)
        NAME(change_rows)(width, used, 4, cell + r, part, factors, p + r * width);
    NAME(change_rows)(width, used, (int)(n - r), cell + r, part, factors, p + r * width);
}

/* Multiply the probabilities of each row by the factors (parts, width) of its part, and normalise them; `part` (cells)
   is the part of each cell, `cell` (n) the cell of each row. */
TARGET static void NAME(change)(const struct boosting_rows *rows, const int32_t *cell, const uint8_t *part,
                                const double *factors)
{
    BY_WIDTH(NAME(change_of_width), rows, cell, part, factors);
}

static const struct boosting_functions NAME(functions) = {NAME(add), NAME(change)};

#undef UNROLLED
#undef BY_WIDTH
#undef SHUFFLE
#include "vector.h"
