/*
 * The command `fsdprun ckpt verify --watch`. It verifies each checkpoint of a run once, as soon as the run
 * has published it. It waits for changes of the directory (inotify) and does not poll. It runs at the lowest
 * priority of CPU and disk, so that it slows the machine's jobs as little as possible.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/ckpt_impl.h"
#include "launcher/follow.h"
#include "launcher/json_table.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/verify.h"

enum { NICENESS = 19, IO_OF_PROCESS = 1, IO_IDLE = 3 << 13 }; /* ioprio_set(2) */

/*
 * A checkpoint that was verified already. If the run saves the same step again, the directory is a new one
 * with another inode, so it is verified too.
 */
struct looked {
    int64_t step;
    uint64_t inode;
};

struct watch {
    const char *path; /* as the user gave it */
    char directory[IO_PATH_BYTES];
    struct follow *follow;
    struct looked *looked;
    size_t n_looked, room;
    bool json, found_damage;
    FILE *out;
};

/*
 * Lowers the priority of this process for disk and CPU below every other process. If the kernel refuses, the
 * process goes on as it is.
 */
static void step_back(void)
{
    (void)setpriority(PRIO_PROCESS, 0, NICENESS);
    (void)syscall(SYS_ioprio_set, IO_OF_PROCESS, 0, IO_IDLE);
}

static bool was_looked_at(const struct watch *watch, const struct looked *one)
{
    for (size_t i = 0; i < watch->n_looked; i++)
        if (watch->looked[i].step == one->step && watch->looked[i].inode == one->inode)
            return true;
    return false;
}

/* Finds the inode of the directory at `path`. Returns false if there is none. */
static bool identify(const char *path, struct looked *one)
{
    struct io_stat stat;

    if (io_anywhere.stat(&io_anywhere, path, &stat) < 0)
        return false;
    one->inode = stat.inode;
    return true;
}

/*
 * Verifies the checkpoint of `step` and prints the result. While it reads, the run may remove the checkpoint
 * or replace it by another save. The result would then describe a mixture of two checkpoints, or half of one.
 * So it is not printed.
 */
static enum fsdp_status look_at(struct watch *watch, int64_t step, struct fsdp_err *err)
{
    struct looked one = { .step = step }, after = one;
    struct fsdp_err why = { 0 };
    char path[IO_PATH_BYTES], *words = NULL;
    enum fsdp_status status;
    size_t n_words;
    bool sound;
    FILE *said;

    OK_OR_RETURN(commit_step_path(watch->directory, step, path, err));
    if (!identify(path, &one) || was_looked_at(watch, &one))
        return FSDP_OK;
    said = open_memstream(&words, &n_words);
    if (said == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a line");
    if (watch->json) {
        cJSON *list = cJSON_CreateArray();

        status = ckpt_verify_one(path, step, &sound, said, list, &why);
        if (status == FSDP_OK)
            (void)json_print(cJSON_GetArrayItem(list, 0), said);
        cJSON_Delete(list);
    } else {
        status = ckpt_verify_one(path, step, &sound, said, NULL, &why);
    }
    fclose(said);
    if (!identify(path, &after) || after.inode != one.inode) {
        status = FSDP_OK; /* not printed; the change of the directory wakes the loop for another look */
    } else if (status == FSDP_OK) {
        fputs(words, watch->out);
        watch->found_damage = watch->found_damage || !sound;
        if (!alloc_room(&watch->looked, &watch->room, watch->n_looked, sizeof *watch->looked))
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of checkpoints");
        else
            watch->looked[watch->n_looked++] = one;
    } else {
        fsdp_fail(err, status, "%s", why.message);
    }
    free(words);
    return status;
}

/*
 * Finds the directory of checkpoints and watches it. A run that has not saved yet has no such directory. Then
 * this function watches the directory of the run, in which it will appear.
 */
static enum fsdp_status find_and_watch(struct watch *watch, struct fsdp_err *err)
{
    char before[IO_PATH_BYTES];

    OK_OR_RETURN(ckpt_find_directory(watch->path, watch->directory, err));
    do {
        memcpy(before, watch->directory, sizeof before);
        follow_watch(watch->follow, watch->directory);
        OK_OR_RETURN(ckpt_find_directory(watch->path, watch->directory, err));
    } while (strcmp(before, watch->directory) != 0);
    return FSDP_OK;
}

/*
 * Verifies the checkpoints that were not verified yet, the newest first: a restarted run would load that one.
 */
static enum fsdp_status look_at_new(struct watch *watch, struct fsdp_err *err)
{
    enum fsdp_status status;
    int64_t *steps;
    size_t n;

    OK_OR_RETURN(verify_list_steps(&io_anywhere, watch->directory, &steps, &n, err));
    status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        status = look_at(watch, steps[i], err);
    free(steps);
    return status;
}

int ckpt_watch(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    struct watch watch = { .path = words->paths[0],
                           .json = ckpt_words_value(words, "json") != NULL,
                           .out = out };
    enum fsdp_status status = follow_create(&watch.follow, true, err);
    bool began = false;
    int ended = 0;

    step_back();
    while (status == FSDP_OK && ended == 0) {
        status = find_and_watch(&watch, err);
        if (status == FSDP_OK)
            status = look_at_new(&watch, err);
        ended = json_written(out);
        began = began || status == FSDP_OK;
        if (status == FSDP_OK && ended == 0 && !follow_wait(watch.follow, -1))
            status = fsdp_fail(err, FSDP_ERR_IO, "inotify: %s", strerror(errno));
    }
    if (began && status == FSDP_ERR_NOT_FOUND) { /* the run was removed: no further checkpoint can come */
        fsdp_err_clear(err);
        status = FSDP_OK;
    }
    follow_destroy(watch.follow);
    free(watch.looked);
    if (status != FSDP_OK)
        return ckpt_exit_status(status);
    return ended != 0 ? ended : watch.found_damage ? CKPT_EXIT_FOUND : 0;
}
