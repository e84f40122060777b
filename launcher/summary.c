#include "launcher/summary.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"

enum { CAUSE_BYTES = 1 << 20 };

/* Limits for the numbers in an event. */
static const double MOST_STEPS = 9e15, MOST_S = 1e9;

enum fsdp_status summary_check_path(const char *path, struct fsdp_err *err)
{
    char folder[PATH_MAX];
    struct stat stat_of;
    int error = 0;

    if (path == NULL)
        return FSDP_OK;
    snprintf(folder, sizeof folder, "%s", path);
    if (stat(path, &stat_of) == 0)
        error = S_ISDIR(stat_of.st_mode) ? EISDIR : access(path, W_OK) < 0 ? errno : 0;
    else if (errno != ENOENT || access(dirname(folder), W_OK | X_OK) < 0)
        error = errno;
    return error == 0 ? FSDP_OK
                      : fsdp_fail(err, FSDP_ERR_CONFIG, "--summary: %s cannot be written: %s", path,
                                  strerror(error));
}

struct summary *summary_create(const struct agent_config *config)
{
    struct summary *summary =
        mmap(NULL, sizeof *summary, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (summary == MAP_FAILED)
        return NULL;
    summary_init(summary, config, clock_now_ms());
    return summary;
}

void summary_init(struct summary *summary, const struct agent_config *config, int64_t now_ms)
{
    *summary = (struct summary){ .config = config,
                                 .phase = config->n_nodes > 1 ? SUMMARY_WAITING : SUMMARY_STARTING,
                                 .began_ms = now_ms,
                                 .since_ms = now_ms,
                                 .began_s = (int64_t)time(NULL) };
}

static void begin_phase(struct summary *summary, enum summary_phase phase, int64_t at_ms)
{
    const int64_t passed_ms = at_ms - summary->since_ms;
    /*
     * a save may be reported after the failure that ended the phase, so it counts for the phase's time at
     * most
     */
    const int64_t saved_ms = summary->saving_us / 1000,
                  saving_ms = saved_ms < passed_ms ? saved_ms : passed_ms;

    summary->spent_ms[summary->phase] += passed_ms - saving_ms;
    summary->spent_ms[SUMMARY_SAVING] += saving_ms;
    summary->saving_us = 0;
    summary->phase = phase;
    summary->since_ms = at_ms;
}

static void take_spawn(struct summary *summary, const cJSON *event, int64_t now_ms)
{
    const cJSON *generation = cJSON_GetObjectItemCaseSensitive(event, "generation");

    if (cJSON_IsNumber(generation) && generation->valueint >= summary->generations)
        summary->generations = generation->valueint + 1;
    if (summary->phase == SUMMARY_WAITING)
        begin_phase(summary, SUMMARY_STARTING, now_ms);
    if (summary->config->job_json == NULL)
        begin_phase(summary, SUMMARY_TRAINING, now_ms);
}

static void take_exit(struct summary *summary, const cJSON *event, int64_t now_ms)
{
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(event, "code");

    if (summary->failed_ms == 0 && (!cJSON_IsNumber(code) || code->valueint != 0))
        summary->failed_ms = now_ms;
}

/*
 * Begins the phase of the restart at the time of the failure. Only the restart shows that this time was lost:
 * without one, the same failure would have been the end of the run.
 */
static void take_restart(struct summary *summary, int64_t now_ms)
{
    /*
     * Another rank's first step may be reported after the failure. The time of a phase must not be negative.
     */
    const int64_t failed_ms = summary->failed_ms > summary->since_ms ? summary->failed_ms : summary->since_ms;

    begin_phase(summary, SUMMARY_RESTARTING, summary->failed_ms != 0 ? failed_ms : now_ms);
    summary->failed_ms = 0;
    summary->n_trained += summary->reached - summary->from;
    summary->from = summary->reached = 0;
}

/*
 * Returns the number that `event` has as `key`, if it is from 0 to `most`, and otherwise 0. A worker can
 * write any value into its events, so nothing is assumed.
 */
static double number(const cJSON *event, const char *key, double most)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);

    if (!cJSON_IsNumber(value) || !(value->valuedouble > 0))
        return 0;
    return value->valuedouble < most ? value->valuedouble : 0;
}

static void take_save(struct summary *summary, const cJSON *event)
{
    const double blocked_s = number(event, "blocked_s", MOST_S);

    summary->n_saves++;
    summary->saved = true;
    summary->saved_step = (uint64_t)number(event, "step", MOST_STEPS);
    summary->save_s += blocked_s;
    if (summary->phase == SUMMARY_TRAINING)
        /* kept in microseconds: many saves take less than a millisecond */
        summary->saving_us += (int64_t)(blocked_s * 1e6);
}

