/* Population count of the conjunction of two bit rows, one clone per instruction set where the loader can choose. */
#ifndef BBL_POPCOUNT_H
#define BBL_POPCOUNT_H
#include <stdint.h>
#include <stddef.h>

#if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) \
    && !defined(__SANITIZE_THREAD__)
#define BBL_POPCOUNT_CLONES __attribute__((target_clones("arch=icelake-server", "popcnt", "default")))
#else
#define BBL_POPCOUNT_CLONES
#endif

static inline int bbl_popcount64(uint64_t x)
{
#if defined(__GNUC__)
    return __builtin_popcountll(x);
#else
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    return (int)((((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u) >> 56);
#endif
}

BBL_POPCOUNT_CLONES
static int64_t bbl_and_popcount(const uint64_t *a, const uint64_t *b, ptrdiff_t words)
{
    int64_t total = 0;
    for (ptrdiff_t w = 0; w < words; ++w)
        total += bbl_popcount64(a[w] & b[w]);
    return total;
}
#endif
