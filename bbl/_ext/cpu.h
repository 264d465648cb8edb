/* What the compiler and this processor can do with vectors: attributes for code of one width, and the question whether
   the processor runs it. A kernel compiles its inner loops once for each width and asks here, at run time, which to
   take.

   Widths are in bytes: 64 (AVX-512), 32 (AVX2), 16 (what every processor with vector types of the compiler has), and
   anything less, a plain number. */
#ifndef CPU_H
#define CPU_H

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define CPU_X86 1
#define CPU_64_BYTES __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define CPU_32_BYTES __attribute__((target("avx2,fma")))
#endif
#if defined(__GNUC__)
#define CPU_VECTORS 1
#define CPU_INLINE static inline __attribute__((always_inline)) /* becomes code of its caller's width */
#else
#define CPU_INLINE static inline
#endif

static inline int cpu_runs(int bytes)
{
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
