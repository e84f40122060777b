/*
 * Runs the probes, each in a process of its own, and judges what they found.
 */
#include "agent/doctor/doctor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"

/*
 * How long a probe may take: FILES for kernel files, WITHIN for disks and programs, DRIVER for NVIDIA's
 * driver, which may need seconds to begin. A probe that ends at all takes far less, even on a busy machine.
 */
enum { FILES_WITHIN_MS = 2000, WITHIN_MS = 5000, DRIVER_WITHIN_MS = 20000, MOST_GROUPS = 16 };

#define GROUP(name, probe, part, within_ms, checks, advice)                                                  \
    {                                                                                                        \
        name, probe, offsetof(struct doctor_facts, part), sizeof(((struct doctor_facts *)0)->part),          \
            within_ms, checks, advice                                                                        \
    }

const struct doctor_group doctor_groups[] = {
    GROUP("install", install_probe, install, WITHIN_MS, install_checks,
          "the folder of fsdprun, or one that PATH names, does not answer"),
    GROUP("disk", disk_probe, disk, WITHIN_MS, disk_checks,
          "the file system of the run directory does not answer: look at its server, or choose another "
          "--run-dir"),
    GROUP("memory", memory_probe, memory, FILES_WITHIN_MS, memory_checks,
          "look at /proc and /sys of this machine"),
    GROUP("limits", limit_probe, limits, FILES_WITHIN_MS, limit_checks, "look at /proc of this machine"),
    GROUP("clock", clock_probe, clock, FILES_WITHIN_MS, clock_checks, "look at /sys of this machine"),
    GROUP("kernel", kernel_probe, kernel, WITHIN_MS, kernel_checks,
          "a system call that runs need does not return here: look at dmesg"),
    GROUP("cpus", cpu_probe, cpus, FILES_WITHIN_MS, cpu_checks, "look at /proc and /sys of this machine"),
    GROUP("gpus", gpu_probe, gpus, DRIVER_WITHIN_MS, gpu_checks,
          "NVIDIA's driver does not answer: look at dmesg and nvidia-smi; a reboot may be needed"),
    GROUP("libraries", library_probe, libraries, DRIVER_WITHIN_MS, library_checks,
          "opening a library does not end, or crashes: look at LD_LIBRARY_PATH and the file systems in it"),
    GROUP(
        "network", network_probe, network, WITHIN_MS, network_checks,
        "the name server does not answer: look at /etc/resolv.conf, and at /etc/hosts for this host's name"),
};
const size_t doctor_n_groups = sizeof doctor_groups / sizeof *doctor_groups;
static_assert(sizeof doctor_groups / sizeof *doctor_groups <= MOST_GROUPS, "room for every group");

/* A probe in its process. */
struct running {
    pid_t pid;
    int fd; /* where the probe's answer comes, the facts of its group; -1: no answer is expected any more */
    size_t got;
    int64_t deadline_ms;
    bool late;
};

/*
 * The child's part: runs the probe. It closes our output first. So if the probe is stuck in the kernel, a
 * reader of the doctor's output still sees the end of that output.
 */
static _Noreturn void run_probe(const struct doctor_group *group, const struct doctor_host *host, int fd,
                                pid_t parent)
{
    struct doctor_facts *facts = calloc(1, sizeof *facts);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (facts == NULL || getppid() != parent)
        _exit(1);
    signal(SIGPIPE, SIG_IGN);
    /*
     * with the signal ignored, a write beyond `ulimit -f` fails, and that failure is what the probe looks for
     */
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    group->probe(facts, host);
    _exit(file_write(fd, (const char *)facts + group->offset, group->size) ? 0 : 1);
}

static void start(struct running *running, const struct doctor_group *group, const struct doctor_host *host)
{
    const pid_t self = getpid();
    int ends[2];

    *running = (struct running){ .pid = -1, .fd = -1 };
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    running->pid = fork();
    if (running->pid == 0)
        run_probe(group, host, ends[1], self);
    close(ends[1]);
    running->fd = ends[0];
    running->deadline_ms = clock_now_ms() + group->within_ms;
}

