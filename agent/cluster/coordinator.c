#include "agent/cluster/coordinator.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/members/verdict.h"
#include "agent/os/bug.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"

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

struct leader_progress coordinator_progress(const struct coordinator *coordinator)
{
    const struct budget *budget = &coordinator->budget;
    const struct recurrence *recurrence = &coordinator->recurrence;
    const int used = budget_used(budget, coordinator_now_ns(coordinator));
    struct leader_progress progress = coordinator->progress;

    progress.n_restarts = (uint32_t)budget->n_restarts;
    progress.n_restarts_left = used < budget->most ? (uint32_t)(budget->most - used) : 0;
    progress.published_s = 0;
    budget_ages(budget, progress.restarts_s, LEADER_RESTARTS, coordinator_now_ns(coordinator));
    progress.failure = (struct leader_failure){ .step = recurrence->step,
                                                .kind = (int32_t)recurrence->kind,
                                                .code = recurrence->code,
                                                .phase = recurrence->phase,
                                                .n = (uint32_t)recurrence->n };
    progress.diverged = coordinator->diverged;
    coordinator_note_suspects(coordinator, &progress);
    return progress;
}

void coordinator_publish(const struct coordinator *coordinator)
{
    const struct coordinator_lead *lead = &coordinator->services.lead;
    const struct leader_progress progress = coordinator_progress(coordinator);

    if (lead->publish != NULL)
        lead->publish(lead->arg, &progress);
}

void coordinator_end_with(struct coordinator *coordinator, int status, enum errors_class class,
                          const char *words)
{
    coordinator->status = status;
    coordinator->end_class = class;
    snprintf(coordinator->line, sizeof coordinator->line, "%s", words);
}

void coordinator_tell_all(struct coordinator *coordinator, int except, enum proto_type type,
                          const void *message)
{
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (i != except && coordinator_in_play(coordinator, i))
            coordinator->nodes[i].tell(coordinator->nodes[i].member, type, coordinator->generation, message);
}

/* How a generation and the run end */

static struct verdict_run as_verdict_run(const struct coordinator *coordinator)
{
    return (struct verdict_run){ .deaths = coordinator->deaths,
                                 .n_deaths = coordinator->n_deaths,
                                 .cause = coordinator->cause,
                                 .detail = &coordinator->detail,
                                 .hang = coordinator->hang,
                                 .generation = coordinator->generation,
                                 .spent = budget_spent(&coordinator->budget, coordinator_now_ns(coordinator)),
                                 .stop_signal = coordinator->stop_signal,
                                 .notice_signal = coordinator->notice_signal,
                                 .elastic = coordinator_is_elastic(coordinator),
                                 .changing = coordinator->changing,
                                 .world_size = coordinator->world_size,
                                 .job = coordinator->config->job_json != NULL,
                                 .diverged_step = coordinator->diverged.world_size == coordinator->world_size
                                                      ? coordinator->diverged.step
                                                      : -1 };
}

void coordinator_add_window(const struct coordinator *coordinator, char *line, size_t size)
{
    const size_t length = strlen(line);
    char used[BUDGET_WORDS_BYTES];

    if (coordinator->config->restart_window_ms > 0)
        snprintf(line + length, size - length, "; restarts used: %s",
                 budget_words(&coordinator->budget, coordinator_now_ns(coordinator), used));
}

static void describe_failure(struct coordinator *coordinator, const struct verdict_run *run, bool spent)
{
    const struct death *cause = &run->deaths[run->cause];
    struct errors_death *collateral = calloc(run->n_deaths, sizeof *collateral);
    struct errors_report report;

    coordinator->end_class = 0;
    verdict_report(run, first_cause_status(cause), 0, "", collateral, &report);
    errors_line(&report, coordinator->line, sizeof coordinator->line);
    if (spent)
        coordinator_add_window(coordinator, coordinator->line, sizeof coordinator->line);
    coordinator_note(
        coordinator, "failure",
        (struct events_field[]){ EVENT_TEXT("class", errors_class_name(report.class)),
                                 EVENT_INT("rank", cause->rank), EVENT_INT("pid", cause->pid),
                                 EVENT_INT(cause->kind == DEATH_SIGNAL ? "signal" : "code", cause->code),
                                 EVENT_INT("status", report.status), EVENT_TEXT("words", coordinator->line),
                                 EVENT_END });
    free(collateral);
}

