#include "shard_runtime/trainer/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/io_beneath.h"

/*
 * A process without an agent takes possession of its run directory as an agent would: by a lock on the same
 * file.
 */
static enum fsdp_status take_run_dir(struct trainer *trainer, struct fsdp_err *err)
{
    const struct job *job = trainer->job;
    enum fsdp_status status;
    int n, fd;

    n = snprintf(trainer->run_dir, sizeof trainer->run_dir, "%s/%s", job->run.dir, job->run.name);
    if (n < 0 || (size_t)n >= sizeof trainer->run_dir)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "run.dir is too long");
    status = io_make_directories(&io_anywhere, trainer->run_dir, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "run directory");
        return status;
    }
    OK_OR_RETURN(beneath_open_root(&fd, trainer->run_dir, err));
    status = beneath_open_record(&trainer->lock_fd, fd, "lock", err);
    (void)close(fd);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "run directory %s", trainer->run_dir);
        return status;
    }
    if (flock(trainer->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return fsdp_fail(err, errno == EWOULDBLOCK ? FSDP_ERR_BUSY : FSDP_ERR_IO,
                         "run directory %s is held by another live job", trainer->run_dir);
    return FSDP_OK;
}

/* Makes the trainer and the engine open all files below the run directory relative to its descriptor. */
static enum fsdp_status guard_run_dir(struct trainer *trainer, struct fsdp_err *err)
{
    enum fsdp_status status;
    int fd;

    if (trainer->run_dir[0] == '\0')
        return FSDP_OK;
    status = beneath_open_root(&fd, trainer->run_dir, err);
    if (status == FSDP_OK)
        status = beneath_check_link(fd, "checkpoints", err);
    if (status == FSDP_OK) {
        trainer->io = io_beneath_create(trainer->run_dir, fd);
        if (trainer->io != NULL)
            io_beneath_use(context_files(trainer->context), trainer->io);
        else
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory");
    }
    if (fd >= 0)
        (void)close(fd);
    return status;
}

enum fsdp_status trainer_open_files(struct trainer *trainer, struct fsdp_err *err)
{
    const struct job *job = trainer->job;

    if (fsdp_context_alone(trainer->context))
        OK_OR_RETURN(take_run_dir(trainer, err));
    else
        snprintf(trainer->run_dir, sizeof trainer->run_dir, "%s", fsdp_context_run_dir(trainer->context));
    OK_OR_RETURN(guard_run_dir(trainer, err));
    return tokens_open(&trainer->tokens, job->data.path, job->data.tokenizer, job->model.seq, err);
}

void trainer_close_files(struct trainer *trainer)
{
    tokens_close(trainer->tokens);
    if (trainer->lock_fd >= 0)
        (void)close(trainer->lock_fd);
    if (trainer->io != NULL)
        io_beneath_use(context_files(trainer->context), &io_anywhere);
    io_beneath_destroy(trainer->io);
    trainer->io = NULL;
}
