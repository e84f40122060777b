/*
 * AdamW and SGD with the roundings of ref_optim.c: these files are compiled without contraction, so that
 * every set gives the reference's bits.
 */
#include <math.h>

#include "shard_runtime/numerics/isa/kernels.h"

void row_adamw(float *restrict param, const float *restrict grad, float *restrict m, float *restrict v,
               size_t n, const struct adamw *h, float grad_scale, uint64_t step)
{
    const double fix1 = 1 - pow(h->beta1, (double)step);
    const double fix2 = 1 - pow(h->beta2, (double)step);
    const float keep = (float)(1 - h->lr * h->weight_decay);
    const float mix1 = (float)(1 - h->beta1), beta2 = (float)h->beta2, mix2 = (float)(1 - h->beta2);
    const float root_fix2 = (float)sqrt(fix2), eps = (float)h->eps, step_size = (float)(h->lr / fix1);

    for (size_t i = 0; i < n; i++) {
        const float g = grad[i] * grad_scale;
        const float p = param[i] * keep;
        const float m_new = m[i] + mix1 * (g - m[i]);
        const float v_new = v[i] * beta2 + mix2 * g * g;

        m[i] = m_new;
        v[i] = v_new;
        param[i] = p - step_size * (m_new / (sqrtf(v_new) / root_fix2 + eps));
    }
}

void row_sgd(float *restrict param, const float *restrict grad, float *restrict buf, size_t n,
             const struct sgd *h, float grad_scale, uint64_t step)
{
    const float lr = (float)h->lr, momentum = (float)h->momentum, decay = (float)h->weight_decay;

    if (buf == NULL) {
        for (size_t i = 0; i < n; i++)
            param[i] -= lr * (grad[i] * grad_scale + decay * param[i]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float g = grad[i] * grad_scale + decay * param[i];
        const float b = step == 1 ? g : momentum * buf[i] + g;

        buf[i] = b;
        param[i] -= lr * b;
    }
}
