/*
 * without CALL[,CALL...] PROGRAM ARGUMENTS...: runs PROGRAM as on a kernel that lacks these system calls.
 * They fail with ENOSYS. waitid stands for waitid on a pidfd (EINVAL before Linux 5.4).
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} calls[] = {
    { "pidfd_open", SYS_pidfd_open },
    { "pidfd_send_signal", SYS_pidfd_send_signal },
    { "close_range", SYS_close_range },
    { "clone3", SYS_clone3 },
};

static void load(struct sock_filter *filter, size_t n)
{
    struct sock_fprog program = { .len = (unsigned short)n, .filter = filter };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
        perror("without: seccomp");
        exit(99);
    }
}

static void refuse(unsigned number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };

    load(filter, sizeof filter / sizeof *filter);
}

/* The low half of the first argument: the kernels that we build for are little-endian. */
static void refuse_waiting_by_pidfd(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_waitid, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, P_PIDFD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };

    load(filter, sizeof filter / sizeof *filter);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: without CALL[,CALL...] PROGRAM ARGUMENTS...\n", stderr);
        return 99;
    }
    for (char *name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
        size_t i = 0;

        if (strcmp(name, "waitid") == 0) {
            refuse_waiting_by_pidfd();
            continue;
        }
        while (i < sizeof calls / sizeof *calls && strcmp(calls[i].name, name) != 0)
            i++;
        if (i == sizeof calls / sizeof *calls) {
            fprintf(stderr, "without: no call %s is known\n", name);
            return 99;
        }
        refuse(calls[i].number);
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 99;
}
