/* Gibbs sweep for one vector width; gibbs.h includes this file once for each width.

   Define before inclusion: the names required by vector.h, SINGLE, and PAIR (number of vectors of chains that are
   multiplied at once).

   Log weight of level a of site i: f = h_i(a) + beta (sum_before + sum_after), where sum_before is the sum of the
   couplings of the level with the current levels of the sites before i, and sum_after with the levels of the sites
   after i. The energy after a sweep is the sum over i of h_i(x_i) + beta sum_before_i(x_i). This counts every pair
   once, with new levels of both sites, so it needs no further computation and cannot drift.

   Names are as in gibbs.h: g model, p pack, s scratch memory, i site, a level, c chain; v is the first chain of a
   vector. The structures are in gibbs_model.h: g->h (D) contains the fields, g->table the packed couplings, and
   start[i] the first of the D levels of site i; p contains the states codes (m, width), their energy (width) and the
   stream (4, width) of random numbers; s->x (D, width) contains indicators of the levels, s->rows (width, m) rows of
   levels in a table. From vector.h: a `vec` contains LANES numbers, `words` as many integers, a mask all bits or no
   bits of each. */

#include "gibbs_model.h"
#include "vector.h"

/* Return exp(x) = 2^n exp(r), x clipped to [-87, 87]; relative error below 2e-7 (Cephes polynomial for exp(r)). */
TARGET static inline vec NAME(expf)(vec x)
{
    vec t, n, r, p;
    x = NAME(larger)(x, vec_fill(-87.0f));
    x = -NAME(larger)(-x, vec_fill(-87.0f));
    t = x * 1.44269504f + 12582912.0f;  /* adding 1.5 * 2^23 leaves the rounded power of two in the low bits */
    n = t - 12582912.0f;
    r = x - n * 0.693359375f; /* minus n ln 2, in two parts: this one has few bits, so its product with n is exact */
    r = r + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * NAME(real)((NAME(bits)(t) + 127u) << 23);
}

/* Return uniform numbers, midpoints of 2^23 equal cells of (0, 1), from one xoshiro128++ stream per chain; the four
   words of its state are `width` apart. */
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
    /* 23 random bits after the exponent of 1 form a float in [1, 2) */
    return NAME(real)((word >> 9) | 0x3f800000u) - (1.0f - 0x1p-24f);
}

/* Draw site i of all chains from its conditional distribution, given sum_before and sum_after (A, width), A = L_i - 1,
   and add its contribution to the energies.

   Writes the codes and, unless x is NULL, the indicators x (A, width), 1 for the drawn non-reference level and 0
   otherwise; cumulative (A, LANES) is scratch. */
TARGET static void NAME(draw_site)(const gibbs_model *g, gibbs_pack *p, ptrdiff_t i, const float *sum_before,
                                   const float *sum_after, float *x, float *cumulative)
{
    const ptrdiff_t width = g->width, A = g->n_levels[i] - 1;
    const float *h = g->h + g->start[i];
    int32_t *codes = p->codes + i * width;
    const vec one = vec_fill(1.0f);
    ptrdiff_t v, a;

    for (v = 0; v < width; v += LANES) {
        const vec u = NAME(uniform)(p->stream + v, width);
        vec energy = vec_load(p->energy + v), largest, total, threshold;
        words code = (words){0}, is_level;
        if (A == 1) { /* level 1 if u exceeds P(level 0) = 1 / (1 + exp(f)) */
            const vec energy_term = vec_load(sum_before + v) * g->beta + h[0];
            is_level = MASK(u * (NAME(expf)(vec_load(sum_after + v) * g->beta + energy_term) + 1.0f) > one);
            energy += NAME(real)(is_level & NAME(bits)(energy_term));
            code = is_level & 1u;
            if (x)
                vec_store(x + v, NAME(real)(is_level & NAME(bits)(one)));
        } else {
            largest = vec_fill(0.0f); /* the log weight of level 0 */
            for (a = 0; a < A; a++) {
                const vec log_weight =
                    (vec_load(sum_before + a * width + v) + vec_load(sum_after + a * width + v)) * g->beta + h[a];
                vec_store(cumulative + a * LANES, log_weight);
                largest = NAME(larger)(log_weight, largest);
            }
            total = NAME(expf)(-largest);
            for (a = 0; a < A; a++) {  /* cumulative[a] becomes the total weight of the levels 0..a */
                const vec log_weight = vec_load(cumulative + a * LANES);
                vec_store(cumulative + a * LANES, total);
                total += NAME(expf)(log_weight - largest);
            }
            threshold = u * total;
            for (a = 0; a < A; a++) /* adds 1 where true, since a mask is -1 */
                code -= MASK(vec_load(cumulative + a * LANES) <= threshold);
            for (a = 0; a < A; a++) {
                is_level = MASK(code == (uint32_t)a + 1u);
                energy += NAME(real)(is_level & NAME(bits)(vec_load(sum_before + a * width + v) * g->beta + h[a]));
                if (x)
                    vec_store(x + a * width + v, NAME(real)(is_level & NAME(bits)(one)));
            }
        }
        vec_store(p->energy + v, energy);
        NAME(store_words)(codes + v, code);
    }
}

