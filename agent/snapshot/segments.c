#include "agent/snapshot/segments.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct segments {
    int n;
    int fds[];
};

enum fsdp_status segments_create(struct segments **out, int n, struct fsdp_err *err)
{
    struct segments *segments = calloc(1, sizeof *segments + (size_t)n * sizeof *segments->fds);

    *out = NULL;
    if (segments == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory for %d snapshots", n);
    for (; segments->n < n; segments->n++) {
        const int fd = memfd_create("fsdp-snapshot", MFD_CLOEXEC);

        if (fd < 0) {
            fsdp_fail(err, FSDP_ERR_IO, "memory for snapshots: memfd_create: %s", strerror(errno));
            segments_destroy(segments);
            return FSDP_ERR_IO;
        }
        segments->fds[segments->n] = fd;
    }
    *out = segments;
    return FSDP_OK;
}

void segments_destroy(struct segments *segments)
{
    if (segments == NULL)
        return;
    for (int i = 0; i < segments->n; i++)
        close(segments->fds[i]);
    free(segments);
}

int segments_fd(const struct segments *segments, int i)
{
    return segments->fds[i];
}

struct snapshot_list segments_held(const struct segments *segments, int first_rank, int world_size)
{
    struct snapshot_list held = snapshot_list_empty();

    for (int i = 0; segments != NULL && i < segments->n; i++) {
        struct fsdp_snapshot_head head = { 0 };
        struct snapshot_list own;

        if (pread(segments->fds[i], &head, sizeof head, 0) != (ssize_t)sizeof head)
            return snapshot_list_empty(); /* the worker has not sized it */
        own = snapshot_list_of(&head, (uint32_t)(first_rank + i), (uint32_t)world_size);
        held = i == 0 ? own : snapshot_list_both(&held, &own);
    }
    return held;
}

struct snapshot_list segments_copies(const struct segments *segments, int world_size, int *first_rank)
{
    struct fsdp_snapshot_head head = { 0 };

    *first_rank = -1;
    if (segments == NULL || pread(segments->fds[0], &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != FSDP_SNAPSHOT_MAGIC || head.rank > INT_MAX)
        return snapshot_list_empty();
    *first_rank = (int)head.rank;
    return segments_held(segments, *first_rank, world_size);
}

uint64_t segments_bytes(const struct segments *segments)
{
    uint64_t bytes = 0;
    struct stat stat;

    for (int i = 0; segments != NULL && i < segments->n; i++)
        if (fstat(segments->fds[i], &stat) == 0)
            bytes += (uint64_t)stat.st_blocks * 512;
    return bytes;
}

void segments_end_copying(const struct segments *segments)
{
    const uint32_t no = 0;

    /*
     * This sets "copies are being made" to false. It wakes no worker, but one that waits looks again after a
     * while.
     */
    for (int i = 0; i < segments->n; i++)
        (void)!pwrite(segments->fds[i], &no, sizeof no, offsetof(struct fsdp_snapshot_head, copying));
}

void segments_clear(const struct segments *segments)
{
    for (int i = 0; i < segments->n; i++)
        (void)!ftruncate(segments->fds[i], 0);
}
