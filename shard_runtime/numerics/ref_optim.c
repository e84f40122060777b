/*
 * The optimizers' arithmetic in the order of torch.optim's single-tensor code: each line rounds to float32
 * where PyTorch's tensor operation does, and the scalars are made in double as Python makes them.
 */
#include "shard_runtime/numerics/ref.h"

#include <math.h>

/* Loshchilov and Hutter, ICLR 2019, Algorithm 2, with lr scaling the decay. */
void ref_adamw(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
               float *m, float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step)
{
    const double fix1 = 1 - pow(h->beta1, (double)step); /* both moments start at 0: undo the bias */
    const double fix2 = 1 - pow(h->beta2, (double)step);
    const float keep = (float)(1 - h->lr * h->weight_decay);
    const float mix1 = (float)(1 - h->beta1), beta2 = (float)h->beta2, mix2 = (float)(1 - h->beta2);
    const float root_fix2 = (float)sqrt(fix2), eps = (float)h->eps, step_size = (float)(h->lr / fix1);

    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        const float g = grad[i] * grad_scale;

        param[i] *= keep;
        m[i] += mix1 * (g - m[i]);
        v[i] = v[i] * beta2 + mix2 * g * g;
        param[i] -= step_size * (m[i] / (sqrtf(v[i]) / root_fix2 + eps));
    }
}

void ref_sgd(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
             float *buf, size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step)
{
    const float lr = (float)h->lr, momentum = (float)h->momentum, decay = (float)h->weight_decay;

    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        float g = grad[i] * grad_scale + decay * param[i];

        if (buf != NULL) {
            buf[i] = step == 1 ? g : momentum * buf[i] + g;
            g = buf[i];
        }
        param[i] -= lr * g;
    }
}

double ref_sum_squares(struct numerics *numerics, struct device_stream *stream, const float *x,
                       size_t n_elems)
{
    double sum = 0;

    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

double ref_sum_powers(struct numerics *numerics, struct device_stream *stream, const float *x, size_t n_elems,
                      double p)
{
    double sum = 0;

    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        const double size = fabs((double)x[i]);

        if (isinf(p))
            sum = size > sum || isnan(size) ? size : sum;
        else
            sum += p == 1 ? size : pow(size, p);
    }
    return sum;
}
