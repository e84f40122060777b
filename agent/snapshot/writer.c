#include "agent/snapshot/writer.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/link/link_outbox.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/self_process.h"

enum { WORD_MS = 5000 };

/* One process and its socket. The loop's close callback frees it. */
struct process {
    uv_poll_t poll;
    struct writer *writer; /* NULL: nobody waits for its answers any more */
    pid_t pid;
    int socket;
    struct link_outbox requests; /* which its socket does not take yet */
};

struct writer {
    uv_loop_t *loop;
    writer_answered *answered, *word;
    void *arg;
    struct process *process; /* NULL: none runs */
    uint64_t *ids;           /* (n) the requests without an answer */
    size_t n, room;
};

struct writer *writer_create(uv_loop_t *loop, writer_answered *answered, writer_answered *word, void *arg)
{
    struct writer *writer = calloc(1, sizeof *writer);

    if (writer != NULL)
        *writer = (struct writer){ .loop = loop, .answered = answered, .word = word, .arg = arg };
    return writer;
}

enum fsdp_status writer_request_fill(struct writer_request *request, const struct fsdp_link_saved *saved,
                                     const char *run_dir, const char *checkpoint_dir, struct fsdp_err *err)
{
    if (saved->directory[0] != '\0' || saved->slot > FSDP_SNAPSHOT_SLOTS ||
        strlen(saved->temporary) >= sizeof request->temporary ||
        !commit_parse_temporary(saved->temporary, &(struct commit_fence){ 0 }))
        return fsdp_fail(err, FSDP_ERR_ARG, "a slot that cannot be written");
    request->slot = (int32_t)saved->slot - 1;
    request->number = saved->number;
    request->word_ms = WORD_MS;
    snprintf(request->temporary, sizeof request->temporary, "%.*s", (int)sizeof request->temporary - 1,
             saved->temporary);
    snprintf(request->run_dir, sizeof request->run_dir, "%s", run_dir);
    snprintf(request->directory, sizeof request->directory, "%s",
             checkpoint_dir != NULL ? checkpoint_dir : "");
    return FSDP_OK;
}

static void on_closed(uv_handle_t *handle)
{
    struct process *process = handle->data;

    outbox_fini(&process->requests);
    close(process->socket);
    free(process);
}

static void end_process(struct process *process)
{
    self_process_kill(process->pid);
    process->writer->process = NULL;
    process->writer = NULL;
    uv_close((uv_handle_t *)&process->poll, on_closed);
}

/* Takes the request off the list. Returns false if it is not on it. */
static bool take_off(struct writer *writer, uint64_t id)
{
    for (size_t i = 0; i < writer->n; i++)
        if (writer->ids[i] == id) {
            writer->ids[i] = writer->ids[--writer->n];
            return true;
        }
    return false;
}

/* The process has died: nothing is written any more. */
static void fail_all(struct writer *writer)
{
    struct writer_answer answer = { .status = FSDP_ERR_IO };

    snprintf(answer.words, sizeof answer.words, "the process that writes checkpoints to the disk has died");
    while (writer->n > 0) {
        answer.id = writer->ids[--writer->n];
        writer->answered(writer->arg, &answer);
    }
}

/* Takes the answers that are there. Returns false if the process is gone, or writer_stop() was called. */
static bool take_answers(struct process *process)
{
    while (process->writer != NULL) {
        struct writer *writer = process->writer;
        struct writer_answer answer;
        struct iovec part = { &answer, sizeof answer };
        struct message_fds came = { .most = 0 };
        const ssize_t n = message_receive(process->socket, &part, 1, MSG_DONTWAIT, &came);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n != (ssize_t)sizeof answer)
            return false;
        answer.words[sizeof answer.words - 1] = '\0';
        if (answer.n_files > 0 && writer->word != NULL)
            writer->word(writer->arg, &answer);
        else if (answer.n_files == 0 && take_off(writer, answer.id))
            writer->answered(writer->arg, &answer);
    }
    return false;
}

static void on_ready(uv_poll_t *poll, int status, int events);

static void watch(struct process *process)
{
    uv_poll_start(&process->poll, UV_READABLE | (outbox_is_empty(&process->requests) ? 0 : UV_WRITABLE),
                  on_ready);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct process *process = poll->data;
    struct writer *writer = process->writer;
    bool lives = status == 0;

    if (lives && (events & UV_READABLE) != 0)
        lives = take_answers(process);
    if (process->writer == NULL)
        return; /* writer_stop() was called from within an answer */
    if (lives && outbox_flush(&process->requests, process->socket, NULL) == FSDP_OK) {
        watch(process);
        return;
    }
    end_process(process);
    fail_all(writer);
}

static enum fsdp_status begin_process(struct writer *writer, struct fsdp_err *err)
{
    struct process *process = calloc(1, sizeof *process);
    enum fsdp_status status;

    if (process == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory for the process that writes checkpoints");
    status = writer_process_start(&process->pid, &process->socket, err);
    if (status == FSDP_OK && uv_poll_init(writer->loop, &process->poll, process->socket) != 0) {
        kill(process->pid, SIGKILL);
        close(process->socket);
        status = fsdp_fail(err, FSDP_ERR_IO, "its socket cannot be watched");
    }
    if (status != FSDP_OK) {
        free(process);
        fsdp_wrap(err, "no process to write checkpoints in");
        return status;
    }
    process->poll.data = process;
    process->writer = writer;
    writer->process = process;
    outbox_init(&process->requests);
    watch(process);
    return FSDP_OK;
}

enum fsdp_status writer_submit(struct writer *writer, const struct writer_request *request, int segment,
                               struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };

    if (writer->process == NULL)
        OK_OR_RETURN(begin_process(writer, err));
    if (!alloc_room(&writer->ids, &writer->room, writer->n, sizeof *writer->ids))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory to write a checkpoint");
    if (outbox_send_bytes(&writer->process->requests, writer->process->socket, request, sizeof *request,
                          segment, &why) != FSDP_OK)
        return fsdp_fail(err, FSDP_ERR_IO, "the process that writes checkpoints takes no request: %s",
                         why.message);
    watch(writer->process);
    writer->ids[writer->n++] = request->id;
    return FSDP_OK;
}

void writer_stop(struct writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->process != NULL)
        end_process(writer->process);
    free(writer->ids);
    free(writer);
}
