/* float16 to float32, every one of them, against the definition in IEEE 754. */
#include <criterion/criterion.h>
#include <math.h>

#include "shard_runtime/core/f16.h"

static double defined_value(unsigned half)
{
    const unsigned exponent = half >> 10 & 31, fraction = half & 1023;
    const double size = exponent == 0    ? ldexp(fraction, -24)
                        : exponent == 31 ? (fraction == 0 ? (double)INFINITY : (double)NAN)
                                         : ldexp(1024 + fraction, (int)exponent - 25);

    return half >> 15 != 0 ? -size : size;
}

Test(f16, every_value_is_that_of_the_standard)
{
    for (unsigned half = 0; half < 1u << 16; half++) {
        const double wanted = defined_value(half);
        const float got = f16_to_f32((uint16_t)half);

        cr_assert(isnan(wanted) ? isnan(got) : (double)got == wanted, "%04x: %a, not %a", half, (double)got,
                  wanted);
        cr_assert_eq(signbit(got) != 0, half >> 15 != 0, "%04x: sign", half);
    }
}
