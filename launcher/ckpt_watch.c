/*
 * fsdprun ckpt verify --watch: verifies each checkpoint of a run once, when it has been published. It waits
 * for changes of the directory, and asks for nothing in between. What it does costs the jobs of the machine
 * as little as the kernel allows.
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

/* A checkpoint that was looked at: a step that is saved again is another directory. */
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
 * The disk serves other processes first, and the CPUs run them first. A kernel that refuses is no reason to
 * end.
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

/* Which directory is at `path`? False: none. */
static bool identify(const char *path, struct looked *one)
{
    struct io_stat stat;

    if (io_anywhere.stat(&io_anywhere, path, &stat) < 0)
        return false;
    one->inode = stat.inode;
    return true;
}

/*
 * Verifies a checkpoint and says what was found. Meanwhile retention may have removed it, or a save replaced
 * it. Then what was found is of two checkpoints or of half of one, and is not reported.
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
        status = FSDP_OK; /* the change has woken us, or will */
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
 * Finds the directory of checkpoints and watches it. A run that has not saved yet has none: then its own
 * directory is watched, where it will appear.
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

/* Looks at what is new, the newest first: it is what the run would resume from. */
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
    if (began && status == FSDP_ERR_NOT_FOUND) { /* the run was removed: nothing more will come */
        fsdp_err_clear(err);
        status = FSDP_OK;
    }
    follow_destroy(watch.follow);
    free(watch.looked);
    if (status != FSDP_OK)
        return ckpt_exit_status(status);
    return ended != 0 ? ended : watch.found_damage ? CKPT_EXIT_FOUND : 0;
}
