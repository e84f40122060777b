/*
 * The optimizers' arithmetic in the order of torch.optim's single-tensor code. Each line rounds to float32
 * where PyTorch's tensor operation does. The scalars are computed in double as Python computes them.
 */
#include "shard_runtime/numerics/ref.h"

#include <math.h>

/* Loshchilov and Hutter, ICLR 2019, Algorithm 2, with lr scaling the decay. */
static void adamw(const struct numerics_adamw *run, const struct numerics_update *u)
{
    const double fix1 = 1 - pow(run->beta1, (double)run->step); /* both moments start at 0: undo the bias */
    const double fix2 = 1 - pow(run->beta2, (double)run->step);
    const float keep = (float)(1 - u->lr * u->weight_decay);
    const float mix1 = (float)(1 - run->beta1), beta2 = (float)run->beta2, mix2 = (float)(1 - run->beta2);
    const float root_fix2 = (float)sqrt(fix2), eps = (float)run->eps, step_size = (float)(u->lr / fix1);
    const float *grad = u->grad;

    for (size_t i = 0; i < u->n_elems; i++) {
        const float g = grad[i] * u->grad_scale;

        u->param[i] *= keep;
        u->m[i] += mix1 * (g - u->m[i]);
        u->v[i] = u->v[i] * beta2 + mix2 * g * g;
        u->param[i] -= step_size * (u->m[i] / (sqrtf(u->v[i]) / root_fix2 + eps));
    }
}

void ref_adamw(struct numerics *numerics, struct device_stream *stream, const struct numerics_adamw *run)
{
    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->n_updates; i++)
        adamw(run, &run->updates[i]);
}

static void sgd(const struct numerics_sgd *run, const struct numerics_update *u)
{
    const float lr = (float)u->lr, momentum = (float)run->momentum, decay = (float)u->weight_decay;
    const float *grad = u->grad;

    for (size_t i = 0; i < u->n_elems; i++) {
        float g = grad[i] * u->grad_scale + decay * u->param[i];

        if (u->m != NULL) {
            u->m[i] = run->step == 1 ? g : momentum * u->m[i] + g;
            g = u->m[i];
        }
        u->param[i] -= lr * g;
    }
}

void ref_sgd(struct numerics *numerics, struct device_stream *stream, const struct numerics_sgd *run)
{
    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->n_updates; i++)
        sgd(run, &run->updates[i]);
}

static double sum_powers(const float *x, size_t n_elems, double p)
{
    double sum = 0;

    for (size_t i = 0; i < n_elems; i++) {
        const double size = fabs((double)x[i]);

        if (isinf(p))
            sum = size > sum || isnan(size) ? size : sum;
        else
            sum += p == 1 ? size : p == 2 ? size * size : pow(size, p);
    }
    return sum;
}

void ref_sum_powers(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_sum_powers *run)
{
    (void)numerics, (void)stream;
    for (size_t i = 0; i < run->n_spans; i++)
        run->sums[i] = sum_powers(run->spans[i].data, run->spans[i].n_elems, run->p);
}
