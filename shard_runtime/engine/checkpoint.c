/* <fsdp/checkpoint.h>: the tensors of a model and its optimizer, handed to checkpoint/ as plain arrays. */
#include <fsdp/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/shardfile/json.h"

/* The model's tensors, then the optimizer's (NULL: none). *tensors is to be freed. */
static enum fsdp_status collect(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                struct checkpoint_tensor **tensors, size_t *n_tensors, struct fsdp_err *err)
{
    const size_t n_parameters = fsdp_model_parameter_count(model);
    const size_t n_states = optimizer != NULL ? fsdp_optimizer_state_count(optimizer) : 0;
    struct fsdp_tensor_shard *shards = alloc_array(n_parameters + n_states, sizeof *shards);

    *n_tensors = n_parameters + n_states;
    *tensors = alloc_array(*n_tensors, sizeof **tensors);
    if (shards == NULL || *tensors == NULL) {
        free(shards);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a list of %zu tensors", *n_tensors);
    }
    fsdp_model_state(model, shards);
    if (optimizer != NULL)
        fsdp_optimizer_state(optimizer, shards + n_parameters);
    for (size_t i = 0; i < *n_tensors; i++) {
        struct checkpoint_tensor *tensor = &(*tensors)[i];

        *tensor = (struct checkpoint_tensor){ .name = shards[i].name,
                                              .dtype = shards[i].dtype,
                                              .n_dims = (size_t)shards[i].n_dims,
                                              .rows = shards[i].data };
        for (int d = 0; d < shards[i].n_dims; d++)
            tensor->shape[d] = shards[i].shape[d];
    }
    free(shards);
    return FSDP_OK;
}

/* {"describe": "cpu, onednn ..."}: the manifest's record of what the bits depend on, beside the world size. */
static void write_numerics(const struct fsdp_context *context, struct json_text *text)
{
    char words[FSDP_MADE_WITH_BYTES];

    json_add(text, "{\"describe\": ");
    json_add_string(text, fsdp_context_describe(context, words, sizeof words));
    json_add(text, "}");
}

static enum fsdp_status read_numerics(const struct manifest *manifest, char out[FSDP_MADE_WITH_BYTES],
                                      struct fsdp_err *err)
{
    struct json_reader json;
    const char *key, *words;
    char *text;

    out[0] = '\0';
    if (manifest->numerics == NULL)
        return FSDP_OK;
    text = strndup(manifest->numerics, manifest->numerics_length);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to read a manifest");
    json_read_init(&json, text, manifest->numerics_length);
    json_enter_object(&json);
    while ((key = json_next_member(&json)) != NULL) {
        if (strcmp(key, "describe") != 0)
            json_skip(&json); /* of another version */
        else if ((words = json_string(&json)) != NULL)
            snprintf(out, FSDP_MADE_WITH_BYTES, "%s", words);
    }
    free(text);
    return FSDP_OK;
}

enum fsdp_status fsdp_checkpoint_save(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                      const char *directory, const struct fsdp_checkpoint_state *state, uint32_t keep,
                                      const char *job_json, struct fsdp_err *err)
{
    const struct fsdp_context *context = fsdp_model_context(model);
    const struct checkpoint_save_options options = { .link = context_link(context),
                                                     .directory = directory,
                                                     .keep = keep,
                                                     .loaded_step = context->loaded_step };
    struct checkpoint_state saved = { .step = (int64_t)state->step,
                                      .optimizer_step = optimizer != NULL ? fsdp_optimizer_step_count(optimizer) : 0,
                                      .cursor = state->cursor,
                                      .seed = state->seed,
                                      .job = job_json != NULL ? job_json : fsdp_context_job(context, NULL) };
    struct checkpoint_tensor *tensors = NULL;
    struct checkpoint_saved done;
    struct json_text numerics = { 0 };
    enum fsdp_status status;
    size_t n_tensors = 0;

    status = collect(model, optimizer, &tensors, &n_tensors, err);
    write_numerics(context, &numerics);
    if (status == FSDP_OK && numerics.failed)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a manifest");
    saved.numerics = numerics.bytes;
    if (status == FSDP_OK)
        status = checkpoint_save(&options, &saved, tensors, n_tensors, &done, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "saving step %llu", (unsigned long long)state->step);
    json_text_free(&numerics);
    free(tensors);
    return status;
}

static enum fsdp_status fill_state(const struct manifest *manifest, struct fsdp_optimizer *optimizer,
                                   struct fsdp_checkpoint_state *state, struct fsdp_err *err)
{
    *state = (struct fsdp_checkpoint_state){ .step = manifest->step,
                                             .cursor = manifest->cursor,
                                             .seed = manifest->seed,
                                             .optimizer_step = manifest->optimizer_step,
                                             .world_size = (int)manifest->world_size };
    if (optimizer != NULL)
        fsdp_optimizer_set_step_count(optimizer, manifest->optimizer_step);
    return read_numerics(manifest, state->made_with, err);
}

enum fsdp_status fsdp_checkpoint_load(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                      const char *directory, int64_t step, struct fsdp_checkpoint_state *state,
                                      struct fsdp_err *err)
{
    struct fsdp_context *context = fsdp_model_context(model);
    const bool alone = fsdp_context_alone(context);
    const char *where = directory != NULL ? directory : "the run directory";
    unsigned flags = optimizer == NULL ? CHECKPOINT_SUBSET : 0;
    struct checkpoint_tensor *tensors = NULL;
    struct manifest manifest = { 0 };
    char path[IO_PATH_BYTES], own[IO_PATH_BYTES];
    enum fsdp_status status = FSDP_OK;
    size_t n_tensors = 0;

    if (step >= 0 && alone)
        flags |= CHECKPOINT_VERIFY; /* nobody has looked at it yet; checkpoint_find() would have */
    if (step < 0)
        status = checkpoint_find(&io_posix, context_link(context), directory, &step, NULL, err);
    if (status == FSDP_OK && step < 0)
        status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no checkpoint in %s", where);
    if (status == FSDP_OK && directory == NULL) {
        status = io_join(own, fsdp_context_run_dir(context), "checkpoints", err);
        directory = own;
    }
    if (status == FSDP_OK)
        status = checkpoint_step_directory(directory, step, path, err);
    if (status == FSDP_OK)
        status = collect(model, optimizer, &tensors, &n_tensors, err);
    if (status == FSDP_OK)
        status = checkpoint_load(&io_posix, path, context->W, context->rank, tensors, n_tensors, flags, &manifest, NULL,
                                 err);
    if (status == FSDP_OK)
        status = fill_state(&manifest, optimizer, state, err);
    if (status == FSDP_OK)
        context->loaded_step = step;
    manifest_free(&manifest);
    free(tensors);
    return status;
}
