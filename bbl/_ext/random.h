/* Random numbers for kernels from one xoshiro256++ stream (Blackman & Vigna 2019). Its state s consists of four words,
   not all 0, drawn by the caller. */
#ifndef BBL_RANDOM_H
#define BBL_RANDOM_H

#include <math.h>
#include <stdint.h>

/* Return x rotated left by k bits. */
static inline uint64_t random_rotated(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* Return the next 64 random bits and advance the state s. */
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

/* Return a uniform number in the open interval (0, 1), so that its logarithm is finite. */
static inline double random_uniform(uint64_t *s)
{
    /* the midpoint of one of 2^53 equal cells, so neither 0 nor 1 */
    return ((double)(random_bits(s) >> 11) + 0.5) * 0x1.0p-53;
}

/* Return a uniform integer in 0..n - 1, n > 0, with a bias of at most n / 2^53. */
static inline int32_t random_below(uint64_t *s, int32_t n)
{
    int32_t k = (int32_t)(random_uniform(s) * n);
    return k < n ? k : n - 1; /* the product may be rounded up to n */
}

/* Return a standard normal number, by Box & Muller: a random radius times the cosine of a random angle. */
static inline double random_normal(uint64_t *s)
{
    double r = sqrt(-2.0 * log(random_uniform(s)));
    return r * cos(6.283185307179586 * random_uniform(s));
}

/* Return the exact number of successes in n trials with probability p: by inversion if n p < 10, otherwise by the
   transformed rejection method with squeeze (Hoermann 1993). n is an integer up to 2^53. */
static inline double random_binomial(uint64_t *s, double n, double p)
{
    if (p > 0.5) return n - random_binomial(s, n, 1.0 - p); /* both methods need p <= 1/2: count the failures */
    if (!(p > 0.0) || n <= 0.0) return 0.0;
    if (n * p < 10.0) { /* the rejection method below is valid from 10 on */
        /* inversion: subtract P(0), P(1), ... from a uniform number until it is used up */
        const double odds = p / (1.0 - p);
        double k = 0.0, remaining = random_uniform(s), probability = exp(n * log1p(-p));
        while (remaining > probability && k < n) {
            remaining -= probability;
            k += 1.0;
            probability *= odds * (n - k + 1.0) / k;
        }
        return k;
    }
    /* names and constants follow Hoermann's algorithm BTRS, where b, a and alpha fit the curve from which k is drawn to
       the binomial distribution; `squeeze` is his v_r, `edge` his us */
    const double sd = sqrt(n * p * (1.0 - p)), b = 1.15 + 2.53 * sd, a = -0.0873 + 0.0248 * b + 0.01 * p;
    const double squeeze = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * sd, mode = floor((n + 1.0) * p);
    for (;;) {
        const double u = random_uniform(s) - 0.5, v = random_uniform(s), edge = 0.5 - fabs(u);
        const double k = floor((2.0 * a / edge + b) * u + n * p + 0.5);
        if (edge >= 0.07 && v <= squeeze) return k; /* usually accepted without logarithms */
        if (k < 0.0 || k > n) continue;
        if (log(v * alpha / (a / (edge * edge) + b)) <= lgamma(mode + 1.0) + lgamma(n - mode + 1.0) - lgamma(k + 1.0)
                                                            - lgamma(n - k + 1.0)
                                                            + (k - mode) * (log(p) - log1p(-p)))
            return k;
    }
}

/* Draw a step of the Du process on a partition of n items with labels 0..k - 1 and `size` items in each group: a random
   item moves to one of the other groups, or to a new one unless it is the only item of its group, all with equal
   probability.

   Returns the item and writes its new label to to_out: k for a new group, or its old label if it is the only item of
   the only group. The partition itself is not changed. label is (n,), size (k,). */
static inline int32_t random_du_step(uint64_t *s, const int32_t *label, const int32_t *size, int32_t n, int32_t k,
                                     int32_t *to_out)
{
    int32_t item = random_below(s, n), old_label = label[item];
    if (size[old_label] == 1) { /* one of the other k - 1 groups */
        if (k == 1) {
            *to_out = old_label;
            return item;
        }
        *to_out = random_below(s, k - 1);
        *to_out += *to_out >= old_label; /* skips the old group */
    } else { /* one of the other k - 1 groups or a new one */
        *to_out = random_below(s, k);
        *to_out += *to_out >= old_label;
    }
    return item;
}
#endif
