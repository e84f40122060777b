/*
 * A model that is planned and never allocated. The same functions as for a real model make its layout and the
 * program of training, on a context without peers, device and memory.
 */
#include <fsdp/forecast.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/process_memory.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/forecast_apart.h"
#include "shard_runtime/engine/optimizer.h"
#include "shard_runtime/numerics/cuda_plan.h"
#include "shard_runtime/optim/optim.h"
#include "shard_runtime/plan/traffic.h"
#include "shard_runtime/shard/layout_text.h"

static bool is_apart(const struct fsdp_forecast_world *world)
{
    return world->device != NULL && strcmp(world->device, "cuda") == 0;
}

static void forecast_optimizer(struct fsdp_forecast *forecast, const struct fsdp_model *model,
                               const struct fsdp_optimizer_options *options)
{
    size_t elems = 0;

    for (int i = 0; i < model->layout.n_params; i++) {
        size_t n_elems;

        (void)model_shard_elems(model, FSDP_GRADIENT, i, &n_elems);
        elems += n_elems;
    }
    if (options != NULL)
        optim_need(options, elems, &forecast->optimizer, &forecast->offloaded);
}

/*
 * Returns the configuration of the numerics that the plan is for. The row for a GPU plans without having one.
 */
static struct numerics_config numerics_of(const struct fsdp_forecast_world *world)
{
    return (struct numerics_config){ .threads = world->threads,
                                     .name = "auto",
                                     .precision = world->matmul_precision,
                                     .row = is_apart(world) ? &numerics_cuda_plan_ops : NULL };
}

static struct fsdp_forecast_collectives collectives_of(const struct plan_collectives *counted)
{
    return (struct fsdp_forecast_collectives){ .n_calls = counted->n_calls,
                                               .sent_bytes = counted->sent_bytes };
}

static void fill(struct fsdp_forecast *forecast, const struct fsdp_model *model,
                 const struct fsdp_optimizer_options *optimizer, const struct fsdp_forecast_world *world)
{
    struct plan_traffic traffic;

    /* measured while the plan is in memory, because a worker has its plan in memory too */
    forecast->process = process_memory_now();
    fsdp_model_memory(model, &forecast->memory);
    forecast_optimizer(forecast, model, optimizer);
    forecast->staging = model_staging_bytes(model, world->ranks_per_host);
    forecast->shared = model_shared_bytes(model, world->ranks_per_host);
    forecast->node_shared = model_node_shared_bytes(model, world->ranks_per_host);
    plan_count_traffic(&model->training.plan, world->n_micro / model_forwards(model), &traffic);
    forecast->all_gather = collectives_of(&traffic.all_gather);
    forecast->reduce_scatter = collectives_of(&traffic.reduce_scatter);
    forecast->all_reduce = collectives_of(&traffic.all_reduce);
}

static enum fsdp_status check(const struct fsdp_module *root, const struct fsdp_model_options *options,
                              const struct fsdp_optimizer_options *optimizer,
                              const struct fsdp_forecast_world *world, struct fsdp_err *err)
{
    const size_t n_forwards = options->forwards > 0 ? options->forwards : 1;

    OK_OR_RETURN(model_check_options(options, err));
    if (world->device != NULL && strcmp(world->device, "cpu") != 0 && strcmp(world->device, "cuda") != 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "planning for device %s: not cpu or cuda", world->device);
    if (root != NULL && root->parent != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "a plan is of the root of a tree, not of \"%s\"", root->path);
    if (world->size < 1 || world->threads < 1 || world->ranks_per_host < 1 ||
        world->size % world->ranks_per_host != 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "a world of %d ranks, %d a host, %d threads each", world->size,
                         world->ranks_per_host, world->threads);
    if (options->batch == 0 || options->seq == 0 || world->n_micro == 0 || world->n_micro % n_forwards != 0 ||
        (world->n_micro > n_forwards && !options->accumulates))
        return fsdp_fail(err, FSDP_ERR_ARG, "a step of %llu micro-steps of %zu samples",
                         (unsigned long long)world->n_micro, options->batch);
    if ((world->evaluation_batch == 0) != (world->evaluation_seq == 0))
        return fsdp_fail(err, FSDP_ERR_ARG, "an evaluation of %zu samples of %zu tokens",
                         world->evaluation_batch, world->evaluation_seq);
    if (optimizer != NULL && optim_check(optimizer, err) != FSDP_OK)
        return FSDP_ERR_ARG;
    OK_OR_RETURN(fsdp_module_check(root, err));
    if (optimizer != NULL)
        OK_OR_RETURN(optimizer_check_offload(optimizer, root, is_apart(world), err));
    return FSDP_OK;
}

