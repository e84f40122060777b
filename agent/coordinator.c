#include "agent/coordinator.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/coordinator_fsm.h"
#include "agent/save.h"

enum { QUEUE_LENGTH = 256, LINE_BYTES = 1024, ADDRESS_BYTES = 256 };

struct node {
    const struct coordinator_member *ops;
    void *member;
    int n_workers;
    bool stopped, lost;
    char address[ADDRESS_BYTES];
};

struct coordinator {
    const struct agent_config *config;
    struct coordinator_services services;
    enum coordinator_state state;
    enum coordinator_event queue[QUEUE_LENGTH];
    int queue_head, queue_n;
    bool running;

    int generation, n_restarts, world_size;
    int64_t resume_step;
    struct save *save;

    /* Of the generation that runs or just ran. */
    struct death *deaths;
    size_t n_deaths, deaths_capacity;
    int cause;               /* index of the first cause in `deaths`; -1: none */
    struct errors_tail tail; /* of that rank */

    int stop_signal, notice_signal; /* 0: none */
    bool stop_now;
    int status;
    enum errors_class end_class;  /* what ended the run where it is not a death; 0: a death did */
    char line[LINE_BYTES];
    int n_nodes;
    struct node nodes[];
};

static void run(struct coordinator *coordinator);

static void post(struct coordinator *coordinator, enum coordinator_event event)
{
    if (coordinator->queue_n == QUEUE_LENGTH)
        return; /* cannot be: run() follows each report */
    coordinator->queue[(coordinator->queue_head + coordinator->queue_n++) % QUEUE_LENGTH] = event;
}

static void record(struct coordinator *coordinator, const char *event, const struct events_field *fields)
{
    struct fsdp_err err = { 0 };

    if (coordinator->services.events != NULL)
        events_emit(coordinator->services.events, coordinator->generation, event, fields, &err);
}

/* --- forming ------------------------------------------------------------------------------------------------------ */

static void gather(struct coordinator *coordinator)
{
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (coordinator->nodes[i].ops == NULL || coordinator->nodes[i].lost)
            return;
    post(coordinator, CE_GATHERED);
}

static void end_with(struct coordinator *coordinator, int status, enum errors_class class, const char *words)
{
    coordinator->status = status;
    coordinator->end_class = class;
    snprintf(coordinator->line, sizeof coordinator->line, "%s", words);
}

static int status_of_checkpoint_error(enum fsdp_status status)
{
    switch (status) {
    case FSDP_ERR_FORMAT:
    case FSDP_ERR_NOT_FOUND:
    case FSDP_ERR_MISMATCH:
    case FSDP_ERR_UNSUPPORTED:
        return FSDP_EXIT_INPUT;
    case FSDP_ERR_IO:
        return FSDP_EXIT_IO;
    default:
        return FSDP_EXIT_BUG;
    }
}

static void on_prepared(void *arg, int64_t step, const struct fsdp_err *err)
{
    struct coordinator *coordinator = arg;
    const struct agent_config *config = coordinator->config;
    const bool job = config->job_json != NULL;
    char words[LINE_BYTES];

    coordinator->resume_step = step;
    if (coordinator->state == CS_ENDED) {
        post(coordinator, CE_PREPARED);
    } else if (err->status != FSDP_OK) {
        snprintf(words, sizeof words, "no checkpoint to go on from: %s", err->message);
        end_with(coordinator, status_of_checkpoint_error(err->status), ERRORS_IO, words);
        post(coordinator, CE_REFUSED);
    } else if (job && coordinator->generation == 0 && step >= 0 && config->resume_never) {
        snprintf(words, sizeof words, "%s has a checkpoint of step %lld, and checkpoint.resume is never",
                 config->run_dir, (long long)step);
        end_with(coordinator, FSDP_EXIT_CONFIG, ERRORS_CONFIG, words);
        post(coordinator, CE_REFUSED);
    } else if (job && coordinator->generation == 0 && step >= 0 && (uint64_t)step >= config->total_steps) {
        if (!config->quiet)
            console_say(coordinator->services.console, "fsdprun: %s is complete: it has its %llu steps", config->run_dir,
                        (unsigned long long)config->total_steps);
        end_with(coordinator, 0, 0, "");
        post(coordinator, CE_REFUSED);
    } else {
        post(coordinator, CE_PREPARED);
    }
    run(coordinator);
}

