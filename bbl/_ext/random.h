/* Random numbers for kernels: one xoshiro256++ stream (Blackman & Vigna 2019), seeded by the caller's Generator. */
#ifndef BBL_RANDOM_H
#define BBL_RANDOM_H

#include <math.h>
#include <stdint.h>

static inline uint64_t random_rotated(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* The next 64 bits of the stream, whose state are the four words s, not all zero */
static inline uint64_t random_bits(uint64_t *s)
{
    uint64_t result = random_rotated(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = random_rotated(s[3], 45);
    return result;
}

/* Uniform in (0, 1): never one of the ends, so that its logarithm is finite */
static inline double random_uniform(uint64_t *s)
{
    return ((double)(random_bits(s) >> 11) + 0.5) * 0x1.0p-53;
}

/* Uniform among 0..n-1, n > 0; the bias of one part in 2^53 / n is out of sight */
static inline int32_t random_below(uint64_t *s, int32_t n)
{
    int32_t k = (int32_t)(random_uniform(s) * n);
    return k < n ? k : n - 1;
}

/* Standard normal, by Box & Muller */
static inline double random_normal(uint64_t *s)
{
    double r = sqrt(-2.0 * log(random_uniform(s)));
    return r * cos(6.283185307179586 * random_uniform(s));
}

/* One step of the Du process on a partition of n items: labels 0..*k-1, of `size` each. Returns the item, and in `to`
   the label of the group that it goes to, *k for a new one. The partition itself is left as it is. */
static inline int32_t random_du_step(uint64_t *s, const int32_t *label, const int32_t *size, int32_t n, int32_t k,
                                     int32_t *to)
{
    int32_t item = random_below(s, n), own = label[item];
    if (size[own] == 1) { /* one of the other k - 1 groups */
        if (k == 1) {
            *to = own;
            return item;
        }
        *to = random_below(s, k - 1);
        *to += *to >= own;
    } else { /* one of the other k - 1 groups or a new one */
        *to = random_below(s, k);
        *to += *to >= own;
    }
    return item;
}
#endif