static void take_timeline(struct summary *summary, const cJSON *event)
{
    summary->n_repeated += (uint64_t)number(event, "lost_steps", MOST_STEPS);
    summary->repeated_s += number(event, "lost_s", MOST_S);
}

/*
 * Begins the summary again: this node leads from now on, and has not seen what happened before. The loss of
 * the leader before it counts as a failure.
 */
static void take_over(struct summary *summary, const cJSON *event, int64_t now_ms)
{
    *summary = (struct summary){ .config = summary->config,
                                 .phase = SUMMARY_RESTARTING,
                                 .began_ms = now_ms,
                                 .since_ms = now_ms,
                                 .began_s = summary->began_s,
                                 .restarts = (int)number(event, "restarts", INT_MAX),
                                 .n_failures = 1 };
}

static void take_first_step(struct summary *summary, const cJSON *event, int64_t now_ms)
{
    begin_phase(summary, SUMMARY_TRAINING, now_ms);
    summary->has_trained = true;
    summary->from = summary->reached = (uint64_t)number(event, "step", MOST_STEPS);
}

static void take_notice(struct summary *summary, const cJSON *event)
{
    const char *signal = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "signal"));

    if (signal != NULL)
        summary->notice = strcmp(signal, "SIGUSR1") == 0   ? SIGUSR1
                          : strcmp(signal, "SIGTERM") == 0 ? SIGTERM
                                                           : 0;
}

void summary_event(struct summary *summary, const char *line, int64_t now_ms)
{
    cJSON *event = json_parse_object(line, strlen(line));
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "event"));

    if (name == NULL)
        name = "";
    if (strcmp(name, "spawn") == 0)
        take_spawn(summary, event, now_ms);
    else if (strcmp(name, "exit") == 0)
        take_exit(summary, event, now_ms);
    else if (strcmp(name, "restart") == 0 || strcmp(name, "membership") == 0)
        take_restart(summary, now_ms);
    else if (strcmp(name, "takeover") == 0)
        take_over(summary, event, now_ms);
    else if (strcmp(name, "first_step") == 0)
        take_first_step(summary, event, now_ms);
    else if (strcmp(name, "checkpoint") == 0)
        take_save(summary, event);
    else if (strcmp(name, "timeline") == 0)
        take_timeline(summary, event);
    else if (strcmp(name, "notice") == 0)
        take_notice(summary, event);
    else if (strcmp(name, "complete") == 0)
        summary_steps(summary, summary->config->total_steps);
    summary->restarts += strcmp(name, "restart") == 0;
    summary->n_failures += strcmp(name, "failure") == 0;
    if (strcmp(name, "first_step") == 0 || strcmp(name, "checkpoint") == 0)
        summary_steps(summary, (uint64_t)number(event, "step", MOST_STEPS));
    cJSON_Delete(event);
}

void summary_steps(struct summary *summary, uint64_t steps)
{
    if (steps > summary->steps)
        summary->steps = steps;
    if (summary->from > 0 && steps > summary->reached)
        summary->reached = steps;
}

void summary_progress(struct summary *summary, const struct agent_progress *progress, int64_t now_ms)
{
    const bool goes_on = summary->rate_at_ms != 0 && progress->generation == summary->rate_generation &&
                         progress->tokens >= summary->rate_at;

    summary_steps(summary, progress->step);
    if (progress->tokens == 0 || progress->n_live == 0)
        return;
    if (goes_on && progress->tokens == summary->rate_at)
        return; /* the time counts only once the next step is done */
    if (goes_on) {
        summary->rate_tokens += progress->tokens - summary->rate_at;
        summary->rate_ms += now_ms - summary->rate_at_ms;
    }
    summary->rate_generation = progress->generation;
    summary->rate_at = progress->tokens;
    summary->rate_at_ms = now_ms;
}

double summary_tokens_per_s(const struct summary *summary)
{
    return summary->rate_ms > 0 ? (double)summary->rate_tokens * 1e3 / (double)summary->rate_ms : 0;
}

struct cost summary_cost(const struct summary *summary, int64_t now_ms)
{
    struct summary ended = *summary;
    uint64_t n_steps;

    begin_phase(&ended, ended.phase, now_ms);
    n_steps = ended.n_trained + ended.reached - ended.from;
    return (struct cost){
        .seconds = (double)(now_ms - ended.began_ms) * 1e-3,
        .waiting_s = (double)ended.spent_ms[SUMMARY_WAITING] * 1e-3,
        .starting_s = (double)ended.spent_ms[SUMMARY_STARTING] * 1e-3,
        .training_s = (double)ended.spent_ms[SUMMARY_TRAINING] * 1e-3,
        .saving_s = (double)ended.spent_ms[SUMMARY_SAVING] * 1e-3,
        .restarting_s = (double)ended.spent_ms[SUMMARY_RESTARTING] * 1e-3,
        .repeated_s = ended.repeated_s,
        .step_s = n_steps > 0 ? (double)ended.spent_ms[SUMMARY_TRAINING] * 1e-3 / (double)n_steps : 0,
        .save_s = ended.n_saves > 0 ? ended.save_s / ended.n_saves : 0,
        .n_restarts = ended.generations > 0 ? ended.generations - 1 : 0,
        .n_failures = ended.n_failures,
    };
}