static enum fsdp_status describe(const struct plan *plan, char **text, struct fsdp_err *err)
{
    char *layout = layout_text(plan), *program = plan_text(plan);
    const bool made = layout != NULL && program != NULL && asprintf(text, "%s\n%s", layout, program) >= 0;

    free(layout);
    free(program);
    if (made)
        return FSDP_OK;
    *text = NULL;
    return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
}

/* Plan the programs that a real model would have. */
static enum fsdp_status plan_programs(struct fsdp_model *model, const struct fsdp_forecast_world *world,
                                      struct fsdp_err *err)
{
    const struct fsdp_model_options *options = &model->options;
    enum fsdp_status status = program_plan(&model->training, model, options->batch, true, options->seq, err);

    return status == FSDP_OK && world->evaluation_batch > 0
               ? program_plan(&model->evaluation, model, world->evaluation_batch, false,
                              world->evaluation_seq, err)
               : status;
}

/* Plan the model. Fill in *forecast or, if `text` is not NULL, give the plan as text. */
static enum fsdp_status plan_model(struct fsdp_module *root, const struct fsdp_model_options *options,
                                   const struct fsdp_optimizer_options *optimizer,
                                   const struct fsdp_forecast_world *world, struct fsdp_forecast *forecast,
                                   char **text, struct fsdp_err *err)
{
    const struct numerics_config config = numerics_of(world);
    struct fsdp_context context = { .W = world->size,
                                    .threads = world->threads,
                                    .device = { .ops = is_apart(world) ? &forecast_cuda_ops
                                                                       : &device_cpu_ops } };
    struct fsdp_model model = { .context = &context, .root = root, .options = *options };
    enum fsdp_status status;

    OK_OR_RETURN(check(root, options, optimizer, world, err));
    OK_OR_RETURN(numerics_open(&context.numerics, &config, err));
    status = model_make_layout(&model, err);
    if (status == FSDP_OK)
        status = model_measure_memory(&model, err);
    if (status == FSDP_OK)
        status = plan_programs(&model, world, err);
    if (status == FSDP_OK && text != NULL)
        status = describe(&model.training.plan, text, err);
    else if (status == FSDP_OK)
        fill(forecast, &model, optimizer, world);
    if (status == FSDP_OK && text == NULL && is_apart(world))
        forecast_apart(forecast, &model, optimizer, world->staged, world->ranks_per_host);
    program_destroy(&model.training);
    program_destroy(&model.evaluation);
    model_drop_layout(&model);
    numerics_close(&context.numerics);
    if (status != FSDP_OK)
        fsdp_wrap(err, "planning the model");
    return status;
}

enum fsdp_status fsdp_model_forecast(struct fsdp_module *root, const struct fsdp_model_options *options,
                                     const struct fsdp_optimizer_options *optimizer,
                                     const struct fsdp_forecast_world *world, struct fsdp_forecast *forecast,
                                     struct fsdp_err *err)
{
    REQUIRE(options, err);
    REQUIRE(world, err);
    REQUIRE(forecast, err);

    *forecast = (struct fsdp_forecast){ 0 };
    return plan_model(root, options, optimizer, world, forecast, NULL, err);
}

enum fsdp_status fsdp_model_forecast_text(struct fsdp_module *root, const struct fsdp_model_options *options,
                                          const struct fsdp_optimizer_options *optimizer,
                                          const struct fsdp_forecast_world *world, char **text,
                                          struct fsdp_err *err)
{
    REQUIRE(options, err);
    REQUIRE(world, err);
    REQUIRE(text, err);

    *text = NULL;
    return plan_model(root, options, optimizer, world, NULL, text, err);
}
