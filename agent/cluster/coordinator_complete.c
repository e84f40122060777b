/* Checks whether a run that has all its steps is the result of the job that is now requested. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/job_changes.h"

/*
 * Reads the fingerprint of a data file. Returns false if there is no such file, or it cannot be read. The
 * data file may be a symbolic link, unlike the files of a checkpoint.
 */
static bool read_data(struct fsdp_io *io, const char *path, struct fingerprint *out)
{
    const int fd = io->open(io, path, O_RDONLY | O_NONBLOCK, 0);
    struct io_stat stat;
    bool good;

    if (fd < 0)
        return false;
    good = io->fstat(io, fd, &stat) == 0 && stat.kind == IO_FILE &&
           fingerprint_read(io, fd, stat.size_bytes, path, out, NULL) == FSDP_OK;
    io->close(io, fd);
    return good;
}

static const char *text_at(const cJSON *job, const char *section, const char *name)
{
    const char *text = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(job, section), name));

    return text == NULL ? "" : text;
}

int64_t coordinator_last_step(const struct agent_config *config)
{
    return config->job_json == NULL || config->total_steps > INT64_MAX ? INT64_MAX
                                                                       : (int64_t)config->total_steps;
}

enum fsdp_status coordinator_weigh_step(void *arg, struct fsdp_io *io, const char *directory, int64_t step,
                                        struct fsdp_err *err)
{
    const struct coordinator *coordinator = arg;
    const struct agent_config *config = coordinator->config;
    char path[IO_PATH_BYTES];
    struct manifest manifest = { 0 };
    struct fingerprint bytes;
    enum fsdp_status status;
    bool check, known;
    cJSON *job;

    if (config->job_json == NULL || config->deciding_json == NULL || (uint64_t)step < config->total_steps)
        return FSDP_OK;
    status = commit_step_path(directory, step, path, err);
    if (status == FSDP_OK)
        status = manifest_read(io, path, &manifest, err);
    if (status != FSDP_OK)
        return status;
    job = cJSON_Parse(config->job_json);
    check = strcmp(text_at(job, "checkpoint", "data"), "ignore") != 0;
    known = check && read_data(io, text_at(job, "data", "path"), &bytes);
    cJSON_Delete(job);
    status = job_changes_refuse(&manifest, config->job_json, config->deciding_json, check,
                                known ? &bytes : NULL, err);
    if (status == FSDP_ERR_CONFIG)
        fsdp_wrap(err, "%s is complete, and was trained by another job", config->run_dir);
    manifest_free(&manifest);
    return status;
}
