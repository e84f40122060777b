/* The process of one job: what fsdprun would have been, had it run the job itself. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon.h"
#include "agent/run/agent.h"
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

/* Soft limits and affinity as fsdprun has them, as far as this process may: the workers inherit them. */
static void take_over_limits(const struct control_job *job)
{
    for (int i = 0; i < CONTROL_N_LIMITS; i++) {
        struct rlimit limit;

        if (getrlimit(i, &limit) < 0)
            continue;
        limit.rlim_cur = job->limits[i] < limit.rlim_max ? (rlim_t)job->limits[i] : limit.rlim_max;
        setrlimit(i, &limit);
    }
    sched_setaffinity(0, sizeof job->cpus,
                      &job->cpus); /* refused where none of them is ours: then all of ours */
}

/* Signals as fsdprun was started with them: nohup, and a shell's background jobs, ignore some. */
static void take_over_signals(const struct control_job *job)
{
    sigset_t blocked;

    sigemptyset(&blocked);
    for (int i = 1; i <= 64; i++) {
        if (i == SIGKILL || i == SIGSTOP || (i >= 32 && i < SIGRTMIN)) /* those between are the C library's */
            continue;
        signal(i, (job->ignored >> (i - 1) & 1) != 0 ? SIG_IGN : SIG_DFL);
        if ((job->blocked >> (i - 1) & 1) != 0)
            sigaddset(&blocked, i);
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/* In the job's agent, at each start of its workers; the daemon waits for the first. */
static void tell_started(void *arg)
{
    int *start_fd = arg;

    if (*start_fd < 0)
        return;
    (void)!write(*start_fd, "", 1); /* the pipe is empty, and a daemon that is gone asks for nothing */
    close(*start_fd);
    *start_fd = -1;
}

int daemon_run_job(int request_fd, int start_fd)
{
    struct control_job job = { 0 };
    struct fsdp_err err = { 0 };
    int status;

    if (read_request(request_fd, &job, &err) != FSDP_OK) {
        fprintf(stderr, "fsdp-agent: %s\n", err.message);
        return err.status == FSDP_ERR_NOMEM ? exit_status_of(err.status) : FSDP_EXIT_BUG;
    }
    close(request_fd);
    if (start_fd >= 0)
        fcntl(start_fd, F_SETFD, FD_CLOEXEC);
    umask((mode_t)job.umask);
    take_over_limits(&job);
    take_over_signals(&job);
    job.config.environment = NULL; /* this process was started with it */
    job.config.directory = NULL;   /* and there */
    job.config.observer.arg = &start_fd;
    job.config.observer.started = tell_started;
    if (job.config.job_json != NULL)
        job.config.save_on_signal |= AGENT_SAVE_DAEMON;
    status = agent_run(&job.config);
    control_job_free(&job);
    return status;
}
