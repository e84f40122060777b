#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/daemon/activation.h"

static char folder[] = "/tmp/fsdp-activation-XXXXXX", path[64];

static void make_folder(void)
{
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/agent.sock", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

TestSuite(activation, .init = make_folder, .fini = remove_folder);

enum what { STREAM = SOCK_STREAM, DATAGRAM = SOCK_DGRAM, SILENT, ABSTRACT, A_FILE };

static int open_one(enum what what)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = what == A_FILE ? open("/dev/null", O_RDONLY)
                                  : socket(AF_UNIX, what == DATAGRAM ? SOCK_DGRAM : SOCK_STREAM, 0);

    if (what == A_FILE)
        return fd;
    snprintf(address.sun_path + (what == ABSTRACT), sizeof address.sun_path - 1, "%s", path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        ((what == STREAM || what == ABSTRACT) && listen(fd, 1) < 0))
        _exit(100);
    return fd;
}

/*
 * Take what stands at descriptor 3, in a process of its own. Its exit status: 1 for a socket that is as it
 * should be, 0 for none, 2 and more for a failure: 1 + the status.
 */
static int take(enum what what, const char *fds, pid_t listen_pid, size_t size)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        char taken[128] = "none", pid[16];
        struct fsdp_err err = { 0 };
        enum fsdp_status result;
        int fd = open_one(what), got;

        dup2(fd, 3);
        snprintf(pid, sizeof pid, "%d", (int)(listen_pid == 0 ? getpid() : listen_pid));
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", fds, 1);
        setenv("LISTEN_FDNAMES", "ctl", 1);
        result = activation_take(&got, taken, size, &err);
        if (getenv("LISTEN_PID") != NULL || getenv("LISTEN_FDS") != NULL || getenv("LISTEN_FDNAMES") != NULL)
            _exit(101);
        if (result != FSDP_OK)
            _exit(got == -1 && fcntl(3, F_GETFD) < 0 && err.message[0] != '\0' ? 1 + (int)result : 102);
        if (got < 0)
            _exit(strcmp(taken, "none") == 0 ? 0 : 103);
        _exit(got == 3 && strcmp(taken, path) == 0 && fcntl(3, F_GETFD) == FD_CLOEXEC &&
                      (fcntl(3, F_GETFL) & O_NONBLOCK) != 0
                  ? 1
                  : 104);
    }
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    unlink(path);
    return WEXITSTATUS(status);
}

Test(activation, a_listening_socket_is_taken)
{
    cr_assert(eq(int, take(STREAM, "1", 0, 108), 1));
}

Test(activation, what_is_meant_for_another_process_is_left_alone)
{
    cr_assert(eq(int, take(STREAM, "1", 1, 108), 0));
    cr_assert(eq(int, take(STREAM, "0", 0, 108), 0));
    cr_assert(eq(int, take(STREAM, "one", 0, 108), 0));
    cr_assert(eq(int, take(STREAM, "-1", 0, 108), 0));
}

Test(activation, what_cannot_be_served_is_refused_and_closed)
{
    static const enum what others[] = { DATAGRAM, SILENT, ABSTRACT, A_FILE };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert(eq(int, take(others[i], "1", 0, 108), 1 + FSDP_ERR_CONFIG), "%d", (int)others[i]);
    cr_assert(eq(int, take(STREAM, "2", 0, 108), 1 + FSDP_ERR_CONFIG));
    cr_assert(eq(int, take(STREAM, "1", 0, strlen(path)), 1 + FSDP_ERR_CONFIG), "a path that does not fit");
    cr_assert(eq(int, take(STREAM, "1", 0, strlen(path) + 1), 1), "one that does");
}
