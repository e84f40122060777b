#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/vec_math.h"

static float largest_of(const float *x, size_t n)
{
    vf largest = vf_set(-INFINITY);
    size_t j = 0;

    for (; j + VL <= n; j += VL)
        largest = vf_max(largest, vf_load(x + j));
    if (j < n)
        largest = vf_max(largest, vf_load_part(x + j, n - j, -INFINITY));
    return vf_largest(largest);
}

/* sum_j exp(x_j - largest), at most 64 terms a lane in float32 before they are added in double. The terms are
 * left in `out` unless it is NULL; out may be x. */
static double sum_exp(const float *x, float largest, float *out, size_t n)
{
    double total = 0;

    for (size_t begin = 0; begin < n; begin += 64 * VL) {
        const size_t end = n - begin < 64 * VL ? n : begin + 64 * VL;
        vf sum = vf_set(0);
        size_t j = begin;

        for (; j + VL <= end; j += VL) {
            const vf e = vf_exp(vf_load(x + j) - largest);

            if (out != NULL)
                vf_store(out + j, e);
            sum += e;
        }
        if (j < end) {
            const vf e = vf_exp(vf_load_part(x + j, end - j, -INFINITY) - largest);

            if (out != NULL)
                vf_store_part(out + j, e, end - j);
            sum += e;
        }
        total += vf_sum(sum);
    }
    return total;
}

double ROW(cross_entropy)(const float *logits, size_t target, float *dlogits, size_t vocab, float scale)
{
    const float largest = largest_of(logits, vocab);
    /* read before dlogits replaces it */
    const double shifted_target = (double)logits[target] - (double)largest;
    const double sum = sum_exp(logits, largest, dlogits, vocab);

    if (dlogits != NULL) {
        const float factor = (float)((double)scale / sum);
        const double p = exp(shifted_target) / sum;

        for (size_t j = 0; j < vocab; j++)
            dlogits[j] *= factor;
        dlogits[target] = (float)((p - 1.0) * (double)scale);
    }
    return log(sum) - shifted_target;
}
