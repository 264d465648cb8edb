/* Dual coordinate ascent for one vector width and precision; dual.h includes this file once for each.

   Before inclusion define LANES, TARGET, NAME and, for float, SINGLE, as for vector.h. A site's q logits are stored in
   `width` numbers, q rounded up to a multiple of LANES, and the padding remains 0 in all arrays. J (D, width) contains
   couplings, h (width,) fields, alpha (n, width) duals. */

#include "vector.h"
#include "vector_math.h"

#define MOST (DUAL_MAX_LOGITS + LANES)  /* numbers in an array of logits */

/* Working memory of a site */
typedef struct {
    ptrdiff_t width;
    REAL *J, *alpha;
    REAL *other;     /* (D, width) J at the start of an epoch, or scratch */
    REAL h[MOST], last_h[MOST], centre[MOST];
    REAL valid[MOST];  /* 1 for logits, 0 for padding */
    int32_t *order;  /* (n,) order in which rows are visited */
} NAME(memory);
#define memory NAME(memory)

/* Add to z the rows of a table (any number, width) at the n columns, for `count` vectors, 1 to 4, which remain in
   registers. */
TARGET CPU_INLINE void NAME(gather)(const REAL *table, ptrdiff_t width, const uint16_t *column, ptrdiff_t n, REAL *z,
                                    const int count)
{
    vec sum[4];
    ptrdiff_t k;
    int v;
    for (v = 0; v < count; v++)
        sum[v] = vec_load(z + v * LANES);
    for (k = 0; k < n; k++) {
        const REAL *row = table + column[k] * width;
        for (v = 0; v < count; v++)
            sum[v] += vec_load(row + v * LANES);
    }
    for (v = 0; v < count; v++)
        vec_store(z + v * LANES, sum[v]);
}

/* Add d to the rows of a table at the n columns, for `count` vectors, 1 to 4. */
TARGET CPU_INLINE void NAME(scatter)(REAL *table, ptrdiff_t width, const uint16_t *column, ptrdiff_t n, const REAL *d,
                                     const int count)
{
    vec term[4];
    ptrdiff_t k;
    int v;
    for (v = 0; v < count; v++)
        term[v] = vec_load(d + v * LANES);
    for (k = 0; k < n; k++) {
        REAL *row = table + column[k] * width;
        for (v = 0; v < count; v++)
            vec_store(row + v * LANES, vec_load(row + v * LANES) + term[v]);
    }
}

/* Call `name` for the vectors v, v + 1, ... of a row, up to four at a time. */
#define BY_FOUR(name, table, width, column, n, logits)                                       \
    do {                                                                                     \
        ptrdiff_t v_;                                                                        \
        for (v_ = 0; v_ < (width); v_ += 4 * LANES)                                          \
            switch (((width) - v_) / LANES) {                                                \
            case 1: NAME(name)((table) + v_, width, column, n, (logits) + v_, 1); break;     \
            case 2: NAME(name)((table) + v_, width, column, n, (logits) + v_, 2); break;     \
            case 3: NAME(name)((table) + v_, width, column, n, (logits) + v_, 3); break;     \
            default: NAME(name)((table) + v_, width, column, n, (logits) + v_, 4);           \
            }                                                                                \
    } while (0)

/* Write the logits of row k to z. */
TARGET static void NAME(logits)(const dual_site *s, const memory *w, ptrdiff_t k, REAL *z)
{
    const uint16_t *column = s->column + s->row_start[k];
    const ptrdiff_t n = s->row_start[k + 1] - s->row_start[k];
    memcpy(z, w->h, (size_t)w->width * sizeof *z);
    BY_FOUR(gather, w->J, w->width, column, n, z);
}

