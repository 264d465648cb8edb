/* One transition of the no-U-turn sampler (Hoffman & Gelman 2014; multinomial, Betancourt 2017), for any density. */
#ifndef BBL_NUTS_H
#define BBL_NUTS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "random.h"
#include "simplex.h"

enum { NUTS_DEPTH = 10, NUTS_WORK = 6 * NUTS_DEPTH + 12 }; /* depth of the tree; scratch vectors of a sampler */
static const double NUTS_ERROR = 1000.0; /* error of the energy above which a trajectory has diverged */

/* Return the log density at q and write its gradient. */
typedef double (*nuts_density)(void *model, const double *q, double *gradient_out);

/* Position q (n), log density `value` and its gradient g (n) */
typedef struct {
    double *q, *g, value;
} nuts_state;

typedef struct {
    ptrdiff_t n;
    nuts_density density;
    void *model;
    uint64_t *stream;
    const int32_t *stop;
    double step;     /* size of a leapfrog step */
    nuts_state now;  /* the end of the trajectory that is being extended */
    double *p;       /* (n) its momentum */
    double energy;   /* at the start of the transition */
    double accepted; /* sum of the probabilities of acceptance of the leapfrog steps */
    ptrdiff_t steps; /* number of leapfrog steps */
    int diverged;
    double *work;    /* (NUTS_WORK, n) */
} nuts_sampler;

/* Return ln(exp(a) + exp(b)). */
static inline double nuts_log_add(double a, double b)
{
    const double larger = a > b ? a : b;
    return isinf(larger) && larger < 0 ? larger : larger + log1p(exp(-fabs(a - b)));
}

static inline void nuts_copy(nuts_state *to, const nuts_state *from, ptrdiff_t n)
{
    memcpy(to->q, from->q, (size_t)n * sizeof(double));
    memcpy(to->g, from->g, (size_t)n * sizeof(double));
    to->value = from->value;
}

/* Take one leapfrog step from `now`. */
static inline void nuts_leapfrog(nuts_sampler *s, double step)
{
    for (ptrdiff_t k = 0; k < s->n; k++) {
        s->p[k] += 0.5 * step * s->now.g[k];
        s->now.q[k] += step * s->p[k];
    }
    s->now.value = s->density(s->model, s->now.q, s->now.g);
    for (ptrdiff_t k = 0; k < s->n; k++) s->p[k] += 0.5 * step * s->now.g[k];
}

/* Return whether a trajectory with sum of momenta rho makes no U-turn: both end momenta point along rho. */
static inline int nuts_is_open(const double *p_begin, const double *p_end, const double *rho, ptrdiff_t n)
{
    return simplex_dot(p_begin, rho, n) > 0.0 && simplex_dot(p_end, rho, n) > 0.0;
}

/* The same with sum of momenta rho + extra */
static inline int nuts_is_open_with(const double *p_begin, const double *p_end, const double *rho, const double *extra,
                                  ptrdiff_t n)
{
    return simplex_dot(p_begin, rho, n) + simplex_dot(p_begin, extra, n) > 0.0
           && simplex_dot(p_end, rho, n) + simplex_dot(p_end, extra, n) > 0.0;
}

/* Extend the trajectory by 2^depth leapfrog steps from `now`; return 0 if the extension makes a U-turn or diverges.

   The momenta of the extension are added to rho; its first and last momentum, a state drawn from it in proportion to
   the density, and the log of its total weight are written. */
