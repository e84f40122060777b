/*
 * exp and the upper tail of the normal distribution on vectors. The coefficients are minimax fits made for
 * this file (iteratively reweighted least squares on Chebyshev nodes), rounded to float32. The errors were
 * measured on every fifth (exp) and third float32 of the range, against double, in all three instruction
 * sets. NaN in, NaN out.
 */
#ifndef NUMERICS_ISA_VEC_MATH_H
#define NUMERICS_ISA_VEC_MATH_H

#include "shard_runtime/numerics/isa/vec.h"

/*
 * exp(x) for x <= 88. x = n ln 2 + r with |r| <= ln 2 / 2 and exp(r) = 1 + r + r^2 p(r). At most 1.01 ulp
 * off.
 */
static inline vf vf_exp(vf x)
{
    /* a sum of x and this number has the whole number nearest to x in its low bits */
    const float to_integer = 0x1.8p23f;
    const float ln2_high = 0x1.62e4p-1f; /* 15 bits: its product with n is exact */
    const float ln2_low = 0x1.7f7d1cp-20f;
    /* for a smaller x, exp(x) is no normal float32; the result 0 is then at most 1.2e-38 off */
    const float smallest = -87.33f;
    const vf shifted = vf_fma(x, vf_set(0x1.715476p0f), vf_set(to_integer));
    const vf n = shifted - to_integer;
    const vf r = vf_fma(n, vf_set(-ln2_low), vf_fma(n, vf_set(-ln2_high), x));
    /* the bits of 2^n; the shift drops the bits that to_integer had set */
    const vi power = (vi)(((vu)shifted + 127u) << 23);
    vf p = vf_set(0x1.6a2352p-10f);

    p = vf_fma(p, r, vf_set(0x1.123a6cp-7f));
    p = vf_fma(p, r, vf_set(0x1.5558f4p-5f));
    p = vf_fma(p, r, vf_set(0x1.555490p-3f));
    p = vf_fma(p, r, vf_set(0x1.fffffcp-2f));
    p = vf_fma(r * r, p, r) + 1.0f;
    return vf_select(x < smallest, vf_set(0), p * (vf)power);
}

/*
 * Q(a) = 1 - Phi(a) for a >= 0, the upper tail of the standard normal. *bell receives exp(-a^2 / 2), for the
 * density. Q(a) = bell * t * p(t) with t = 1 / (1 + 0.3 a): the form of Abramowitz and Stegun 26.2.17 with a
 * polynomial of our own. At most 2.4e-7 off. Relative to Q it is 4.9e-7 up to a = 1 and, by the rounding of
 * a^2, 8 (1 + a^2 / 2) 2^-24 to a = 13.
 */
static inline vf vf_normal_tail(vf a, vf *bell)
{
    const vf t = 1.0f / vf_fma(a, vf_set(0.3f), vf_set(1.0f));
    vf p = vf_set(-0.0206199629f);

    *bell = vf_exp(a * a * -0.5f);
    p = vf_fma(p, t, vf_set(0.112415904f));
    p = vf_fma(p, t, vf_set(-0.228165504f));
    p = vf_fma(p, t, vf_set(0.19171779f));
    p = vf_fma(p, t, vf_set(-0.0793655634f));
    p = vf_fma(p, t, vf_set(0.0961242969f));
    p = vf_fma(p, t, vf_set(0.0784014484f));
    p = vf_fma(p, t, vf_set(0.110232767f));
    p = vf_fma(p, t, vf_set(0.119572151f));
    p = vf_fma(p, t, vf_set(0.119686672f));
    return *bell * t * p;
}

#endif