/* Add d to the rows of a table (D, width) at the columns of row k, except those of the site itself. */
TARGET static void NAME(add)(const dual_site *s, ptrdiff_t width, ptrdiff_t k, REAL *table, const REAL *d)
{
    const uint16_t *column = s->column + s->row_start[k];
    const ptrdiff_t n = s->row_start[k + 1] - s->row_start[k];
    BY_FOUR(scatter, table, width, column, n, d);
    if (s->response[k])
        memset(table + (s->own + s->response[k] - 1) * width, 0, (size_t)width * sizeof *table);
}

/* Return the sum of all lanes. */
TARGET static inline REAL NAME(lane_sum)(vec v)
{
    REAL lane[LANES], out = 0;
    int i;
    vec_store(lane, v);
    for (i = 0; i < LANES; i++)
        out += lane[i];
    return out;
}

/* Return the largest of all lanes and of `out`. */
TARGET static inline REAL NAME(lane_max)(vec v, REAL out)
{
    REAL lane[LANES];
    int i;
    vec_store(lane, v);
    for (i = 0; i < LANES; i++)
        out = lane[i] > out ? lane[i] : out;
    return out;
}

/* Write the probabilities p of the logits u, return that of the reference level, and write ln(1 + sum exp u) to
   *log_sum_out. */
TARGET static inline REAL NAME(probabilities)(const memory *w, const REAL *u, REAL *p, REAL *log_sum_out)
{
    const ptrdiff_t width = w->width;
    vec most = vec_fill(0.0), sum = vec_fill(0.0), scale;
    REAL top, rest, total;
    ptrdiff_t v;
    for (v = 0; v < width; v += LANES)
        most = NAME(larger)(vec_load(u + v), most);
    top = NAME(lane_max)(most, 0);
    for (v = 0; v < width; v += LANES) {
        const vec exps = NAME(exp)(vec_load(u + v) - top) * vec_load(w->valid + v);
        vec_store(p + v, exps);
        sum += exps;
    }
    rest = (REAL)exp(-(double)top);
    total = rest + NAME(lane_sum)(sum);
    scale = vec_fill(1.0 / (double)total);
    for (v = 0; v < width; v += LANES)
        vec_store(p + v, vec_load(p + v) * scale);
    *log_sum_out = top + (REAL)log((double)total);
    return rest / total;
}

/* Write the p that solves ``p = softmax(z + c (alpha - p))``, by Newton's method with halved steps. */
TARGET static void NAME(new_duals)(const memory *w, const REAL *z, const REAL *alpha, REAL c, REAL *p)
{
    const ptrdiff_t width = w->width;
    const int max_steps = 50;
    const REAL precision = (REAL)1e-2;  /* of p, except for the error of Newton's last step, which is quadratic */
    REAL u[MOST], last_u[MOST], step[MOST], target[MOST], best = 0, length = 1, reference, log_sum;
    ptrdiff_t v;
    int k;
    for (v = 0; v < width; v += LANES) {
        vec_store(target + v, vec_load(z + v) + c * vec_load(alpha + v));
        vec_store(u + v, vec_load(z + v));
    }
    for (k = 0; k < max_steps; k++) {
        vec distance = vec_fill(0.0), above = vec_fill(0.0), below = vec_fill(0.0), error = vec_fill(0.0), shift;
        REAL objective;
        reference = NAME(probabilities)(w, u, p, &log_sum);
        for (v = 0; v < width; v += LANES) {
            const vec away = vec_load(u + v) - vec_load(target + v), own = vec_load(p + v);
            const vec gradient = away + c * own, ratio = own / (1 + c * own);
            distance += away * away;
            above += ratio * gradient;
            below += ratio;
            error = NAME(larger)(NAME(larger)(gradient, -gradient), error);
        }
        objective = c * log_sum + NAME(lane_sum)(distance) / 2;
        if (k && objective > best + (REAL)1e-6 * (best > 0 ? best : -best) && length > (REAL)1e-3) {
            length /= 2;
            for (v = 0; v < width; v += LANES)
                vec_store(u + v, vec_load(last_u + v) + length * vec_load(step + v));
            continue;
        }
        if (k && NAME(lane_max)(error, 0) <= precision * c)
            break;
        best = objective;
        length = 1;
        /* the Hessian is 1 + c (diag(p) - p p'), inverted by the formula of Sherman and Morrison */
        shift = vec_fill(c * NAME(lane_sum)(above) / (reference + NAME(lane_sum)(below)));
        for (v = 0; v < width; v += LANES) {
            const vec start = vec_load(u + v), own = vec_load(p + v);
            const vec gradient = start - vec_load(target + v) + c * own;
            const vec move = -(gradient + shift * own) / (1 + c * own);
            vec_store(last_u + v, start);
            vec_store(step + v, move);
            vec_store(u + v, start + move);
        }
    }
}