/* Write sums (R, width) = J' x: couplings J (n, R) times indicators x (n, width), for R = 1, 2, 4, 8. d is one of the n
   levels, r one of the R sums, k one of the PAIR vectors of chains from chain v on. */
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

/* Write sums (R, width) = J' x as above, for R known only at run time. */
TARGET static void NAME(product)(ptrdiff_t R, const float *J, const float *x, ptrdiff_t n, ptrdiff_t width, float *sums)
{
    switch (R) {
    case 8: NAME(product8)(J, x, n, width, sums); break;
    case 4: NAME(product4)(J, x, n, width, sums); break;
    case 2: NAME(product2)(J, x, n, width, sums); break;
    default: NAME(product1)(J, x, n, width, sums);
    }
}

/* Add to sums (width) the couplings of one level with n others: sum_d J[d * stride] x[d], for indicators x (n,
   width). */
TARGET static void NAME(add_row)(const float *J, ptrdiff_t stride, const float *x, ptrdiff_t n, ptrdiff_t width,
                                 float *sums)
{
    ptrdiff_t v, d; /* d: one of the n levels */
    for (v = 0; v < width; v += LANES) {
        vec sum = vec_load(sums + v);
        for (d = 0; d < n; d++)
            sum += J[d * stride] * vec_load(x + d * width + v);
        vec_store(sums + v, sum);
    }
}

/* Sweep with chains as lanes, for few levels: couplings times 0/1 indicators. Sites are processed in blocks of up to 8
   levels, so that an indicator is loaded once for all levels of a block; couplings within the block are added site by
   site. The levels of a block are in groups of R, as stored by gibbs_pack_couplings. */
TARGET static void NAME(sweep_chains)(const gibbs_model *g, gibbs_pack *p, gibbs_scratch *s)
{
    const ptrdiff_t D = g->D, width = g->width;
    ptrdiff_t first_site, end_site, i, r, group_start, R;

    for (first_site = 0; first_site < g->m; first_site = end_site) {
        end_site = gibbs_block_end(g->start, g->m, first_site);
        const ptrdiff_t lo = g->start[first_site], hi = g->start[end_site]; /* levels of the block */
        for (r = lo; r < hi; r += R) {
            const float *J = g->table + D * r;
            R = gibbs_rows_at_once(hi - r);
            NAME(product)(R, J, s->x, lo, width, s->sum_before + (r - lo) * width);
            NAME(product)(R, J + hi * R, s->x + hi * width, D - hi, width, s->sum_after + (r - lo) * width);
        }
        for (i = first_site; i < end_site; i++) {
            const ptrdiff_t start = g->start[i], end = g->start[i + 1];
            /* group_start: first level of the group that contains level r; the table (D, R) of the group has the column
               r - group_start for r. A block of one site has no internal couplings */
            for (group_start = lo, r = start; r < end && end_site - first_site > 1; r++) {
                while (group_start + gibbs_rows_at_once(hi - group_start) <= r)
                    group_start += gibbs_rows_at_once(hi - group_start);
                R = gibbs_rows_at_once(hi - group_start);
                const float *J = g->table + D * group_start + (r - group_start);
                NAME(add_row)(J + lo * R, R, s->x + lo * width, start - lo, width, s->sum_before + (r - lo) * width);
                NAME(add_row)(J + end * R, R, s->x + end * width, hi - end, width, s->sum_after + (r - lo) * width);
            }
            if (g->terms)
                gibbs_add_terms(g, p, i, s->sum_before + (start - lo) * width, s->sum_after + (start - lo) * width);
            NAME(draw_site)(g, p, i, s->sum_before + (start - lo) * width, s->sum_after + (start - lo) * width,
                            s->x + start * width, s->cumulative);
        }
    }
}