/* Writes how the job continues: with how many nodes, and whether it must wait for more nodes first. */
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
    char next[96], used[BUDGET_WORDS_BYTES], tries[sizeof used + 8] = "";

    describe_next(coordinator, next, sizeof next);
    if (!free_of_charge)
        snprintf(tries, sizeof tries, " (%s)",
                 budget_words(&coordinator->budget, coordinator_now_ns(coordinator), used));
    if (!coordinator->config->quiet)
        console_say(coordinator->services.console, "fsdprun: %s; starting again%s%s",
                    coordinator->line[0] != '\0' ? coordinator->line : "the nodes have changed", tries, next);
}

/*
 * Begins another generation. A failure counts as one of the restarts that the whole job may have. A change of
 * members in a world that may grow and shrink does not count (`free_of_charge`).
 */
static void begin_restart(struct coordinator *coordinator, bool free_of_charge)
{
    const int64_t window_s = coordinator->config->restart_window_ms / 1000;

    if (!free_of_charge)
        budget_take(&coordinator->budget, coordinator_now_ns(coordinator));
    coordinator_begin_timeline(coordinator, coordinator->generation + 1);
    coordinator_part(coordinator);
    say_restart(coordinator, free_of_charge);
    coordinator->line[0] = '\0';
    coordinator->generation++;
    coordinator_publish(coordinator);
    if (free_of_charge)
        coordinator_note(coordinator, "membership",
                         (struct events_field[]){ EVENT_INT("nodes", roster_n_present(&coordinator->roster)),
                                                  EVENT_INT("min_nodes", coordinator->roster.min_nodes),
                                                  EVENT_INT("max_nodes", coordinator->roster.max_nodes),
                                                  EVENT_END });
    else
        coordinator_note(coordinator, "restart",
                         (struct events_field[]){ EVENT_INT("restart", coordinator->budget.n_restarts),
                                                  EVENT_INT("max_restarts", coordinator->budget.most),
                                                  window_s > 0 ? EVENT_INT("window_s", window_s) : EVENT_END,
                                                  EVENT_END });
}

/*
 * Looks whether the run directory is still there, when a job has done all its steps, has failed to save, or
 * would start again. If the loop must not wait for a disk, it does not look: the regular look of
 * agent/run/run_directory.c does that.
 */
static bool is_without_directory(const struct coordinator *coordinator)
{
    const struct coordinator_services *services = &coordinator->services;

    return coordinator->config->job_json != NULL && services->disk == NULL && services->rundir != NULL &&
           rundir_is_gone(services->rundir);
}

static void lose_directory(struct coordinator *coordinator)
{
    coordinator->without_directory = coordinator->stop_now = true;
    coordinator->services.write_errors = NULL; /* errors.json has no place either */
}

static enum coordinator_event judge(struct coordinator *coordinator)
{
    struct verdict_run run = as_verdict_run(coordinator);
    struct verdict verdict;

    if (coordinator->deposed || coordinator->without_directory)
        return CE_DOWN_FINAL;
    coordinator_take_recurrence(coordinator, &run);
    verdict_reach(&run, &verdict);
    coordinator_take_divergence(coordinator, &run);
    if (verdict.failed)
        describe_failure(coordinator, &run, verdict.spent);
    else if (verdict.class != 0)
        coordinator_end_with(coordinator, verdict.status, verdict.class, verdict.words);
    if (verdict.event == CE_DOWN_RETRY && is_without_directory(coordinator)) {
        lose_directory(coordinator);
        return CE_DOWN_FINAL;
    }
    if (verdict.event == CE_DOWN_RETRY)
        begin_restart(coordinator, verdict.free_of_charge);
    else
        coordinator->status = verdict.status;
    return verdict.event;
}

void coordinator_judge_if_down(struct coordinator *coordinator)
{
    if (!coordinator_is_up(coordinator) || coordinator->n_up > 0)
        return;
    save_abandon(coordinator->save);
    /* the last worker is gone, so every value in the store is outdated */
    coordinator_close_store(coordinator);
    coordinator_post(coordinator, judge(coordinator));
}

/*
 * Writes the error report of the run. Returns whether the report has more than the line on the console. It
 * has not for a stop by a signal, a stop on notice, and a program that cannot be started.
 */
static bool write_errors(struct coordinator *coordinator)
{
    const struct coordinator_services *services = &coordinator->services;
    const struct verdict_run run = as_verdict_run(coordinator);
    struct errors_death *collateral = calloc(run.n_deaths + 1, sizeof *collateral);
    struct errors_report report;
    char *text;

    verdict_report(&run, coordinator->status, coordinator->end_class, coordinator->line, collateral, &report);
    text = errors_json(&report, clock_epoch_s());
    if (text != NULL)
        services->write_errors(services->write_errors_arg, text);
    else
        console_say(services->console, "fsdprun: no memory for errors.json");
    free(collateral);
    return report.class != ERRORS_STOPPED && report.class != ERRORS_NOTICE && report.class != ERRORS_EXEC;
}

