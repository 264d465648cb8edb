/* A model, packs of chains and working memory of the Gibbs sampler, and how sites are taken in blocks; the conventions
   stand in gibbs.h. */
#ifndef GIBBS_MODEL_H
#define GIBBS_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GIBBS_PACK 32
#define GIBBS_BLOCK 8

typedef struct {
    ptrdiff_t m, D, width;
    const int32_t *n_levels;  /* (m,) */
    const ptrdiff_t *start;   /* (m + 1,) */
    const float *h;           /* (D,) */
    const float *table;       /* couplings as packed by gibbs_pack_couplings */
    float beta;               /* factor of the couplings */
    int by_levels;            /* lanes: 0 chains, 1 levels */
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
