/* Gibbs sampling: packed couplings, packs of chains, and selection of the vector width at run time.

   Model of m sites (predictors): P(x) ~ exp(sum_i h_i(x_i) + beta sum_{i<j} J_ij(x_i, x_j)), with terms of three or
   more sites added to the sum over pairs. The fields h and the couplings J are 0 at level 0, the reference level. D =
   sum(L_i - 1) is the number of non-reference levels of all sites; start[i] is the index of the first of site i. The
   energy is the exponent.

   A pack consists of `width` chains that advance together; the chain is the last axis of its arrays. Every chain has
   its own random number stream, so that its path depends only on its seed and the model. The lanes of a vector are
   chains, or the levels of a site if sites have many levels (by_levels).

   Names: g model, p pack, s scratch memory, i and j sites, a and b levels, c chain. Their structures are in
   gibbs_model.h: g contains the layout (m, D, n_levels, start), width and by_levels; p contains the current states
   codes (m, width) with their energy (width), the highest energies `best` (width) with best_codes, and, if not NULL,
   bits. LANES, TARGET, NAME and SINGLE are explained in vector.h, PAIR in gibbs_lanes.h, CPU_* and cpu_runs in
   cpu.h. */
#ifndef GIBBS_H
#define GIBBS_H

#include "cpu.h"
#include "gibbs_model.h"
#include "solver.h"

/* A function that performs one sweep for all chains of a pack */
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
#define GIBBS_BASE 4 /* floats in a vector of 16 bytes */
#else
#define GIBBS_BASE 1
#endif
#define LANES GIBBS_BASE
#define PAIR 1
#define TARGET
#define NAME(x) gibbs_base_##x
#define SINGLE
#include "gibbs_lanes.h"

/* Return the number of floats in the widest vectors of this processor: at most max_lanes, but at least GIBBS_BASE. */
static int gibbs_lanes(int max_lanes)
{
    return max_lanes >= 16 && cpu_runs(64) ? 16 : max_lanes >= 8 && cpu_runs(32) ? 8 : GIBBS_BASE;
}

/* Return the function that performs a sweep with vectors of `lanes` floats. */
static gibbs_sweep gibbs_choose_sweep(int lanes, int by_levels)
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

   If lanes are chains (by_levels is 0), a sweep computes the sums of R levels at once (see gibbs_rows_at_once). The
   couplings of the levels r..r + R - 1 with all D levels are stored from table_out + D r on, as an array (D, R). If
   lanes are levels, each site has a table (D + m, A), where A is L - 1 rounded up to a multiple of `lanes`; the tables
   are concatenated. A row contains the couplings of one level of a site j with the levels 1..L - 1 of the table's site.
   Each level of each site has a row; the row of level 0 is zero. Level b of site j is in row start[j] + j + b, after
   the start[j] + j levels of the previous sites. In the code a and b are levels minus 1, as indices of J. */
static void gibbs_pack_couplings(const double *J, const int32_t *n_levels, const ptrdiff_t *start, ptrdiff_t m,
                                 int by_levels, int lanes, float *table_out)
{
    const ptrdiff_t D = start[m];
    ptrdiff_t i, j, a, b, r, k, R, first_site, end_site;
    if (!by_levels) {
        for (first_site = 0; first_site < m; first_site = end_site) {
            end_site = gibbs_block_end(start, m, first_site);
            for (r = start[first_site]; r < start[end_site]; r += R) {
                R = gibbs_rows_at_once(start[end_site] - r);
                for (a = 0; a < D; a++)
                    for (k = 0; k < R; k++)
                        table_out[D * r + a * R + k] = (float)J[a * D + r + k];
            }
        }
        return;
    }
    for (i = 0; i < m; i++) {
        const ptrdiff_t A = n_levels[i] - 1, stride = gibbs_pad(A, lanes);
        for (j = 0; j < m; j++)
            for (b = 0; b < n_levels[j] - 1; b++)
                for (a = 0; a < A; a++)
                    table_out[(start[j] + j + b + 1) * stride + a] = (float)J[(start[j] + b) * D + start[i] + a];
        table_out += (D + m) * stride;
    }
}

/* Return the next random word of a stream (xoshiro128++), and advance its state of four words, which are `width`
   apart. */
static inline uint32_t gibbs_next_word(uint32_t *s, ptrdiff_t width)
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

/* Draw the states (m, width) of a pack uniformly, each chain from its own stream, a column of `stream` (4, width): the
   level is the integer part of L times a random word divided by 2^32. */
static void gibbs_start_states(const int32_t *n_levels, ptrdiff_t m, ptrdiff_t width, int32_t *codes_out,
                               uint32_t *stream)
{
    ptrdiff_t i, c;
    for (c = 0; c < width; c++)
        for (i = 0; i < m; i++)
            codes_out[i * width + c] =
                (int32_t)(((uint64_t)gibbs_next_word(stream + c, width) * (uint32_t)n_levels[i]) >> 32);
}

