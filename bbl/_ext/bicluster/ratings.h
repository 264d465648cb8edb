/* Ordinal ratings of one block under a truncated normal distribution: deviance, and the maximum-likelihood centre.

   The probability of a rating r = 0..levels - 1 is the probability of (r - 1/2, r + 1/2) under a normal distribution
   with mean mu, the centre of the block, and standard deviation sigma, truncated to (-1/2, levels - 1/2). counts
   (levels) contains the weight of each rating. Z is a standard normal variable. */
#ifndef RATINGS_H
#define RATINGS_H

#include <math.h>
#include <stdint.h>

#define RATINGS_TINY 1e-300   /* lower bound of probabilities: logarithms and quotients stay finite */
#define RATINGS_BISECTIONS 40 /* of the range that contains the maximum-likelihood centre */

/* Return P(low < Z < high), but at least RATINGS_TINY; computed from the nearer tail, which avoids cancellation. */
static inline double ratings_interval(double low, double high)
{
    const double sqrt_half = 0.7071067811865476; /* P(Z > z) = erfc(z sqrt(1/2)) / 2 */
    const double p = low > 0.0 ? 0.5 * (erfc(low * sqrt_half) - erfc(high * sqrt_half))
                               : 0.5 * (erfc(-high * sqrt_half) - erfc(-low * sqrt_half));
    return RATINGS_TINY > p ? RATINGS_TINY : p;
}

/* Return the standard normal density at z; the constant is 1 / sqrt(2 pi). */
static inline double ratings_density(double z) { return 0.3989422804014327 * exp(-0.5 * z * z); }

/* An edge between intervals of Z: its position z, and the probabilities P(Z < z) and P(Z > z). */
typedef struct {
    double z, below, above;
} ratings_edge;

/* Return the edge at position z. */
static inline ratings_edge ratings_edge_at(double z)
{
    const double tail = 0.5 * erfc(fabs(z) * 0.7071067811865476); /* P(Z > |z|) */
    const ratings_edge edge = {z, z < 0.0 ? tail : 1.0 - tail, z < 0.0 ? 1.0 - tail : tail};
    return edge;
}

/* Return the probability between two edges as `ratings_interval` does. */
static inline double ratings_between(ratings_edge low, ratings_edge high)
{
    const double p = low.z > 0.0 ? low.above - high.above : high.below - low.below;
    return RATINGS_TINY > p ? RATINGS_TINY : p;
}

/* Return the deviance, minus twice the log-likelihood, of a block with centre mu. */
static double ratings_deviance(const double *counts, int32_t levels, double mu, double sigma)
{
    double total = 0.0, loglik = 0.0;
    const ratings_edge first_edge = ratings_edge_at((-0.5 - mu) / sigma);
    ratings_edge low = first_edge, high;
    for (int32_t r = 0; r < levels; r++, low = high) {
        high = ratings_edge_at((r + 0.5 - mu) / sigma);
        if (counts[r] > 0.0) {
            total += counts[r];
            loglik += counts[r] * log(ratings_between(low, high));
        }
    }
    loglik -= total * log(ratings_between(first_edge, low)); /* truncation; here low is the last edge */
    return -2.0 * loglik;
}

/* Return sigma times the derivative of a block's log-likelihood with respect to mu. For an interval of probability p
   from low to high it is (density(low) - density(high)) / p; the term of the whole range, due to the truncation, is
   subtracted. */
static double ratings_score(const double *counts, int32_t levels, double mu, double sigma)
{
    double derivative = 0.0, total = 0.0, low, high, p;
    for (int32_t r = 0; r < levels; r++)
        if (counts[r] > 0.0) {
            low = (r - 0.5 - mu) / sigma;
            high = (r + 0.5 - mu) / sigma;
            p = ratings_interval(low, high);
            total += counts[r];
            derivative += counts[r] * (ratings_density(low) - ratings_density(high)) / p;
        }
    low = (-0.5 - mu) / sigma;
    high = (levels - 0.5 - mu) / sigma;
    p = ratings_interval(low, high);
    return derivative - total * (ratings_density(low) - ratings_density(high)) / p;
}

/* Return the mean rating of a block, or with `mle` the maximum-likelihood estimate of mu; counts must not be all 0. */
static double ratings_centre(const double *counts, int32_t levels, double sigma, int mle)
{
    /* outside this range, the likelihood hardly changes */
    double low = -0.5 - 4.0 * sigma, high = levels - 0.5 + 4.0 * sigma, total = 0.0, mean = 0.0;
    for (int32_t r = 0; r < levels; r++) {
        total += counts[r];
        mean += counts[r] * r;
    }
    mean /= total;
    if (!mle)
        return mean;
    if (ratings_score(counts, levels, low, sigma) <= 0.0)
        return low;
    if (ratings_score(counts, levels, high, sigma) >= 0.0)
        return high;
    for (int k = 0; k < RATINGS_BISECTIONS; k++) { /* the log-likelihood is concave */
        const double middle = 0.5 * (low + high);
        if (ratings_score(counts, levels, middle, sigma) > 0.0)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}
#endif
