/*
 * The initial values of parameters. A value depends on the seed, the parameter's name and the element's index
 * in the whole tensor. So it is the same at every world size, on every mesh and with any number of threads.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/numerics/parallel.h"

enum {
    STAGE_ELEMS = 1 << 14, /* drawn on the stack, so that this needs no memory */
    GRAIN_ELEMS = 1 << 10, /* about 20 microseconds of work for one thread; smaller pieces are not divided */
};

enum fsdp_status model_plan_initial(struct fsdp_model *model, struct fsdp_err *err)
{
    const int n = model->layout.n_params;

    model->initial = alloc_array((size_t)n, sizeof *model->initial);
    if (model->initial == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "initialising the parameters: out of memory");
    for (int i = 0; i < n; i++) {
        const char *name = model->layout.params[i].parameter->name;
        char *purpose = alloc_printf("init:%s", name);

        if (purpose == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "initialising \"%s\": out of memory", name);
        model->initial[i] = (struct initial_values){ rng_key(model->options.seed, purpose), true };
        free(purpose);
    }
    model->n_pending = n;
    return FSDP_OK;
}

void model_is_filled(struct fsdp_model *model, int index)
{
    model->n_pending -= model->initial[index].pending;
    model->initial[index].pending = false;
}

/* Elements of a parameter from `first` on, to be drawn into `out`. */
struct drawing {
    const struct fsdp_parameter *parameter;
    uint64_t key, first;
    float *out;
};

static void draw_piece(void *context, size_t begin, size_t end)
{
    const struct drawing *d = context;

    if (d->parameter->init == FSDP_INIT_NORMAL)
        rng_fill_normal(d->key, d->first + begin, d->out + begin, end - begin, d->parameter->init_std);
    for (size_t i = begin; i < end && d->parameter->init != FSDP_INIT_NORMAL; i++)
        d->out[i] = d->parameter->init == FSDP_INIT_ONES ? 1.0f : 0.0f;
}

/*
 * Draw one run of a shard, which begins at element `first` of the whole. It is drawn in place, or through a
 * stage if the memory is not the host's.
 */
static enum fsdp_status draw_run(struct fsdp_model *model, enum shard_place place, struct drawing drawing,
                                 float *shard, size_t n_elems, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    const bool staged = place == PLACE_DEVICE && device_is_separate(&context->device);
    const uint64_t first = drawing.first;
    float stage[STAGE_ELEMS];

    for (size_t done = 0, n; done < n_elems; done += n) {
        n = staged && n_elems - done > STAGE_ELEMS ? STAGE_ELEMS : n_elems - done;
        drawing.first = first + done;
        drawing.out = staged ? stage : shard + done;
        parallel_for(context->threads, n, GRAIN_ELEMS, draw_piece, &drawing);
        model->n_drawn += n;
        if (!staged)
            continue;
        place_write(context, place, shard + done, stage, n * sizeof *stage);
        /* The next round overwrites the stage. */
        OK_OR_RETURN(context->device.ops->synchronize(context->streams[PLAN_COMPUTE], err));
    }
    return FSDP_OK;
}

static enum fsdp_status draw_parameter(struct fsdp_model *model, int index, struct fsdp_err *err)
{
    const enum shard_place place = model_place(model, model->layout.params[index].group);
    struct layout_walk walk = model_walk(model, index);
    struct layout_piece run;
    size_t n_elems;
    float *shard = model_shard(model, FSDP_VALUE, index, &n_elems);

    while (layout_walk_next(&walk, &run)) {
        const struct drawing drawing = { .parameter = model->layout.params[index].parameter,
                                         .key = model->initial[index].key,
                                         .first = run.whole_at };

        OK_OR_RETURN(draw_run(model, place, drawing, shard + run.shard_at, run.n_elems, err));
    }
    return FSDP_OK;
}

enum fsdp_status model_draw(struct fsdp_model *model, struct fsdp_err *err)
{
    for (int i = 0; model->n_pending > 0 && i < model->layout.n_params; i++) {
        if (!model->initial[i].pending)
            continue;
        context_alive(model->context);
        OK_OR_RETURN(draw_parameter(model, i, err));
        model_is_filled(model, i);
    }
    return FSDP_OK;
}
