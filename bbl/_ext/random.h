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

/* Successes among n trials of probability p, exactly: by inversion where few are expected, else by Hoermann's (1993)
   transformed rejection with squeeze. n is a whole number up to 2^53. */
static inline double random_binomial(uint64_t *s, double n, double p)
{
    if (p > 0.5) return n - random_binomial(s, n, 1.0 - p);
    if (!(p > 0.0) || n <= 0.0) return 0.0;
    if (n * p < 10.0) {
        const double odds = p / (1.0 - p);
        double k = 0.0, left = random_uniform(s), mass = exp(n * log1p(-p));
        while (left > mass && k < n) {
            left -= mass;
            k += 1.0;
            mass *= odds * (n - k + 1.0) / k;
        }
        return k;
    }
    const double spread = sqrt(n * p * (1.0 - p)), b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p;
    const double squeeze = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread, mode = floor((n + 1.0) * p);
    for (;;) {
        const double u = random_uniform(s) - 0.5, v = random_uniform(s), edge = 0.5 - fabs(u);
        const double k = floor((2.0 * a / edge + b) * u + n * p + 0.5);
        if (edge >= 0.07 && v <= squeeze) return k;
        if (k < 0.0 || k > n) continue;
        if (log(v * alpha / (a / (edge * edge) + b)) <= lgamma(mode + 1.0) + lgamma(n - mode + 1.0) - lgamma(k + 1.0)
                                                            - lgamma(n - k + 1.0)
                                                            + (k - mode) * (log(p) - log1p(-p)))
            return k;
    }
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
