#include "shard_runtime/trainer/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/job/model_files.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/safetensors.h"

static const char weights_name[] = "model.safetensors", config_name[] = "config.json";
enum { NAME_BYTES = 512, NONE = -1 };

struct export
{
    struct fsdp_io *io;
    struct fsdp_model *model;
    size_t n_parameters;
    float *whole;     /* the parameter that was gathered last */
    int64_t gathered; /* index of that parameter, or NONE */
    bool gave_up;     /* a gather failed; a gather that fails does so on every rank */
};

/* Gathering the parameters, one whole parameter at a time */

/*
 * Gathers one parameter into export->whole. Collective: every rank makes this call for every parameter, in
 * order.
 */
static enum fsdp_status gather(struct export *export, size_t index, struct fsdp_err *err)
{
    struct fsdp_parameter_info info;
    enum fsdp_status status;

    OK_OR_RETURN(fsdp_model_parameter(export->model, index, &info, err));
    export->gathered = (int64_t)index;
    status = fsdp_parameter_gather(export->model, info.name, FSDP_VALUE, export->whole, info.n_elems, err);
    export->gave_up = status != FSDP_OK;
    return status;
}

/*
 * Reads bytes of a parameter for the writer. The writer reads the tensors in order, and each one from
 * beginning to end.
 */
static enum fsdp_status read_whole(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                   struct fsdp_err *err)
{
    struct export *export = user;

    while (export->gathered < (int64_t)index)
        OK_OR_RETURN(gather(export, (size_t)(export->gathered + 1), err));
    memcpy(bytes, (const char *)export->whole + offset, size_bytes);
    return FSDP_OK;
}

static enum fsdp_status make_room(struct export *export, struct fsdp_err *err)
{
    size_t most = 0;

    for (size_t i = 0; i < export->n_parameters; i++) {
        struct fsdp_parameter_info info;

        if (fsdp_model_parameter(export->model, i, &info, NULL) == FSDP_OK && info.n_elems > most)
            most = info.n_elems;
    }
    export->whole = malloc(most * sizeof *export->whole);
    return export->whole != NULL
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a parameter of %zu elements", most);
}

/* The files of an export */

static enum fsdp_status write_weights(struct export *export, const char *prefix, const char *path,
                                      struct fsdp_err *err)
{
    const struct rows_store store = { .user = export, .read = read_whole };
    struct safetensors_tensor *tensors = calloc(export->n_parameters, sizeof *tensors);
    char(*names)[NAME_BYTES] = calloc(export->n_parameters, sizeof *names);
    struct safetensors_written written;
    enum fsdp_status status = FSDP_OK;

    if (tensors == NULL || names == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the names of an export");
    for (size_t i = 0; i < export->n_parameters && status == FSDP_OK; i++) {
        struct fsdp_parameter_info info;

        status = fsdp_model_parameter(export->model, i, &info, err);
        if (status != FSDP_OK)
            break;
        snprintf(names[i], sizeof names[i], "%s%s", prefix, info.name);
        tensors[i] = (struct safetensors_tensor){
            .name = names[i], .dtype = FSDP_F32, .n_dims = (size_t)info.n_dims, .store = &store, .in_store = i
        };
        for (int d = 0; d < info.n_dims; d++)
            tensors[i].shape[d] = info.shape[d];
    }
    if (status == FSDP_OK)
        status = safetensors_write(export->io, path, tensors, export->n_parameters, NULL, 0, 8, false,
                                   &written, err);
    free(names);
    free(tensors);
    return status;
}

static enum fsdp_status write_config(struct fsdp_io *io, const struct job *job, const char *path,
                                     struct fsdp_err *err)
{
    struct json_text text = { 0 };
    enum fsdp_status status;

