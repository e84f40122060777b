#include "agent/world/worker.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

enum output_mode worker_output_mode(const struct agent_config *config, int local_rank, unsigned stream)
{
    const struct agent_output *output = &config->output;
    const bool shown = output->shown == NULL || output->shown[local_rank];

    if (output->redirects != NULL && (output->redirects[local_rank] & stream) != 0 &&
        (output->tees == NULL || (output->tees[local_rank] & stream) == 0))
        return OUTPUT_FILE;
    if (config->job_json != NULL || output->prefix ||
        (output->tees != NULL && (output->tees[local_rank] & stream) != 0))
        return shown ? OUTPUT_TEE : OUTPUT_FILE;
    return shown ? OUTPUT_INHERIT : OUTPUT_NULL;
}

bool worker_error_file(const struct agent_config *config, const struct rundir *rundir, int generation,
                       const struct worker *worker, char *out, size_t size)
{
    char folder[RUNDIR_PATH_BYTES];

    return rundir != NULL && config->job_json == NULL &&
           rundir_rank_path(rundir, generation, worker->rank, worker->local_rank, folder, NULL) == FSDP_OK &&
           (size_t)snprintf(out, size, "%s/error.json", folder) < size;
}

void worker_close_watch(struct worker *worker)
{
    if (worker->heart_fd > 0)
        close(worker->heart_fd);
    if (worker->stacks_fd > 0)
        close(worker->stacks_fd);
    worker->heart_fd = worker->stacks_fd = 0;
}

void worker_read_place(struct death *death, const struct fsdp_progress *page)
{
    int64_t step;

    if (page == NULL || atomic_load_explicit(&page->beat_ns, memory_order_relaxed) == 0)
        return; /* a program that does not use our library, or a worker that has not opened its link yet */
    step = (int64_t)atomic_load_explicit(&page->step, memory_order_relaxed);
    death->phase = (int)atomic_load_explicit(&page->phase, memory_order_relaxed);
    if (step > 0 || (death->phase != FSDP_PHASE_START && death->phase != FSDP_PHASE_OPEN &&
                     death->phase != FSDP_PHASE_LOAD && death->phase != FSDP_PHASE_WAIT))
        death->step = step;
}

void worker_ended(struct worker *worker, const siginfo_t *info, bool noticed,
                  const struct fsdp_progress *page, int64_t now_ns)
{
    struct death *death = &worker->death;

    worker->live = false;
    death->when_ns = now_ns;
    if (worker->refused)
        return;
    death->sent_signal = worker->sent_signal;
    death->killed = worker->killed;
    death->code = info->si_status;
    if (info->si_code == CLD_EXITED)
        death->kind = info->si_status == 0 || (noticed && info->si_status == FSDP_EXIT_NOTICE) ? DEATH_NONE
                                                                                               : DEATH_EXIT;
    else
        death->kind = DEATH_SIGNAL;
    /* Only the coordinator can tell whether a program's ranks have met, because it knows the store. */
    death->phase = worker->sent_signal != 0 || worker->killed ? PROGRAM_STOPPING : PROGRAM_STARTING;
    worker_read_place(death, page);
}

void worker_end(struct worker *worker, const struct agent_os *os, int signal)
{
    if (!worker->live || (signal != SIGKILL && worker->sent_signal != 0))
        return;
    if (signal == SIGKILL)
        worker->killed = true;
    else
        worker->sent_signal = signal;
    if (worker->asked_us == 0)
        worker->asked_us = clock_epoch_us();
    os->kill_group(os->arg, &worker->child, signal);
    if (signal != SIGKILL)
        /* a stopped process handles the signal only after SIGCONT */
        os->kill_group(os->arg, &worker->child, SIGCONT);
}
