#include "agent/snapshot/writer_process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/self_process.h"
#include "shard_runtime/shardfile/io_beneath.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/snapshot.h"
#include "shard_runtime/shardfile/temporary_lock.h"

static const char role[] = "fsdp-disk";

enum { WORKERS_MAX = 4096 };

enum fsdp_status writer_process_start(pid_t *pid, int *socket, struct fsdp_err *err)
{
    return self_process_talk(role, pid, socket, err);
}

/* Runs in the process */

/* (one for each worker) the lock on the worker's temporary directory; -1: none */
static struct {
    pthread_mutex_t mutex;
    int *fds;
    size_t n, room;
} holds = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/*
 * Keeps `fd`, the lock on a temporary directory, in place of the earlier one of this worker. If there is no
 * memory to keep it, it is closed.
 */
static void keep_hold(uint32_t worker, int fd)
{
    pthread_mutex_lock(&holds.mutex);
    while (holds.n <= worker && alloc_room(&holds.fds, &holds.room, holds.n, sizeof *holds.fds))
        holds.fds[holds.n++] = -1;
    if (worker < holds.n) {
        const int before = holds.fds[worker];

        holds.fds[worker] = fd;
        fd = before;
    }
    pthread_mutex_unlock(&holds.mutex);
    if (fd >= 0)
        close(fd);
}

struct job {
    struct job *next;
    struct writer_request request;
    int segment;
    int64_t began_ns;
    _Atomic uint64_t size_bytes, written_bytes; /* of the file */
};

/* What is being written. */
static struct {
    pthread_mutex_t mutex;
    struct job *first; /* newest first */
    int64_t word_ns;   /* the last word on it */
} jobs = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Returns when the next word is due; INT64_MAX: never. */
static int64_t word_due_ns(void)
{
    int64_t due_ns = INT64_MAX;

    pthread_mutex_lock(&jobs.mutex);
    for (const struct job *job = jobs.first; job != NULL; job = job->next) {
        const int64_t since_ns = job->began_ns > jobs.word_ns ? job->began_ns : jobs.word_ns;

        if (job->request.word_ms > 0) /* the last one on the list is the oldest */
            due_ns = since_ns + job->request.word_ms * INT64_C(1000000);
    }
    pthread_mutex_unlock(&jobs.mutex);
    return due_ns;
}

static struct writer_answer make_word(void)
{
    struct writer_answer word = { .step = -1 };
    struct commit_fence fence;

    pthread_mutex_lock(&jobs.mutex);
    jobs.word_ns = clock_now_ns();
    for (const struct job *job = jobs.first; job != NULL; job = job->next) {
        word.n_files++;
        word.size_bytes += job->size_bytes;
        word.written_bytes += job->written_bytes;
        word.took_ns = jobs.word_ns - job->began_ns;
        if (commit_parse_temporary(job->request.temporary, &fence))
            word.step = fence.step;
    }
    pthread_mutex_unlock(&jobs.mutex);
    return word;
}

static void add_job(struct job *job)
{
    pthread_mutex_lock(&jobs.mutex);
    job->next = jobs.first;
    jobs.first = job;
    pthread_mutex_unlock(&jobs.mutex);
}

static void end_job(struct job *job)
{
    struct job **at = &jobs.first;

    pthread_mutex_lock(&jobs.mutex);
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    pthread_mutex_unlock(&jobs.mutex);
    close(job->segment);
    free(job);
}

/* Reads the description of the slot. Fails if the slot has been filled again since the request. */
static enum fsdp_status look_at_slot(const struct job *job, struct fsdp_snapshot_slot *slot,
                                     struct fsdp_err *err)
{
    struct fsdp_snapshot_head head;
    struct stat stat;

    OK_OR_RETURN(io_read_all(&io_posix, job->segment, &head, sizeof head, 0, "a snapshot", err));
    if (fstat(job->segment, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "a snapshot: %s", strerror(errno));
    if (!snapshot_is(&head, job->request.slot, job->request.number, (uint64_t)stat.st_size))
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "the snapshot was replaced before it was written");
    *slot = head.slots[job->request.slot];
    return FSDP_OK;
}

static enum fsdp_status write_slot(struct job *job, struct fsdp_io *io, struct writer_answer *answer,
                                   struct fsdp_err *err)
{
    const struct writer_request *request = &job->request;
    char directory[IO_PATH_BYTES], folder[IO_PATH_BYTES], path[IO_PATH_BYTES],
        name[MANIFEST_SHARD_NAME_BYTES];
    struct safetensors_written written;
    struct fsdp_snapshot_slot slot;
    enum fsdp_status status;
    int hold = -1;

