/*
 * The process of one job, before it becomes fsdprun: it takes over the limits, signals and so on that the
 * asking fsdprun would have handed to its children.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon.h"
#include "agent/daemon/daemon_impl.h"
#include "shard_runtime/core/exit_status.h"

static enum fsdp_status read_request(int fd, struct control_job *job, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct stat stat;
    void *bytes;

    if (fstat(fd, &stat) < 0 || stat.st_size <= 0 || stat.st_size > CONTROL_MAX_BYTES)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "descriptor %d has no job", fd);
    bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return fsdp_fail(err, FSDP_ERR_IO, "mmap of the job: %s", strerror(errno));
    status = control_decode_job(job, bytes, (size_t)stat.st_size, err);
    munmap(bytes, (size_t)stat.st_size);
    return status;
}

/* Take over soft limits and affinity, as far as this process may. The workers inherit them. */
static void take_over_limits(const struct control_head *head)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;

        if (getrlimit(i, &limit) < 0)
            continue;
        limit.rlim_cur = head->limits[i] < limit.rlim_max ? (rlim_t)head->limits[i] : limit.rlim_max;
        setrlimit(i, &limit);
    }
    /*
     * The kernel refuses a set without any CPU that the daemon may use. The job then gets all CPUs of the
     * daemon.
     */
    sched_setaffinity(0, sizeof head->cpus, &head->cpus);
}

/*
 * Ignore and block the signals that were ignored and blocked when fsdprun was started: nohup and a shell's
 * background jobs ignore some.
 */
static void take_over_signals(const struct control_head *head)
{
    sigset_t blocked;

    sigemptyset(&blocked);
    for (int i = 1; i <= 64; i++) {
        if (i == SIGKILL || i == SIGSTOP ||
            (i >= 32 && i < SIGRTMIN)) /* the C library has those from 32 on */
            continue;
        signal(i, (head->ignored >> (i - 1) & 1) != 0 ? SIG_IGN : SIG_DFL);
        if ((head->blocked >> (i - 1) & 1) != 0)
            sigaddset(&blocked, i);
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/*
 * Execute the fsdprun in the folder of this program. The client cannot choose another program: a job runs as
 * the daemon's user, whoever the client is. The argument about `start_fd` comes before the client's
 * arguments.
 */
static void become_fsdprun(const struct control_job *job, int start_fd)
{
    const size_t n = job->head.n_arguments;
    char path[PATH_MAX + sizeof "fsdprun"], word[sizeof CONTROL_START_WORD + 16];
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    char **argv = calloc(n + 2, sizeof *argv);

    if (length <= 0 || argv == NULL) {
        daemon_log("cannot find fsdprun: %s", strerror(errno));
        return;
    }
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "fsdprun");
    snprintf(word, sizeof word, CONTROL_START_WORD "%d", start_fd);
    argv[0] = job->argv[0];
    argv[1] = word;
    memcpy(argv + 2, job->argv + 1, (n - 1) * sizeof *argv);
    execv(path, argv);
    daemon_log("cannot execute %s: %s", path, strerror(errno));
    free(argv);
}

int daemon_run_job(int request_fd, int start_fd)
{
    struct control_job job;
    struct fsdp_err err = { 0 };

    if (read_request(request_fd, &job, &err) != FSDP_OK) {
        daemon_log("%s", err.message);
        return err.status == FSDP_ERR_NOMEM ? exit_status_of(err.status) : FSDP_EXIT_BUG;
    }
    close(request_fd);
    umask((mode_t)job.head.umask);
    take_over_limits(&job.head);
    take_over_signals(&job.head);
    become_fsdprun(&job, start_fd);
    control_job_free(&job);
    return FSDP_EXIT_IO;
}
