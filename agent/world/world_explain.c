#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/record/error_file.h"
#include "agent/record/error_reader.h"
#include "agent/watch/python_with_torch.h"
#include "agent/world/world_impl.h"
#include "shard_runtime/core/clock.h"

/*
 * Takes the time of the worker's error file, which was read `waited_ns` after its death. It may show that the
 * worker had failed by itself before it was asked to end. Then its death does not count as a consequence of
 * that request.
 */
static void take_time(struct worker *worker, const struct errors_detail *detail, int64_t waited_ns)
{
    const int64_t ended_us = clock_epoch_us() - waited_ns / 1000;
    struct death *death = &worker->death;

    death->age_ns = error_file_age_ns(detail, ended_us);
    if (death->age_ns > 0 && worker->asked_us > 0 && ended_us - death->age_ns / 1000 <= worker->asked_us &&
        death->kind == DEATH_EXIT)
        death->sent_signal = 0;
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

static void take_last_words(const struct world *world, const struct death *death,
                            struct errors_detail *detail)
{
    /* Python ends with status 1 after an uncaught exception. */
    const bool uncaught = world->config->job_json == NULL && death->kind == DEATH_EXIT && death->code == 1;

    const enum output_mode mode = worker_output_mode(world->config, death->local_rank, AGENT_STDERR);

    detail->shown = mode == OUTPUT_TEE || mode == OUTPUT_INHERIT;
    if (world->services.output == NULL)
        return;
    output_tell(world->services.output, death->rank, uncaught, detail);
    detail->output_at = output_taken(world->services.output);
}

static bool is_of_timer(const struct worker *worker)
{
    const struct death *death = &worker->death;

    return worker->timer[0] != '\0' &&
           timers_ended(worker->timer_signal, death->kind == DEATH_SIGNAL ? death->code : 0,
                        death->when_ns - worker->timer_ns);
}

/* Give the hint once a run: all ranks of all generations use the same Python. */
static void hint_at_torch(struct world *world, const struct worker *worker)
{
    char used[RUNDIR_PATH_BYTES], other[RUNDIR_PATH_BYTES];

    if (world->hinted_at_torch ||
        os_find_program(world->config->argv[0], getenv("PATH"), used, sizeof used) != 0 ||
        !python_with_torch(environ, used, other, sizeof other))
        return;
    world->hinted_at_torch = true;
    console_say(world->services.console,
                "fsdprun: rank %d ran %s and found no PyTorch; %s has it: activate its environment, or set "
                "PYTHON_EXEC to it",
                worker->rank, used, other);
}

/* Reports the end of a worker, with what is known about it. `detail` has what its error file says. */
static void report(struct world *world, struct worker *worker, struct errors_detail *detail)
{
    struct death *death = &worker->death;
    const int64_t waited_ns = world_now_ns(world) - death->when_ns;

    if (death->kind == DEATH_EXIT || death->kind == DEATH_SIGNAL) {
        take_time(worker, detail, waited_ns);
        if (is_of_timer(worker))
            snprintf(death->words, sizeof death->words, "%s", worker->timer);
        else if (!death->killed)
            ask_about_oom(world, death);
        /* also needed if this rank blames another one, because that one may have left no words */
        if (!first_cause_is_consequence(death) || first_cause_blames_another(death))
            take_last_words(world, death, detail);
        if (!first_cause_is_consequence(death) && python_lacks_torch(detail))
            hint_at_torch(world, worker);
        /* the coordinator of another node takes the time of the report for that of the death */
        death->when_ns += waited_ns;
        death->age_ns += waited_ns;
    }
    world_report(world, death, errors_detail_is_empty(detail) ? NULL : detail);
    if (--world->n_unreported == 0 && world->n_live == 0 && world->state != WS_DOWN)
        world_post(world, WE_REAPED);
}

static void on_error_file(void *arg, struct errors_detail *detail)
{
    struct worker *worker = arg;
    struct world *world = worker->world;
    struct errors_detail none = { 0 };

    if (detail == NULL)
        console_say(world->services.console,
                    "fsdprun: rank %d: its error file cannot be read: no answer of the disk", worker->rank);
    report(world, worker, detail != NULL ? detail : &none);
    world_proceed(world);
}

void world_explain(struct world *world, struct worker *worker)
{
    struct error_reader *reader = world->services.error_reader;
    struct errors_detail detail = { 0 };
    char path[RUNDIR_PATH_BYTES];

    world->n_unreported++;
    if ((worker->death.kind == DEATH_EXIT || worker->death.kind == DEATH_SIGNAL) &&
        worker_error_file(world->config, world->services.rundir, world->plan.generation, worker, path,
                          sizeof path)) {
        if (reader != NULL && error_reader_ask(reader, path, on_error_file, worker))
            return;
        if (reader == NULL)
            (void)error_file_read(&detail, path);
    }
    report(world, worker, &detail);
}
