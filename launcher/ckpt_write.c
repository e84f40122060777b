/*
 * The commands `fsdprun ckpt export`, which writes weights for other programs, and `prune`, which removes old
 * checkpoints.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "agent/record/rundir.h"
#include "launcher/ckpt_impl.h"
#include "launcher/json_table.h"
#include "launcher/options.h"
#include "launcher/say.h"
#include "shard_runtime/ckpt/damage_find.h"
#include "shard_runtime/ckpt/export.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/job/model_files.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/verify.h"

/* export */

/* size limit of an exported file without --max-size: 5 GiB */
static const uint64_t usual_bytes = UINT64_C(5) << 30;

/*
 * Fails if the checkpoint is damaged. Weights of other programs have no checksums, so they are not checked.
 */
static enum fsdp_status check_sound(const struct contents *contents, const char *directory,
                                    struct fsdp_err *err)
{
    struct damage_report report = { 0 };
    enum fsdp_status status = FSDP_OK;

    if (!contents->follows_links)
        status = damage_find(&io_anywhere, directory, &report, err);
    if (status == FSDP_OK && report.n > 0)
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s is damaged: %s: %.200s", directory, report.list[0].file,
                           report.list[0].reason);
    damage_report_free(&report);
    return status;
}

/*
 * Reads from the checkpoint the job that saved it. The kind of its model decides the prefix of names and the
 * config.json by which other programs know that model.
 */
static enum fsdp_status read_job(const struct contents *contents, struct export_options *options,
                                 struct json_text *config, struct fsdp_err *err)
{
    const struct manifest *manifest = &contents->manifest;
    struct job job = { 0 };

    options->prefix = "";
    if (contents->follows_links || manifest->job == NULL)
        return FSDP_OK;
    OK_OR_RETURN(job_from_json(&job, manifest->job, manifest->job_length, err));
    options->prefix = job_weights_prefix(&job);
    job_model_config(&job, config);
    options->config = config->bytes;
    job_free(&job);
    return config->failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for config.json") : FSDP_OK;
}

int ckpt_export(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    const char *most = ckpt_words_value(words, "max-size");
    struct export_options options = { .most_bytes = usual_bytes };
    char directory[IO_PATH_BYTES];
    struct json_text config = { 0 };
    struct contents contents = { 0 };
    struct export_result result;
    enum fsdp_status status;
    int64_t bytes;

    if (most != NULL) {
        if (options_size(most, 1, &bytes, err) != FSDP_OK) {
            fsdp_wrap(err, "--max-size");
            return FSDP_EXIT_USAGE;
        }
        options.most_bytes = (uint64_t)bytes;
    }
    status = ckpt_list(words->paths[0], &contents, directory, err);
    if (status == FSDP_OK)
        status = check_sound(&contents, directory, err);
    if (status == FSDP_OK)
        status = read_job(&contents, &options, &config, err);
    if (status == FSDP_OK)
        status = export_tensors(&io_anywhere, &contents, directory, words->paths[1], &options, &result, err);
    if (status == FSDP_OK)
        say(out, "exported %zu tensors, %.1f MiB, to %s%s", result.n_tensors, (double)result.bytes / 1048576,
            words->paths[1], result.n_files > 1 ? ", in several files with an index" : "");
    json_text_free(&config);
    contents_free(&contents);
    if (status == FSDP_ERR_CONFIG)
        return FSDP_EXIT_USAGE; /* the output OUT exists already */
    return status == FSDP_OK ? json_written(out) : ckpt_exit_status(status);
}

/* prune */

enum fsdp_status ckpt_lock_run(struct ckpt_lock *lock, const char *directory, struct fsdp_err *err)
{
    static const char below[] = "/checkpoints";
    char path[PATH_MAX];
    struct rundir_spec spec = { .kind = RUNDIR_JOB, .path = path, .lock = true };
    size_t length;
    bool held;

    if (io_is_remote(directory))
        return FSDP_OK; /* an object store has no locks */
    if (realpath(directory, path) == NULL)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", directory, strerror(errno));
    length = strlen(path);
    if (length >= sizeof below && strcmp(path + length - (sizeof below - 1), below) == 0) {
        path[length - (sizeof below - 1)] = '\0';
        OK_OR_RETURN(rundir_open(&lock->rundir, &spec, err));
    }
    return directory_lock_take_within(&lock->locks, &io_anywhere, directory, 0, &held, err);
}