/* A port that is free now. Another process may take it before rank 0 does: then the world fails and gets a new one. */
static int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;

    if (fd < 0)
        return 0;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

static void fill_random(unsigned char *bytes, size_t size)
{
    size_t filled = 0;

    while (filled < size) {
        ssize_t n = getrandom(bytes + filled, size - filled, 0);

        if (n > 0)
            filled += (size_t)n;
        else if (errno != EINTR)
            abort(); /* a key that is not random is worse than none */
    }
}

static void form(struct coordinator *coordinator)
{
    struct world_plan plan = { .generation = coordinator->generation, .restart_count = coordinator->n_restarts,
                               .n_nodes = coordinator->n_nodes, .resume_step = coordinator->resume_step };
    int first_rank = 0;

    for (int i = 0; i < coordinator->n_nodes; i++)
        plan.world_size += coordinator->nodes[i].n_workers;
    coordinator->world_size = plan.world_size;
    coordinator->n_deaths = 0;
    coordinator->cause = -1;
    snprintf(plan.master_address, sizeof plan.master_address, "%s",
             coordinator->config->master_address != NULL ? coordinator->config->master_address
                                                         : coordinator->nodes[0].address);
    plan.master_port = coordinator->config->master_port != 0 ? coordinator->config->master_port : free_port();
    fill_random(plan.token, sizeof plan.token);
    save_begin(coordinator->save, (uint32_t)plan.generation, plan.world_size, plan.resume_step);
    for (int i = 0; i < coordinator->n_nodes; i++)
        coordinator->nodes[i].stopped = false;
    for (int i = 0; i < coordinator->n_nodes; i++) {
        struct node *node = &coordinator->nodes[i];

        plan.node_rank = i;
        plan.first_rank = first_rank;
        snprintf(plan.node_address, sizeof plan.node_address, "%s", node->address);
        first_rank += node->n_workers;
        node->ops->form(node->member, &plan);
    }
}

static void clear(struct coordinator *coordinator)
{
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (!coordinator->nodes[i].lost)
            coordinator->nodes[i].ops->stop(coordinator->nodes[i].member, coordinator->stop_now);
}

/* --- the verdict -------------------------------------------------------------------------------------------------- */

static enum errors_class class_of(const struct death *death)
{
    switch (death->kind) {
    case DEATH_SIGNAL:
        return ERRORS_SIGNAL;
    case DEATH_SPAWN:
        return death->code == FSDP_EXIT_PEER ? ERRORS_WORLD : ERRORS_EXEC;
    case DEATH_HANG:
        return ERRORS_HANG;
    case DEATH_NODE:
        return ERRORS_NODE;
    case DEATH_NONE:
    case DEATH_EXIT:
        break;
    }
    return ERRORS_EXIT;
}

static struct errors_death as_errors_death(const struct death *death)
{
    const bool exited = death->kind == DEATH_EXIT || death->kind == DEATH_SPAWN;

    return (struct errors_death){ .rank = death->rank, .local_rank = death->local_rank, .host = death->host,
                                  .pid = death->pid, .exit_code = exited ? death->code : -1,
                                  .signal = death->kind == DEATH_SIGNAL ? death->code : 0 };
}

