#include <fsdp/state_dict.h>

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/weights.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/gather.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/state/full_state.h"
#include "shard_runtime/state/state_tensors.h"

enum fsdp_status fsdp_model_load_weights(struct fsdp_model *model, const char *path, bool strict,
                                         struct fsdp_load_report *report, struct fsdp_err *err)
{
    return fsdp_model_load_weights_named(model, path, strict, &(struct fsdp_weight_names){ 0 }, report, err);
}

enum fsdp_status fsdp_model_load_weights_named(struct fsdp_model *model, const char *path, bool strict,
                                               const struct fsdp_weight_names *names,
                                               struct fsdp_load_report *report, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(report, err);

    struct weights_names theirs = { 0 };
    struct fsdp_context *context = model->context;
    struct weights_report found = { 0 };
    const size_t n_params = fsdp_model_parameter_count(model);
    bool *filled = alloc_array(n_params, sizeof *filled);
    struct state_tensors tensors = { 0 };
    enum fsdp_status status;

    unshard_drop_all(model);
    fsdp_context_phase(context, FSDP_PHASE_LOAD);
    *report = (struct fsdp_load_report){ 0 };
    status = GIVEN(path, err);
    if (status == FSDP_OK)
        status = GIVEN(names, err);
    if (status == FSDP_OK && names->n_passed_over > 0)
        status = GIVEN(names->passed_over, err);
    if (status == FSDP_OK)
        theirs = (struct weights_names){ .prefix = names->prefix,
                                         .passed_over = names->passed_over,
                                         .n_passed_over = names->n_passed_over };
    if (status == FSDP_OK && filled == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "loading weights: out of memory");
    if (status == FSDP_OK)
        status = state_tensors_make(&tensors, model, NULL, err);
    if (status == FSDP_OK)
        status = weights_load(context_files(context), path, context->W, context->rank, tensors.list,
                              tensors.n, strict, &theirs, &found, filled, err);
    state_tensors_free(&tensors);
    *report = (struct fsdp_load_report){ .n_loaded = found.n_loaded,
                                         .n_missing = found.n_missing,
                                         .n_unexpected = found.n_unexpected,
                                         .n_mismatched = found.n_mismatched,
                                         .lines = found.lines };
    status = model_agree(model, NULL, 0, status, err);
    for (size_t i = 0; i < n_params && status == FSDP_OK; i++)
        if (filled[i])
            model_is_filled(model, (int)i);
    free(filled);
    return status;
}

void fsdp_load_report_fini(struct fsdp_load_report *report)
{
    if (report == NULL)
        return;
    free(report->lines);
    *report = (struct fsdp_load_report){ 0 };
}

void fsdp_full_state_dict_fini(struct fsdp_full_state_dict *state)
{
    if (state == NULL)
        return;
    for (size_t i = 0; i < state->n_tensors; i++)
        free(state->tensors[i].data);
    free(state->tensors);
    *state = (struct fsdp_full_state_dict){ 0 };
}

static size_t largest_parameter(const struct fsdp_model *model)
{
    size_t most = 0;

    for (int i = 0; i < model->layout.n_params; i++)
        if (model->layout.params[i].parameter->whole_elems > most)
            most = model->layout.params[i].parameter->whole_elems;
    return most;
}

/* Allocates the whole tensors. Called on the first rank only. */
static enum fsdp_status make_tensors(const struct fsdp_model *model, struct fsdp_full_state_dict *out,
                                     struct fsdp_err *err)
{
    const size_t n = (size_t)model->layout.n_params;

    out->tensors = alloc_array(n, sizeof *out->tensors);
    if (out->tensors == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a state dict: out of memory");
    for (size_t i = 0; i < n; i++) {
        const struct fsdp_parameter *parameter = model->layout.params[i].parameter;

        OK_OR_RETURN(full_state_add(out, parameter->name, parameter, err));
    }
    return FSDP_OK;
}

/* Allocates all memory before the first gather, so that no rank can fail between two collectives. */
static enum fsdp_status make_room(struct fsdp_model *model, struct fsdp_full_state_dict *out, float **stage,
                                  struct gather_room *room, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (full_state_is_first(model))
        status = make_tensors(model, out, err);
    else if ((*stage = alloc_array(largest_parameter(model), sizeof **stage)) == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "a whole parameter: out of memory");
    for (int i = 0; i < model->layout.n_params; i++)
        gather_room_need(room, model, i);
    return status == FSDP_OK ? gather_room_make(room, model, err) : status;
}

enum fsdp_status fsdp_get_full_state_dict(struct fsdp_model *model, struct fsdp_full_state_dict *out,
                                          struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(out, err);

    struct gather_room room = { 0 };
    float *stage = NULL;
    enum fsdp_status status;

    *out = (struct fsdp_full_state_dict){ 0 };
    status = unshard_settle(model, err);
    if (status == FSDP_OK)
        status = model_draw(model, err);
    if (status == FSDP_OK)
        status = make_room(model, out, &stage, &room, err);
    status = model_agree(model, NULL, 0, status, err);
    for (int i = 0; i < model->layout.n_params && status == FSDP_OK; i++)
        status = model_gather(model, i, FSDP_VALUE, &room, stage != NULL ? stage : out->tensors[i].data, err);
    gather_room_free(&room, model);
    free(stage);
    if (status != FSDP_OK)
        fsdp_full_state_dict_fini(out);
    return status;
}

static enum fsdp_status check_state(const struct fsdp_model *model, const struct fsdp_full_state_dict *state,
                                    struct fsdp_err *err)
{
    if (!full_state_is_first(model))
        return FSDP_OK;
    OK_OR_RETURN(full_state_check(model, state, err));
    for (int i = 0; i < model->layout.n_params; i++) {
        const struct fsdp_parameter *parameter = model->layout.params[i].parameter;

        OK_OR_RETURN(full_state_check_tensor(state, parameter->name, parameter, err));
    }
    if (state->n_tensors != (size_t)model->layout.n_params)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "%zu tensors are too many: the model has %d",
                         state->n_tensors, model->layout.n_params);
    return FSDP_OK;
}

enum fsdp_status fsdp_set_full_state_dict(struct fsdp_model *model, const struct fsdp_full_state_dict *state,
                                          struct fsdp_err *err)
{
    REQUIRE(model, err);

    float *stage = alloc_array(largest_parameter(model), sizeof *stage);
    enum fsdp_status status = stage == NULL
                                  ? fsdp_fail(err, FSDP_ERR_NOMEM, "a whole parameter: out of memory")
                                  : check_state(model, state, err);

    unshard_drop_all(model);
    status = model_agree(model, NULL, 0, status, err);
    for (int i = 0; i < model->layout.n_params && status == FSDP_OK; i++) {
        const struct fsdp_parameter *parameter = model->layout.params[i].parameter;

        if (full_state_is_first(model))
            memcpy(stage, full_state_find(state, parameter->name)->data,
                   parameter->whole_elems * sizeof(float));
        status = model_broadcast(model, stage, parameter->whole_elems * sizeof(float), err);
        if (status == FSDP_OK)
            status = fsdp_parameter_set(model, parameter->name, stage, parameter->whole_elems, err);
    }
    free(stage);
    return status;
}
