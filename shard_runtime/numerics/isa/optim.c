/*
 * AdamW and SGD with the roundings of ref_optim.c: these files are compiled without contraction, so that
 * every set gives the reference's bits.
 */
#include <math.h>

#include "shard_runtime/numerics/isa/kernels.h"

void ROW(adamw)(const struct numerics_adamw *run, const struct numerics_update *u, size_t begin, size_t end)
{
    const double fix1 = 1 - pow(run->beta1, (double)run->step);
    const double fix2 = 1 - pow(run->beta2, (double)run->step);
    const float keep = (float)(1 - u->lr * u->weight_decay), grad_scale = u->grad_scale;
    const float mix1 = (float)(1 - run->beta1), beta2 = (float)run->beta2, mix2 = (float)(1 - run->beta2);
    const float root_fix2 = (float)sqrt(fix2), eps = (float)run->eps, step_size = (float)(u->lr / fix1);
    float *restrict param = u->param, *restrict m = u->m, *restrict v = u->v;
    const float *restrict grad = u->grad;

    for (size_t i = begin; i < end; i++) {
        const float g = grad[i] * grad_scale;
        const float p = param[i] * keep;
        const float m_new = m[i] + mix1 * (g - m[i]);
        const float v_new = v[i] * beta2 + mix2 * g * g;

        m[i] = m_new;
        v[i] = v_new;
        param[i] = p - step_size * (m_new / (sqrtf(v_new) / root_fix2 + eps));
    }
}

void ROW(sgd)(const struct numerics_sgd *run, const struct numerics_update *u, size_t begin, size_t end)
{
    const float lr = (float)u->lr, momentum = (float)run->momentum, decay = (float)u->weight_decay;
    const float grad_scale = u->grad_scale;
    float *restrict param = u->param, *restrict buf = u->m;
    const float *restrict grad = u->grad;

    if (buf == NULL) {
        for (size_t i = begin; i < end; i++)
            param[i] -= lr * (grad[i] * grad_scale + decay * param[i]);
        return;
    }
    for (size_t i = begin; i < end; i++) {
        const float g = grad[i] * grad_scale + decay * param[i];
        const float b = run->step == 1 ? g : momentum * buf[i] + g;

        buf[i] = b;
        param[i] -= lr * b;
    }
}