/* Take what has come. At the end of the answer, or at its deadline, the descriptor is closed. */
static void take(struct running *running, const struct doctor_group *group, struct doctor_facts *facts,
                 bool readable)
{
    char *part = (char *)facts + group->offset, rest;
    ssize_t n = 1;

    if (readable)
        n = running->got < group->size ? read(running->fd, part + running->got, group->size - running->got)
                                       : read(running->fd, &rest, 1);
    if (n > 0 && readable && running->got < group->size)
        running->got += (size_t)n;
    running->late = n > 0 && clock_now_ms() >= running->deadline_ms;
    if ((n < 0 && errno == EINTR) || (n > 0 && !running->late))
        return;
    close(running->fd);
    running->fd = -1;
}

static void wait_for_answers(struct running *running, struct doctor_facts *facts)
{
    for (;;) {
        struct pollfd polled[MOST_GROUPS];
        int64_t soonest_ms = INT64_MAX;

        for (size_t i = 0; i < doctor_n_groups; i++) {
            polled[i] = (struct pollfd){ .fd = running[i].fd, .events = POLLIN };
            if (running[i].fd >= 0 && running[i].deadline_ms < soonest_ms)
                soonest_ms = running[i].deadline_ms;
        }
        if (soonest_ms == INT64_MAX)
            return;
        soonest_ms -= clock_now_ms();
        if (poll(polled, doctor_n_groups, soonest_ms > 0 ? (int)soonest_ms : 0) < 0)
            continue;
        for (size_t i = 0; i < doctor_n_groups; i++)
            if (running[i].fd >= 0)
                take(&running[i], &doctor_groups[i], facts, polled[i].revents != 0);
    }
}

/*
 * Reaps the probe's process, and kills it first if it is late. A process that is stuck in the kernel is not
 * waited for. Also notes why there was no answer, for the case that there is none.
 */
static void end(const struct running *running, const struct doctor_group *group,
                char words[DOCTOR_VALUE_BYTES])
{
    int status = 0;

    if (running->pid < 0) {
        snprintf(words, DOCTOR_VALUE_BYTES, "no process could be started for it");
        return;
    }
    if (running->late)
        kill(running->pid, SIGKILL);
    while (waitpid(running->pid, &status, running->late ? WNOHANG : 0) < 0 && errno == EINTR)
        ;
    if (running->late)
        snprintf(words, DOCTOR_VALUE_BYTES, "no answer in %.1f s", (double)group->within_ms / 1000.0);
    else if (WIFSIGNALED(status))
        snprintf(words, DOCTOR_VALUE_BYTES, "the check crashed: signal %d", WTERMSIG(status));
    else
        snprintf(words, DOCTOR_VALUE_BYTES, "the check ended without an answer");
}

static bool judge(struct doctor_report *report, const struct doctor_group *group,
                  const struct doctor_facts *facts)
{
    for (const struct doctor_check *check = group->checks; check->name != NULL; check++) {
        char value[DOCTOR_VALUE_BYTES] = "";
        const enum doctor_state state = check->judge(facts, value);

        if (state != DOCTOR_NOTHING &&
            !doctor_report_add(report, "", check->name, state, value, check->advice))
            return false;
    }
    return true;
}

bool doctor_examine(struct doctor_report *report, const struct doctor_host *host)
{
    struct doctor_facts *facts = calloc(1, sizeof *facts);
    struct running running[MOST_GROUPS];
    bool kept = facts != NULL;

    if (facts == NULL)
        return false;
    for (size_t i = 0; i < doctor_n_groups; i++)
        start(&running[i], &doctor_groups[i], host);
    wait_for_answers(running, facts);
    for (size_t i = 0; i < doctor_n_groups; i++) {
        const struct doctor_group *group = &doctor_groups[i];
        char words[DOCTOR_VALUE_BYTES];

        end(&running[i], group, words);
        if (running[i].got == group->size)
            kept &= judge(report, group, facts);
        else
            kept &= doctor_report_add(report, "", group->name, DOCTOR_FAIL, words, group->advice);
    }
    free(facts);
    return kept;
}