/* Write the targets of row k to t. */
TARGET static void NAME(targets)(const dual_site *s, const memory *w, ptrdiff_t k, REAL *t)
{
    const REAL uniform = (REAL)(s->uniform_share / (double)(s->q + 1));
    ptrdiff_t v;
    for (v = 0; v < w->width; v += LANES)
        vec_store(t + v, uniform * vec_load(w->valid + v));
    if (s->response[k])
        t[s->response[k] - 1] += (REAL)(1.0 - s->uniform_share);
}

/* Visit all rows once, in random order. Returns a solver_status, SOLVER_RUNNING unless stopped; then *code_out is
   SOLVER_INTERRUPTED after a signal. */
TARGET static int NAME(epoch)(const dual_site *s, memory *w, uint64_t *state, int *code_out)
{
    const ptrdiff_t width = w->width;
    const double inverse_h = 1.0 / (s->lambdah + s->rho);
    ptrdiff_t k, v;
    for (k = s->n - 1; k > 0; k--) {  /* Fisher-Yates */
        const int32_t other = random_below(state, (int32_t)(k + 1)), row = w->order[k];
        w->order[k] = w->order[other];
        w->order[other] = row;
    }
    for (k = 0; k < s->n; k++) {
        const ptrdiff_t row = w->order[k];
        const ptrdiff_t n = s->row_start[row + 1] - s->row_start[row] - (s->response[row] > 0);
        const double share = s->share[row];
        const REAL c = (REAL)(share * ((double)n / s->lambda + inverse_h));
        REAL z[MOST], p[MOST], change[MOST], *alpha = w->alpha + row * width;
        if (k % DUAL_STOP_ROWS == 0) {
            if (s->check()) {
                *code_out = SOLVER_INTERRUPTED;
                return SOLVER_STOPPED;
            }
            if (*(volatile const int32_t *)s->stop)
                return SOLVER_STOPPED;
        }
        NAME(logits)(s, w, row, z);
        NAME(new_duals)(w, z, alpha, c, p);
        for (v = 0; v < width; v += LANES) {
            const vec difference = vec_load(alpha + v) - vec_load(p + v);
            vec_store(alpha + v, vec_load(p + v));
            vec_store(w->h + v, vec_load(w->h + v) + (REAL)(share * inverse_h) * difference);
            vec_store(change + v, (REAL)(share / s->lambda) * difference);
        }
        NAME(add)(s, width, row, w->J, change);
    }
    if (s->rho > 0.0) {  /* move the centre of the proximal term to h, and h with it */
        const REAL factor = (REAL)(s->rho * inverse_h);
        for (v = 0; v < width; v++) {
            const REAL h = w->h[v];
            w->h[v] += factor * (h - w->centre[v]);
            w->centre[v] = h;
        }
    }
    return SOLVER_RUNNING;
}

