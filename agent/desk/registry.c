#include "agent/desk/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/desk/registry_impl.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"

enum { TRIES = 16, WAITING = 64 };

struct registry_entry {
    char folder[REGISTRY_PATH_BYTES];
    int folder_fd, fd; /* `fd` holds the lock */
    int error;         /* errno of the step that failed */
    char entry[REGISTRY_FILE_BYTES], fresh[REGISTRY_FILE_BYTES], socket[REGISTRY_FILE_BYTES];
};

static enum fsdp_status fail(struct registry_entry *entry, struct fsdp_err *err, const char *what)
{
    entry->error = errno;
    return file_fail(err, what, entry->folder);
}

static void remove_files(const struct registry_entry *entry)
{
    unlinkat(entry->folder_fd, entry->entry, 0);
    unlinkat(entry->folder_fd, entry->fresh, 0);
    unlinkat(entry->folder_fd, entry->socket, 0);
    rmdir(entry->folder); /* fails if another run has an entry there; the next run makes the folder again */
}

static void close_all(struct registry_entry *entry)
{
    if (entry->fd >= 0)
        close(entry->fd);
    if (entry->folder_fd >= 0)
        close(entry->folder_fd);
    entry->fd = entry->folder_fd = -1;
}

static enum fsdp_status choose_names(struct registry_entry *entry, const char *id, struct fsdp_err *err)
{
    uint32_t number;

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        return fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    snprintf(entry->entry, sizeof entry->entry, "%.31s.%08x.json", id, number);
    snprintf(entry->fresh, sizeof entry->fresh, ".%.31s.%08x.new", id, number);
    snprintf(entry->socket, sizeof entry->socket, "%.31s.%08x.sock", id, number);
    return FSDP_OK;
}

static enum fsdp_status write_entry(struct registry_entry *entry, const struct registry_job *job,
                                    struct fsdp_err *err)
{
    struct json_text text = { 0 };
    enum fsdp_status status = FSDP_OK;

    json_open(&text, NULL, '{');
    json_field_string(&text, "job", job->id);
    json_field_string(&text, "name", job->name);
    json_field_string(&text, "run_dir", job->run_dir[0] != '\0' ? job->run_dir : NULL);
    json_field(&text, "pid", "%d", (int)job->pid);
    json_field(&text, "started", "%.6f", job->started_s);
    json_close(&text, '}');
    json_add(&text, "\n");
    if (text.failed)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for an entry of the registry");
    else if (!file_write(entry->fd, text.bytes, text.length))
        status = fail(entry, err, "write an entry in");
    json_text_free(&text);
    return status;
}

/* Mode 0600 from the beginning: fchmod() of a socket's descriptor does not change its file. */
static enum fsdp_status bind_socket(struct registry_entry *entry, int *listen_fd, struct fsdp_err *err)
{
    struct sockaddr_un address;
    int bound;

    *listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listen_fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socket: %s", strerror(errno));
    bound = registry_address(&address, entry->folder_fd, entry->socket)
                ? bind(*listen_fd, (struct sockaddr *)&address, sizeof address)
                : -1;
    if (bound == 0 && fchmodat(entry->folder_fd, entry->socket, 0600, 0) == 0 &&
        listen(*listen_fd, WAITING) == 0)
        return FSDP_OK;
    return fail(entry, err, "listen in");
}

static enum fsdp_status make_entry(struct registry_entry *entry, const struct registry_job *job,
                                   int *listen_fd, struct fsdp_err *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    enum fsdp_status status = registry_folder_open(entry->folder, true, geteuid(), &entry->folder_fd, err);

    entry->error = errno;
    if (status == FSDP_OK)
        status = choose_names(entry, job->id, err);
    if (status != FSDP_OK)
        return status;
    entry->fd =
        openat(entry->folder_fd, entry->fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (entry->fd < 0 || fcntl(entry->fd, F_SETLK, &lock) < 0)
        return fail(entry, err, "lock an entry in");
    status = write_entry(entry, job, err);
    if (status == FSDP_OK)
        status = bind_socket(entry, listen_fd, err);
    if (status == FSDP_OK && renameat(entry->folder_fd, entry->fresh, entry->folder_fd, entry->entry) < 0)
        status = fail(entry, err, "rename an entry in");
    return status;
}

enum fsdp_status registry_enter(struct registry_entry **out, const struct registry_job *job, int *listen_fd,
                                struct fsdp_err *err)
{
    struct registry_entry *entry = calloc(1, sizeof *entry);
    enum fsdp_status status = FSDP_ERR_IO;

    *out = NULL;
    *listen_fd = -1;
    if (entry == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for an entry of the registry");
    entry->fd = entry->folder_fd = -1;
    /* the socket is bound by a path through this folder, which keeps the path short */
    if (access("/proc/self/fd", X_OK) < 0) {
        free(entry);
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "/proc is not there");
    }
    if (!registry_folder_path(0, entry->folder) && !registry_folder_path(1, entry->folder)) {
        free(entry);
        return fsdp_fail(err, FSDP_ERR_IO, "the path of the registry is too long");
    }
    /*
     * Two races end in ENOENT: the last other run removes the folder between two of these steps, or a reader
     * removes an entry that is not locked yet. The next try makes the folder again and takes a new name.
     */
    for (int i = 0; i < TRIES; i++) {
        status = make_entry(entry, job, listen_fd, err);
        if (status == FSDP_OK) {
            *out = entry;
            return FSDP_OK;
        }
        if (entry->folder_fd >= 0)
            remove_files(entry);
        close_all(entry);
        if (*listen_fd >= 0)
            close(*listen_fd);
        *listen_fd = -1;
        if (entry->error != ENOENT)
            break;
    }
    free(entry);
    return status;
}

void registry_leave(struct registry_entry *entry)
{
    if (entry == NULL)
        return;
    remove_files(entry);
    close_all(entry);
    free(entry);
}
