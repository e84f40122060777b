#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/os/environment.h"
#include "agent/record/error_file.h"
#include "agent/world/python_with_torch.h"
#include "agent/world/world_impl.h"

extern char **environ;

/* Its file may show that it had failed by itself before we asked it to end: then it is no consequence of that. */
static void take_error_file(const struct world *world, struct worker *worker, struct errors_detail *detail)
{
    const int64_t now_us = os_epoch_us();
    char path[RUNDIR_PATH_BYTES];

    if (worker_error_file(world->config, world->services.rundir, world->plan.generation, worker, path,
                          sizeof path) &&
        error_file_read(detail, path)) {
        worker->death.age_ns = error_file_age_ns(detail, now_us);
        if (worker->death.age_ns > 0 && worker->asked_us > 0 &&
            now_us - worker->death.age_ns / 1000 <= worker->asked_us && worker->death.kind == DEATH_EXIT)
            worker->death.sent_signal = 0;
    }
}

static void ask_about_oom(struct world *world, struct death *death)
{
    const bool by_kill = death->kind == DEATH_SIGNAL && death->code == SIGKILL;
    char words[DEATH_WORDS_BYTES];
    const enum oom_answer answer = oom_watch_ask(&world->oom, death->pid, by_kill, words, sizeof words);

    if (answer == OOM_NO || (answer == OOM_KILLED && !by_kill))
        return;
    death->oom_kill = answer == OOM_KILLED;
    snprintf(death->words, sizeof death->words, "%s", words);
}

/* Captured, or relayed: of a program whose streams go different ways it may be either. */
static void take_last_words(const struct world *world, const struct death *death,
                            struct errors_detail *detail)
{
    /* So Python ends after an exception that nobody caught. */
    const bool uncaught = world->config->job_json == NULL && death->kind == DEATH_EXIT && death->code == 1;

    const enum logs_mode mode = worker_log_mode(world->config, death->local_rank, AGENT_STDERR);

    detail->shown = mode == LOGS_TEE || mode == LOGS_INHERIT;
    if ((world->services.logs == NULL || !logs_tell(world->services.logs, death->rank, uncaught, detail)) &&
        world->services.relay != NULL)
        relay_tell(world->services.relay, death->rank, uncaught, detail);
    detail->output_at = world_output(world->services.logs, world->services.relay);
}

uint64_t world_output(const struct logs *logs, const struct relay *relay)
{
    return (logs != NULL ? logs_captured(logs) : 0) + (relay != NULL ? relay_taken(relay) : 0);
}

static bool is_of_timer(const struct worker *worker)
{
    const struct death *death = &worker->death;

    return worker->timer[0] != '\0' &&
           timers_ended(worker->timer_signal, death->kind == DEATH_SIGNAL ? death->code : 0,
                        death->when_ns - worker->timer_ns);
}

/* Once in a run: all its ranks have one Python, and so has the next generation. */
static void hint_at_torch(struct world *world, const struct worker *worker)
{
    char *const *environment = world->config->environment != NULL ? world->config->environment : environ;
    char used[RUNDIR_PATH_BYTES], other[RUNDIR_PATH_BYTES];

    if (world->hinted_at_torch ||
        os_find_program(world->config->argv[0], environment_find(environment, "PATH"), world->config->directory,
                        used, sizeof used) != 0 ||
        !python_with_torch(environment, used, other, sizeof other))
        return;
    world->hinted_at_torch = true;
    console_say(world->services.console,
                "fsdprun: rank %d ran %s and found no PyTorch; %s has it: activate its environment, or set "
                "PYTHON_EXEC to it",
                worker->rank, used, other);
}

bool world_explain(struct world *world, struct worker *worker, struct errors_detail *detail)
{
    struct death *death = &worker->death;

    memset(detail, 0, sizeof *detail);
    if (death->kind != DEATH_EXIT && death->kind != DEATH_SIGNAL)
        return false;
    take_error_file(world, worker, detail);
    if (is_of_timer(worker))
        snprintf(death->words, sizeof death->words, "%s", worker->timer);
    else if (!death->killed)
        ask_about_oom(world, death);
    if (!first_cause_is_consequence(death) || first_cause_blames_another(death)) /* it may be all there is */
        take_last_words(world, death, detail);
    if (!first_cause_is_consequence(death) && python_lacks_torch(detail))
        hint_at_torch(world, worker);
    return !errors_detail_is_empty(detail);
}