/* Write the objective and the norm of its gradient to out. Uses w->other, which finally contains J again. */
TARGET static void NAME(gradient)(const dual_site *s, memory *w, dual_result *out)
{
    const ptrdiff_t width = w->width, size = s->D * width;
    double value = 0.0, norm = 0.0;
    REAL h_gradient[MOST] = {0};
    ptrdiff_t k, v;
    memset(w->other, 0, (size_t)size * sizeof *w->other);
    for (k = 0; k < s->n; k++) {
        const REAL share = (REAL)s->share[k];
        REAL z[MOST], p[MOST], t[MOST], log_sum;
        vec product = vec_fill(0.0);
        NAME(logits)(s, w, k, z);
        NAME(targets)(s, w, k, t);
        NAME(probabilities)(w, z, p, &log_sum);
        for (v = 0; v < width; v += LANES) {
            const vec residual = share * (vec_load(p + v) - vec_load(t + v));
            product += vec_load(t + v) * vec_load(z + v);
            vec_store(h_gradient + v, vec_load(h_gradient + v) + residual);
            vec_store(p + v, residual);
        }
        value += s->share[k] * ((double)log_sum - (double)NAME(lane_sum)(product));
        NAME(add)(s, width, k, w->other, p);
    }
    for (k = 0; k < size; k++) {
        const double J = w->J[k], g = (double)w->other[k] + s->lambda * J;
        value += 0.5 * s->lambda * J * J;
        norm += g * g;
    }
    for (v = 0; v < width; v++) {
        const double h = w->h[v], g = (double)h_gradient[v] + s->lambdah * h;
        value += 0.5 * s->lambdah * h * h;
        norm += g * g;
    }
    memcpy(w->other, w->J, (size_t)size * sizeof *w->J);
    out->value = value;
    out->norm = sqrt(norm);
    out->n_gradients++;
}

/* Set duals and couplings: without couplings in w->J, the duals are the targets; otherwise they are the probabilities at
   w->J and w->h, and the couplings those of the duals. The centre of the proximal term is such that w->h does not
   change; without such a term, w->h is that of the duals. */
TARGET static void NAME(start)(const dual_site *s, memory *w, int has_couplings)
{
    const ptrdiff_t width = w->width, size = s->D * width;
    double moment[MOST];  /* shares times targets minus duals, summed */
    ptrdiff_t k, v;
    memset(moment, 0, sizeof moment);
    memset(w->other, 0, (size_t)size * sizeof *w->other);
    for (k = 0; k < s->n; k++) {
        REAL z[MOST], t[MOST], log_sum, *alpha = w->alpha + k * width;
        NAME(targets)(s, w, k, t);
        if (!has_couplings) {
            memcpy(alpha, t, (size_t)width * sizeof *alpha);
            continue;
        }
        NAME(logits)(s, w, k, z);
        NAME(probabilities)(w, z, alpha, &log_sum);
        for (v = 0; v < width; v++) {
            const double difference = s->share[k] * ((double)t[v] - (double)alpha[v]);
            moment[v] += difference;
            z[v] = (REAL)(difference / s->lambda);
        }
        NAME(add)(s, width, k, w->other, z);
    }
    memcpy(w->J, w->other, (size_t)size * sizeof *w->J);
    for (v = 0; v < width; v++) {
        if (s->rho > 0.0)
            w->centre[v] = (REAL)(((s->lambdah + s->rho) * (double)w->h[v] - moment[v]) / s->rho);
        else
            w->h[v] = (REAL)(moment[v] / s->lambdah);
    }
}

/* Return an estimate of the norm of the gradient from the change since w->other and w->last_h, which it also updates.
   The change in an epoch is smaller than the gradient divided by the penalty. */
TARGET static double NAME(change)(const dual_site *s, memory *w)
{
    const ptrdiff_t size = s->D * w->width;
    double J_change = 0.0, h_change = 0.0;
    ptrdiff_t k;
    for (k = 0; k < size; k++) {
        const double difference = (double)w->J[k] - (double)w->other[k];
        J_change += difference * difference;
        w->other[k] = w->J[k];
    }
    for (k = 0; k < w->width; k++) {
        const double difference = (double)w->h[k] - (double)w->last_h[k];
        h_change += difference * difference;
        w->last_h[k] = w->h[k];
    }
    return sqrt(s->lambda * s->lambda * J_change + (s->lambdah + s->rho) * (s->lambdah + s->rho) * h_change);
}

