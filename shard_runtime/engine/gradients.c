/*
 * The gradients of a step: are they there, are they numbers, and what do their powers add up to.
 *
 * An element that is NaN or infinite may be in the shard of one rank alone. So every rank measures its rows
 * when the last backward of a step is over. Its verdict travels in the all-reduce that ends this call in any
 * case (agree.c). Clipping by the usual norm takes the same sums, so that gradients are read once.
 */
#include <math.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/timing.h"

enum { MAX_SPANS = 256 };

/* Spans of one place that are being collected, in their order, to sum their powers in one call. */
struct measure {
    const struct fsdp_model *model;
    enum shard_place place;
    double norm_type, sum;
    struct numerics_span spans[MAX_SPANS];
    size_t n_spans;
};

static void add_up(struct measure *m)
{
    struct fsdp_context *context = m->model->context;
    struct numerics *numerics = place_numerics(context, m->place);
    double sums[MAX_SPANS];
    uint64_t n_elems = 0;
    bool timed;

    if (m->n_spans == 0)
        return;
    for (size_t i = 0; i < m->n_spans; i++)
        n_elems += m->spans[i].n_elems;
    timed = m->place == PLACE_DEVICE && timing_begin(context, "norm of gradients", n_elems * sizeof(float));
    numerics->ops->sum_powers(
        numerics, context->streams[PLAN_COMPUTE],
        &(struct numerics_sum_powers){
            .spans = m->spans, .n_spans = m->n_spans, .p = m->norm_type, .sums = sums });
    if (timed)
        timing_end(context, PLAN_COMPUTE);
    for (size_t i = 0; i < m->n_spans; i++)
        m->sum = !isinf(m->norm_type)                 ? m->sum + sums[i]
                 : sums[i] > m->sum || isnan(sums[i]) ? sums[i]
                                                      : m->sum;
    m->n_spans = 0;
}

static void take(struct measure *m, enum shard_place place, const float *gradients, size_t n_elems)
{
    if (m->n_spans == MAX_SPANS || place != m->place)
        add_up(m);
    m->place = place;
    m->spans[m->n_spans++] = (struct numerics_span){ .data = gradients, .n_elems = n_elems };
}

static void take_parameter(struct measure *m, int index)
{
    size_t n_elems;
    const float *gradient = model_shard(m->model, FSDP_GRADIENT, index, &n_elems);

    take(m, model_place(m->model, m->model->layout.params[index].group), gradient, n_elems);
}

/*
 * Does this rank count the gradient of parameter `index` in its share of the norm? If several ranks hold the
 * gradient, exactly one of them counts it.
 */
static bool counts(const struct fsdp_model *model, int index)
{
    const struct plan_param *param = &model->layout.params[index];

    return !model->layout.groups[param->group].local &&
           (param->parameter->split.n_parts > 1 || model->tensor_rank == 0);
}

double gradients_sum_powers(const struct fsdp_model *model, const struct model_mesh *mesh, double norm_type)
{
    struct measure m = { .model = model, .norm_type = norm_type };

    /*
     * With one mesh, and nothing split over a tensor group, the share is one piece of memory in each place.
     */
    for (int p = 0; p < N_PLACES && model->n_meshes == 1 && model->T == 1; p++)
        if (model->memory[p].reduced_elems > 0)
            take(&m, (enum shard_place)p, model->memory[p].gradients, model->memory[p].reduced_elems);
    for (int i = 0; i < model->layout.n_params && (model->n_meshes > 1 || model->T > 1); i++)
        if (model->layout.params[i].trains && counts(model, i) &&
            model_mesh(model, model->layout.params[i].group) == mesh)
            take_parameter(&m, i);
    add_up(&m);
    return m.sum;
}

/*
 * Returns the sum over gradients that are in no rank's share here: those of ignored parameters, and those
 * that another tensor rank counts.
 */
static double sum_the_rest(const struct fsdp_model *model)
{
    struct measure m = { .model = model, .norm_type = 2 };

    for (int i = 0; i < model->layout.n_params; i++)
        if (model->layout.params[i].trains && !counts(model, i))
            take_parameter(&m, i);
    add_up(&m);
    return m.sum;
}

enum fsdp_status gradients_measure(struct fsdp_model *model, bool *finite, struct fsdp_err *err)
{
    *finite = true;
    for (int i = 0; i < model->n_meshes; i++) {
        model->meshes[i].squares = gradients_sum_powers(model, &model->meshes[i], 2);
        *finite = *finite && isfinite(model->meshes[i].squares);
    }
    *finite = *finite && isfinite(sum_the_rest(model));
    /*
     * A failed device gives NaN. Report the device failure, so that the NaN is not reported as a loss that
     * diverges.
     */
    return model->context->device.ops->synchronize(model->context->streams[PLAN_COMPUTE], err);
}

int gradients_find_nonfinite(const struct fsdp_model *model, int group)
{
    for (int i = 0; i < model->layout.n_params; i++) {
        struct measure m = { .model = model, .norm_type = 2 };

        if (!model->layout.params[i].trains || (group >= 0 && model->layout.params[i].group != group))
            continue;
        take_parameter(&m, i);
        add_up(&m);
        if (!isfinite(m.sum))
            return i;
    }
    return -1;
}

enum fsdp_status gradients_agree_on_nonfinite(struct fsdp_model *model, struct fsdp_err *err)
{
    const int own = gradients_find_nonfinite(model, -1), n = model->layout.n_params;
    int64_t first = own < 0 ? 0 : n - own;
    const enum fsdp_status status = model_reduce_over_all(model, &first, 1, FSDP_I64, FSDP_MAX, err);

    model->nonfinite_parameter = status == FSDP_OK && first > 0 ? n - (int)first : -1;
    return status;
}

enum fsdp_status gradients_fail_nonfinite(const struct fsdp_model *model, int index, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_NOT_FINITE, "the gradient of \"%s\" is not finite",
                     model->layout.params[index].parameter->name);
}

enum fsdp_status gradients_check(const struct fsdp_model *model, struct fsdp_err *err)
{
    if (model->options.batch > 0 && model->training.context == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "the last step could not be planned: there are no gradients");
    if (model->n_micro_done > 0 || model->training.next_call > 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the last backward of this step is yet to come: %zu micro-steps are done",
                         model->n_micro_done);
    if (!model->has_gradients)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            model->n_steps_begun == 0
                ? "there are no gradients: no backward has run yet"
                : "the last step left no gradients: it failed, was refused or dropped, or had no "
                  "targets");
    return FSDP_OK;
}
