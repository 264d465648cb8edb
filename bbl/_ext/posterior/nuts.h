/* One transition of the no-U-turn sampler (Hoffman & Gelman 2014; multinomial, Betancourt 2017) for any density of n
   coordinates q, with momenta p of unit mass. The energy of a state is |p|^2 / 2 minus the log density. */
#ifndef BBL_NUTS_H
#define BBL_NUTS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "random.h"
#include "simplex.h"

/* maximum number of doublings of a trajectory; scratch vectors: 6 for each depth of nuts_build, 12 for
   nuts_transition */
enum { NUTS_DEPTH = 10, NUTS_SCRATCH = 6 * NUTS_DEPTH + 12 };
static const double NUTS_ERROR = 1000.0; /* a trajectory has diverged if the error of the energy exceeds this */

/* A function that returns the log density at q (n), up to a constant, and writes its gradient (n) */
typedef double (*nuts_density)(void *model, const double *q, double *gradient_out);

/* Position q (n), log density `value` and its gradient g (n) */
typedef struct {
    double *q, *g, value;
} nuts_state;

typedef struct {
    ptrdiff_t n;
    nuts_density density;
    void *model;     /* first argument of `density` */
    uint64_t *stream; /* state of the random number generator, see random.h */
    const int32_t *stop; /* a flag that ends the transition early */
    double step;     /* size of a leapfrog step */
    nuts_state current; /* end of the trajectory that is being extended */
    double *p;       /* (n) momentum at `current` */
    double energy;   /* |p|^2 / 2 - log density at the start of the transition */
    double accepted; /* sum of the acceptance probabilities of the leapfrog steps */
    ptrdiff_t steps; /* number of leapfrog steps */
    int diverged;    /* whether the energy of a step was too large */
    double *scratch; /* (NUTS_SCRATCH, n) */
} nuts_sampler;

/* Return ln(exp(a) + exp(b)). */
static inline double nuts_log_add(double a, double b)
{
    const double larger = a > b ? a : b;
    return isinf(larger) && larger < 0 ? larger : larger + log1p(exp(-fabs(a - b)));
}

/* Copy the state `source` to `target`. */
static inline void nuts_copy_state(nuts_state *target, const nuts_state *source, ptrdiff_t n)
{
    memcpy(target->q, source->q, (size_t)n * sizeof(double));
    memcpy(target->g, source->g, (size_t)n * sizeof(double));
    target->value = source->value;
}

/* Move `current` and p by one leapfrog step of size `step`, backwards in time if it is negative. */
static inline void nuts_leapfrog(nuts_sampler *s, double step)
{
    for (ptrdiff_t k = 0; k < s->n; k++) {
        s->p[k] += 0.5 * step * s->current.g[k];
        s->current.q[k] += step * s->p[k];
    }
    s->current.value = s->density(s->model, s->current.q, s->current.g);
    for (ptrdiff_t k = 0; k < s->n; k++) s->p[k] += 0.5 * step * s->current.g[k];
}

/* Return whether a trajectory with momentum sum rho (n) makes no U-turn: its first and last momentum, p_begin and p_end
   (n), both have a positive product with rho. simplex_dot(a, b, n) is the dot product of two vectors. */
static inline int nuts_is_open(const double *p_begin, const double *p_end, const double *rho, ptrdiff_t n)
{
    return simplex_dot(p_begin, rho, n) > 0.0 && simplex_dot(p_end, rho, n) > 0.0;
}

/* Return the same for a trajectory with momentum sum rho + extra. */
static inline int nuts_is_open_with(const double *p_begin, const double *p_end, const double *rho, const double *extra,
                                  ptrdiff_t n)
{
    return simplex_dot(p_begin, rho, n) + simplex_dot(p_begin, extra, n) > 0.0
           && simplex_dot(p_end, rho, n) + simplex_dot(p_end, extra, n) > 0.0;
}

/* Extend the trajectory by 2^depth leapfrog steps from `current`; return 0 if the extension makes a U-turn or diverges.

   The momenta of the extension are added to rho (n). Its first and last momentum (n), a state drawn from it with
   probabilities proportional to the weights exp(-energy), and the log of the sum of the weights are written. */
