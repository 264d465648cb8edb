/* Gibbs sampling: packed couplings, packs of chains, choice of the vector width at run time.

   Model of m sites: P(x) ~ exp(sum_i h_i(x_i) + beta sum_{i<j} J_ij(x_i, x_j)), where h and J are 0 at level 0, plus
   terms of three and more sites in the sum over pairs. D = sum(L_i - 1) is the number of non-reference levels, start[i]
   the first of site i. "Energy" is the exponent.
   A pack is `width` chains that advance together, the last axis of its arrays. Every chain has its own stream of random
   numbers, so that its path depends only on its seed and the model. The lanes of a vector are chains, or, for sites of
   many levels (by_levels), the levels of a site. */
#ifndef GIBBS_H
#define GIBBS_H

#include "cpu.h"
#include "gibbs_model.h"
#include "solver.h"

typedef void (*gibbs_sweep)(const gibbs_model *, gibbs_pack *, gibbs_scratch *);

#ifdef CPU_X86
#define LANES 16
#define PAIR 2
#define TARGET CPU_64_BYTES
#define NAME(x) gibbs16_##x
#define SINGLE
#include "gibbs_lanes.h"
#define LANES 8
#define PAIR 1
#define TARGET CPU_32_BYTES
#define NAME(x) gibbs8_##x
#define SINGLE
#include "gibbs_lanes.h"
#endif
#ifdef CPU_VECTORS
#define GIBBS_BASE 4
#else
#define GIBBS_BASE 1
#endif
#define LANES GIBBS_BASE
#define PAIR 1
#define TARGET
#define NAME(x) gibbs_base_##x
#define SINGLE
#include "gibbs_lanes.h"

/* Return the floats in the widest vectors of this processor, at most max_lanes, but at least GIBBS_BASE. */
static int gibbs_lanes(int max_lanes)
{
    return max_lanes >= 16 && cpu_runs(64) ? 16 : max_lanes >= 8 && cpu_runs(32) ? 8 : GIBBS_BASE;
}

/* Return the sweep for a vector width. */
static gibbs_sweep gibbs_choose(int lanes, int by_levels)
{
#ifdef CPU_X86
    if (lanes == 16)
        return by_levels ? gibbs16_sweep_levels : gibbs16_sweep_chains;
    if (lanes == 8)
        return by_levels ? gibbs8_sweep_levels : gibbs8_sweep_chains;
#endif
    (void)lanes;
    return by_levels ? gibbs_base_sweep_levels : gibbs_base_sweep_chains;
}

/* Copy the couplings J (D, D) to table_out, which must be zero, in the order in which a sweep reads them.

   Lanes are chains: the rows r .. r + R - 1 that are multiplied at once lie at D r as (D, R). Lanes are levels: each
   site has a table (D + m, A padded), A = L - 1, with a row for every level of every site, level 0 included. */
static void gibbs_pack_couplings(const double *J, const int32_t *n_levels, const ptrdiff_t *start, ptrdiff_t m,
                                 int by_levels, int lanes, float *table_out)
{
    const ptrdiff_t D = start[m];
    ptrdiff_t i, j, a, b, r, k, R, first, end;
    if (!by_levels) {
        for (first = 0; first < m; first = end) {
            end = gibbs_block_end(start, m, first);
            for (r = start[first]; r < start[end]; r += R) {
                R = gibbs_rows(start[end] - r);
                for (a = 0; a < D; a++)
                    for (k = 0; k < R; k++)
                        table_out[D * r + a * R + k] = (float)J[a * D + r + k];
            }
        }
        return;
    }
    for (i = 0; i < m; i++) {
        const ptrdiff_t A = n_levels[i] - 1, stride = gibbs_padded(A, lanes);
        for (j = 0; j < m; j++)
            for (b = 0; b < n_levels[j] - 1; b++)
                for (a = 0; a < A; a++)
                    table_out[(start[j] + j + b + 1) * stride + a] = (float)J[(start[j] + b) * D + start[i] + a];
        table_out += (D + m) * stride;
    }
}

/* Return the next word of a stream (xoshiro128++), whose four words lie `width` apart. */
static inline uint32_t gibbs_word(uint32_t *s, ptrdiff_t width)
{
    const uint32_t sum = s[0] + s[3 * width], word = ((sum << 7) | (sum >> 25)) + s[0], t = s[width] << 9;
    s[2 * width] ^= s[0];
    s[3 * width] ^= s[width];
    s[width] ^= s[2 * width];
    s[0] ^= s[3 * width];
    s[2 * width] ^= t;
    s[3 * width] = (s[3 * width] << 11) | (s[3 * width] >> 21);
    return word;
}

/* Draw the states (m, width) of a pack uniformly, each chain from its own stream. */
static void gibbs_start(const int32_t *n_levels, ptrdiff_t m, ptrdiff_t width, int32_t *codes_out, uint32_t *stream)
{
    ptrdiff_t i, c;
    for (c = 0; c < width; c++)
        for (i = 0; i < m; i++)
            codes_out[i * width + c] =
                (int32_t)(((uint64_t)gibbs_word(stream + c, width) * (uint32_t)n_levels[i]) >> 32);
}

/* Return an array of floats at *at, and advance *at by its size, rounded up to whole cache lines. */
static float *gibbs_take(char **at, size_t floats)
{
    float *p = (float *)*at;
    *at += (floats * 4 + 63) / 64 * 64;
    return p;
}