    manifest_shard_name(request->rank, name);
    OK_OR_RETURN(look_at_slot(job, &slot, err));
    if (request->directory[0] != '\0')
        snprintf(directory, sizeof directory, "%s", request->directory);
    else
        OK_OR_RETURN(io_join(directory, request->run_dir, "checkpoints", err));
    OK_OR_RETURN(io_join(folder, directory, request->temporary, err));
    OK_OR_RETURN(io_join(path, folder, name, err));
    OK_OR_RETURN(temporary_hold(io, directory, request->temporary, &hold, err));
    keep_hold(request->worker, hold);
    if (slot.size_bytes == 0)
        return FSDP_OK;
    job->size_bytes = slot.size_bytes;
    OK_OR_RETURN(safetensors_copy(io, path, job->segment, slot.offset, slot.size_bytes, &job->written_bytes,
                                  &written, err));
    status = look_at_slot(job, &slot, err);
    if (status != FSDP_OK) {
        (void)io->unlink(io, path);
        return status;
    }
    answer->size_bytes = written.size_bytes;
    memcpy(answer->checksum, written.checksum, sizeof answer->checksum);
    return FSDP_OK;
}

/* Sends an answer to the agent, which reads answers as they come. If the agent is gone, this process ends. */
static void send_answer(const struct writer_answer *answer)
{
    const struct iovec part = { (void *)(uintptr_t)answer, sizeof *answer };

    while (message_send(STDIN_FILENO, &part, 1, NULL, 0) < 0) {
        struct pollfd wait = { .fd = STDIN_FILENO, .events = POLLOUT };

        if (errno != EAGAIN && errno != EWOULDBLOCK)
            _exit(0);
        poll(&wait, 1, -1);
    }
}

static void *run_job(void *arg)
{
    struct job *job = arg;
    struct writer_answer answer = { .id = job->request.id };
    struct fsdp_io *io = NULL;
    struct fsdp_err err = { 0 };
    const bool apart = job->request.directory[0] != '\0';
    enum fsdp_status status = apart ? io_make_directories(&io_posix, job->request.directory, &err) : FSDP_OK;

    if (status == FSDP_OK)
        status = io_beneath_open(&io, apart ? job->request.directory : job->request.run_dir, &err);

    if (status == FSDP_OK)
        status = write_slot(job, io, &answer, &err);
    io_beneath_destroy(io);
    answer.status = (uint32_t)status;
    answer.took_ns = clock_now_ns() - job->began_ns;
    if (status != FSDP_OK)
        snprintf(answer.words, sizeof answer.words, "%s", err.message);
    end_job(job);
    send_answer(&answer);
    return NULL;
}

static void refuse(const struct writer_request *request, const char *words)
{
    struct writer_answer answer = { .id = request->id, .status = FSDP_ERR_NOMEM };

    snprintf(answer.words, sizeof answer.words, "%s", words);
    send_answer(&answer);
}

static void begin_job(const struct writer_request *request, int segment)
{
    struct job *job = malloc(sizeof *job);
    pthread_attr_t detached;
    pthread_t thread;
    int error = ENOMEM;

    if (job != NULL) {
        *job = (struct job){ .request = *request, .segment = segment, .began_ns = clock_now_ns() };
        add_job(job);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        error = pthread_create(&thread, &detached, run_job, job);
        pthread_attr_destroy(&detached);
    }
    if (error == 0)
        return;
    if (job != NULL)
        end_job(job);
    else
        close(segment);
    refuse(request, "no thread can be started to write a checkpoint");
}

/* Waits for a request. Meanwhile says what has been written, as often as that is due. */
static void wait_for_request(void)
{
    struct pollfd wait = { .fd = STDIN_FILENO, .events = POLLIN };

    for (;;) {
        const int64_t due_ns = word_due_ns(), left_ns = due_ns - clock_now_ns();
        const int n = poll(&wait, 1,
                           due_ns == INT64_MAX ? -1
                           : left_ns > 0       ? (int)(left_ns / 1000000) + 1
                                               : 0);

        if (n > 0)
            return;
        if (n == 0) {
            const struct writer_answer word = make_word();

            if (word.n_files > 0)
                send_answer(&word);
        }
    }
}

static _Noreturn void serve(void)
{
    struct writer_request request;
    struct iovec part = { &request, sizeof request };

    for (;;) {
        struct message_fds came = { .most = 1 };
        ssize_t n;

        wait_for_request();
        n = message_receive(STDIN_FILENO, &part, 1, 0, &came);

        if (n != (ssize_t)sizeof request || came.fds[0] < 0 || request.worker >= WORKERS_MAX)
            _exit(n == 0 ? 0 : 1); /* the agent closed its end, or is no agent */
        request.temporary[sizeof request.temporary - 1] = '\0';
        request.run_dir[sizeof request.run_dir - 1] = '\0';
        request.directory[sizeof request.directory - 1] = '\0';
        begin_job(&request, came.fds[0]);
    }
}

void writer_process_main(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[0], role) != 0)
        return;
    self_process_begin(argv[0], argv[2]);
    serve();
}
