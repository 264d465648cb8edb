/* Standard normal numbers in single precision, from NORMAL_STREAMS parallel streams: xoshiro128++ (Blackman & Vigna
   2021) and the Box-Muller transform. Numbers beyond 5.9 do not occur, because the uniform numbers are at least 2^-25.
   Compilers vectorise the loops over streams. From cpu.h: CPU_32_BYTES and CPU_64_BYTES are function attributes that
   select an instruction set, CPU_X86 is defined if the compiler supports them, and cpu_runs(bytes) returns whether the
   processor does. */
#ifndef NORMAL_H
#define NORMAL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#define NORMAL_STREAMS 16
#define NORMAL_BLOCK (2 * NORMAL_STREAMS) /* numbers per transform of all streams */

/* Write the next 32 bits of each stream to words_out (16); state (4, 16) is advanced. */
static inline void normal_words(uint32_t *state, uint32_t *words_out)
{
    uint32_t *a = state, *b = state + NORMAL_STREAMS, *c = b + NORMAL_STREAMS, *d = c + NORMAL_STREAMS;
    int k;
    for (k = 0; k < NORMAL_STREAMS; k++) {
        const uint32_t sum = a[k] + d[k], t = b[k] << 9;
        words_out[k] = ((sum << 7) | (sum >> 25)) + a[k];
        c[k] ^= a[k];
        d[k] ^= b[k];
        b[k] ^= c[k];
        a[k] ^= d[k];
        c[k] ^= t;
        d[k] = (d[k] << 11) | (d[k] >> 21);
    }
}

/* Write two normal numbers of each stream, r cos(angle) and r sin(angle), to out (2, 16); state is advanced. */
static inline void normal_block(uint32_t *state, double *out)
{
    uint32_t radius_bits[NORMAL_STREAMS], angle_bits[NORMAL_STREAMS];
    int k;
    normal_words(state, radius_bits);
    normal_words(state, angle_bits);
    for (k = 0; k < NORMAL_STREAMS; k++) {
        /* r = sqrt(-2 ln u) with u uniform: u = m 2^e with m in sqrt(1/2)..sqrt(2) (0x3f3504f3 is sqrt(1/2)), and ln m
           = 2 atanh(s), computed by its power series */
        const float u = ((float)(int32_t)(radius_bits[k] >> 8) + 0.5f) * 0x1p-24f;
        uint32_t bits;
        float m, r;
        memcpy(&bits, &u, sizeof bits);
        /* the bits of u minus those of sqrt(1/2) contain e in the place of the exponent, from bit 23 on: a fraction
           below the fraction of sqrt(1/2) borrows 1 from it. m is u with e subtracted from its exponent */
        const int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
        bits -= (uint32_t)e << 23;
        memcpy(&m, &bits, sizeof m);
        const float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
        const float log_m = 2.0f * s * (1.0f + s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9)))));
        r = sqrtf(-2.0f * ((float)e * 0.693147181f + log_m));
        /* the angle: t is uniform in -pi/4..pi/4, given by the lowest 24 bits (in steps of pi/2 2^-24); bit 31 reflects
           it at the y axis, bit 30 at the diagonal */
        const float t = ((float)(int32_t)(angle_bits[k] & 0xffffffu) - 8388607.5f) * (1.57079633f * 0x1p-24f),
                    t2 = t * t;
        const float sine = t * (1.0f + t2 * (-1.0f / 6 + t2 * (1.0f / 120 - t2 * (1.0f / 5040))));
        const float cosine = 1.0f + t2 * (-0.5f + t2 * (1.0f / 24 + t2 * (-1.0f / 720 + t2 * (1.0f / 40320))));
        const float side = angle_bits[k] >> 31 ? -r : r;
        const int swap = (angle_bits[k] >> 30) & 1;
        out[k] = swap ? r * sine : side * cosine;
        out[NORMAL_STREAMS + k] = swap ? side * cosine : r * sine;
    }
}

/* normal_fill for one vector width, given by `target` */
#define NORMAL_FILL(name, target)                                                                                      \
    target static void name(uint32_t *state, ptrdiff_t n, double *out)                                                 \
    {                                                                                                                  \
        double last_block[NORMAL_BLOCK];                                                                               \
        ptrdiff_t k;                                                                                                   \
        for (k = 0; k + NORMAL_BLOCK <= n; k += NORMAL_BLOCK)                                                          \
            normal_block(state, out + k);                                                                              \
        if (k < n) {                                                                                                   \
            normal_block(state, last_block);                                                                           \
            memcpy(out + k, last_block, sizeof(double) * (size_t)(n - k));                                             \
        }                                                                                                              \
    }
#ifdef CPU_X86
NORMAL_FILL(normal_fill_64, CPU_64_BYTES)
NORMAL_FILL(normal_fill_32, CPU_32_BYTES)
#endif
NORMAL_FILL(normal_fill_base, )
#undef NORMAL_FILL

/* Fill out (n) with standard normal numbers and advance state (4, 16); the unused numbers of an incomplete last block
   are discarded. */
static void normal_fill(uint32_t *state, ptrdiff_t n, double *out)
{
#ifdef CPU_X86
    if (cpu_runs(64)) {
        normal_fill_64(state, n, out);
        return;
    }
    if (cpu_runs(32)) {
        normal_fill_32(state, n, out);
        return;
    }
#endif
    normal_fill_base(state, n, out);
}
#endif