/* Write to out (4, 2 LANES), for four chains, the sum of the rows of their sites from..to - 1 in a site's table.

   rows (4, m) contains the row of each site's level, stride is the length of a row, and n_vectors (1 or 2) vectors of
   each row are summed. */
TARGET static inline void NAME(sum_rows)(const float *table, const int32_t *rows, ptrdiff_t m, ptrdiff_t from,
                                         ptrdiff_t to, ptrdiff_t stride, int n_vectors, float *out)
{
    vec sum[4][2];
    ptrdiff_t j;
    int c, k;
    memset(sum, 0, sizeof sum);
    for (j = from; j < to; j++)
        for (c = 0; c < 4; c++) {
            const float *row = table + (ptrdiff_t)rows[c * m + j] * stride;
            for (k = 0; k < n_vectors; k++)
                sum[c][k] += vec_load(row + k * LANES);
        }
    for (c = 0; c < 4; c++)
        for (k = 0; k < n_vectors; k++)
            vec_store(out + c * 2 * LANES + k * LANES, sum[c][k]);
}

/* Sweep with levels as lanes, for many levels: one table row is added for each other site and chain. Four chains and at
   most 2 LANES levels of a site are processed at a time. */
TARGET static void NAME(sweep_levels)(const gibbs_model *g, gibbs_pack *p, gibbs_scratch *s)
{
    const ptrdiff_t m = g->m, width = g->width;
    const float *table = g->table;
    float sums[2][8 * LANES]; /* over the sites before, and after; (4, 2 LANES) each */
    ptrdiff_t i, c, a, k, first_row = 0, n_rows = g->D + m; /* first_row: row of level 0 of site i in a table */

    for (i = 0; i < m; i++) {
        const ptrdiff_t A = g->n_levels[i] - 1, stride = gibbs_pad(A, LANES);
        for (c = 0; c < width; c += 4)
            for (a = 0; a < A; a += 2 * LANES) {
                const ptrdiff_t n = A - a < 2 * LANES ? A - a : 2 * LANES;
                const int32_t *rows = s->rows + c * m;
                if (n > LANES) {
                    NAME(sum_rows)(table + a, rows, m, 0, i, stride, 2, sums[0]);
                    NAME(sum_rows)(table + a, rows, m, i + 1, m, stride, 2, sums[1]);
                } else {
                    NAME(sum_rows)(table + a, rows, m, 0, i, stride, 1, sums[0]);
                    NAME(sum_rows)(table + a, rows, m, i + 1, m, stride, 1, sums[1]);
                }
                for (k = 0; k < 4; k++)
                    for (ptrdiff_t b = 0; b < n; b++) {
                        s->sum_before[(a + b) * width + c + k] = sums[0][k * 2 * LANES + b];
                        s->sum_after[(a + b) * width + c + k] = sums[1][k * 2 * LANES + b];
                    }
            }
        if (g->terms)
            gibbs_add_terms(g, p, i, s->sum_before, s->sum_after);
        NAME(draw_site)(g, p, i, s->sum_before, s->sum_after, NULL, s->cumulative);
        for (c = 0; c < width; c++)
            s->rows[c * m + i] = (int32_t)(first_row + p->codes[i * width + c]);
        first_row += A + 1;
        table += n_rows * stride;
    }
}

#undef PAIR
#include "vector.h" /* undefine the names of this width */
