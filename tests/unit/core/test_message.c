#include "shard_runtime/core/message.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static void open_ends(void)
{
    cr_assert(eq(int, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0));
}

static int count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

/* Sends "one" and "two" with n_fds descriptors, and receives them into 16 bytes. */
static ssize_t exchange(int n_fds, struct message_fds *came, char bytes[16])
{
    const struct iovec sent[] = { { (void *)"one", 3 }, { (void *)"two", 3 } };
    const int fds[MESSAGE_FDS] = { ends[0], ends[1], ends[0] };
    struct iovec received[] = { { bytes, 2 }, { bytes + 2, 14 } };

    cr_assert(eq(long, (long)message_send(ends[0], sent, 2, fds, n_fds), 6));
    return message_receive(ends[1], received, 2, 0, came);
}

Test(message, carries_its_parts_and_its_descriptors, .init = open_ends)
{
    for (int n = 0; n <= MESSAGE_FDS; n++) {
        struct message_fds came = { .most = MESSAGE_FDS };
        char bytes[16];

        cr_assert(eq(long, (long)exchange(n, &came, bytes), 6));

        cr_assert(memcmp(bytes, "onetwo", 6) == 0);
        cr_assert(came.n == n && came.cut == 0);
        for (int i = 0; i < MESSAGE_FDS; i++) {
            cr_assert(eq(int, came.fds[i] >= 0, i < n));
            cr_assert(i >= n || fcntl(came.fds[i], F_GETFD) == FD_CLOEXEC);
        }
    }
}

Test(message, closes_the_descriptors_that_are_not_wanted, .init = open_ends)
{
    struct message_fds came = { .most = 1 };
    const int before = count_open();
    char bytes[16];

    cr_assert(eq(long, (long)exchange(3, &came, bytes), 6));

    cr_assert(came.n == 3 && came.fds[0] >= 0 && came.fds[1] == -1);
    cr_assert(eq(int, count_open(), before + 1));
}

Test(message, says_that_it_was_cut_and_waits_for_none, .init = open_ends)
{
    struct message_fds came = { .most = 1 };
    char bytes[4];
    struct iovec part = { bytes, sizeof bytes };

    cr_assert(message_receive(ends[1], &part, 1, MSG_DONTWAIT, &came) < 0 && errno == EAGAIN);
    cr_assert(came.n == 0 && came.fds[0] == -1);
    cr_assert(eq(long, (long)message_send(ends[0], &(struct iovec){ (void *)"too long", 8 }, 1, NULL, 0), 8));
    cr_assert(message_receive(ends[1], &part, 1, 0, &came) == 4 && came.cut == MSG_TRUNC);
}