    job_model_config(job, &text);
    status = text.failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", path)
                         : io_write_file(io, path, text.bytes, text.length, err);
    json_text_free(&text);
    return status;
}

/* Removes the files that an interrupted attempt may have left. */
static void empty(struct fsdp_io *io, const char *directory)
{
    const char *const names[] = { weights_name, config_name };
    char path[IO_PATH_BYTES];

    for (size_t i = 0; i < 2; i++)
        if (io_join(path, directory, names[i], NULL) == FSDP_OK)
            (void)io->unlink(io, path);
}

static enum fsdp_status write_directory(struct export *export, const struct job *job, const char *hidden,
                                        const char *final, const char *above, struct fsdp_err *err)
{
    struct fsdp_io *io = export->io;
    char path[IO_PATH_BYTES];

    OK_OR_RETURN(io_make_directories(io, hidden, err));
    empty(io, hidden);
    OK_OR_RETURN(io_join(path, hidden, weights_name, err));
    OK_OR_RETURN(write_weights(export, job_weights_prefix(job), path, err));
    OK_OR_RETURN(io_join(path, hidden, config_name, err));
    OK_OR_RETURN(write_config(io, job, path, err));
    OK_OR_RETURN(io_sync_directory(io, hidden, err));
    if (io->rename(io, hidden, final) < 0)
        return file_fail(err, "name", final);
    return io_sync_directory(io, above, err);
}

struct places {
    char above[IO_PATH_BYTES], hidden[IO_PATH_BYTES], final[IO_PATH_BYTES];
};

static enum fsdp_status find_places(struct places *places, const struct trainer *trainer,
                                    struct fsdp_err *err)
{
    char step[COMMIT_NAME_BYTES], hidden[COMMIT_NAME_BYTES + 1];

    OK_OR_RETURN(io_join(places->above, trainer->run_dir, "export", err));
    commit_step_name((int64_t)trainer->step, step);
    snprintf(hidden, sizeof hidden, ".%s", step);
    OK_OR_RETURN(io_join(places->hidden, places->above, hidden, err));
    return io_join(places->final, places->above, step, err);
}

/*
 * Sets *wanted, alike on all ranks, to whether the export is still missing. All ranks must agree, because
 * they gather the parameters together.
 */
static enum fsdp_status is_wanted(const struct trainer *trainer, const struct places *places, bool *wanted,
                                  struct fsdp_err *err)
{
    struct fsdp_io *io = context_files(trainer->context);
    struct io_stat there;
    int64_t word = trainer->rank == 0 && io->stat(io, places->final, &there) < 0;
    const enum fsdp_status status =
        fsdp_all_reduce(fsdp_context_comm(trainer->context), &word, 1, FSDP_I64, FSDP_MAX, NULL, err);

    *wanted = word != 0;
    return status;
}

enum fsdp_status export_write(struct trainer *trainer, struct fsdp_err *err)
{
    struct export export = { .io = context_files(trainer->context),
                             .model = trainer->model,
                             .n_parameters = fsdp_model_parameter_count(trainer->model),
                             .gathered = NONE };
    struct places places;
    struct fsdp_err later = { 0 };
    enum fsdp_status status, rest = FSDP_OK;
    bool wanted;

    fsdp_context_phase(trainer->context, FSDP_PHASE_SAVE);
    status = find_places(&places, trainer, err); /* fails on all ranks or on none */
    if (status == FSDP_OK)
        status = is_wanted(trainer, &places, &wanted, err);
    if (status != FSDP_OK || !wanted)
        return status;
    status = trainer_agree(trainer, make_room(&export, err), err);
    if (status != FSDP_OK)
        goto done;
    if (trainer->rank == 0)
        status = write_directory(&export, trainer->job, places.hidden, places.final, places.above, err);
    /*
     * Rank 0 may have failed to write the file, but the other ranks still wait for it in the gathers. So rank
     * 0 takes part in all remaining ones, unless a gather failed, which then failed on all ranks.
     */
    while (export.gathered + 1 < (int64_t) export.n_parameters && !export.gave_up)
        rest = gather(&export, (size_t)(export.gathered + 1), &later);
    if (status == FSDP_OK && rest != FSDP_OK)
        status = fsdp_fail(err, rest, "%s", later.message);
    if (!export.gave_up)
        status = trainer_agree(trainer, status, err);
    if (status == FSDP_OK && trainer->rank == 0)
        printf("exported to %s\n", places.final);
done:
    if (status != FSDP_OK)
        fsdp_wrap(err, "exporting the model");
    free(export.whole);
    return status;
}