/* Everything about the end of the run, or of one generation of it. `collateral` has room for all deaths. */
static void make_report(const struct coordinator *coordinator, int status, enum errors_class class,
                        struct errors_death *collateral, struct errors_report *report)
{
    *report = (struct errors_report){ .class = class, .status = status, .generation = coordinator->generation,
                                      .step = -1, .cause = { .rank = -1, .local_rank = -1, .exit_code = -1 },
                                      .message = class != 0 && coordinator->line[0] != '\0' ? coordinator->line : NULL,
                                      .collateral = collateral };
    if (class == 0) {
        const struct death *cause = &coordinator->deaths[coordinator->cause];

        report->class = class_of(cause);
        report->cause = as_errors_death(cause);
        report->phase = first_cause_phase_name(cause->phase);
        report->step = cause->step;
        report->message = cause->words[0] != '\0' ? cause->words : NULL;
        report->tail = coordinator->tail.n_lines > 0 ? &coordinator->tail : NULL;
    }
    for (size_t i = 0; collateral != NULL && i < coordinator->n_deaths; i++)
        if (coordinator->deaths[i].kind != DEATH_NONE &&
            (class != 0 || ((int)i != coordinator->cause && coordinator->deaths[i].rank != report->cause.rank)))
            collateral[report->n_collateral++] = as_errors_death(&coordinator->deaths[i]);
}

static void describe_failure(struct coordinator *coordinator)
{
    const struct death *cause = &coordinator->deaths[coordinator->cause];
    struct errors_death *collateral = calloc(coordinator->n_deaths, sizeof *collateral);
    struct errors_report report;

    coordinator->end_class = 0;
    make_report(coordinator, first_cause_status(cause), 0, collateral, &report);
    errors_line(&report, coordinator->line, sizeof coordinator->line);
    record(coordinator, "failure",
           (struct events_field[]){ EVENT_TEXT("class", errors_class_name(report.class)),
                                    EVENT_INT("rank", cause->rank), EVENT_INT("pid", cause->pid),
                                    EVENT_INT(cause->kind == DEATH_SIGNAL ? "signal" : "code", cause->code),
                                    EVENT_INT("status", report.status), EVENT_TEXT("words", coordinator->line),
                                    EVENT_END });
    free(collateral);
}

/* 128 + n after a signal, unless the run had failed for good before it came. */
static enum coordinator_event judge_stopped(struct coordinator *coordinator, const struct death *cause)
{
    const int signal = coordinator->stop_signal != 0 ? coordinator->stop_signal : coordinator->notice_signal;
    char words[LINE_BYTES];

    if (coordinator->stop_signal == 0 && cause == NULL) {
        bool all_done = true;

        for (size_t i = 0; i < coordinator->n_deaths; i++)
            all_done = all_done && coordinator->deaths[i].code == 0;
        if (all_done)
            return CE_DOWN_OK;
        end_with(coordinator, FSDP_EXIT_NOTICE, ERRORS_NOTICE, "stopped on notice after saving; run again to go on");
        return CE_DOWN_FINAL;
    }
    if (cause != NULL && !first_cause_is_consequence(cause) && coordinator->stop_signal == 0) {
        coordinator->status = first_cause_status(cause);
        describe_failure(coordinator);
        return CE_DOWN_FINAL;
    }
    snprintf(words, sizeof words, "stopped by SIG%s", sigabbrev_np(signal));
    end_with(coordinator, 128 + signal, ERRORS_STOPPED, words);
    return CE_DOWN_FINAL;
}

static enum coordinator_event judge(struct coordinator *coordinator)
{
    const struct death *cause = coordinator->cause >= 0 ? &coordinator->deaths[coordinator->cause] : NULL;
    const bool job = coordinator->config->job_json != NULL;
    bool final;

    if (cause == NULL && coordinator->stop_signal == 0 && coordinator->notice_signal == 0) {
        coordinator->status = 0;
        return CE_DOWN_OK;
    }
    final = cause != NULL && !first_cause_is_consequence(cause) &&
            (first_cause_is_final(cause, job) || coordinator->n_restarts >= coordinator->config->max_restarts);
    if ((coordinator->stop_signal != 0 || coordinator->notice_signal != 0) && !final)
        return judge_stopped(coordinator, cause);
    describe_failure(coordinator);
    if (final || coordinator->n_restarts >= coordinator->config->max_restarts) {
        coordinator->status = first_cause_status(cause);
        return CE_DOWN_FINAL;
    }
    coordinator->n_restarts++;
    if (!coordinator->config->quiet)
        console_say(coordinator->services.console, "fsdprun: %s; starting again (%d of %d)", coordinator->line,
                    coordinator->n_restarts, coordinator->config->max_restarts);
    coordinator->line[0] = '\0';
    coordinator->generation++;
    record(coordinator, "restart",
           (struct events_field[]){ EVENT_INT("restart", coordinator->n_restarts),
                                    EVENT_INT("max_restarts", coordinator->config->max_restarts), EVENT_END });
    return CE_DOWN_RETRY;
}

