/* Vector widths: the function attributes for each width, and whether this processor supports it. A kernel compiles its
   inner loops once for each width and selects one at run time.

   BBL_VECTORS=32 (or 16, or 8) in the environment when the kernels are loaded disables wider vectors, so that other
   processors can be emulated.

   Widths are in bytes: 64 (AVX-512), 32 (AVX2), 16 (any processor, if the compiler has vector types). A width below 16
   means plain numbers, which every processor supports. */
#ifndef CPU_H
#define CPU_H
#include <stdlib.h>

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define CPU_X86 1 /* this compiler supports function attributes for AVX-512 and AVX2 */
#define CPU_64_BYTES __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define CPU_32_BYTES __attribute__((target("avx2,fma")))
#endif
#if defined(__GNUC__)
#define CPU_VECTORS 1 /* the compiler has vector types */
#define CPU_INLINE static inline __attribute__((always_inline)) /* compiled for the width of its caller */
#else
#define CPU_INLINE static inline
#endif

#ifdef CPU_VECTORS
static int cpu_widest = 64; /* bytes of the widest vectors allowed */

__attribute__((constructor)) static void cpu_read_widest(void)
{
    const char *given = getenv("BBL_VECTORS");
    if (given && *given)
        cpu_widest = atoi(given);
}
#endif

/* Return whether this processor supports vectors of `bytes` bytes, and BBL_VECTORS allows them. */
static inline int cpu_runs(int bytes)
{
#ifdef CPU_VECTORS
    if (bytes > 8 && bytes > cpu_widest)
        return 0;
#endif
#ifdef CPU_X86
    __builtin_cpu_init();
    if (bytes == 64)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    if (bytes == 32)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef CPU_VECTORS
    if (bytes == 16)
        return 1;
#endif
    return bytes < 16;
}
#endif
