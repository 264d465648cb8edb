/* A model (terms of three and more among it), packs of chains and working memory of the Gibbs sampler, and how sites
   are taken in blocks; the conventions stand in gibbs.h. */
#ifndef GIBBS_MODEL_H
#define GIBBS_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GIBBS_PACK 32
#define GIBBS_BLOCK 8

/* Terms of three predictors and more, one table of couplings each; see bbl/model/higher.py */
typedef struct {
    ptrdiff_t most;              /* highest order */
    const ptrdiff_t *site_first; /* (m + 1,) */
    const int32_t *site_term;    /* the terms of site i from site_first[i] on */
    const int32_t *members;      /* (T, most) rising, -1 where there are fewer */
    const ptrdiff_t *stride;     /* (T, most) steps between the levels of a member */
    const ptrdiff_t *first;      /* (T,) */
    const float *values;
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
    float *best;          /* (width,) highest energy seen */
    int32_t *best_codes;  /* (m, width) the state that had it */
    uint64_t *bits;       /* (D, words), a bit for each level of a chain after a sweep; NULL if it is not wanted */
    ptrdiff_t words, chains, first_word;  /* chains that have bits, and where those of this pack begin in each row */
} gibbs_pack;

typedef struct {
    float *x, *low, *up, *sums;
    int32_t *rows;
} gibbs_scratch;

/* Add the couplings of site i in terms of three and more to low or up (A, width): to low where it is the last member,
   for all others are new by then, and the energy counts every term once */
static void gibbs_add_terms(const gibbs_model *g, const gibbs_pack *p, ptrdiff_t i, float *low, float *up)
{
    const gibbs_terms *t = g->terms;
    const ptrdiff_t A = g->n_levels[i] - 1, width = g->width;
    ptrdiff_t k, c, a, q;
    for (q = t->site_first[i]; q < t->site_first[i + 1]; q++) {
        const int32_t *member = t->members + (ptrdiff_t)t->site_term[q] * t->most;
        const ptrdiff_t *stride = t->stride + (ptrdiff_t)t->site_term[q] * t->most;
        const float *values = t->values + t->first[t->site_term[q]];
        ptrdiff_t own = 0, last = 0;
        float *to;
        for (k = 0; k < t->most && member[k] >= 0; k++) {
            last = member[k];
            own = last == i ? stride[k] : own;
        }
        to = last == i ? low : up;
        for (c = 0; c < width; c++) {
            ptrdiff_t at = 0, inside = 1;
            for (k = 0; k < t->most && member[k] >= 0 && inside; k++)
                if (member[k] != i) {
                    const ptrdiff_t code = p->codes[member[k] * width + c];
                    inside = code;
                    at += (code - 1) * stride[k];
                }
            for (a = 0; a < A && inside; a++)
                to[a * width + c] += values[at + a * own];
        }
    }
}

static inline ptrdiff_t gibbs_padded(ptrdiff_t n, ptrdiff_t lanes) { return (n + lanes - 1) / lanes * lanes; }

/* Rows taken at once out of the n rows that are left in a block */
static inline ptrdiff_t gibbs_rows(ptrdiff_t n) { return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }

/* Site after the last one of the block that begins at `first`: up to GIBBS_BLOCK rows, at least one site */
static inline ptrdiff_t gibbs_block_end(const ptrdiff_t *start, ptrdiff_t m, ptrdiff_t first)
{
    ptrdiff_t last = first + 1;
    while (last < m && start[last + 1] - start[first] <= GIBBS_BLOCK)
        last++;
    return last;
}
#endif
