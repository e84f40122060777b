#include "shard_runtime/checkpoint/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io.h"

/* Writes the manifest's head to a memfd. The coordinator reads the memfd from its start. */
static enum fsdp_status head_memfd(const char *head, size_t length, int *out, struct fsdp_err *err)
{
    const int fd = memfd_create("fsdp-manifest-head", MFD_CLOEXEC);
    enum fsdp_status status;

    *out = -1;
    if (fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "memfd_create: %s", strerror(errno));
    status = io_write_all(&io_posix, fd, head, length, 0, "the manifest's head", err);
    if (status != FSDP_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return FSDP_OK;
}

enum fsdp_status report_send(struct link *link, struct fsdp_link_saved *saved, const char *head,
                             size_t length, struct fsdp_err *err)
{
    struct fsdp_err mine = { 0 };
    enum fsdp_status status;
    int fd = -1;

    if (saved->status == FSDP_OK && head != NULL) {
        saved->status = (uint32_t)head_memfd(head, length, &fd, &mine);
        if (saved->status != FSDP_OK)
            snprintf(saved->words, sizeof saved->words, "%s", mine.message);
    }
    status = link_saved(link, saved, fd, err);
    if (fd >= 0)
        close(fd);
    return status;
}

enum fsdp_status report_verdict(struct fsdp_link_published *published, enum fsdp_status own,
                                struct fsdp_err *err)
{
    if (published->status >= FSDP_STATUS_COUNT)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the agent answered with status %lu",
                         (unsigned long)published->status);
    published->words[sizeof published->words - 1] = '\0';
    /* Another rank's GPU failed. Only that rank ends with FSDP_EXIT_DEVICE, as it is the first cause. */
    if (published->status == FSDP_ERR_DEVICE && own != FSDP_ERR_DEVICE)
        published->status = FSDP_ERR_PEER;
    return published->status == FSDP_OK
               ? FSDP_OK
               : fsdp_fail(err, (enum fsdp_status)published->status, "%s", published->words);
}

enum fsdp_status report_wait(struct link *link, int64_t step, enum fsdp_status own, struct fsdp_err *err)
{
    struct fsdp_link_published published = { 0 };

    OK_OR_RETURN(link_published(link, step, &published, err));
    return report_verdict(&published, own, err);
}