void ckpt_unlock_run(struct ckpt_lock *lock)
{
    directory_lock_release(&lock->locks, &io_anywhere);
    rundir_close(lock->rundir, false);
    *lock = (struct ckpt_lock){ 0 };
}

/* Finds the newest step whose bytes are sound. */
static enum fsdp_status find_sound(const char *directory, const int64_t *steps, size_t n, int64_t *sound,
                                   struct fsdp_err *err)
{
    *sound = -1;
    for (size_t i = 0; i < n && *sound < 0; i++) {
        struct damage_report report;
        char path[IO_PATH_BYTES];
        enum fsdp_status status = commit_step_path(directory, steps[i], path, err);

        if (status == FSDP_OK)
            status = damage_find(&io_anywhere, path, &report, err);
        if (status != FSDP_OK)
            return status;
        if (report.n == 0 && report.step == (uint64_t)steps[i])
            *sound = steps[i];
        damage_report_free(&report);
    }
    return *sound >= 0 ? FSDP_OK
                       : fsdp_fail(err, FSDP_ERR_FORMAT,
                                   "no checkpoint in %s is sound: nothing was removed (fsdprun ckpt verify)",
                                   directory);
}

static void log_line(void *context, const char *line)
{
    say(context, "%s", line);
}

static bool has_step(const int64_t *steps, size_t n, int64_t step)
{
    for (size_t i = 0; i < n; i++)
        if (steps[i] == step)
            return true;
    return false;
}

static int print_pruned(const struct ckpt_words *words, const int64_t *before, size_t n_before,
                        const int64_t *after, size_t n_after, FILE *out)
{
    cJSON *all = cJSON_CreateObject(), *removed = cJSON_AddArrayToObject(all, "removed"),
          *kept = cJSON_AddArrayToObject(all, "kept");
    int ended;

    for (size_t i = n_before; i-- > 0;)
        cJSON_AddItemToArray(has_step(after, n_after, before[i]) ? kept : removed,
                             cJSON_CreateNumber((double)before[i]));
    if (ckpt_words_value(words, "json") != NULL) {
        ended = json_print(all, out);
    } else {
        fprintf(out, "removed %d, kept %d:", cJSON_GetArraySize(removed), cJSON_GetArraySize(kept));
        for (size_t i = n_after; i-- > 0;)
            fprintf(out, " step %" PRId64 "%s", after[i], i == 0 ? "\n" : ",");
        ended = json_written(out);
    }
    cJSON_Delete(all);
    return ended;
}

int ckpt_prune(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    const char *keep = ckpt_words_value(words, "keep");
    const struct verify_log log = { log_line, stderr };
    struct ckpt_lock lock = { 0 };
    char directory[IO_PATH_BYTES], *end = NULL;
    int64_t *before = NULL, *after = NULL, sound;
    size_t n_before = 0, n_after = 0;
    enum fsdp_status status;
    unsigned long n;
    int ended;

    errno = 0;
    n = keep == NULL || keep[0] < '0' || keep[0] > '9' ? 0 : strtoul(keep, &end, 10);
    if (n == 0 || errno != 0 || *end != '\0' || n > UINT32_MAX) {
        fsdp_fail(err, FSDP_ERR_CONFIG, "--keep takes how many checkpoints to keep, at least 1");
        return FSDP_EXIT_USAGE;
    }
    status = ckpt_find_directory(words->paths[0], directory, err);
    if (status == FSDP_OK)
        status = verify_list_steps(&io_anywhere, directory, &before, &n_before, err);
    if (status == FSDP_OK && n_before == 0)
        status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there are no checkpoints in %s", directory);
    if (status == FSDP_OK)
        status = ckpt_lock_run(&lock, directory, err);
    free(before); /* list again under the lock: from now on no other process adds a checkpoint */
    before = NULL;
    if (status == FSDP_OK)
        status = verify_list_steps(&io_anywhere, directory, &before, &n_before, err);
    if (status == FSDP_OK)
        status = find_sound(directory, before, n_before, &sound, err);
    if (status == FSDP_OK)
        status = commit_retain(&io_anywhere, directory, (uint32_t)n, before[0], sound, &log, err);
    if (status == FSDP_OK)
        status = verify_list_steps(&io_anywhere, directory, &after, &n_after, err);
    ended = status == FSDP_OK ? print_pruned(words, before, n_before, after, n_after, out)
                              : ckpt_exit_status(status);
    ckpt_unlock_run(&lock);
    free(before);
    free(after);
    return ended;
}
