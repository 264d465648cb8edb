/* Structures of the Gibbs sampler (model, terms of three and more sites, packs of chains, scratch) and the blocks in
   which sites are taken; conventions as in gibbs.h. */
#ifndef GIBBS_MODEL_H
#define GIBBS_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GIBBS_PACK 32 /* the width of a pack is a multiple of it */
#define GIBBS_BLOCK 8 /* most levels in a block of more than one site: the rows of the largest product */

/* T terms of three and more sites (members), each with one table of couplings; see bbl/model/higher.py */
typedef struct {
    ptrdiff_t max_order;         /* largest number of members of a term */
    const ptrdiff_t *site_first; /* (m + 1,) */
    const int32_t *site_term;    /* terms of site i: site_term[site_first[i]] .. site_term[site_first[i + 1] - 1] */
    const int32_t *members;      /* (T, max_order) sites, rising, then -1 */
    const ptrdiff_t *stride;     /* (T, max_order) strides of the levels of a member in the table of the term */
    const ptrdiff_t *first;      /* (T,) first cell of the table in `values` */
    const float *values;         /* couplings of all terms, without reference levels */
} gibbs_terms;

typedef struct {
    ptrdiff_t m, D, width;
    const int32_t *n_levels;  /* (m,) */
    const ptrdiff_t *start;   /* (m + 1,) */
    const float *h;           /* (D,) */
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
    int32_t *best_codes;  /* (m, width) the state of that energy */
    uint64_t *bits;       /* (D, words) or NULL: bit of a chain after a sweep, 1 in the rows of its levels */
    ptrdiff_t words, chains, first_word;  /* number of chains with bits; first word of this pack in each row */
} gibbs_pack;

typedef struct {
    float *x;          /* (D, width) indicators of the levels; lanes are chains */
    float *low, *up;   /* (height, width) sums of couplings of a block's levels to sites before and after */
    float *sums;       /* (height, 16) for draw_site */
    int32_t *rows;     /* (width, m) row of each site's level in a table; lanes are levels */
} gibbs_scratch;

/* Add the couplings of site i in terms of three and more sites to low or up (A, width), A = L_i - 1: to low if i is the
   last member. All other members are then new, so that the energy of the sweep counts every term once. */
static void gibbs_add_terms(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t i, float *low, float *up)
{
    const gibbs_terms *t = g->terms;
    const ptrdiff_t A = g->n_levels[i] - 1, width = g->width;
    ptrdiff_t k, c, a, q;
    for (q = t->site_first[i]; q < t->site_first[i + 1]; q++) {
        const int32_t *member = t->members + (ptrdiff_t)t->site_term[q] * t->max_order;
        const ptrdiff_t *stride = t->stride + (ptrdiff_t)t->site_term[q] * t->max_order;
        const float *values = t->values + t->first[t->site_term[q]];
        ptrdiff_t stride_i = 0, last = 0;
        float *sums;
        for (k = 0; k < t->max_order && member[k] >= 0; k++) {
            last = member[k];
            stride_i = last == i ? stride[k] : stride_i;
        }
        sums = last == i ? low : up;
        for (c = 0; c < width; c++) {
            ptrdiff_t cell = 0, all_nonzero = 1;
            for (k = 0; k < t->max_order && member[k] >= 0 && all_nonzero; k++)
                if (member[k] != i) {
                    const ptrdiff_t code = p->codes[member[k] * width + c];
                    all_nonzero = code;
                    cell += (code - 1) * stride[k];
                }
            for (a = 0; a < A && all_nonzero; a++)
                sums[a * width + c] += values[cell + a * stride_i];
        }
    }
}

/* Return n rounded up to a multiple of lanes. */
static inline ptrdiff_t gibbs_padded(ptrdiff_t n, ptrdiff_t lanes) { return (n + lanes - 1) / lanes * lanes; }

/* Return how many of the n remaining rows of a block are multiplied at once. */
static inline ptrdiff_t gibbs_rows(ptrdiff_t n) { return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }

/* Return the site after the block that begins at site `first`: at most GIBBS_BLOCK levels, but at least one site. */
static inline ptrdiff_t gibbs_block_end(const ptrdiff_t *start, ptrdiff_t m, ptrdiff_t first)
{
    ptrdiff_t end = first + 1;
    while (end < m && start[end + 1] - start[first] <= GIBBS_BLOCK)
        end++;
    return end;
}
#endif