/* Return the most levels of a block of sites, the height of `low` and `up`. */
static ptrdiff_t gibbs_height(const gibbs_model *g)
{
    ptrdiff_t i, height = GIBBS_BLOCK;
    for (i = 0; i < g->m; i++)
        if (g->n_levels[i] > height)
            height = g->n_levels[i];
    return height;
}

/* Copy the states of the chains whose energy is the highest so far. */
static void gibbs_keep_best(const gibbs_model *g, gibbs_pack *p)
{
    const ptrdiff_t width = g->width;
    ptrdiff_t i, c;
    for (c = 0; c < width; c++)
        if (p->energy[c] > p->best[c]) {
            p->best[c] = p->energy[c];
            for (i = 0; i < g->m; i++)
                p->best_codes[i * width + c] = p->codes[i * width + c];
        }
}

/* Write the states of the first n chains to draws_out (n, n_draws, m), codes of code_bytes bytes, and their energies to
   energies_out (n, n_draws); both point at the draw to be written. */
static void gibbs_record(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t n, ptrdiff_t n_draws, int code_bytes,
                         char *draws_out, float *energies_out)
{
    ptrdiff_t i, c;
    for (c = 0; c < n; c++) {
        char *draw = draws_out + c * n_draws * g->m * code_bytes;
        const int32_t *codes = p->codes + c;
        energies_out[c * n_draws] = p->energy[c];
        for (i = 0; i < g->m; i++) {
            const int32_t code = codes[i * g->width];
            if (code_bytes == 1)
                ((uint8_t *)draw)[i] = (uint8_t)code;
            else if (code_bytes == 2)
                ((uint16_t *)draw)[i] = (uint16_t)code;
            else
                ((int32_t *)draw)[i] = code;
        }
    }
}

/* Set the bits of the present levels of the chains, in the words of this pack for sweep number t. */
static void gibbs_mark(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t t)
{
    ptrdiff_t i, c;
    uint64_t *words = p->bits + p->first_word + t * ((p->chains + 63) / 64);
    for (i = 0; i < g->m; i++) {
        const int32_t *codes = p->codes + i * g->width;
        uint64_t *level = words + g->start[i] * p->words;
        if (g->n_levels[i] == 2)
            for (c = 0; c < p->chains; c++)
                level[c >> 6] |= (uint64_t)codes[c] << (c & 63);
        else
            for (c = 0; c < p->chains; c++)
                if (codes[c])
                    level[(codes[c] - 1) * p->words + (c >> 6)] |= (uint64_t)1 << (c & 63);
    }
}

/* Run n_sweeps sweeps of one pack; return a solver_code.

   The states of the pack, their energies, its best states and, if p->bits, its marks of levels are updated in place.
   With draws_out, every `thin` sweeps the states of the first n chains are written to draws_out (n, n_draws, m), codes
   of code_bytes bytes, and their energies to energies_out (n, n_draws); `since` sweeps have passed since the last. */
static int gibbs_run(const gibbs_model *g, gibbs_pack *p, int lanes, ptrdiff_t n_sweeps, ptrdiff_t thin,
                     ptrdiff_t since, ptrdiff_t n, ptrdiff_t n_draws, int code_bytes, char *draws_out,
                     float *energies_out)
{
    const ptrdiff_t width = g->width, height = gibbs_height(g);
    const size_t indicators = g->by_levels ? 0 : (size_t)g->D * width, rows = g->by_levels ? (size_t)g->m * width : 0;
    const gibbs_sweep sweep = gibbs_choose(lanes, g->by_levels);
    gibbs_scratch s;
    ptrdiff_t i, c, first_row, t;
    char *memory = malloc(4 * (indicators + rows + 2 * (size_t)height * width + 16 * (size_t)height) + 6 * 64), *free_memory;
    if (!memory)
        return SOLVER_NO_MEMORY;
    free_memory = memory + (64 - (uintptr_t)memory % 64) % 64;  /* each of the five arrays is rounded up to 64 bytes */
    s.x = gibbs_take(&free_memory, indicators);
    s.low = gibbs_take(&free_memory, (size_t)height * width);
    s.up = gibbs_take(&free_memory, (size_t)height * width);
    s.sums = gibbs_take(&free_memory, 16 * (size_t)height);
    s.rows = (int32_t *)gibbs_take(&free_memory, rows);
    memset(s.x, 0, 4 * indicators);
    for (i = 0, first_row = 0; i < g->m; first_row += g->n_levels[i++])
        for (c = 0; c < width; c++) {
            const int32_t code = p->codes[i * width + c];
            if (g->by_levels)
                s.rows[c * g->m + i] = (int32_t)first_row + code;
            else if (code)
                s.x[(g->start[i] + code - 1) * width + c] = 1.0f;
        }
    for (t = 0; t < n_sweeps; t++) {
        memset(p->energy, 0, 4 * (size_t)width);
        sweep(g, p, &s);
        gibbs_keep_best(g, p);
        if (p->bits)
            gibbs_mark(g, p, t);
        if (draws_out && ++since == thin) {
            gibbs_record(g, p, n, n_draws, code_bytes, draws_out, energies_out);
            draws_out += g->m * code_bytes;
            energies_out++;
            since = 0;
        }
    }
    free(memory);
    return SOLVER_DONE;
}

#endif