int coordinator_too_late(int status, const char *line, char words[PROTO_WORDS_BYTES])
{
    if (status == 0)
        snprintf(words, PROTO_WORDS_BYTES, "the job is complete: this node came too late to take part");
    else
        snprintf(words, PROTO_WORDS_BYTES,
                 "the job ended with status %d before this node could take part%s%.400s", status,
                 line != NULL ? ": " : "", line != NULL ? line : "");
    return status == 0 ? 0 : FSDP_EXIT_PEER;
}

/*
 * Tells every node how the run ended, also nodes that only wait. This node is last, because its own member
 * then closes the connections to the others.
 */
static void tell_end(struct coordinator *coordinator, const struct coordinator_end *how)
{
    struct coordinator_end too_late = { .node = -1 };

    too_late.status = coordinator_too_late(coordinator->status, coordinator->line, too_late.line);
    for (int i = coordinator->roster.capacity - 1; i >= 0; i--)
        if (coordinator->nodes[i].tell != NULL && coordinator->roster.nodes[i].present)
            coordinator->nodes[i].tell(coordinator->nodes[i].member, PROTO_FINISH, coordinator->generation,
                                       coordinator->nodes[i].late ? &too_late : how);
}

static void end_without_directory(struct coordinator *coordinator)
{
    char line[COORDINATOR_LINE_BYTES];

    snprintf(
        line, sizeof line,
        "the run directory %.800s is gone: it was removed or renamed while the job ran, and nothing can be "
        "saved to it",
        rundir_path(coordinator->services.rundir));
    coordinator_end_with(coordinator, FSDP_EXIT_IO, ERRORS_IO, line);
}

static void end(struct coordinator *coordinator)
{
    struct coordinator_end how = { .node = -1 };

    coordinator_close_store(coordinator);
    coordinator_write_timeline(coordinator);
    if (coordinator->without_directory || (coordinator->status == 0 && is_without_directory(coordinator)))
        end_without_directory(coordinator);
    /* a signal stopped the run between two generations */
    if (coordinator->status == 0 && coordinator->stop_signal != 0) {
        struct verdict verdict;

        verdict_stopped(coordinator->stop_signal, &verdict);
        coordinator_end_with(coordinator, verdict.status, verdict.class, verdict.words);
    }
    if (coordinator->status == 0) {
        coordinator->line[0] = '\0';
        coordinator_passed(coordinator, (int64_t)coordinator->config->total_steps);
        if (coordinator->config->job_json != NULL && coordinator->world_size > 0)
            coordinator_note(coordinator, "complete", (struct events_field[]){ EVENT_END });
    } else if (coordinator->services.write_errors != NULL) {
        how.explained = write_errors(coordinator);
    }
    how.status = coordinator->status;
    memcpy(how.line, coordinator->line, sizeof how.line);
    if (coordinator->status != 0 && coordinator->end_class == 0 && coordinator->cause >= 0) {
        const struct death *cause = &coordinator->deaths[coordinator->cause];

        how.node = cause->node_rank;
        how.code = cause->kind == DEATH_SIGNAL ? -cause->code : cause->code;
        errors_detail_copy(&how.detail, &coordinator->detail);
    }
    coordinator_close_timer(coordinator);
    /* who was deposed leaves the directory to the leader after it */
    if (coordinator->has_formed && !coordinator->deposed && !coordinator->without_directory)
        save_end(coordinator->save);
    coordinator->mark = NULL; /* an answer of the disk would change nothing any more */
    tell_end(coordinator, &how);
}

/* The state machine */

static bool is_from_outside(enum coordinator_event event)
{
    return event == CE_FAILED || event == CE_STOP || event == CE_CHANGE;
}

static _Noreturn void stop_as_bug(struct coordinator *coordinator, enum coordinator_event event,
                                  const char *what)
{
    coordinator_end_with(coordinator, FSDP_EXIT_BUG, ERRORS_BUG, "a bug of fsdprun");
    if (coordinator->services.rundir != NULL)
        write_errors(coordinator);
    bug_stop("event %s %s, in state %s", coordinator_event_name(event), what,
             coordinator_state_name(coordinator->state));
}

