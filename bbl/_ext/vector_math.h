/* Exponentials, logarithms and long products of vectors. Include this file between the two inclusions of vector.h, and
   a second time to undefine its names.

   Conventions are as in vector.h. TARGET selects the instruction set, NAME(x) adds the prefix of the vector width to x,
   SINGLE is defined for float instead of double, `vec` is a vector of numbers and `words` a vector of unsigned integers
   of the same size. MANTISSA is the number of fraction bits of a number, BIAS the constant added to its exponent when
   it is stored. exp(x) = 2^n exp(r), with n = round(x / ln 2), the remainder r = x - n ln 2, and a polynomial p for
   exp(r). ln 2 is the sum of two constants; the larger one has so few digits that its product with n is exact. */
#ifndef VECTOR_MATH_OPEN
#define VECTOR_MATH_OPEN

#ifdef SINGLE
#define MANTISSA 23
#define BIAS 127
#else
#define MANTISSA 52
#define BIAS 1023
#endif

#ifdef SINGLE
/* exp(x) for x <= 0, clipped at -87 (2e-38); relative error below 2e-7 (polynomial of Cephes' expf). NaN stays NaN. */
TARGET static inline vec NAME(exp)(vec x)
{
    vec t, n, r, p;
    x = NAME(choose)(MASK(x < vec_fill(-87.0)), vec_fill(-87.0), x);
    t = x * 1.44269504f + 12582912.0f;  /* adding 1.5 * 2^23 leaves n in the low bits */
    n = t - 12582912.0f;
    r = x - n * 0.693359375f + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return NAME(real)(NAME(bits)(p) + (NAME(bits)(t) << 23));  /* adds n to the exponent of p */
}

/* exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1), x clipped to [-80, 80]; relative error below 3e-7, for tiny x too */
TARGET static inline vec NAME(expm1)(vec x)
{
    vec t, n, r, p, power;
    x = NAME(choose)(MASK(x < vec_fill(-80.0)), vec_fill(-80.0), x);
    x = NAME(choose)(MASK(x > vec_fill(80.0)), vec_fill(80.0), x);
    t = x * 1.44269504f + 12582912.0f;
    n = t - 12582912.0f;
    r = x - n * 0.693359375f + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r;
    power = NAME(real)(NAME(bits)(vec_fill(1.0)) + (NAME(bits)(t) << 23));
    return p * power + (power - 1.0f);
}

/* log(z) for normal z >= 1; relative error below 2e-7 (polynomial of Cephes' logf).

   z = 2^k (1 + f), where k is chosen so that 1 + f is in sqrt(1/2)..sqrt(2); 0x3f3504f3 is sqrt(1/2), and the float
   with the bits k | 0x4b000000 is 2^23 + k, so that e is k as a float. z >= 1 because the unsigned k must not be
   negative. */
TARGET static inline vec NAME(log)(vec z)
{
    const words k = (NAME(bits)(z) - 0x3f3504f3u) >> 23;
    const vec e = NAME(real)(k | 0x4b000000u) - 8388608.0f;
    const vec f = NAME(real)(NAME(bits)(z) - (k << 23)) - 1.0f;
    vec p = f * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return f + (p * f * f * f - e * 2.12194440e-4f - f * f * 0.5f) + e * 0.693359375f;
}
#else
/* exp(x) for x <= 0, clipped at -708 (3e-308); relative error below 3e-16. NaN stays NaN. The polynomial in r is summed
   in pairs of terms, p and q, in powers of s = r^2. */
TARGET static inline vec NAME(exp)(vec x)
{
    vec t, n, r, s, p, q;
    x = NAME(choose)(MASK(x < vec_fill(-708.0)), vec_fill(-708.0), x);
    t = x * 1.4426950408889634 + 6755399441055744.0;  /* adding 1.5 * 2^52 leaves n in the low bits */
    n = t - 6755399441055744.0;
    r = x - n * 6.93147180369123816490e-01;
    r = r - n * 1.90821492927058770002e-10;
    s = r * r;
    p = r * 2.5100375832561234e-08 + 2.7620075879983367e-07;
    q = r * 2.7557268480310024e-06 + 2.4801521322368692e-05;
    p = p * s + q;
    q = r * 0.00019841269863040545 + 0.0013888888917196719;
    p = p * s + q;
    q = r * 0.008333333333330065 + 0.041666666666624164;
    p = p * s + q;
    q = r * 0.16666666666666669 + 0.5;
    p = p * s + q;
    p = p * s + r + 1.0;
    return NAME(real)(NAME(bits)(p) + (NAME(bits)(t) << 52));  /* adds n to the exponent of p */
}

/* log(z) for normal z >= 1; error of about 1 ulp or less (reduction and polynomial of fdlibm's e_log.c).

   z = 2^k (1 + f) as in single precision: 0x3fe6a09e00000000 is about sqrt(1/2), and the double with the bits k |
   0x4330000000000000 is 2^52 + k, so that e is k as a double. `shift` contains the bits above those of sqrt(1/2), whose
   exponent field is k; z >= 1 because the unsigned k must not be negative. ln(1 + f) = ln((1 + s) / (1 - s)) is 2 s
   plus s times a polynomial in t = s^2, computed as the sum of its even and odd powers. */
TARGET static inline vec NAME(log)(vec z)
{
    const words shift = NAME(bits)(z) - 0x3fe6a09e00000000u, k = shift >> 52;
    const vec e = NAME(real)(k | 0x4330000000000000u) - 4503599627370496.0;
    const vec f = NAME(real)(NAME(bits)(z) - (k << 52)) - 1.0;
    const vec s = f / (f + 2.0), t = s * s, u = t * t, half = 0.5 * f * f;
    const vec even = u * (u * (u * 1.531383769920937332e-01 + 2.222219843214978396e-01) + 3.999999999940941908e-01);
    const vec odd = t * (u * (u * (u * 1.479819860511658591e-01 + 1.818357216161805012e-01) +
                              2.857142874366239149e-01) + 6.666666666666735130e-01);
    return e * 6.93147180369123816490e-01 - ((half - (s * (half + even + odd) + e * 1.90821492927058770002e-10)) - f);
}
#endif

/* Divide a product of numbers >= 1 by its power of two, so that it is in [1, 2); return it and add the exponent of that
   power, with its BIAS, to *exponent. Doing this after every factor prevents overflow. */
TARGET static inline vec NAME(split)(vec product, words *exponent)
{
    *exponent += NAME(bits)(product) >> MANTISSA;
    return NAME(real)((NAME(bits)(product) & (((WORD)1 << MANTISSA) - 1)) | ((WORD)BIAS << MANTISSA));
}

/* Return the log of a product after `factors` calls of split with a sum of exponents `exponent`: ln(product) plus
   `power`, the exponents without their biases, times ln 2. ln 2 is 22713 / 2^15 (few digits, so that its product with a
   large power is exact) plus a remainder. */
TARGET static inline vec NAME(split_log)(vec product, words exponent, ptrdiff_t factors)
{
    const REAL offset = (REAL)((WORD)1 << MANTISSA);  /* offset + k contains the integer k in its low bits */
    const vec power = NAME(real)(exponent | (WORD)(BIAS + MANTISSA) << MANTISSA) - (offset + (REAL)(BIAS * factors));
    return NAME(log)(product) + power * (REAL)6.93145751953125e-01 + power * (REAL)1.42860682030941723212e-06;
}

#else
#undef MANTISSA
#undef BIAS
#undef VECTOR_MATH_OPEN
#endif
