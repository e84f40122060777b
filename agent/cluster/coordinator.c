#include "agent/cluster/coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/cluster/identity.h"
#include "agent/cluster/verdict.h"

void coordinator_post(struct coordinator *coordinator, enum coordinator_event event)
{
    if (coordinator->queue_n == COORDINATOR_QUEUE)
        return; /* cannot be: coordinator_run() follows each report */
    coordinator->queue[(coordinator->queue_head + coordinator->queue_n++) % COORDINATOR_QUEUE] = event;
}

void coordinator_note(struct coordinator *coordinator, const char *event, const struct events_field *fields)
{
    coordinator_write_event(coordinator, coordinator->generation, event, fields);
}

void coordinator_write_event(struct coordinator *coordinator, int generation, const char *event,
                             const struct events_field *fields)
{
    struct fsdp_err err = { 0 };

    if (coordinator->services.events != NULL &&
        events_emit(coordinator->services.events, generation, event, fields, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: %s; the job goes on", err.message);
}

void coordinator_end_with(struct coordinator *coordinator, int status, enum errors_class class,
                          const char *words)
{
    coordinator->status = status;
    coordinator->end_class = class;
    snprintf(coordinator->line, sizeof coordinator->line, "%s", words);
}

/* --- how it ends ------------------------------------------------------------------------------------------------- */

static struct verdict_run as_verdict_run(const struct coordinator *coordinator)
{
    return (struct verdict_run){ .deaths = coordinator->deaths,
                                 .n_deaths = coordinator->n_deaths,
                                 .cause = coordinator->cause,
                                 .detail = &coordinator->detail,
                                 .generation = coordinator->generation,
                                 .n_restarts = coordinator->n_restarts,
                                 .max_restarts = coordinator->config->max_restarts,
                                 .stop_signal = coordinator->stop_signal,
                                 .notice_signal = coordinator->notice_signal,
                                 .elastic = coordinator->roster.min_nodes < coordinator->roster.max_nodes,
                                 .changing = coordinator->changing,
                                 .world_size = coordinator->world_size,
                                 .job = coordinator->config->job_json != NULL,
                                 .diverged_step = coordinator->diverged_world_size == coordinator->world_size
                                                      ? coordinator->diverged_step
                                                      : -1 };
}

static void describe_failure(struct coordinator *coordinator, const struct verdict_run *run)
{
    const struct death *cause = &run->deaths[run->cause];
    struct errors_death *collateral = calloc(run->n_deaths, sizeof *collateral);
    struct errors_report report;

    coordinator->end_class = 0;
    verdict_report(run, first_cause_status(cause), 0, "", collateral, &report);
    errors_line(&report, coordinator->line, sizeof coordinator->line);
    coordinator_note(
        coordinator, "failure",
        (struct events_field[]){ EVENT_TEXT("class", errors_class_name(report.class)),
                                 EVENT_INT("rank", cause->rank), EVENT_INT("pid", cause->pid),
                                 EVENT_INT(cause->kind == DEATH_SIGNAL ? "signal" : "code", cause->code),
                                 EVENT_INT("status", report.status), EVENT_TEXT("words", coordinator->line),
                                 EVENT_END });
    free(collateral);
}

/* What follows now, in words: with whom, and whether somebody is waited for. */
static void describe_next(const struct coordinator *coordinator, char *out, size_t size)
{
    const struct roster *roster = &coordinator->roster;
    const int n = roster_n_present(roster) < roster->max_nodes ? roster_n_present(roster) : roster->max_nodes;

    out[0] = '\0';
    if (roster->max_nodes > 1 && !roster_enough(roster))
        snprintf(out, size, ", once there are %d nodes (%d now, up to %.0f s)", roster->min_nodes, n,
                 (double)coordinator->config->join_timeout_ms / 1000.0);
    else if (roster->min_nodes < roster->max_nodes)
        snprintf(out, size, ", with %d node%s", n, n == 1 ? "" : "s");
}

static void say_restart(struct coordinator *coordinator, bool free_of_charge)
{
    char next[96], tries[48] = "";

    describe_next(coordinator, next, sizeof next);
    if (!free_of_charge)
        snprintf(tries, sizeof tries, " (%d of %d)", coordinator->n_restarts,
                 coordinator->config->max_restarts);
    if (!coordinator->config->quiet)
        console_say(coordinator->services.console, "fsdprun: %s; starting again%s%s",
                    coordinator->line[0] != '\0' ? coordinator->line : "the nodes have changed", tries, next);
}

/* A failure is counted, for the whole job; that nodes come and go in a world that may grow and shrink is none. */
static void begin_restart(struct coordinator *coordinator, bool free_of_charge)
{
    coordinator->n_restarts += !free_of_charge;
    coordinator_part(coordinator);
    say_restart(coordinator, free_of_charge);
    coordinator->line[0] = '\0';
    coordinator->generation++;
    if (free_of_charge)
        coordinator_note(coordinator, "membership",
                         (struct events_field[]){ EVENT_INT("nodes", roster_n_present(&coordinator->roster)),
                                                  EVENT_INT("min_nodes", coordinator->roster.min_nodes),
                                                  EVENT_INT("max_nodes", coordinator->roster.max_nodes),
                                                  EVENT_END });
    else
        coordinator_note(coordinator, "restart",
                         (struct events_field[]){
                             EVENT_INT("restart", coordinator->n_restarts),
                             EVENT_INT("max_restarts", coordinator->config->max_restarts), EVENT_END });
}

static enum coordinator_event judge(struct coordinator *coordinator)
{
    const struct verdict_run run = as_verdict_run(coordinator);
    struct verdict verdict;

    verdict_reach(&run, &verdict);
    coordinator_take_divergence(coordinator, &run);
    if (verdict.failed)
        describe_failure(coordinator, &run);
    else if (verdict.class != 0)
        coordinator_end_with(coordinator, verdict.status, verdict.class, verdict.words);
    if (verdict.event == CE_DOWN_RETRY)
        begin_restart(coordinator, verdict.free_of_charge);
    else
        coordinator->status = verdict.status;
    return verdict.event;
}

void coordinator_judge_if_down(struct coordinator *coordinator)
{
    if (coordinator->state != CS_UP && coordinator->state != CS_CLEARING)
        return;
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator_in_play(coordinator, i) && !coordinator->nodes[i].stopped)
            return;
    save_abandon(coordinator->save);
    coordinator_close_store(coordinator); /* its last worker is gone, and all that is in it is stale */
    coordinator_post(coordinator, judge(coordinator));
}

/*
 * True when it was written and holds more than the line on the console: a stop by a signal, and a program that cannot be
 * started, are told whole by that.
 */
static bool write_errors(struct coordinator *coordinator)
{
    const struct verdict_run run = as_verdict_run(coordinator);
    struct errors_death *collateral = calloc(run.n_deaths + 1, sizeof *collateral);
    struct errors_report report;
    struct fsdp_err err = { 0 };
    bool written;

    verdict_report(&run, coordinator->status, coordinator->end_class, coordinator->line, collateral, &report);
    written = errors_write(coordinator->services.rundir, &report, &err) == FSDP_OK;
    if (!written)
        console_say(coordinator->services.console, "fsdprun: %s", err.message);
    free(collateral);
    return written && report.class != ERRORS_STOPPED && report.class != ERRORS_NOTICE &&
           report.class != ERRORS_EXEC;
}

int coordinator_too_late(const struct coordinator *coordinator, char words[PROTO_WORDS_BYTES])
{
    if (coordinator->status == 0)
        snprintf(words, PROTO_WORDS_BYTES, "the job is complete: this node came too late to take part");
    else
        snprintf(words, PROTO_WORDS_BYTES,
                 "the job ended with status %d before this node could take part: %.400s", coordinator->status,
                 coordinator->line);
    return coordinator->status == 0 ? 0 : FSDP_EXIT_PEER;
}

/* Those that wait are told as well; our own node last, which then closes what leads to the others. */
static void tell_end(struct coordinator *coordinator, const struct coordinator_end *how)
{
    char words[PROTO_WORDS_BYTES];
    const struct coordinator_end too_late = { .status = coordinator_too_late(coordinator, words),
                                              .line = words,
                                              .node = -1 };

    for (int i = coordinator->roster.capacity - 1; i >= 0; i--)
        if (coordinator->nodes[i].ops != NULL && coordinator->roster.nodes[i].present)
            coordinator->nodes[i].ops->finish(coordinator->nodes[i].member,
                                              coordinator->nodes[i].late ? &too_late : how);
}

static void end(struct coordinator *coordinator)
{
    struct coordinator_end how;
    bool recorded = false;

    coordinator_close_store(coordinator);
    if (coordinator->status == 0 && coordinator->stop_signal != 0) { /* between two generations */
        struct verdict verdict;

        verdict_stopped(coordinator->stop_signal, &verdict);
        coordinator_end_with(coordinator, verdict.status, verdict.class, verdict.words);
    }
    if (coordinator->status == 0) {
        coordinator->line[0] = '\0';
        coordinator_passed(coordinator, (int64_t)coordinator->config->total_steps);
        if (coordinator->config->job_json != NULL && coordinator->world_size > 0)
            coordinator_note(coordinator, "complete", (struct events_field[]){ EVENT_END });
    } else if (coordinator->services.rundir != NULL) {
        recorded = write_errors(coordinator);
    }
    if (events_lost(coordinator->services.events) > 0)
        console_say(coordinator->services.console,
                    "fsdprun: %" PRIu64 " lines of events.jsonl were not written",
                    events_lost(coordinator->services.events));
    how = (struct coordinator_end){
        .status = coordinator->status, .line = coordinator->line, .node = -1, .recorded = recorded
    };
    if (coordinator->status != 0 && coordinator->end_class == 0 && coordinator->cause >= 0) {
        const struct death *cause = &coordinator->deaths[coordinator->cause];

        how.node = cause->node_rank;
        how.code = cause->kind == DEATH_SIGNAL ? -cause->code : cause->code;
        how.detail = errors_detail_is_empty(&coordinator->detail) ? NULL : &coordinator->detail;
    }
    coordinator_close_timer(coordinator);
    tell_end(coordinator, &how);
}

/* --- the machine ------------------------------------------------------------------------------------------------- */

static void perform(struct coordinator *coordinator, enum coordinator_action action)
{
    switch (action) {
    case CA_NONE:
        if (coordinator->state == CS_GATHERING)
            coordinator_gather(coordinator);
        return;
    case CA_PREPARE:
        coordinator_prepare(coordinator);
        return;
    case CA_FORM:
        coordinator_form(coordinator);
        return;
    case CA_CLEAR:
        coordinator_clear(coordinator);
        return;
    case CA_END:
        end(coordinator);
        return;
    case CA_UNSET:
    case CA_COUNT:
        break;
    }
}

void coordinator_run(struct coordinator *coordinator)
{
    if (coordinator->running)
        return;
    coordinator->running = true;
    while (coordinator->queue_n > 0) {
        enum coordinator_event event = coordinator->queue[coordinator->queue_head];
        enum coordinator_action action;

        coordinator->queue_head = (coordinator->queue_head + 1) % COORDINATOR_QUEUE;
        coordinator->queue_n--;
        if (!coordinator_fsm_step(&coordinator->state, event, &action)) {
            console_say(coordinator->services.console, "fsdprun: bug: event %s in state %s; stopping",
                        coordinator_event_name(event), coordinator_state_name(coordinator->state));
            coordinator_end_with(coordinator, FSDP_EXIT_BUG, ERRORS_BUG, "a bug of fsdprun");
            coordinator->state = CS_ENDED;
            action = CA_END;
        }
        perform(coordinator, action);
    }
    coordinator->running = false;
}

/* --- saves ------------------------------------------------------------------------------------------------------- */

static void on_published(void *arg, const struct fsdp_link_published *published, const char *directory,
                         uint64_t size_bytes, double seconds)
{
    struct coordinator *coordinator = arg;

    if (published->status == FSDP_OK)
        coordinator_note(
            coordinator, "checkpoint",
            (struct events_field[]){ EVENT_INT("step", published->step), EVENT_INT("bytes", size_bytes),
                                     EVENT_REAL("seconds", seconds),
                                     directory[0] != '\0' ? EVENT_TEXT("directory", directory) : EVENT_END,
                                     EVENT_END });
    else
        console_say(coordinator->services.console, "fsdprun: step %lld was not saved: %s",
                    (long long)published->step, published->words);
    if (published->status == FSDP_OK)
        coordinator_passed(coordinator, published->step);
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator_in_play(coordinator, i))
            coordinator->nodes[i].ops->publish(coordinator->nodes[i].member, published);
}

