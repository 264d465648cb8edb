/* Structures of the Gibbs sampler (model, terms of three or more sites, packs of chains, scratch), and the blocks in
   which sites are processed; for conventions see gibbs.h. */
#ifndef GIBBS_MODEL_H
#define GIBBS_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GIBBS_PACK 32 /* the width of a pack is a multiple of it */
#define GIBBS_BLOCK 8 /* most levels in a block of several sites: the number of rows of the largest product */

/* T terms of three or more sites (members), each with a table of couplings: one cell for each combination of the
   members' non-reference levels; see bbl/model/higher.py */
typedef struct {
    ptrdiff_t max_order;         /* largest number of members of a term */
    const ptrdiff_t *site_first; /* (m + 1,) positions in site_term */
    const int32_t *site_term;    /* terms of site i: site_term[site_first[i]] .. site_term[site_first[i + 1] - 1] */
    const int32_t *members;      /* (T, max_order) sites, increasing, padded with -1 */
    const ptrdiff_t *stride;     /* (T, max_order) distance between adjacent levels of a member in the table */
    const ptrdiff_t *first_cell; /* (T,) first cell of each table in `values` */
    const float *values;         /* couplings of all terms, without reference levels */
} gibbs_terms;

typedef struct {
    ptrdiff_t m, D, width;    /* numbers of sites, of non-reference levels, of chains in a pack */
    const int32_t *n_levels;  /* (m,) */
    const ptrdiff_t *start;   /* (m + 1,) first of the D levels of each site */
    const float *h;           /* (D,) fields */
    const float *table;       /* couplings as packed by gibbs_pack_couplings */
    float beta;               /* factor of the couplings */
    int by_levels;            /* lanes: 0 chains, 1 levels */
    const gibbs_terms *terms; /* NULL for a model of pairs */
} gibbs_model;

typedef struct {
    int32_t *codes;       /* (m, width) current states */
    uint32_t *stream;     /* (4, width) states of the random streams */
    float *energy;        /* (width,) energy of the current state */
    float *best;          /* (width,) highest energy so far */
    int32_t *best_codes;  /* (m, width) the states with these energies */
    uint64_t *bits;       /* (D, words) or NULL: bits of chains after a sweep, set in the rows of their levels */
    ptrdiff_t words,      /* length of a row of bits */
        chains,           /* number of chains with bits, the first ones */
        first_word;       /* first word of this pack in each row */
} gibbs_pack;

typedef struct {
    float *x;          /* (D, width) indicators of the levels, if lanes are chains */
    float *sum_before, *sum_after; /* (height, width) sums of couplings of a block's levels to sites before and after */
    float *cumulative; /* (height, 16) cumulative weights in draw_site */
    int32_t *rows;     /* (width, m) row of each site's level in a table, if lanes are levels */
} gibbs_scratch;

/* Add the couplings of site i in terms of three or more sites to sum_before or sum_after (A, width), A = L_i - 1: to
   sum_before if i is the last member, otherwise to sum_after. Since the energy of a sweep accumulates only sum_before,
   every term is counted once, when its last member is drawn and all members are new. */
static void gibbs_add_terms(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t i, float *sum_before, float *sum_after)
{
    const gibbs_terms *t = g->terms;
    const ptrdiff_t A = g->n_levels[i] - 1, width = g->width;
    ptrdiff_t k, c, a, q;
    for (q = t->site_first[i]; q < t->site_first[i + 1]; q++) {
        const int32_t *member = t->members + (ptrdiff_t)t->site_term[q] * t->max_order;
        const ptrdiff_t *stride = t->stride + (ptrdiff_t)t->site_term[q] * t->max_order;
        const float *values = t->values + t->first_cell[t->site_term[q]];
        ptrdiff_t stride_i = 0, last = 0;
        float *target;
        for (k = 0; k < t->max_order && member[k] >= 0; k++) {
            last = member[k];
            stride_i = last == i ? stride[k] : stride_i;
        }
        target = last == i ? sum_before : sum_after;
        for (c = 0; c < width; c++) {
            ptrdiff_t cell = 0, all_nonzero = 1; /* the coupling is 0 if another member is at level 0 */
            for (k = 0; k < t->max_order && member[k] >= 0 && all_nonzero; k++)
                if (member[k] != i) {
                    const ptrdiff_t code = p->codes[member[k] * width + c];
                    all_nonzero = code;
                    cell += (code - 1) * stride[k];
                }
            for (a = 0; a < A && all_nonzero; a++)
                target[a * width + c] += values[cell + a * stride_i];
        }
    }
}

/* Return n rounded up to a multiple of lanes. */
static inline ptrdiff_t gibbs_pad(ptrdiff_t n, ptrdiff_t lanes) { return (n + lanes - 1) / lanes * lanes; }

/* Return how many of the remaining n rows (levels) of a block are multiplied at once. */
static inline ptrdiff_t gibbs_rows_at_once(ptrdiff_t n) { return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }

/* Return the first site after the block that starts at first_site: at most GIBBS_BLOCK levels, but at least one
   site. */
static inline ptrdiff_t gibbs_block_end(const ptrdiff_t *start, ptrdiff_t m, ptrdiff_t first_site)
{
    ptrdiff_t end_site = first_site + 1;
    while (end_site < m && start[end_site + 1] - start[first_site] <= GIBBS_BLOCK)
        end_site++;
    return end_site;
}
#endif
