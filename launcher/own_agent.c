#include "launcher/own_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/daemon/control_proto.h"
#include "agent/desk/registry.h"
#include "shard_runtime/core/files.h"

enum { START_MS = 10000 };

/* Does an agent of this user listen at the socket? */
static bool is_served(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat at;
    bool served;
    int fd;

    if (strlen(path) >= sizeof address.sun_path || lstat(path, &at) < 0 || !S_ISSOCK(at.st_mode) ||
        at.st_uid != geteuid())
        return false;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    memcpy(address.sun_path, path, strlen(path) + 1);
    served = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN;
    close(fd);
    return served;
}

/*
 * Turns this child process into the agent. It gets a session of its own, so that no terminal signals it. Of
 * the user's descriptors it keeps only stderr, and that only until it listens at its socket.
 */
static _Noreturn void be_agent(const char *program, const char *path, int started_fd)
{
    static const char *const withheld[] = { "FSDPRUN_SECRET", "FSDPRUN_SECRET_FILE", "NOTIFY_SOCKET",
                                            "WATCHDOG_USEC",  "WATCHDOG_PID",        "LISTEN_FDS",
                                            "LISTEN_PID",     "LISTEN_FDNAMES" };
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char fd[16], idle[16];
    sigset_t none;

    setsid();
    if (fork() != 0)
        _exit(0); /* only its child goes on: init, or the nearest subreaper, becomes the agent's parent */
    for (size_t i = 0; i < sizeof withheld / sizeof *withheld; i++)
        unsetenv(withheld[i]);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (fcntl(STDERR_FILENO, F_GETFD) < 0)
        dup2(null, STDERR_FILENO);
    if (path[0] == '/')
        (void)!chdir("/");
    umask(077);
    syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
    fcntl(started_fd, F_SETFD, 0);
    snprintf(fd, sizeof fd, "%d", started_fd);
    snprintf(idle, sizeof idle, "%d", (int)OWN_AGENT_IDLE_S);
    execl(program, "fsdp-agent", "--socket", path, "--idle-exit", idle, "--started", fd, (char *)NULL);
    dprintf(STDERR_FILENO, "fsdprun: cannot execute %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* Starts the agent, and waits until it listens at its socket. */
static enum fsdp_status start(const char *program, const char *path, struct fsdp_err *err)
{
    struct pollfd started = { .events = POLLIN };
    int fds[2];
    char byte;
    pid_t child;
    bool serves;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "pipe: %s", strerror(errno));
    child = fork();
    if (child == 0)
        be_agent(program, path, fds[1]);
    close(fds[1]);
    if (child > 0)
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            continue;
    started.fd = fds[0];
    serves = child > 0 && poll(&started, 1, START_MS) == 1 && read(fds[0], &byte, 1) == 1;
    close(fds[0]);
    /* The new agent may have ended because another one listened already. */
    if (serves || is_served(path))
        return FSDP_OK;
    return child < 0 ? fsdp_fail(err, FSDP_ERR_IO, "fork: %s", strerror(errno))
                     : fsdp_fail(err, FSDP_ERR_PEER, "no agent could be started at %s", path);
}

/*
 * Starts the agent unless one listens by now. The lock on `folder` lets one process at a time do so. The
 * kernel frees the lock when this process ends, and it needs no file of its own.
 */
static enum fsdp_status start_alone(const char *folder, const char *program, const char *path,
                                    struct fsdp_err *err)
{
    const int lock = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    enum fsdp_status status = FSDP_OK;

    if (lock >= 0)
        while (flock(lock, LOCK_EX) < 0 && errno == EINTR)
            continue;
    if (!is_served(path))
        status = start(program, path, err);
    if (lock >= 0)
        close(lock);
    return status;
}

enum fsdp_status own_agent_find(char *path, size_t size, const char *own_path, struct fsdp_err *err)
{
    char folder[REGISTRY_PATH_BYTES], program[PATH_MAX];
    const char *slash = strrchr(own_path, '/');
    enum fsdp_status status;

    if (control_default_socket(path, size, getenv("XDG_RUNTIME_DIR"), getuid()) && is_served(path))
        return FSDP_OK;
    status = registry_folder(folder, err);
    if (status != FSDP_OK)
        return status;
    if ((size_t)snprintf(path, size, "%s/agent.sock", folder) >= size ||
        strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is too long for a socket's path: give --agent", folder);
    if (is_served(path))
        return FSDP_OK;
    snprintf(program, sizeof program, "%.*s/fsdp-agent", slash == NULL ? 1 : (int)(slash - own_path),
             slash == NULL ? "." : own_path);
    return start_alone(folder, program, path, err);
}