static int nuts_build(nuts_sampler *s, int depth, double step, double *rho, double *p_begin_out, double *p_end_out,
                      nuts_state *drawn_out, double *log_weight_out)
{
    const ptrdiff_t n = s->n;
    const size_t bytes = (size_t)n * sizeof(double);
    if (depth == 0) {
        nuts_leapfrog(s, step);
        /* error of the energy, which exact dynamics would conserve; the log weight is relative to the start */
        double error = 0.5 * simplex_dot(s->p, s->p, n) - s->current.value - s->energy;
        if (isnan(error)) error = INFINITY;
        *log_weight_out = -error;
        s->accepted += error < 0 ? 1.0 : exp(-error);
        s->steps++;
        nuts_copy_state(drawn_out, &s->current, n);
        for (ptrdiff_t k = 0; k < n; k++) rho[k] += s->p[k];
        memcpy(p_begin_out, s->p, bytes);
        memcpy(p_end_out, s->p, bytes);
        s->diverged |= error > NUTS_ERROR;
        return error <= NUTS_ERROR && !s->stop[0];
    }
    double *scratch = s->scratch + (ptrdiff_t)(6 * (depth - 1)) * n; /* six vectors for each depth */
    /* 1 and 2: the first and second half of the extension */
    double *rho_1 = scratch, *rho_2 = scratch + n, *p_1_end = scratch + 2 * n, *p_2_begin = scratch + 3 * n;
    nuts_state drawn_2 = {scratch + 4 * n, scratch + 5 * n, 0.0};
    double log_weight_1, log_weight_2;
    memset(rho_1, 0, 2 * bytes); /* also clears rho_2, which follows */
    if (!nuts_build(s, depth - 1, step, rho_1, p_begin_out, p_1_end, drawn_out, &log_weight_1)) return 0;
    if (!nuts_build(s, depth - 1, step, rho_2, p_2_begin, p_end_out, &drawn_2, &log_weight_2)) return 0;
    *log_weight_out = nuts_log_add(log_weight_1, log_weight_2);
    if (log(random_uniform(s->stream)) < log_weight_2 - *log_weight_out) nuts_copy_state(drawn_out, &drawn_2, n);
    /* check for U-turns between the first half and the first momentum of the second, and vice versa */
    const int is_open = nuts_is_open_with(p_begin_out, p_2_begin, rho_1, p_2_begin, n)
                      && nuts_is_open_with(p_1_end, p_end_out, rho_2, p_1_end, n);
    for (ptrdiff_t k = 0; k < n; k++) {
        rho_1[k] += rho_2[k];
        rho[k] += rho_1[k];
    }
    return is_open && nuts_is_open(p_begin_out, p_end_out, rho_1, n);
}

/* Make one transition from `state`, in place; return the mean acceptance probability of the leapfrog steps.

   The trajectory is doubled, at a random end each time, until it makes a U-turn. */
static double nuts_transition(nuts_sampler *s, nuts_state *state)
{
    const ptrdiff_t n = s->n;
    const size_t bytes = (size_t)n * sizeof(double);
    double *scratch = s->scratch + (ptrdiff_t)(6 * NUTS_DEPTH) * n;
    double *rho = scratch, *rho_added = scratch + n, *p_added_end = scratch + 2 * n, *p_added_begin = scratch + 3 * n;
    nuts_state drawn = {scratch + 4 * n, scratch + 5 * n, 0.0};
    /* ends and momenta of the trajectory: 0 is the backward end in time, 1 the forward end */
    nuts_state ends[2] = {{scratch + 6 * n, scratch + 7 * n, 0.0}, {scratch + 8 * n, scratch + 9 * n, 0.0}};
    /* log_weight: initially of the start */
    double *momenta[2] = {scratch + 10 * n, scratch + 11 * n}, log_weight = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) s->p[k] = random_normal(s->stream);
    s->energy = 0.5 * simplex_dot(s->p, s->p, n) - state->value;
    s->accepted = 0.0;
    s->steps = 0;
    s->diverged = 0;
    memcpy(rho, s->p, bytes);
    for (int end = 0; end < 2; end++) {
        nuts_copy_state(&ends[end], state, n);
        memcpy(momenta[end], s->p, bytes);
    }
    for (int depth = 0; depth < NUTS_DEPTH; depth++) {
        const int forward = random_uniform(s->stream) < 0.5;
        double log_weight_added;
        nuts_copy_state(&s->current, &ends[forward], n);
        memcpy(s->p, momenta[forward], bytes);
        memset(rho_added, 0, bytes);
        if (!nuts_build(s, depth, forward ? s->step : -s->step, rho_added, p_added_begin, p_added_end, &drawn,
                        &log_weight_added))
            break;
        /* biased towards the extension, which is farther from the start */
        if (log(random_uniform(s->stream)) < log_weight_added - log_weight) nuts_copy_state(state, &drawn, n);
        log_weight = nuts_log_add(log_weight, log_weight_added);
        nuts_copy_state(&ends[forward], &s->current, n); /* current and s->p are at the new end */
        /* check for U-turns between the old trajectory and the first added momentum, and vice versa: momenta[forward]
           still belongs to the old end, next to the extension */
        const double *p_far_end = momenta[!forward];
        const int is_open = nuts_is_open_with(p_far_end, p_added_begin, rho, p_added_begin, n)
                          && nuts_is_open_with(momenta[forward], p_added_end, rho_added, momenta[forward], n);
        for (ptrdiff_t k = 0; k < n; k++) rho[k] += rho_added[k];
        memcpy(momenta[forward], s->p, bytes);
        if (!is_open || !nuts_is_open(p_far_end, momenta[forward], rho, n)) break;
    }
    return s->accepted / (s->steps ? (double)s->steps : 1.0);
}
#endif