static void judge_if_down(struct coordinator *coordinator)
{
    if (coordinator->state != CS_UP && coordinator->state != CS_CLEARING)
        return;
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (!coordinator->nodes[i].stopped && !coordinator->nodes[i].lost)
            return;
    save_abandon(coordinator->save);
    post(coordinator, judge(coordinator));
}

static void write_errors(struct coordinator *coordinator)
{
    struct errors_death *collateral = calloc(coordinator->n_deaths + 1, sizeof *collateral);
    struct errors_report report;
    struct fsdp_err err = { 0 };

    make_report(coordinator, coordinator->status, coordinator->end_class, collateral, &report);
    if (errors_write(coordinator->services.rundir, &report, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: %s", err.message);
    free(collateral);
}

static void end(struct coordinator *coordinator)
{
    if (coordinator->status == 0 && coordinator->stop_signal != 0) { /* between two generations */
        char words[64];

        snprintf(words, sizeof words, "stopped by SIG%s", sigabbrev_np(coordinator->stop_signal));
        end_with(coordinator, 128 + coordinator->stop_signal, ERRORS_STOPPED, words);
    }
    if (coordinator->status == 0) {
        coordinator->line[0] = '\0';
        if (coordinator->config->job_json != NULL && coordinator->world_size > 0)
            record(coordinator, "complete", (struct events_field[]){ EVENT_END });
    } else if (coordinator->services.rundir != NULL) {
        write_errors(coordinator);
    }
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (coordinator->nodes[i].ops != NULL && !coordinator->nodes[i].lost)
            coordinator->nodes[i].ops->finish(coordinator->nodes[i].member, coordinator->status, coordinator->line);
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

static void perform(struct coordinator *coordinator, enum coordinator_action action)
{
    switch (action) {
    case CA_NONE:
        if (coordinator->state == CS_GATHERING)
            gather(coordinator);
        return;
    case CA_PREPARE:
        save_prepare(coordinator->save, on_prepared, coordinator);
        return;
    case CA_FORM:
        form(coordinator);
        return;
    case CA_CLEAR:
        clear(coordinator);
        return;
    case CA_END:
        end(coordinator);
        return;
    case CA_UNSET:
    case CA_COUNT:
        break;
    }
}

static void run(struct coordinator *coordinator)
{
    if (coordinator->running)
        return;
    coordinator->running = true;
    while (coordinator->queue_n > 0) {
        enum coordinator_event event = coordinator->queue[coordinator->queue_head];
        enum coordinator_action action;

        coordinator->queue_head = (coordinator->queue_head + 1) % QUEUE_LENGTH;
        coordinator->queue_n--;
        if (!coordinator_fsm_step(&coordinator->state, event, &action)) {
            console_say(coordinator->services.console, "fsdprun: bug: event %s in state %s; stopping",
                        coordinator_event_name(event), coordinator_state_name(coordinator->state));
            end_with(coordinator, FSDP_EXIT_BUG, ERRORS_BUG, "a bug of fsdprun");
            coordinator->state = CS_ENDED;
            action = CA_END;
        }
        perform(coordinator, action);
    }
    coordinator->running = false;
}

/* --- saves -------------------------------------------------------------------------------------------------------- */

static void on_published(void *arg, const struct fsdp_link_published *published, uint64_t size_bytes, double seconds)
{
    struct coordinator *coordinator = arg;

    if (published->status == FSDP_OK)
        record(coordinator, "checkpoint",
               (struct events_field[]){ EVENT_INT("step", published->step), EVENT_INT("bytes", size_bytes),
                                        EVENT_REAL("seconds", seconds), EVENT_END });
    else
        console_say(coordinator->services.console, "fsdprun: step %lld was not saved: %s", (long long)published->step,
                    published->words);
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (coordinator->nodes[i].ops != NULL && !coordinator->nodes[i].lost)
            coordinator->nodes[i].ops->publish(coordinator->nodes[i].member, published);
}

static void on_save_line(void *arg, const char *words)
{
    struct coordinator *coordinator = arg;

    console_say(coordinator->services.console, "fsdprun: %s", words);
}

void coordinator_saved(struct coordinator *coordinator, int node, int generation, int rank,
                       const struct fsdp_link_saved *saved, int manifest_fd)
{
    (void)node;
    save_take(coordinator->save, (uint32_t)generation, rank, saved, manifest_fd);
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

static bool is_current(const struct coordinator *coordinator, int generation)
{
    return generation == coordinator->generation && (coordinator->state == CS_UP || coordinator->state == CS_CLEARING);
}

static bool add_death(struct coordinator *coordinator, const struct death *death)
{
    if (coordinator->n_deaths == coordinator->deaths_capacity) {
        size_t capacity = coordinator->deaths_capacity == 0 ? 16 : coordinator->deaths_capacity * 2;
        struct death *deaths = realloc(coordinator->deaths, capacity * sizeof *deaths);

        if (deaths == NULL)
            return false;
        coordinator->deaths = deaths;
        coordinator->deaths_capacity = capacity;
    }
    coordinator->deaths[coordinator->n_deaths++] = *death;
    return true;
}

void coordinator_exited(struct coordinator *coordinator, int node, int generation, const struct death *death,
                        const struct errors_tail *tail)
{
    int cause;

    if (!is_current(coordinator, generation) || !add_death(coordinator, death))
        return;
    coordinator->deaths[coordinator->n_deaths - 1].node_rank = node;
    cause = first_cause_find(coordinator->deaths, coordinator->n_deaths);
    if (cause != coordinator->cause) {
        coordinator->cause = cause;
        coordinator->tail.n_lines = 0;
        if (tail != NULL) {
            coordinator->tail = *tail;
            /* The lines point into the bytes of the struct they came in. */
            for (int i = 0; i < tail->n_lines; i++)
                coordinator->tail.lines[i] = coordinator->tail.bytes + (tail->lines[i] - tail->bytes);
        }
    }
    if (death->kind != DEATH_NONE && !first_cause_is_consequence(death)) {
        post(coordinator, CE_FAILED);
        run(coordinator);
    }
}

void coordinator_stopped(struct coordinator *coordinator, int node, int generation)
{
    if (!is_current(coordinator, generation))
        return;
    coordinator->nodes[node].stopped = true;
    judge_if_down(coordinator);
    run(coordinator);
}

void coordinator_lost(struct coordinator *coordinator, int node, const char *words)
{
    struct death death = { .kind = DEATH_NODE, .rank = -1, .local_rank = -1, .node_rank = node, .step = -1,
                           .phase = -1, .when_ns = coordinator->services.os->now_ns(coordinator->services.os->arg) };

    if (coordinator->nodes[node].lost)
        return;
    coordinator->nodes[node].lost = true;
    snprintf(death.host, sizeof death.host, "%.64s", coordinator->nodes[node].address);
    snprintf(death.words, sizeof death.words, "node %d: %.200s", node, words);
    if (coordinator->state == CS_UP || coordinator->state == CS_CLEARING) {
        if (add_death(coordinator, &death))
            coordinator->cause = first_cause_find(coordinator->deaths, coordinator->n_deaths);
        post(coordinator, CE_FAILED);
        run(coordinator);
        judge_if_down(coordinator);
    } else if (coordinator->state != CS_ENDED) {
        end_with(coordinator, FSDP_EXIT_LINK, ERRORS_NODE, death.words);
        post(coordinator, coordinator->state == CS_GATHERING ? CE_NEVER : CE_REFUSED);
    }
    run(coordinator);
}

void coordinator_event(struct coordinator *coordinator, int node, int generation, int rank, const char *json,
                       size_t length)
{
    struct fsdp_err err = { 0 };

    (void)node;
    if (coordinator->services.events != NULL &&
        events_relay(coordinator->services.events, generation, rank, json, length, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: an event of rank %d was dropped: %s", rank, err.message);
}

void coordinator_record(struct coordinator *coordinator, int node, int generation, const char *event,
                        const struct events_field *fields)
{
    struct fsdp_err err = { 0 };

    (void)node;
    if (coordinator->services.events != NULL)
        events_emit(coordinator->services.events, generation, event, fields, &err);
}

void coordinator_put(struct coordinator *coordinator, int node, int generation, const char *key, const void *value,
                     size_t size_bytes)
{
    if (!is_current(coordinator, generation))
        return;
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (i != node && !coordinator->nodes[i].lost)
            coordinator->nodes[i].ops->put(coordinator->nodes[i].member, generation, key, value, size_bytes);
}

/* --- from the user ------------------------------------------------------------------------------------------------ */

void coordinator_stop(struct coordinator *coordinator, int signal, bool now)
{
    if (coordinator->stop_signal == 0)
        coordinator->stop_signal = signal;
    coordinator->stop_now = coordinator->stop_now || now;
    if (coordinator->state == CS_UP || coordinator->state == CS_CLEARING) {
        bool again = coordinator->state == CS_CLEARING;

        post(coordinator, CE_STOP);
        run(coordinator);
        if (again && now)
            clear(coordinator); /* they are stopping already: now without the grace */
        return;
    }
    post(coordinator, CE_STOP);
    run(coordinator);
}

void coordinator_notice(struct coordinator *coordinator, int signal)
{
    const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_SAVE_AND_STOP, .stop_after_step = -1 };

    if (coordinator->state != CS_UP) {
        /* No step to finish: what is published already is all there is. */
        coordinator_stop(coordinator, signal, false);
        return;
    }
    if (coordinator->notice_signal != 0)
        return; /* asked already; the grace runs */
    coordinator->notice_signal = signal;
    for (int i = 0; i < coordinator->n_nodes; i++)
        if (!coordinator->nodes[i].lost)
            coordinator->nodes[i].ops->notify(coordinator->nodes[i].member, &notice);
}

void coordinator_attach(struct coordinator *coordinator, int node, const struct coordinator_member *ops,
                        void *member, int n_workers, const char *address)
{
    struct node *at = &coordinator->nodes[node];

    at->ops = ops;
    at->member = member;
    at->n_workers = n_workers;
    at->stopped = true;
    snprintf(at->address, sizeof at->address, "%s", address);
    if (coordinator->state == CS_GATHERING)
        gather(coordinator);
    run(coordinator);
}

void coordinator_refused(struct coordinator *coordinator, int status, const char *words)
{
    end_with(coordinator, status, ERRORS_WORLD, words);
    post(coordinator, CE_NEVER);
    run(coordinator);
}

enum fsdp_status coordinator_create(struct coordinator **out, const struct agent_config *config,
                                    const struct coordinator_services *services, struct fsdp_err *err)
{
    struct coordinator *coordinator =
        calloc(1, sizeof *coordinator + (size_t)config->n_nodes * sizeof *coordinator->nodes);
    const struct save_handlers handlers = { .arg = coordinator, .published = on_published, .line = on_save_line };
    enum fsdp_status status;

    *out = NULL;
    if (coordinator == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    coordinator->config = config;
    coordinator->services = *services;
    coordinator->n_nodes = config->n_nodes;
    coordinator->state = CS_GATHERING;
    coordinator->cause = -1;
    coordinator->resume_step = -1;
    status = save_create(&coordinator->save, services->loop, services->io,
                         services->rundir == NULL ? NULL : rundir_path(services->rundir), &handlers, err);
    if (status != FSDP_OK) {
        free(coordinator);
        return status;
    }
    *out = coordinator;
    return FSDP_OK;
}

const struct errors_tail *coordinator_tail(const struct coordinator *coordinator)
{
    return coordinator->end_class == 0 && coordinator->tail.n_lines > 0 ? &coordinator->tail : NULL;
}

bool coordinator_destroy(struct coordinator *coordinator)
{
    if (coordinator == NULL)
        return true;
    if (!save_idle(coordinator->save))
        return false;
    save_destroy(coordinator->save);
    free(coordinator->deaths);
    free(coordinator);
    return true;
}