void coordinator_post(struct coordinator *coordinator, enum coordinator_event event)
{
    for (int i = 0; i < coordinator->queue_n && is_from_outside(event); i++)
        if (coordinator->queue[(coordinator->queue_head + i) % COORDINATOR_QUEUE] == event)
            return;
    if (coordinator->queue_n == COORDINATOR_QUEUE)
        stop_as_bug(coordinator, event, "has no place in the queue");
    coordinator->queue[(coordinator->queue_head + coordinator->queue_n++) % COORDINATOR_QUEUE] = event;
}

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
        if (!coordinator_fsm_step(&coordinator->state, event, &action))
            stop_as_bug(coordinator, event, "came out of order");
        perform(coordinator, action);
    }
    coordinator->running = false;
}

/* Checkpoints that ranks saved */

static void on_published(void *arg, const struct fsdp_link_published *published, const char *directory,
                         uint64_t size_bytes, double seconds, double blocked_s)
{
    struct coordinator *coordinator = arg;

    timeline_saved(&coordinator->timeline, (int64_t)(blocked_s * 1e9));
    if (published->status == FSDP_OK)
        coordinator_note(
            coordinator, "checkpoint",
            (struct events_field[]){ EVENT_INT("step", published->step), EVENT_INT("bytes", size_bytes),
                                     EVENT_REAL("seconds", seconds), EVENT_REAL("blocked_s", blocked_s),
                                     directory[0] != '\0' ? EVENT_TEXT("directory", directory) : EVENT_END,
                                     EVENT_END });
    else {
        console_say(coordinator->services.console, "fsdprun: step %lld was not saved: %s",
                    (long long)published->step, published->words);
        coordinator_note(coordinator, "checkpoint_failed",
                         (struct events_field[]){
                             EVENT_INT("step", published->step), EVENT_TEXT("reason", published->words),
                             directory[0] != '\0' ? EVENT_TEXT("directory", directory) : EVENT_END,
                             EVENT_END });
    }
    if (published->status == FSDP_OK) {
        if (directory[0] == '\0')
            coordinator->progress.step = published->step;
        coordinator_passed(coordinator, published->step);
        coordinator_publish(coordinator);
    }
    coordinator_tell_all(coordinator, -1, PROTO_PUBLISHED, published);
    if (published->status != FSDP_OK && is_without_directory(coordinator))
        coordinator_lose_directory(coordinator);
}

static void on_save_line(void *arg, const char *words)
{
    struct coordinator *coordinator = arg;

    console_say(coordinator->services.console, "fsdprun: %s", words);
}

/* Signals from the user */

void coordinator_stop(struct coordinator *coordinator, int signal, bool now)
{
    const bool clearing = coordinator->state == CS_CLEARING;

    if (coordinator->stop_signal == 0)
        coordinator->stop_signal = signal;
    coordinator->stop_now = coordinator->stop_now || now;
    coordinator_post(coordinator, CE_STOP);
    coordinator_run(coordinator);
    if (clearing && now)
        /* the nodes are stopping already: tell them to skip the grace period */
        coordinator_clear(coordinator);
}

void coordinator_lose_directory(struct coordinator *coordinator)
{
    if (coordinator->without_directory || coordinator->state == CS_ENDED)
        return;
    lose_directory(coordinator);
    coordinator_post(coordinator, CE_STOP);
    coordinator_run(coordinator);
}

void coordinator_forward(struct coordinator *coordinator, int signal)
{
    if (coordinator->state == CS_UP) /* otherwise no worker runs, or all of them are being stopped */
        coordinator_tell_all(coordinator, -1, PROTO_FORWARD, &(struct proto_stop){ .signal = signal });
}

void coordinator_notice(struct coordinator *coordinator, int signal)
{
    char name[32];

    if (coordinator->notice_signal == 0 && coordinator->stop_signal == 0)
        coordinator_note(
            coordinator, "notice",
            (struct events_field[]){ EVENT_TEXT("signal", errors_signal_name(signal, name)), EVENT_END });
    if (coordinator->state != CS_UP) {
        /* No rank can complete and save a step now, so a save is not asked for. */
        coordinator_stop(coordinator, signal, false);
        return;
    }
    if (coordinator->notice_signal != 0)
        return; /* the ranks were asked already, and the grace period runs */
    coordinator->notice_signal = signal;
    coordinator_ask_to_leave(coordinator);
}

/* Creating and destroying */

/* Opens the roster and the state of each of its entries. A world of several nodes also gets a timer. */
static enum fsdp_status open_roster(struct coordinator *coordinator, struct fsdp_err *err)
{
    const struct coordinator_past *past = coordinator->services.past;
    struct proto_join self = *coordinator->services.self;

