/* The whole state of an optimizer on the model's first rank, and back. */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/gather.h"
#include "shard_runtime/engine/optimizer.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/state/full_state.h"

/* Memory for one state tensor after another. */
struct room {
    struct gather_room gather;
    size_t shard_bytes[N_PLACES];
    /* this rank's shards with their padding, on the device that the collective reads */
    float *shard[N_PLACES];
    float *own;   /* this rank's shards in host memory */
    float *whole; /* where a rank that keeps no whole tensor puts the gathered one */
};

static int param_of(const struct fsdp_optimizer *optimizer, size_t index)
{
    return optimizer->params[index / (size_t)optimizer->n_states];
}

static const struct fsdp_parameter *parameter_of(const struct fsdp_optimizer *optimizer, size_t index)
{
    return optimizer->model->layout.params[param_of(optimizer, index)].parameter;
}

static size_t own_elems(const struct fsdp_optimizer *optimizer, size_t index)
{
    return optimizer->tensors[index / (size_t)optimizer->n_states].n_elems;
}

static void room_free(struct room *room, struct fsdp_model *model)
{
    gather_room_free(&room->gather, model);
    for (int p = 0; p < N_PLACES; p++)
        place_free(model->context, (enum shard_place)p, room->shard[p], room->shard_bytes[p]);
    free(room->own);
    free(room->whole);
}

/* Allocates all of the room before the first collective, so that no rank can fail between two collectives. */
static enum fsdp_status room_make(struct room *room, const struct fsdp_optimizer *optimizer, bool gathers,
                                  struct fsdp_err *err)
{
    struct fsdp_model *model = optimizer->model;
    size_t most_own = 0, most_whole = 0;

    for (size_t i = 0; i < fsdp_optimizer_state_count(optimizer); i++) {
        const int param = param_of(optimizer, i);
        const size_t chunk = model->layout.params[param].chunk_elems;
        size_t *bytes = &room->shard_bytes[model_gather_place(model, param)];

        most_own = chunk > most_own ? chunk : most_own;
        most_whole = parameter_of(optimizer, i)->whole_elems > most_whole
                         ? parameter_of(optimizer, i)->whole_elems
                         : most_whole;
        if (gathers && chunk * sizeof(float) > *bytes)
            *bytes = chunk * sizeof(float);
        if (gathers)
            gather_room_need(&room->gather, model, param);
    }
    room->own = alloc_array(most_own + 1, sizeof(float));
    room->whole = alloc_array(most_whole + 1, sizeof(float));
    if (room->own == NULL || room->whole == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a whole tensor of the optimizer: out of memory");
    for (int p = 0; p < N_PLACES; p++)
        OK_OR_RETURN(
            place_alloc(model->context, (enum shard_place)p, room->shard_bytes[p], &room->shard[p], err));
    return gather_room_make(&room->gather, model, err);
}

static enum fsdp_status make_tensors(const struct fsdp_optimizer *optimizer, struct fsdp_full_state_dict *out,
                                     struct fsdp_err *err)
{
    const size_t n = fsdp_optimizer_state_count(optimizer);

    out->tensors = alloc_array(n + 1, sizeof *out->tensors);
    if (out->tensors == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a state dict: out of memory");
    for (size_t i = 0; i < n; i++)
        OK_OR_RETURN(full_state_add(out, optimizer->names[i], parameter_of(optimizer, i), err));
    return FSDP_OK;
}

/*
 * Gathers one state tensor. A rank that cannot read its part, which may be in a file, takes part all the
 * same; *own gets its failure.
 */
static enum fsdp_status gather_one(struct fsdp_optimizer *optimizer, size_t index, struct room *room,
                                   float *out, enum fsdp_status *own, struct fsdp_err *own_err,
                                   struct fsdp_err *err)
{
    struct fsdp_model *model = optimizer->model;
    const int param = param_of(optimizer, index);
    const size_t chunk = model->layout.params[param].chunk_elems, n = own_elems(optimizer, index);
    const enum shard_place place = model_gather_place(model, param);

