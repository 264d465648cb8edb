/* One transition of the no-U-turn sampler (Hoffman & Gelman 2014; multinomial, Betancourt 2017), for any density. */
#ifndef BBL_NUTS_H
#define BBL_NUTS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "random.h"
#include "simplex.h"

enum { NUTS_DEPTH = 10, NUTS_WORK = 6 * NUTS_DEPTH + 12 }; /* vectors of scratch that a sampler needs */
static const double NUTS_ERROR = 1000.0; /* of the energy, at which a trajectory has come apart */

typedef double (*nuts_density)(void *model, const double *q, double *gradient_out);

/* A state: position q, gradient g of the log density at it, and the density */
typedef struct {
    double *q, *g, value;
} nuts_state;

typedef struct {
    ptrdiff_t n;
    nuts_density density;
    void *model;
    uint64_t *stream;
    const int32_t *stop;
    double step;
    nuts_state now;  /* the end of the trajectory that moves, */
    double *p;       /* and its momentum */
    double energy;   /* at the start of the transition */
    double accepted; /* sum over leapfrog steps of the probability of acceptance */
    ptrdiff_t steps;
    int diverged;
    double *work;    /* (NUTS_WORK, n) */
} nuts_sampler;

static inline double nuts_log_add(double a, double b)
{
    const double top = a > b ? a : b;
    return isinf(top) && top < 0 ? top : top + log1p(exp(-fabs(a - b)));
}

static inline void nuts_copy(nuts_state *to, const nuts_state *from, ptrdiff_t n)
{
    memcpy(to->q, from->q, (size_t)n * sizeof(double));
    memcpy(to->g, from->g, (size_t)n * sizeof(double));
    to->value = from->value;
}

static inline void nuts_leapfrog(nuts_sampler *s, double step)
{
    for (ptrdiff_t k = 0; k < s->n; k++) {
        s->p[k] += 0.5 * step * s->now.g[k];
        s->now.q[k] += step * s->p[k];
    }
    s->now.value = s->density(s->model, s->now.q, s->now.g);
    for (ptrdiff_t k = 0; k < s->n; k++) s->p[k] += 0.5 * step * s->now.g[k];
}

/* Whether a trajectory of total momentum rho still moves apart at both of its ends */
static inline int nuts_apart(const double *p_begin, const double *p_end, const double *rho, ptrdiff_t n)
{
    return simplex_dot(p_begin, rho, n) > 0.0 && simplex_dot(p_end, rho, n) > 0.0;
}

static inline int nuts_apart_with(const double *p_begin, const double *p_end, const double *rho, const double *extra,
                                  ptrdiff_t n)
{
    return simplex_dot(p_begin, rho, n) + simplex_dot(p_begin, extra, n) > 0.0
           && simplex_dot(p_end, rho, n) + simplex_dot(p_end, extra, n) > 0.0;
}

/* Double the trajectory `depth` times from its moving end. Adds its momenta to rho; writes the first and the last
   momentum, a state drawn from it, and ln of its weight. Returns 0 where it turns back or comes apart. */
static int nuts_build(nuts_sampler *s, int depth, double step, double *rho, double *p_begin_out, double *p_end_out,
                      nuts_state *drawn_out, double *weight_out)
{
    const ptrdiff_t n = s->n;
    const size_t bytes = (size_t)n * sizeof(double);
    if (depth == 0) {
        nuts_leapfrog(s, step);
        double error = 0.5 * simplex_dot(s->p, s->p, n) - s->now.value - s->energy;
        if (isnan(error)) error = INFINITY;
        *weight_out = -error;
        s->accepted += error < 0 ? 1.0 : exp(-error);
        s->steps++;
        nuts_copy(drawn_out, &s->now, n);
        for (ptrdiff_t k = 0; k < n; k++) rho[k] += s->p[k];
        memcpy(p_begin_out, s->p, bytes);
        memcpy(p_end_out, s->p, bytes);
        s->diverged |= error > NUTS_ERROR;
        return error <= NUTS_ERROR && !s->stop[0];
    }
    double *own = s->work + (ptrdiff_t)(6 * (depth - 1)) * n; /* shallower calls have their own */
    double *rho_first = own, *rho_second = own + n, *p_middle = own + 2 * n, *p_after = own + 3 * n;
    nuts_state other = {own + 4 * n, own + 5 * n, 0.0};
    double first, second;
    memset(rho_first, 0, 2 * bytes);
    if (!nuts_build(s, depth - 1, step, rho_first, p_begin_out, p_middle, drawn_out, &first)) return 0;
    if (!nuts_build(s, depth - 1, step, rho_second, p_after, p_end_out, &other, &second)) return 0;
    *weight_out = nuts_log_add(first, second);
    if (log(random_uniform(s->stream)) < second - *weight_out) nuts_copy(drawn_out, &other, n);
    const int apart = nuts_apart_with(p_begin_out, p_after, rho_first, p_after, n)
                      && nuts_apart_with(p_middle, p_end_out, rho_second, p_middle, n);
    for (ptrdiff_t k = 0; k < n; k++) {
        rho_first[k] += rho_second[k];
        rho[k] += rho_first[k];
    }
    return apart && nuts_apart(p_begin_out, p_end_out, rho_first, n);
}

/* One transition from `state`, in place; returns the mean probability of acceptance along the trajectory. */
static double nuts_transition(nuts_sampler *s, nuts_state *state)
{
    const ptrdiff_t n = s->n;
    const size_t bytes = (size_t)n * sizeof(double);
    double *own = s->work + (ptrdiff_t)(6 * NUTS_DEPTH) * n;
    double *rho = own, *rho_new = own + n, *p_end = own + 2 * n, *p_begin = own + 3 * n;
    nuts_state drawn = {own + 4 * n, own + 5 * n, 0.0};
    nuts_state ends[2] = {{own + 6 * n, own + 7 * n, 0.0}, {own + 8 * n, own + 9 * n, 0.0}};
    double *momenta[2] = {own + 10 * n, own + 11 * n}, weight = 0.0;
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
        double added;
        nuts_copy(&s->now, &ends[forward], n);
        memcpy(s->p, momenta[forward], bytes);
        memset(rho_new, 0, bytes);
        const int whole = nuts_build(s, depth, forward ? s->step : -s->step, rho_new, p_begin, p_end, &drawn,
                                     &added);
        if (!whole) break;
        if (log(random_uniform(s->stream)) < added - weight) nuts_copy(state, &drawn, n);
        weight = nuts_log_add(weight, added);
        nuts_copy(&ends[forward], &s->now, n);
        /* the trajectory before, from its far end to the end that moved, and what was added to it */
        const double *far = momenta[!forward];
        const int apart = nuts_apart_with(far, p_begin, rho, p_begin, n)
                          && nuts_apart_with(momenta[forward], p_end, rho_new, momenta[forward], n);
        for (ptrdiff_t k = 0; k < n; k++) rho[k] += rho_new[k];
        memcpy(momenta[forward], s->p, bytes);
        if (!apart || !nuts_apart(far, momenta[forward], rho, n)) break;
    }
    return s->accepted / (s->steps ? (double)s->steps : 1.0);
}
#endif
