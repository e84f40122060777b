#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/notify.h"
#include "shard_runtime/core/clock.h"

/* systemd's end, at this path, or in the abstract namespace where it begins with '@'. */
static int listen_at(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    memcpy(address.sun_path, path, strlen(path));
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    cr_assert(bind(fd, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) == 0);
    setenv("NOTIFY_SOCKET", path, 1);
    return fd;
}

static const char *heard(int fd)
{
    static char text[2048];
    const ssize_t n = recv(fd, text, sizeof text - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
    return text;
}

Test(notify, a_message_is_one_datagram_to_either_kind_of_address)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/tmp/fsdp-notify-%d", (int)getpid());
    fd = listen_at(path);
    notify("READY=1\nSTATUS=serves %s", "a");
    cr_assert(eq(str, (char *)heard(fd), "READY=1\nSTATUS=serves a"));
    cr_assert(eq(str, (char *)heard(fd), ""));
    unlink(path);
    path[0] = '@';
    fd = listen_at(path);
    notify("STOPPING=1");
    cr_assert(eq(str, (char *)heard(fd), "STOPPING=1"));
}

Test(notify, a_reload_comes_with_the_time_of_the_monotonic_clock)
{
    char path[64];
    const int64_t before = clock_now_ns() / 1000;
    long long at = 0;
    int fd;

    snprintf(path, sizeof path, "@fsdp-notify-%d", (int)getpid());
    fd = listen_at(path);
    notify_reloading();
    cr_assert(eq(int, sscanf(heard(fd), "RELOADING=1\nMONOTONIC_USEC=%lld", &at), 1));
    cr_assert(at >= before && at <= clock_now_ns() / 1000);
}

Test(notify, without_systemd_or_with_one_that_does_not_listen_it_goes_on, .timeout = 20)
{
    char path[64];

    unsetenv("NOTIFY_SOCKET");
    notify("READY=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    notify("READY=1");
    setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
    notify("READY=1");
    snprintf(path, sizeof path, "@fsdp-notify-%d", (int)getpid());
    cr_assert(listen_at(path) >= 0);
    for (int i = 0; i < 1000; i++) /* far more than the socket's queue takes, and it is never read */
        notify("WATCHDOG=1");
}