/* Return an array of `floats` floats at *free_memory; advance *free_memory by its size in whole cache lines. */
static float *gibbs_allocate_floats(char **free_memory, size_t floats)
{
    float *p = (float *)*free_memory;
    *free_memory += (floats * 4 + 63) / 64 * 64;
    return p;
}

/* Return the height of sum_before and sum_after: at least the number of non-reference levels of every block of sites; a
   block with more than GIBBS_BLOCK is a single site. */
static ptrdiff_t gibbs_height(const gibbs_model *g)
{
    ptrdiff_t i, height = GIBBS_BLOCK;
    for (i = 0; i < g->m; i++)
        if (g->n_levels[i] > height)
            height = g->n_levels[i];
    return height;
}

/* Copy the states and energies of the chains with the highest energy so far to best_codes and best. */
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

/* Write the states of the first n_recorded chains to draws_out (n_recorded, n_draws, m), with code_bytes bytes for each
   code, and their energies to energies_out (n_recorded, n_draws); both point at the draw to be written. */
static void gibbs_record(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t n_recorded, ptrdiff_t n_draws,
                         int code_bytes, char *draws_out, float *energies_out)
{
    ptrdiff_t i, c;
    for (c = 0; c < n_recorded; c++) {
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

/* Set the bits of the current levels of the chains in this pack's words for sweep t = 0, 1, ...: the bit of chain c is
   bit c % 64 of word c / 64. */
static void gibbs_set_bits(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t t)
{
    ptrdiff_t i, c;
    /* this sweep's words: here in row 0 of `bits`, in the loop in the row of the level of site i; rows have p->words
       each */
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

   The states of the pack, their energies, the best states and, if p->bits is not NULL, the bits are updated in place.
   If draws_out is not NULL, a draw is written as by gibbs_record after every `thin` sweeps; sweeps_since_draw is the
   number of sweeps since the last draw. */
static int gibbs_run(const gibbs_model *g, gibbs_pack *p, int lanes, ptrdiff_t n_sweeps, ptrdiff_t thin,
                     ptrdiff_t sweeps_since_draw, ptrdiff_t n_recorded, ptrdiff_t n_draws, int code_bytes,
                     char *draws_out, float *energies_out)
{
    const ptrdiff_t width = g->width, height = gibbs_height(g);
    /* numbers in s.x, the indicators (D, width) of levels, and in s.rows (width, m), the rows of levels in the
       tables */
    const size_t n_indicators = g->by_levels ? 0 : (size_t)g->D * width,
                 n_rows = g->by_levels ? (size_t)g->m * width : 0;
    const gibbs_sweep sweep = gibbs_choose_sweep(lanes, g->by_levels);
    gibbs_scratch s;
    ptrdiff_t i, c, first_row, t;
    char *memory = malloc(4 * (n_indicators + n_rows + 2 * (size_t)height * width + 16 * (size_t)height) + 6 * 64),
         *free_memory;
    if (!memory)
        return SOLVER_NO_MEMORY;
    free_memory = memory + (64 - (uintptr_t)memory % 64) % 64;  /* cache lines; the five arrays are also rounded up */
    s.x = gibbs_allocate_floats(&free_memory, n_indicators);
    s.sum_before = gibbs_allocate_floats(&free_memory, (size_t)height * width);
    s.sum_after = gibbs_allocate_floats(&free_memory, (size_t)height * width);
    s.cumulative = gibbs_allocate_floats(&free_memory, 16 * (size_t)height);
    s.rows = (int32_t *)gibbs_allocate_floats(&free_memory, n_rows);
    memset(s.x, 0, 4 * n_indicators);
    /* first_row: row of level 0 of site i in a table */
    for (i = 0, first_row = 0; i < g->m; first_row += g->n_levels[i++])
        for (c = 0; c < width; c++) {
            const int32_t code = p->codes[i * width + c];
            if (g->by_levels)
                s.rows[c * g->m + i] = (int32_t)first_row + code;
            else if (code)
                s.x[(g->start[i] + code - 1) * width + c] = 1.0f;
        }
    for (t = 0; t < n_sweeps; t++) {
        memset(p->energy, 0, 4 * (size_t)width);  /* a sweep accumulates the energy site by site */
        sweep(g, p, &s);
        gibbs_keep_best(g, p);
        if (p->bits)
            gibbs_set_bits(g, p, t);
        if (draws_out && ++sweeps_since_draw == thin) {
            gibbs_record(g, p, n_recorded, n_draws, code_bytes, draws_out, energies_out);
            draws_out += g->m * code_bytes;
            energies_out++;
            sweeps_since_draw = 0;
        }
    }
    free(memory);
    return SOLVER_DONE;
}

#endif