/*
 * Returns the cause in errors.json, which the caller frees. NULL: this run has written none. The file may be
 * of an earlier run in the same directory, so its time is compared.
 */
static char *read_cause(const struct summary *summary)
{
    const char *run_dir = summary->config->run_dir;
    char path[PATH_MAX + 16], *text = NULL, *cause = NULL;
    size_t length;
    cJSON *errors;
    int fd = -1;

    if (run_dir != NULL && snprintf(path, sizeof path, "%s/errors.json", run_dir) < (int)sizeof path)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (file_read(fd, CAUSE_BYTES, &text, &length) == FSDP_OK) {
        errors = json_parse_object(text, length);
        if (cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(errors, "time")) >=
            (double)summary->began_s)
            cause = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(errors, "cause"));
        cJSON_Delete(errors);
    }
    close(fd);
    free(text);
    return cause;
}

static void add_seconds(struct json_text *text, const char *key, int64_t ms)
{
    json_field(text, key, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

static void add_cost(const struct summary *summary, int64_t now_ms, struct json_text *text)
{
    const struct cost cost = summary_cost(summary, now_ms);
    const struct cost_advice advice = cost_advise(&cost);

    json_field(text, "saves", "%d", summary->n_saves);
    json_field(text, "failures", "%d", summary->n_failures);
    json_field_real(text, "effective", "%.4f", cost_effective(&cost));
    if (!advice.known) {
        json_field(text, "advice", "null");
        return;
    }
    json_open(text, "advice", '{');
    json_field(text, "every_steps", "%" PRIu64, advice.every_steps);
    json_field_real(text, "save_s", "%.3f", cost.save_s);
    json_field_real(text, "between_failures_s", "%.3f", advice.between_failures_s);
    json_close(text, '}');
}

void summary_add(const struct summary *summary, int status, int64_t now_ms, struct json_text *text)
{
    static const char *const names[SUMMARY_N_PHASES] = {
        [SUMMARY_WAITING] = "waiting", [SUMMARY_STARTING] = "starting",     [SUMMARY_TRAINING] = "training",
        [SUMMARY_SAVING] = "saving",   [SUMMARY_RESTARTING] = "restarting",
    };
    const struct agent_config *config = summary->config;
    /* If the run never began, errors.json in its directory may be another run's, so it is not read. */
    char *cause = status != 0 && summary->generations > 0 ? read_cause(summary) : NULL;
    struct summary ended = *summary;

    begin_phase(&ended, ended.phase, now_ms);
    json_open(text, NULL, '{');
    json_field(text, "status", "%d", status);
    json_field(text, "generations", "%d", summary->generations);
    json_field(text, "restarts", "%d", summary->restarts);
    if (config->job_json != NULL) {
        json_field(text, "steps", "%" PRIu64, summary->steps);
        json_field(text, "steps_repeated", "%" PRIu64, summary->n_repeated);
    }
    add_seconds(text, "seconds", now_ms - summary->began_ms);
    json_open(text, "seconds_by", '{');
    for (int i = 0; i < SUMMARY_N_PHASES; i++)
        add_seconds(text, names[i], ended.spent_ms[i]);
    json_close(text, '}');
    add_cost(summary, now_ms, text);
    json_field(text, "first_cause", "%s", cause != NULL ? cause : "null");
    json_field_string(text, "run_dir",
                      config->run_dir != NULL && access(config->run_dir, F_OK) == 0 ? config->run_dir : NULL);
    json_close(text, '}');
    json_add(text, "\n");
    cJSON_free(cause);
}

enum fsdp_status summary_write(struct summary *summary, const char *path, int status, struct fsdp_err *err)
{
    const bool is_host = summary->config->n_nodes == 1 || summary->generations > 0;
    struct json_text text = { 0 };
    enum fsdp_status written = FSDP_OK;
    FILE *file = NULL;

    if (is_host) {
        summary_add(summary, status, clock_now_ms(), &text);
        file = fopen(path, "we");
    }
    if (text.failed)
        written = fsdp_fail(err, FSDP_ERR_NOMEM, "--summary: no memory");
    else if (is_host && (file == NULL || fputs(text.bytes, file) < 0 || fflush(file) != 0))
        written = fsdp_fail(err, FSDP_ERR_IO, "--summary: write %s: %s", path, strerror(errno));
    if (file != NULL)
        fclose(file);
    json_text_free(&text);
    munmap(summary, sizeof *summary);
    return written;
}
