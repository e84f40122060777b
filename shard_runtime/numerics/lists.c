/* Lists of tensors, where a row has no way of its own for them: one by one. */
#include "shard_runtime/numerics/numerics.h"

void numerics_adamw(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_update *updates, size_t n_updates, const struct adamw *h,
                    uint64_t step)
{
    if (numerics->ops->adamw_list != NULL) {
        numerics->ops->adamw_list(numerics, stream, updates, n_updates, h, step);
        return;
    }
    for (size_t i = 0; i < n_updates; i++) {
        const struct numerics_update *u = &updates[i];
        struct adamw own = *h;

        own.lr = u->lr;
        own.weight_decay = u->weight_decay;
        numerics->ops->adamw(numerics, stream, u->param, u->grad, u->state[0], u->state[1], u->n_elems, &own,
                             u->grad_scale, step);
    }
}

void numerics_sgd(struct numerics *numerics, struct device_stream *stream,
                  const struct numerics_update *updates, size_t n_updates, const struct sgd *h, uint64_t step)
{
    if (numerics->ops->sgd_list != NULL) {
        numerics->ops->sgd_list(numerics, stream, updates, n_updates, h, step);
        return;
    }
    for (size_t i = 0; i < n_updates; i++) {
        const struct numerics_update *u = &updates[i];
        struct sgd own = *h;

        own.lr = u->lr;
        own.weight_decay = u->weight_decay;
        numerics->ops->sgd(numerics, stream, u->param, u->grad, u->state[0], u->n_elems, &own, u->grad_scale,
                           step);
    }
}

void numerics_sum_powers(struct numerics *numerics, struct device_stream *stream,
                         const struct numerics_span *spans, size_t n_spans, double p, double *sums)
{
    if (numerics->ops->sum_powers_list != NULL) {
        numerics->ops->sum_powers_list(numerics, stream, spans, n_spans, p, sums);
        return;
    }
    for (size_t i = 0; i < n_spans; i++)
        sums[i] = p == 2 ? numerics->ops->sum_squares(numerics, stream, spans[i].x, spans[i].n_elems)
                         : numerics->ops->sum_powers(numerics, stream, spans[i].x, spans[i].n_elems, p);
}