static void on_save_line(void *arg, const char *words)
{
    struct coordinator *coordinator = arg;

    console_say(coordinator->services.console, "fsdprun: %s", words);
}

/* --- from the user ----------------------------------------------------------------------------------------------- */

void coordinator_stop(struct coordinator *coordinator, int signal, bool now)
{
    if (coordinator->stop_signal == 0)
        coordinator->stop_signal = signal;
    coordinator->stop_now = coordinator->stop_now || now;
    if (coordinator->state == CS_UP || coordinator->state == CS_CLEARING) {
        bool again = coordinator->state == CS_CLEARING;

        coordinator_post(coordinator, CE_STOP);
        coordinator_run(coordinator);
        if (again && now)
            coordinator_clear(coordinator); /* they are stopping already: now without the grace */
        return;
    }
    coordinator_post(coordinator, CE_STOP);
    coordinator_run(coordinator);
}

void coordinator_forward(struct coordinator *coordinator, int signal)
{
    if (coordinator->state != CS_UP)
        return; /* nobody to pass it to, or they are leaving */
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator_in_play(coordinator, i))
            coordinator->nodes[i].ops->forward(coordinator->nodes[i].member, signal);
}

void coordinator_notice(struct coordinator *coordinator, int signal)
{
    if (coordinator->state != CS_UP) {
        /* No step to finish: what is published already is all there is. */
        coordinator_stop(coordinator, signal, false);
        return;
    }
    if (coordinator->notice_signal != 0)
        return; /* asked already; the grace runs */
    coordinator->notice_signal = signal;
    coordinator_ask_to_leave(coordinator);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* The roster, what belongs to its entries, and the clock for a world of several. */
static enum fsdp_status open_roster(struct coordinator *coordinator, struct fsdp_err *err)
{
    struct proto_join self;
    enum fsdp_status status;

    identity_fill(&self, coordinator->config);
    status = roster_init(&coordinator->roster, &self, "127.0.0.1", err);
    if (status != FSDP_OK)
        return status;
    coordinator->nodes = calloc((size_t)coordinator->roster.capacity, sizeof *coordinator->nodes);
    if (coordinator->nodes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", coordinator->roster.capacity);
    if (self.n_nodes == 1)
        return FSDP_OK;
    coordinator->timer = calloc(1, sizeof *coordinator->timer);
    if (coordinator->timer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a timer");
    uv_timer_init(coordinator->services.loop, coordinator->timer);
    coordinator->timer->data = coordinator;
    return FSDP_OK;
}

static void free_all(struct coordinator *coordinator)
{
    coordinator_close_timer(coordinator);
    roster_fini(&coordinator->roster);
    attendance_fini(&coordinator->attendance);
    coordinator_forget_names(coordinator);
    free(coordinator->nodes);
    free(coordinator->deaths);
    free(coordinator);
}

enum fsdp_status coordinator_create(struct coordinator **out, const struct agent_config *config,
                                    const struct coordinator_services *services, struct fsdp_err *err)
{
    struct coordinator *coordinator = calloc(1, sizeof *coordinator);
    const struct save_handlers handlers = { .arg = coordinator,
                                            .published = on_published,
                                            .line = on_save_line,
                                            .weigh = coordinator_weigh_step,
                                            .patience_ms = config->hang_timeout_ms };
    enum fsdp_status status;

    *out = NULL;
    if (coordinator == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    coordinator->config = config;
    coordinator->services = *services;
    coordinator->state = CS_GATHERING;
    coordinator->cause = -1;
    coordinator->resume_step = coordinator->diverged_step = -1;
    status = open_roster(coordinator, err);
    if (status == FSDP_OK)
        status = save_create(&coordinator->save, services->loop, services->io,
                             services->rundir == NULL ? NULL : rundir_path(services->rundir), &handlers, err);
    if (status != FSDP_OK) {
        free_all(coordinator);
        return status;
    }
    *out = coordinator;
    return FSDP_OK;
}

void coordinator_when_idle(struct coordinator *coordinator, void (*idle)(void *arg), void *arg)
{
    save_when_idle(coordinator->save, idle, arg);
}

bool coordinator_destroy(struct coordinator *coordinator)
{
    if (coordinator == NULL)
        return true;
    if (!save_idle(coordinator->save))
        return false;
    save_destroy(coordinator->save);
    free_all(coordinator);
    return true;
}