    memset(room->own, 0, chunk * sizeof(float));
    if (*own == FSDP_OK)
        *own = fsdp_optimizer_read_state(optimizer, index, 0, n, room->own, own_err);
    if (chunk > 0)
        place_write(model->context, place, room->shard[place], room->own, chunk * sizeof(float));
    return model_gather_rows(model, param, room->shard[place], &room->gather, out, err);
}

/*
 * Returns the status of the collectives. If that is FSDP_OK, the ranks agree on the status `own` of their
 * parts: if one rank's part failed, all ranks return a failure.
 */
static enum fsdp_status agree_at_end(struct fsdp_model *model, enum fsdp_status status, enum fsdp_status own,
                                     const struct fsdp_err *own_err, struct fsdp_err *err)
{
    if (status != FSDP_OK)
        return status;
    if (own != FSDP_OK)
        fsdp_fail(err, own, "%s", own_err->message);
    return model_agree(model, NULL, 0, own, err);
}

enum fsdp_status fsdp_get_full_optimizer_state(struct fsdp_optimizer *optimizer,
                                               struct fsdp_full_state_dict *out, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);
    REQUIRE(out, err);

    struct fsdp_model *model = optimizer->model;
    enum fsdp_status status, own = FSDP_OK;
    struct fsdp_err own_err = { 0 };
    struct room room = { 0 };

    *out = (struct fsdp_full_state_dict){ 0 };
    status = unshard_settle(model, err);
    if (status == FSDP_OK)
        status = room_make(&room, optimizer, true, err);
    if (status == FSDP_OK && full_state_is_first(model))
        status = make_tensors(optimizer, out, err);
    status = model_agree(model, NULL, 0, status, err);
    for (size_t i = 0; i < fsdp_optimizer_state_count(optimizer) && status == FSDP_OK; i++)
        status = gather_one(optimizer, i, &room, out->n_tensors > 0 ? out->tensors[i].data : room.whole, &own,
                            &own_err, err);
    status = agree_at_end(model, status, own, &own_err, err);
    room_free(&room, model);
    if (status != FSDP_OK)
        fsdp_full_state_dict_fini(out);
    return status;
}

static enum fsdp_status check_state(const struct fsdp_optimizer *optimizer,
                                    const struct fsdp_full_state_dict *state, struct fsdp_err *err)
{
    const size_t n = fsdp_optimizer_state_count(optimizer);

    OK_OR_RETURN(full_state_check(optimizer->model, state, err));
    for (size_t i = 0; i < n; i++)
        OK_OR_RETURN(full_state_check_tensor(state, optimizer->names[i], parameter_of(optimizer, i), err));
    return state->n_tensors == n
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_MISMATCH, "%zu tensors are too many: the optimizer has %zu",
                           state->n_tensors, n);
}

enum fsdp_status fsdp_set_full_optimizer_state(struct fsdp_optimizer *optimizer,
                                               const struct fsdp_full_state_dict *state, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);

    struct fsdp_model *model = optimizer->model;
    enum fsdp_status status, own = FSDP_OK;
    struct fsdp_err own_err = { 0 };
    struct room room = { 0 };

    status = room_make(&room, optimizer, false, err);
    if (status == FSDP_OK && full_state_is_first(model))
        status = check_state(optimizer, state, err);
    status = model_agree(model, NULL, 0, status, err);
    for (size_t i = 0; i < fsdp_optimizer_state_count(optimizer) && status == FSDP_OK; i++) {
        const size_t bytes = parameter_of(optimizer, i)->whole_elems * sizeof(float);

        if (full_state_is_first(model))
            memcpy(room.whole, full_state_find(state, optimizer->names[i])->data, bytes);
        status = model_broadcast(model, room.whole, bytes, err);
        if (status != FSDP_OK || own != FSDP_OK)
            continue;
        model_take_rows(model, param_of(optimizer, i), room.whole, room.own);
        own = fsdp_optimizer_write_state(optimizer, i, 0, own_elems(optimizer, i), room.own, &own_err);
    }
    status = agree_at_end(model, status, own, &own_err, err);
    room_free(&room, model);
    return status;
}