/* Minimise the objective of the site s from theta (q, 1 + D), in place. If the site does not converge, theta contains
   the last values, unless they are not finite. Returns a solver_code. */
TARGET static int NAME(solve)(const dual_site *s, double *theta, dual_result *out)
{
    const ptrdiff_t width = (s->q + LANES - 1) / LANES * LANES, size = s->D * width;
    const double gradient_to_change = 4.0;  /* least ratio of the gradient's norm to its estimate; 4 to 10 measured */
    const int32_t recheck = 2;              /* epochs after which the gradient is computed again; it takes .6 epochs */
    uint64_t state[4] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0x2545f4914f6cdd1du};
    double past[DUAL_PAST] = {0};  /* changes in the last epochs, of epoch k in k % DUAL_PAST */
    int32_t next_check = 0;
    ptrdiff_t c, a, k;
    int has_couplings = 0, code = SOLVER_DONE;
    memory *w = calloc(1, sizeof *w);
    REAL *numbers = malloc((size_t)(2 * size + s->n * width + 16) * sizeof *numbers);
    int32_t *order = malloc((size_t)s->n * sizeof *order);
    if (!w || !numbers || !order) {
        free(w);
        free(numbers);
        free(order);
        return SOLVER_NO_MEMORY;
    }
    w->width = width;
    w->J = (REAL *)(((uintptr_t)numbers + 63) / 64 * 64);
    w->other = w->J + size;
    w->alpha = w->other + size;
    w->order = order;
    memset(w->J, 0, (size_t)size * sizeof *w->J);
    for (a = 0; a < s->q; a++) {
        w->valid[a] = 1;
        w->h[a] = (REAL)theta[a * (1 + s->D)];
        for (c = 0; c < s->D; c++) {
            w->J[c * width + a] = (REAL)theta[a * (1 + s->D) + 1 + c];
            has_couplings |= w->J[c * width + a] != 0;
        }
    }
    for (k = 0; k < s->n; k++)
        w->order[k] = (int32_t)k;
    NAME(start)(s, w, has_couplings);
    NAME(change)(s, w);  /* keeps the start */
    out->n_epochs = out->n_gradients = 0;
    out->status = SOLVER_RUNNING;
    while (out->status == SOLVER_RUNNING) {
        double change;
        int is_due, is_slow;
        out->status = NAME(epoch)(s, w, state, &code);
        if (out->status != SOLVER_RUNNING)
            break;
        change = NAME(change)(s, w);
        is_due = next_check ? out->n_epochs >= next_check : change <= s->tolerance / gradient_to_change;
        is_slow = out->n_epochs >= 2 * DUAL_PAST && change > 0.6 * past[out->n_epochs % DUAL_PAST];
        past[out->n_epochs++ % DUAL_PAST] = change;
        if (is_due || is_slow || out->n_epochs >= s->max_epochs || !isfinite(change)) {
            NAME(gradient)(s, w, out);
            if (out->norm <= s->tolerance)
                out->status = SOLVER_CONVERGED;
            else if (!isfinite(out->norm))
                out->status = SOLVER_NOT_FINITE;
            else if (out->n_epochs >= s->max_epochs)
                out->status = SOLVER_ITMAX;
            else if (is_slow)
                out->status = SOLVER_STUCK;
            next_check = out->n_epochs + recheck - 1;
        }
    }
    if (out->status != SOLVER_NOT_FINITE && out->status != SOLVER_STOPPED)
        for (a = 0; a < s->q; a++) {
            theta[a * (1 + s->D)] = w->h[a];
            for (c = 0; c < s->D; c++)
                theta[a * (1 + s->D) + 1 + c] = w->J[c * width + a];
        }
    free(w);
    free(numbers);
    free(order);
    return code;
}

#undef BY_FOUR
#undef MOST
#undef memory
/* including the two headers again undefines their names for the next width */
#include "vector_math.h"
#include "vector.h"
