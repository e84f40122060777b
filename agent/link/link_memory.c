#include "agent/link/link_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int link_memory_page(struct fsdp_progress **page)
{
    int fd = memfd_create("fsdp-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    *page = MAP_FAILED;
    if (fd < 0)
        return -1;
    if (ftruncate(fd, FSDP_PROGRESS_BYTES) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        *page = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*page == MAP_FAILED) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    (*page)->magic = FSDP_PROGRESS_MAGIC;
    (*page)->version = FSDP_PROGRESS_VERSION;
    return fd;
}

int link_memory_job(const char *json)
{
    size_t left = strlen(json);
    int fd = memfd_create("fsdp-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -1;
    while (left > 0) {
        ssize_t n = write(fd, json, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        json += n;
        left -= (size_t)n;
    }
    if (left > 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}