    if (past != NULL) {
        self.last_node_rank = past->node_rank;
        self.held = past->held;
    }
    OK_OR_RETURN(roster_init(&coordinator->roster, &self, "127.0.0.1", err));
    coordinator->nodes = calloc((size_t)coordinator->roster.capacity, sizeof *coordinator->nodes);
    if (coordinator->nodes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", coordinator->roster.capacity);
    for (int i = 0; i < coordinator->roster.capacity; i++)
        coordinator->nodes[i].coordinator = coordinator;
    if (self.n_nodes == 1)
        return FSDP_OK;
    coordinator->timer = calloc(1, sizeof *coordinator->timer);
    if (coordinator->timer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a timer");
    uv_timer_init(coordinator->services.loop, coordinator->timer);
    coordinator->timer->data = coordinator;
    return FSDP_OK;
}

static void end_spent(struct coordinator *coordinator)
{
    char line[COORDINATOR_LINE_BYTES] = "the node that led the job was lost, and no restart is left";

    coordinator_add_window(coordinator, line, sizeof line);
    coordinator_end_with(coordinator, FSDP_EXIT_LINK, ERRORS_NODE, line);
    coordinator_post(coordinator, CE_NEVER);
}

/*
 * Continues the run of a coordinator that was lost. That loss counts as the loss of a node: it costs a
 * restart, or a member. If no restart is left, the run ends as soon as there is a member that can be told.
 */
static void go_on(struct coordinator *coordinator, const struct coordinator_past *past)
{
    const struct leader_progress *progress = &past->progress;
    const int64_t now_ns = coordinator_now_ns(coordinator);

    coordinator->progress = *progress;
    coordinator->progress.n_nodes = 0; /* another one has formed that generation */
    coordinator->generation = progress->generation + 1;
    budget_continue(&coordinator->budget, (int)progress->n_restarts,
                    progress->n_restarts_left > INT_MAX ? INT_MAX : (int)progress->n_restarts_left,
                    progress->restarts_s, LEADER_RESTARTS, now_ns);
    roster_continue(&coordinator->roster, past->run, progress->generation >= 0);
    coordinator->took_over = true;
    coordinator->recurrence = (struct recurrence){ .kind = (enum death_kind)progress->failure.kind,
                                                   .code = progress->failure.code,
                                                   .phase = progress->failure.phase,
                                                   .step = progress->failure.step,
                                                   .n = (int)progress->failure.n };
    coordinator->diverged = progress->diverged;
    coordinator_await(coordinator, past);
    if (coordinator_is_elastic(coordinator))
        coordinator_take_suspects(coordinator, progress);
    if (progress->generation >= 0 && !coordinator_bears_loss(coordinator)) {
        end_spent(coordinator);
    } else if (progress->generation >= 0) {
        if (!coordinator_is_elastic(coordinator))
            budget_take(&coordinator->budget, now_ns);
        coordinator_continue_timeline(coordinator, past);
    }
    coordinator_note(
        coordinator, "takeover",
        (struct events_field[]){ EVENT_TEXT("host", coordinator->roster.nodes[COORDINATOR_SELF].who.host),
                                 EVENT_INT("restarts", coordinator->budget.n_restarts), EVENT_END });
}

static void free_all(struct coordinator *coordinator)
{
    coordinator_close_timer(coordinator);
    roster_fini(&coordinator->roster);
    coordinator_forget_arrivals(coordinator);
    quarantine_fini(&coordinator->quarantine);
    coordinator_forget_keys(coordinator);
    free(coordinator->nodes);
    free(coordinator->place.numbers);
    free(coordinator->away);
    free(coordinator->fenced);
    free(coordinator->awaited.came);
    free(coordinator->deaths);
    free(coordinator->hang);
    coordinator_hang_fini(coordinator);
    coordinator_pace_fini(coordinator);
    entries_destroy(coordinator->entries);
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
                                            .last_step = coordinator_last_step(config),
                                            .term = services->lead.term,
                                            .replaces = services->past != NULL,
                                            .directory = config->checkpoint_dir,
                                            .patience_ms = config->hang_timeout_ms };
    enum fsdp_status status;

    *out = NULL;
    if (coordinator == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    coordinator->config = config;
    coordinator->services = *services;
    coordinator->state = CS_GATHERING;
    budget_init(&coordinator->budget, config);
    coordinator->cause = coordinator->place.node = -1;
    coordinator->resume_step = coordinator->memory_step.step = -1;
    if (services->fence_ms > 0)
        coordinator->fenced_until_ms = coordinator_now_ms(coordinator) + (uint64_t)services->fence_ms;
    coordinator->progress.generation = -1;
    coordinator->progress.step = -1;
    status = open_roster(coordinator, err);
    if (status == FSDP_OK && services->past != NULL)
        go_on(coordinator, services->past);
    coordinator->services.past = NULL;
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
