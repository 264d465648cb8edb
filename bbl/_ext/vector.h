/* Vectors of numbers for one width: types and elementary operations.

   Define before inclusion: LANES (numbers per vector; 1 means plain numbers, for compilers without vector types),
   TARGET (function attribute that selects the instruction set), NAME(x) (adds the prefix of this width to x), and
   SINGLE for float instead of double. A second inclusion undefines these names and the names that this file defines.

   Conventions: REAL is a number and WORD an unsigned integer of the same size; `vec` contains LANES numbers, `words`
   LANES integers. A lane is one position of a vector. A mask is a `words` in which all bits of a lane are set, or none.
   vec_load and vec_store move LANES numbers from and to p, which need not be aligned; load_words and store_words move
   LANES integers, loadf and storef LANES floats. vec_fill(s) has s in all lanes. bits(v) is the binary representation
   of v, real(u) the numbers represented by u. */
#ifndef VECTOR_OPEN
#define VECTOR_OPEN
#include <stdint.h>
#include <string.h>

#ifdef SINGLE
#define REAL float
#define WORD uint32_t
#else
#define REAL double
#define WORD uint64_t
#endif
#if LANES > 1
typedef REAL NAME(vec) __attribute__((vector_size(sizeof(REAL) * LANES)));
typedef WORD NAME(words) __attribute__((vector_size(sizeof(WORD) * LANES)));
#define MASK(comparison) ((words)(comparison)) /* a comparison of vectors is already a mask */
#else
typedef REAL NAME(vec);
typedef WORD NAME(words);
#define MASK(comparison) ((WORD)0 - (WORD)(comparison)) /* converts 0 or 1 to no or all bits */
#endif
#define vec NAME(vec)
#define words NAME(words)
#define vec_load NAME(load)
#define vec_store NAME(store)
#define vec_fill NAME(fill)

TARGET static inline vec vec_load(const REAL *p) { vec v; memcpy(&v, p, sizeof v); return v; }
TARGET static inline void vec_store(REAL *p, vec v) { memcpy(p, &v, sizeof v); }
TARGET static inline vec vec_fill(double s) { return (vec){0} + (REAL)s; }
TARGET static inline words NAME(load_words)(const void *p) { words u; memcpy(&u, p, sizeof u); return u; }
TARGET static inline void NAME(store_words)(void *p, words u) { memcpy(p, &u, sizeof u); }
TARGET static inline words NAME(bits)(vec v) { words u; memcpy(&u, &v, sizeof u); return u; }
TARGET static inline vec NAME(real)(words u) { vec v; memcpy(&v, &u, sizeof v); return v; }

/* Return mask ? a : b, lane by lane. */
TARGET static inline vec NAME(choose)(words mask, vec a, vec b)
{
    return NAME(real)((mask & NAME(bits)(a)) | (~mask & NAME(bits)(b)));
}

/* Return the larger of a and b, lane by lane. */
TARGET static inline vec NAME(larger)(vec a, vec b) { return NAME(choose)(MASK(a > b), a, b); }

/* vf: LANES numbers in single precision. NARROW rounds a vec to it, WIDEN converts it to a vec. */
#if LANES > 1
typedef float NAME(vf) __attribute__((vector_size(4 * LANES)));
#define NARROW(v) __builtin_convertvector(v, vf)
#define WIDEN(v) __builtin_convertvector(v, vec)
#else
typedef float NAME(vf);
#define NARROW(v) ((float)(v))
#define WIDEN(v) ((REAL)(v))
#endif
#define vf NAME(vf)
TARGET static inline vf NAME(loadf)(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
TARGET static inline void NAME(storef)(float *p, vf v) { memcpy(p, &v, sizeof v); }

#else
#undef vec
#undef vf
#undef NARROW
#undef WIDEN
#undef words
#undef vec_load
#undef vec_store
#undef vec_fill
#undef MASK
#undef REAL
#undef WORD
#undef SINGLE
#undef LANES
#undef TARGET
#undef NAME
#undef VECTOR_OPEN
#endif
