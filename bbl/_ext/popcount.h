/* Population count (number of ones) of the conjunction of two rows of bits, by the best instructions of this processor.
 */
#ifndef POPCOUNT_H
#define POPCOUNT_H
#include <stdint.h>
#include <stddef.h>
#include "cpu.h"

/* Return the number of ones in x. */
CPU_INLINE int popcount_word(uint64_t x)
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

/* The loop of popcount_and, compiled for the instructions of its caller. */
CPU_INLINE int64_t popcount_words(const uint64_t *a, const uint64_t *b, ptrdiff_t words)
{
    int64_t total = 0;
    for (ptrdiff_t w = 0; w < words; w++)
        total += popcount_word(a[w] & b[w]);
    return total;
}

#ifdef CPU_X86
static enum { POPCOUNT_PLAIN, POPCOUNT_INSTRUCTION, POPCOUNT_VECTORS } popcount_best;

__attribute__((constructor)) static void popcount_choose(void)
{
    __builtin_cpu_init();
    popcount_best = cpu_runs(64) && __builtin_cpu_supports("avx512vpopcntdq") ? POPCOUNT_VECTORS
        : __builtin_cpu_supports("popcnt")                                    ? POPCOUNT_INSTRUCTION
                                                                              : POPCOUNT_PLAIN;
}

__attribute__((target("avx512f,avx512vl,avx512vpopcntdq"))) static int64_t popcount_by_vectors(
    const uint64_t *a, const uint64_t *b, ptrdiff_t words)
{
    return popcount_words(a, b, words);
}

__attribute__((target("popcnt"))) static int64_t popcount_by_instruction(
    const uint64_t *a, const uint64_t *b, ptrdiff_t words)
{
    return popcount_words(a, b, words);
}
#endif

/* Return the number of bits that are 1 in both a and b, which have `words` words each. */
static inline int64_t popcount_and(const uint64_t *a, const uint64_t *b, ptrdiff_t words)
{
#ifdef CPU_X86
    if (popcount_best == POPCOUNT_VECTORS)
        return popcount_by_vectors(a, b, words);
    if (popcount_best == POPCOUNT_INSTRUCTION)
        return popcount_by_instruction(a, b, words);
#endif
    return popcount_words(a, b, words);
}
#endif
