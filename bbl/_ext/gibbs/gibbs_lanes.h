/* Gibbs sweep for one vector width; gibbs.h includes this file once per width.

   Set before inclusion: what vector.h asks for, SINGLE among it, and PAIR (vectors of chains held at once).

   f = h_i(a) + beta * (low + up), where `low` sums the couplings to the sites before i and `up` those after i.
   The energy of the state after a sweep is the sum over i of h_i(x_i) + beta * low_i(x_i): every pair is counted
   once, with both sites already new, so the energy needs no further work and cannot drift. */

#include "gibbs_model.h"
#include "vector.h"

/* exp(x), x cut to [-87, 87]; relative error below 2e-7 (Cephes polynomial) */
TARGET static inline vec NAME(expf)(vec x)
{
    vec t, n, r, p;
    x = NAME(larger)(x, vec_fill(-87.0f));
    x = -NAME(larger)(-x, vec_fill(-87.0f));
    t = x * 1.44269504f + 12582912.0f;  /* adding 1.5 * 2^23 leaves the rounded power of two in the low bits */
    n = t - 12582912.0f;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * NAME(real)((NAME(bits)(t) + 127u) << 23);
}

/* Uniform on the midpoints of 2^23 equal cells of (0, 1): xoshiro128++ (Blackman & Vigna 2021), one stream per chain */
TARGET static inline vec NAME(uniform)(uint32_t *state, ptrdiff_t width)
{
    words a = NAME(load_words)(state), b = NAME(load_words)(state + width);
    words c = NAME(load_words)(state + 2 * width), d = NAME(load_words)(state + 3 * width);
    words s = a + d, word = ((s << 7) | (s >> 25)) + a, t = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= t;
    d = (d << 11) | (d >> 21);
    NAME(store_words)(state, a);
    NAME(store_words)(state + width, b);
    NAME(store_words)(state + 2 * width, c);
    NAME(store_words)(state + 3 * width, d);
    return NAME(real)((word >> 9) | 0x3f800000u) - (1.0f - 0x1p-24f);
}

/* Draw site i in all chains of the pack from its conditional, given low and up (A, width); add to the energy.
   Writes the codes and, if x is given, the indicators of the A non-reference levels (A, width). */
TARGET static void NAME(draw_site)(const gibbs_model *g, gibbs_pack *p, ptrdiff_t i, const float *low, const float *up,
                                   float *x, float *sums)
{
    const ptrdiff_t width = g->width, A = g->n_levels[i] - 1;
    const float *h = g->h + g->start[i];
    int32_t *codes = p->codes + i * width;
    const vec one = vec_fill(1.0f);
    ptrdiff_t v, a;

    for (v = 0; v < width; v += LANES) {
        const vec u = NAME(uniform)(p->stream + v, width);
        vec energy = vec_load(p->energy + v), top, total, cut;
        words code = (words){0}, hit;
        if (A == 1) {
            const vec lower = vec_load(low + v) * g->beta + h[0];
            hit = MASK(u * (NAME(expf)(vec_load(up + v) * g->beta + lower) + 1.0f) > one);
            energy += NAME(real)(hit & NAME(bits)(lower));
            code = hit & 1u;
            if (x)
                vec_store(x + v, NAME(real)(hit & NAME(bits)(one)));
        } else {
            top = vec_fill(0.0f);
            for (a = 0; a < A; a++) {
                const vec f = (vec_load(low + a * width + v) + vec_load(up + a * width + v)) * g->beta + h[a];
                vec_store(sums + a * LANES, f);
                top = NAME(larger)(f, top);
            }
            total = NAME(expf)(-top);
            for (a = 0; a < A; a++) {  /* sums[a] becomes the sum of the weights of the levels 0..a */
                const vec f = vec_load(sums + a * LANES);
                vec_store(sums + a * LANES, total);
                total += NAME(expf)(f - top);
            }
            cut = u * total;
            for (a = 0; a < A; a++)
                code -= MASK(vec_load(sums + a * LANES) <= cut);
            for (a = 0; a < A; a++) {
                hit = MASK(code == (uint32_t)a + 1u);
                energy += NAME(real)(hit & NAME(bits)(vec_load(low + a * width + v) * g->beta + h[a]));
                if (x)
                    vec_store(x + a * width + v, NAME(real)(hit & NAME(bits)(one)));
            }
        }
        vec_store(p->energy + v, energy);
        NAME(store_words)(codes + v, code);
    }
}

