#include "shard_runtime/comm/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shard_runtime/comm/link_client.h"

struct watch {
    struct link *link;
    int first; /* group rank of peers[0] */
    int n;
    struct pollfd peers[]; /* (n) pidfds, readable once the process has ended; -1 for this process */
};

static void pid_key(char key[FSDP_LINK_KEY_BYTES], const char *name, int rank)
{
    snprintf(key, FSDP_LINK_KEY_BYTES, "comm/%s/pid/%d", name, rank);
}

static enum fsdp_status publish_self(struct link *link, const char *name, int self, struct fsdp_err *err)
{
    char key[FSDP_LINK_KEY_BYTES];
    enum fsdp_status status;
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "pidfd_open: %s", strerror(errno));
    pid_key(key, name, self);
    status = link_put(link, key, NULL, 0, fd, err);
    close(fd);
    return status;
}

enum fsdp_status watch_create(struct watch **out, struct link *link, const char *name, int first, int n,
                              int self, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct watch *watch;

    *out = NULL;
    watch = malloc(sizeof *watch + (size_t)n * sizeof watch->peers[0]);
    if (watch == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "watching %d processes", n);
    watch->link = link;
    watch->first = first;
    watch->n = n;
    for (int i = 0; i < n; i++)
        watch->peers[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
    status = n > 1 ? publish_self(link, name, self, err) : FSDP_OK;
    for (int i = 0; i < n && status == FSDP_OK; i++) {
        char key[FSDP_LINK_KEY_BYTES];
        size_t nothing = 0;

        if (first + i == self)
            continue;
        pid_key(key, name, first + i);
        status = link_get(link, key, NULL, &nothing, &watch->peers[i].fd, err);
        if (status == FSDP_OK && watch->peers[i].fd < 0)
            status =
                fsdp_fail(err, FSDP_ERR_FORMAT, "rank %d's process came without its descriptor", first + i);
    }
    if (status != FSDP_OK) {
        watch_destroy(watch);
        return status;
    }
    *out = watch;
    return FSDP_OK;
}

void watch_destroy(struct watch *watch)
{
    if (watch == NULL)
        return;
    for (int i = 0; i < watch->n; i++)
        if (watch->peers[i].fd >= 0)
            close(watch->peers[i].fd);
    free(watch);
}

enum fsdp_status watch_check(struct watch *watch, struct fsdp_err *err)
{
    int n_ready = poll(watch->peers, (nfds_t)watch->n, 0);

    for (int i = 0; i < watch->n && n_ready > 0; i++)
        if (watch->peers[i].fd >= 0 && watch->peers[i].revents != 0)
            return fsdp_fail(err, FSDP_ERR_PEER, "the process of rank %d has ended", watch->first + i);
    return link_check(watch->link, err);
}
