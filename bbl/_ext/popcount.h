/* Population count (number of ones) of the conjunction of two rows of bits, compiled for several instruction sets if
   the loader can select among them. */
#ifndef POPCOUNT_H
#define POPCOUNT_H
#include <stdint.h>
#include <stddef.h>

#if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* attribute of functions that are compiled once for each of these instruction sets; icelake-server has vector
   population counts */
#define POPCOUNT_CLONES __attribute__((target_clones("arch=icelake-server", "popcnt", "default")))
#else
#define POPCOUNT_CLONES
#endif

/* Return the number of ones in x. */
static inline int popcount_word(uint64_t x)
{
#if defined(__GNUC__)
    return __builtin_popcountll(x);
#else
    /* counts of ones in fields of 2, 4 and 8 bits; the product adds all bytes into the highest one */
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    return (int)((((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u) >> 56);
#endif
}

/* Return the number of bits that are 1 in both a and b, which have `words` words each. */
POPCOUNT_CLONES
static int64_t popcount_and(const uint64_t *a, const uint64_t *b, ptrdiff_t words)
{
    int64_t total = 0;
    for (ptrdiff_t w = 0; w < words; w++)
        total += popcount_word(a[w] & b[w]);
    return total;
}
#endif
