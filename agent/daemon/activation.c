#include "agent/daemon/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3, MOST_FDS = 1024 };

/* The number in a variable; -1: it is not set, or no number. */
static long number_in(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long number;

    if (text == NULL || *text == '\0')
        return -1;
    number = strtol(text, &end, 10);
    return *end == '\0' ? number : -1;
}

static bool has_option(int fd, int option, int want)
{
    int value;
    socklen_t size = sizeof value;

    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == want;
}

/* Returns whether `fd` is a socket that the daemon can serve; its path is then in `path`. */
static enum fsdp_status look_at(int fd, char *path, size_t size, struct fsdp_err *err)
{
    struct sockaddr_un address;
    socklen_t length = sizeof address;

    if (!has_option(fd, SO_TYPE, SOCK_STREAM) || !has_option(fd, SO_ACCEPTCONN, 1) ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0 || address.sun_family != AF_UNIX)
        return fsdp_fail(
            err, FSDP_ERR_CONFIG,
            "descriptor 3 from systemd is no listening unix stream socket: use ListenStream=PATH "
            "and Accept=no");
    length -= offsetof(struct sockaddr_un, sun_path);
    if (length < 2 || address.sun_path[0] != '/' || length > size)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the socket from systemd has no path of at most %zu bytes",
                         size - 1);
    snprintf(path, size, "%.*s", (int)length, address.sun_path);
    return FSDP_OK;
}

enum fsdp_status activation_take(int *fd, char *path, size_t size, struct fsdp_err *err)
{
    const bool ours = number_in("LISTEN_PID") == getpid();
    const long n = number_in("LISTEN_FDS");
    enum fsdp_status status = FSDP_OK;

    *fd = -1;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!ours || n < 1 || n > MOST_FDS)
        return FSDP_OK;
    if (n > 1)
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "systemd has sent %ld sockets: one is served", n);
    if (status == FSDP_OK)
        status = look_at(FIRST_FD, path, size, err);
    if (status == FSDP_OK && (fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0 ||
                              fcntl(FIRST_FD, F_SETFL, fcntl(FIRST_FD, F_GETFL) | O_NONBLOCK) < 0))
        status = fsdp_fail(err, FSDP_ERR_IO, "the socket from systemd: %s", strerror(errno));
    if (status == FSDP_OK)
        *fd = FIRST_FD;
    for (long i = 0; status != FSDP_OK && i < n; i++)
        close((int)(FIRST_FD + i));
    return status;
}