static int nuts_build(nuts_sampler *s, int depth, double step, double *rho, double *p_begin_out, double *p_end_out,
                      nuts_state *drawn_out, double *log_weight_out)
{
    const ptrdiff_t n = s->n;
    const size_t bytes = (size_t)n * sizeof(double);
    if (depth == 0) {
        nuts_leapfrog(s, step);
        double error = 0.5 * simplex_dot(s->p, s->p, n) - s->now.value - s->energy;
        if (isnan(error)) error = INFINITY;
        *log_weight_out = -error;
        s->accepted += error < 0 ? 1.0 : exp(-error);
        s->steps++;
        nuts_copy(drawn_out, &s->now, n);
        for (ptrdiff_t k = 0; k < n; k++) rho[k] += s->p[k];
        memcpy(p_begin_out, s->p, bytes);
        memcpy(p_end_out, s->p, bytes);
        s->diverged |= error > NUTS_ERROR;
        return error <= NUTS_ERROR && !s->stop[0];
    }
    double *scratch = s->work + (ptrdiff_t)(6 * (depth - 1)) * n; /* six vectors for each depth */
    double *rho_1 = scratch, *rho_2 = scratch + n, *p_1_end = scratch + 2 * n, *p_2_begin = scratch + 3 * n;
    nuts_state drawn_2 = {scratch + 4 * n, scratch + 5 * n, 0.0};
    double log_weight_1, log_weight_2;
    memset(rho_1, 0, 2 * bytes);
    if (!nuts_build(s, depth - 1, step, rho_1, p_begin_out, p_1_end, drawn_out, &log_weight_1)) return 0;
    if (!nuts_build(s, depth - 1, step, rho_2, p_2_begin, p_end_out, &drawn_2, &log_weight_2)) return 0;
    *log_weight_out = nuts_log_add(log_weight_1, log_weight_2);
    if (log(random_uniform(s->stream)) < log_weight_2 - *log_weight_out) nuts_copy(drawn_out, &drawn_2, n);
    const int is_open = nuts_is_open_with(p_begin_out, p_2_begin, rho_1, p_2_begin, n)
                      && nuts_is_open_with(p_1_end, p_end_out, rho_2, p_1_end, n);
    for (ptrdiff_t k = 0; k < n; k++) {
        rho_1[k] += rho_2[k];
        rho[k] += rho_1[k];
    }
    return is_open && nuts_is_open(p_begin_out, p_end_out, rho_1, n);
}

/* Make one transition from `state`, in place; return the mean probability of acceptance along the trajectory. */
static double nuts_transition(nuts_sampler *s, nuts_state *state)
{
    const ptrdiff_t n = s->n;
    const size_t bytes = (size_t)n * sizeof(double);
    double *scratch = s->work + (ptrdiff_t)(6 * NUTS_DEPTH) * n;
    double *rho = scratch, *rho_added = scratch + n, *p_added_end = scratch + 2 * n, *p_added_begin = scratch + 3 * n;
    nuts_state drawn = {scratch + 4 * n, scratch + 5 * n, 0.0};
    nuts_state ends[2] = {{scratch + 6 * n, scratch + 7 * n, 0.0}, {scratch + 8 * n, scratch + 9 * n, 0.0}};
    double *momenta[2] = {scratch + 10 * n, scratch + 11 * n}, log_weight = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) s->p[k] = random_normal(s->stream);
    s->energy = 0.5 * simplex_dot(s->p, s->p, n) - state->value;
    s->accepted = 0.0;
    s->steps = 0;
    s->diverged = 0;
    memcpy(rho, s->p, bytes);
    for (int e = 0; e < 2; e++) {
        nuts_copy(&ends[e], state, n);
        memcpy(momenta[e], s->p, bytes);
    }
    for (int depth = 0; depth < NUTS_DEPTH; depth++) {
        const int forward = random_uniform(s->stream) < 0.5;
        double log_weight_added;
        nuts_copy(&s->now, &ends[forward], n);
        memcpy(s->p, momenta[forward], bytes);
        memset(rho_added, 0, bytes);
        if (!nuts_build(s, depth, forward ? s->step : -s->step, rho_added, p_added_begin, p_added_end, &drawn,
                        &log_weight_added))
            break;
        if (log(random_uniform(s->stream)) < log_weight_added - log_weight) nuts_copy(state, &drawn, n);
        log_weight = nuts_log_add(log_weight, log_weight_added);
        nuts_copy(&ends[forward], &s->now, n);
        /* no U-turn between the old trajectory and the first added momentum, nor the reverse */
        const double *far = momenta[!forward];
        const int is_open = nuts_is_open_with(far, p_added_begin, rho, p_added_begin, n)
                          && nuts_is_open_with(momenta[forward], p_added_end, rho_added, momenta[forward], n);
        for (ptrdiff_t k = 0; k < n; k++) rho[k] += rho_added[k];
        memcpy(momenta[forward], s->p, bytes);
        if (!is_open || !nuts_is_open(far, momenta[forward], rho, n)) break;
    }
    return s->accepted / (s->steps ? (double)s->steps : 1.0);
}
#endif
