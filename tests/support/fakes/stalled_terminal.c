/*
 * stalled_terminal FILE COMMAND...: runs the command on a terminal that nobody reads until FILE exists (at
 * most a minute), then reads it to its end. Prints what came, then "exit=N stalled=yes|no" (yes: FILE
 * appeared while nothing was read), and "nonblocking=yes|no" for the terminal's description as the command
 * left it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void pause_10_ms(void)
{
    const struct timespec ms10 = { 0, 10000000 };

    nanosleep(&ms10, NULL);
}

int main(int argc, char **argv)
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave, status = 0, flags, stalled = 0;
    char bytes[65536];
    pid_t pid;

    if (argc < 3 || master < 0 || grantpt(master) < 0 || unlockpt(master) < 0) {
        fprintf(stderr, "usage: stalled_terminal FILE COMMAND...\n");
        return 2;
    }
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ioctl(slave, TIOCSWINSZ, &size);
    pid = fork();
    if (pid == 0) {
        setsid();
        ioctl(slave, TIOCSCTTY, 0);
        dup2(slave, 0);
        dup2(slave, 1);
        dup2(slave, 2);
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    for (int i = 0; i < 6000 && !stalled; i++) {
        stalled = access(argv[1], F_OK) == 0;
        pause_10_ms();
    }
    fcntl(master, F_SETFL, O_NONBLOCK);
    for (int ended = 0;;) {
        ssize_t n = read(master, bytes, sizeof bytes);

        if (n > 0)
            fwrite(bytes, 1, (size_t)n, stdout);
        else if (ended)
            break;
        else
            pause_10_ms();
        if (!ended && waitpid(pid, &status, WNOHANG) == pid)
            ended = 1;
    }
    flags = fcntl(slave, F_GETFL);
    printf("\nexit=%d stalled=%s\nnonblocking=%s\n",
           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), stalled ? "yes" : "no",
           (flags & O_NONBLOCK) != 0 ? "yes" : "no");
    return 0;
}
