#include "agent/daemon/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

enum { MESSAGE_BYTES = 1024 };

void notify(const char *format, ...)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t n = path == NULL ? 0 : strlen(path);
    char message[MESSAGE_BYTES];
    va_list args;
    int fd;

    if (n < 2 || n >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@') /* the abstract namespace */
        address.sun_path[0] = '\0';
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || sendto(fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&address,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        fprintf(stderr, "fsdp-agent: systemd was not told %.*s: %s\n", (int)strcspn(message, "\n"), message,
                strerror(errno));
    if (fd >= 0)
        close(fd);
}

void notify_reloading(void)
{
    notify("RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_now_ns() / 1000));
}