/* sums (R, width) = couplings J (n, R) times indicators x (n, width), for R = 1, 2, 4, 8 rows */
#define PRODUCT(R)                                                                                                     \
    TARGET static void NAME(product##R)(const float *J, const float *x, ptrdiff_t n, ptrdiff_t width, float *sums)     \
    {                                                                                                                  \
        ptrdiff_t v, d;                                                                                                \
        int r, k;                                                                                                      \
        for (v = 0; v < width; v += LANES * PAIR) {                                                                    \
            vec sum[R][PAIR], xs[PAIR];                                                                                \
            memset(sum, 0, sizeof sum);                                                                                \
            for (d = 0; d < n; d++) {                                                                                  \
                for (k = 0; k < PAIR; k++)                                                                             \
                    xs[k] = vec_load(x + d * width + v + k * LANES);                                                 \
                for (r = 0; r < R; r++)                                                                                \
                    for (k = 0; k < PAIR; k++)                                                                         \
                        sum[r][k] += J[d * R + r] * xs[k];                                                             \
            }                                                                                                          \
            for (r = 0; r < R; r++)                                                                                    \
                for (k = 0; k < PAIR; k++)                                                                             \
                    vec_store(sums + r * width + v + k * LANES, sum[r][k]);                                          \
        }                                                                                                              \
    }
PRODUCT(1)
PRODUCT(2)
PRODUCT(4)
PRODUCT(8)
#undef PRODUCT

TARGET static void NAME(product)(ptrdiff_t R, const float *J, const float *x, ptrdiff_t n, ptrdiff_t width, float *sums)
{
    switch (R) {
    case 8: NAME(product8)(J, x, n, width, sums); break;
    case 4: NAME(product4)(J, x, n, width, sums); break;
    case 2: NAME(product2)(J, x, n, width, sums); break;
    default: NAME(product1)(J, x, n, width, sums);
    }
}

/* sums (width,) += couplings J[d * stride] times indicators x (n, width) */
TARGET static void NAME(add_row)(const float *J, ptrdiff_t stride, const float *x, ptrdiff_t n, ptrdiff_t width,
                                 float *sums)
{
    ptrdiff_t v, d;
    for (v = 0; v < width; v += LANES) {
        vec sum = vec_load(sums + v);
        for (d = 0; d < n; d++)
            sum += J[d * stride] * vec_load(x + d * width + v);
        vec_store(sums + v, sum);
    }
}

/* Few levels: chains are lanes, couplings times 0/1 indicators. Sites are taken in blocks of up to 8 rows, so that an
   indicator is loaded once for all rows of a block; sums inside the block are added when their site's turn comes. */
TARGET static void NAME(sweep_chains)(const gibbs_model *g, gibbs_pack *p, gibbs_scratch *s)
{
    const ptrdiff_t D = g->D, width = g->width;
    ptrdiff_t first, last, i, r, q, R;

    for (first = 0; first < g->m; first = last) {
        last = gibbs_block_end(g->start, g->m, first);
        const ptrdiff_t lo = g->start[first], hi = g->start[last];
        for (r = lo; r < hi; r += R) {
            const float *J = g->table + D * r;
            R = gibbs_rows(hi - r);
            NAME(product)(R, J, s->x, lo, width, s->low + (r - lo) * width);
            NAME(product)(R, J + hi * R, s->x + hi * width, D - hi, width, s->up + (r - lo) * width);
        }
        for (i = first; i < last; i++) {
            const ptrdiff_t from = g->start[i], to = g->start[i + 1];
            for (q = lo, r = from; r < to && last - first > 1; r++) {
                while (q + gibbs_rows(hi - q) <= r)
                    q += gibbs_rows(hi - q);
                R = gibbs_rows(hi - q);
                const float *J = g->table + D * q + (r - q);
                NAME(add_row)(J + lo * R, R, s->x + lo * width, from - lo, width, s->low + (r - lo) * width);
                NAME(add_row)(J + to * R, R, s->x + to * width, hi - to, width, s->up + (r - lo) * width);
            }
            if (g->terms)
                gibbs_add_terms(g, p, i, s->low + (from - lo) * width, s->up + (from - lo) * width);
            NAME(draw_site)(g, p, i, s->low + (from - lo) * width, s->up + (from - lo) * width, s->x + from * width,
                            s->sums);
        }
    }
}

/* out (4, nv vectors) = sums of the table rows named by the states of four chains, sites from..to-1 */
TARGET static inline void NAME(sum_rows)(const float *table, const int32_t *rows, ptrdiff_t m, ptrdiff_t from,
                                         ptrdiff_t to, ptrdiff_t stride, int nv, float *out)
{
    vec sum[4][2];
    ptrdiff_t j;
    int c, k;
    memset(sum, 0, sizeof sum);
    for (j = from; j < to; j++)
        for (c = 0; c < 4; c++) {
            const float *row = table + (ptrdiff_t)rows[c * m + j] * stride;
            for (k = 0; k < nv; k++)
                sum[c][k] += vec_load(row + k * LANES);
        }
    for (c = 0; c < 4; c++)
        for (k = 0; k < nv; k++)
            vec_store(out + c * 2 * LANES + k * LANES, sum[c][k]);
}

/* Many levels: levels are lanes, one table row is added per neighbour and chain; then as above. */
TARGET static void NAME(sweep_levels)(const gibbs_model *g, gibbs_pack *p, gibbs_scratch *s)
{
    const ptrdiff_t m = g->m, width = g->width;
    const float *table = g->table;
    float out[2][8 * LANES];
    ptrdiff_t i, c, a, k, base = 0, n_rows = g->D + m;

    for (i = 0; i < m; i++) {
        const ptrdiff_t A = g->n_levels[i] - 1, stride = gibbs_padded(A, LANES);
        for (c = 0; c < width; c += 4)
            for (a = 0; a < A; a += 2 * LANES) {
                const ptrdiff_t n = A - a < 2 * LANES ? A - a : 2 * LANES;
                const int32_t *rows = s->rows + c * m;
                if (n > LANES) {
                    NAME(sum_rows)(table + a, rows, m, 0, i, stride, 2, out[0]);
                    NAME(sum_rows)(table + a, rows, m, i + 1, m, stride, 2, out[1]);
                } else {
                    NAME(sum_rows)(table + a, rows, m, 0, i, stride, 1, out[0]);
                    NAME(sum_rows)(table + a, rows, m, i + 1, m, stride, 1, out[1]);
                }
                for (k = 0; k < 4; k++)
                    for (ptrdiff_t b = 0; b < n; b++) {
                        s->low[(a + b) * width + c + k] = out[0][k * 2 * LANES + b];
                        s->up[(a + b) * width + c + k] = out[1][k * 2 * LANES + b];
                    }
            }
        if (g->terms)
            gibbs_add_terms(g, p, i, s->low, s->up);
        NAME(draw_site)(g, p, i, s->low, s->up, NULL, s->sums);
        for (c = 0; c < width; c++)
            s->rows[c * m + i] = (int32_t)(base + p->codes[i * width + c]);
        base += A + 1;
        table += n_rows * stride;
    }
}

#undef PAIR
#include "vector.h"
