#include "agent/record/events.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/lines.h"
#include "shard_runtime/core/utf8.h"

/* Whole lines, one after another. */
struct lines {
    char *bytes;
    size_t n, room;
};

struct events {
    int fd;                                    /* -1: no file is kept */
    void (*seen)(void *arg, const char *line); /* the watcher; NULL: none */
    void *seen_arg;
    void (*refused)(void *arg, const char *words); /* called when a line is lost; NULL: no function */
    void *refused_arg;
    struct disk *disk; /* NULL: none */
    uint64_t term;     /* of the lines; 0: none */
    struct lines waiting;
    uint64_t n_lost;
    bool full; /* a line said that there is no room; reset when there is room again */
    bool owed; /* the last line must be on the disk when the file is closed */
    char name[64];

    /* The disk's while `writing`. */
    struct disk_job job;
    bool writing;
    struct lines lines; /* that are being written */
    bool torn;          /* the file may end in half a line */
    bool failed;        /* a line said that writing failed; reset when a line is written again */
    int to_say;         /* errno of the first failure in a row, which must still be reported; 0: none */
    uint64_t n_failed;
};

static void say_refused(const struct events *events, const char *why)
{
    char words[256];

    if (events->refused == NULL)
        return;
    snprintf(words, sizeof words, "write %s: %s", events->name, why);
    events->refused(events->refused_arg, words);
}

static void write_line(struct events *events, const char *line, size_t length)
{
    const int error = lines_write(events->fd, line, length, EVENTS_LINE_BYTES, &events->torn);

    if (error == 0) {
        events->failed = false;
        return;
    }
    events->n_failed++;
    if (!events->failed && events->to_say == 0)
        events->to_say = error;
    events->failed = true;
}

static void write_lines(struct disk_job *job)
{
    struct events *events = (struct events *)((char *)job - offsetof(struct events, job));
    const char *line = events->lines.bytes, *end = line + events->lines.n;

    while (line < end) {
        const size_t length = (size_t)((const char *)memchr(line, '\n', (size_t)(end - line)) - line) + 1;

        write_line(events, line, length);
        line += length;
        disk_step(events->disk);
    }
}

static void submit(struct events *events);

static void on_written(struct disk_job *job)
{
    struct events *events = (struct events *)((char *)job - offsetof(struct events, job));
    const int to_say = events->to_say;

    events->writing = false;
    events->lines.n = 0;
    events->n_lost += events->n_failed;
    events->n_failed = 0;
    events->to_say = 0;
    if (to_say != 0)
        say_refused(events, strerror(to_say));
    if (events->waiting.n > 0 && !events->writing)
        submit(events);
}

enum fsdp_status events_open(struct events **out, int dir_fd, const char *name, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct events *events;

    *out = NULL;
    events = calloc(1, sizeof *events);
    if (events == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", name);
    snprintf(events->name, sizeof events->name, "%s", name);
    events->fd = -1;
    events->job = (struct disk_job){ .work = write_lines, .done = on_written };
    status = dir_fd < 0 ? FSDP_OK : beneath_open_record(&events->fd, dir_fd, name, err);
    if (status == FSDP_OK && events->fd >= 0 && !lines_drop_half(events->fd, EVENTS_LINE_BYTES))
        status = file_fail(err, "open", name);
    if (status != FSDP_OK) {
        if (events->fd >= 0)
            close(events->fd);
        free(events);
        return status;
    }
    *out = events;
    return FSDP_OK;
}

void events_close(struct events *events)
{
    if (events == NULL)
        return;
    if (events->owed)
        fsync(events->fd); /* no caller is left to whom a failure could be reported */
    if (events->fd >= 0)
        close(events->fd);
    free(events->waiting.bytes);
    free(events->lines.bytes);
    free(events);
}

void events_watch(struct events *events, void (*seen)(void *arg, const char *line), void *arg)
{
    events->seen = seen;
    events->seen_arg = arg;
}

void events_on_refusal(struct events *events, void (*refused)(void *arg, const char *words), void *arg)
{
    events->refused = refused;
    events->refused_arg = arg;
}

void events_write_on(struct events *events, struct disk *disk)
{
    events->disk = disk;
}

void events_lead(struct events *events, uint64_t term)
{
    if (events != NULL)
        events->term = term;
}

static void add_field(struct json_text *line, const struct events_field *field)
{
    switch (field->kind) {
    case EVENTS_INT:
        json_field(line, field->key, "%" PRId64, field->integer);
        break;
    case EVENTS_REAL:
        json_field_real(line, field->key, "%.9g", field->real);
        break;
    case EVENTS_TEXT:
        json_field_string(line, field->key, field->text);
        break;
    case EVENTS_JSON:
        json_field(line, field->key, "%s", field->text);
        break;
    case EVENTS_BOOL:
        json_field_bool(line, field->key, field->integer != 0);
        break;
    case EVENTS_END:
        break;
    }
}

/* Begin the line of an event in `out`: time, event and generation. */
static struct json_text begin_line(char *out, size_t size, int64_t time_us, int generation, const char *event,
                                   const struct events_field *fields)
{
    struct json_text line = json_text_fixed(out, size);

    json_open(&line, NULL, '{');
    json_field(&line, "time", "%" PRId64 ".%06d", time_us / 1000000, (int)(time_us % 1000000));
    json_field_string(&line, "event", event);
    json_field(&line, "generation", "%d", generation);
    for (; fields != NULL && fields->kind != EVENTS_END; fields++)
        add_field(&line, fields);
    return line;
}

/* End the line of an event. Returns its length; 0 if it did not fit. */
static size_t end_line(struct json_text *line, uint64_t term)
{
    if (term > 0)
        json_field(line, "term", "%" PRIu64, term);
    json_add(line, "}\n");
    return line->failed ? 0 : line->length;
}

size_t events_format(char *out, size_t size, int64_t time_us, int generation, const char *event,
                     const struct events_field *fields)
{
    struct json_text line = begin_line(out, size, time_us, generation, event, fields);

    return end_line(&line, 0);
}

static void submit(struct events *events)
{
    const struct lines written = events->lines;

    events->lines = events->waiting;
    events->waiting = (struct lines){ .bytes = written.bytes, .room = written.room };
    events->writing = true;
    disk_submit(events->disk, &events->job);
}

/* Keep a line in memory until the disk has written the lines before it. Returns false if there is no room. */
static bool keep(struct events *events, const char *line, size_t length)
{
    struct lines *waiting = &events->waiting;

    if (waiting->n + length > EVENTS_WAITING_BYTES)
        return false;
    if (waiting->n + length > waiting->room) {
        const size_t room = waiting->room == 0 ? 2 * EVENTS_LINE_BYTES : 2 * waiting->room;
        char *grown = realloc(waiting->bytes, room);

        if (grown == NULL)
            return false;
        waiting->bytes = grown;
        waiting->room = room;
    }
    memcpy(waiting->bytes + waiting->n, line, length);
    waiting->n += length;
    return true;
}

static void append(struct events *events, const char *line, size_t length)
{
    if (events->seen != NULL)
        events->seen(events->seen_arg, line);
    if (events->fd < 0)
        return;
    if (!keep(events, line, length)) {
        events->n_lost++;
        if (!events->full)
            say_refused(events, "the disk does not answer, and no more lines are kept for it");
        events->full = true;
        return;
    }
    events->full = false;
    if (!events->writing)
        submit(events);
}

uint64_t events_lost(const struct events *events)
{
    return events == NULL ? 0 : events->n_lost;
}

/* Count the lines. The disk's thread may be reading them at the same time. */
static uint64_t count_lines(const struct lines *lines)
{
    uint64_t n = 0;

    for (size_t i = 0; i < lines->n; i++)
        n += lines->bytes[i] == '\n';
    return n;
}

uint64_t events_waiting(const struct events *events)
{
    return events == NULL ? 0 : count_lines(&events->lines) + count_lines(&events->waiting);
}

enum fsdp_status events_emit(struct events *events, int generation, const char *event,
                             const struct events_field *fields, struct fsdp_err *err)
{
    char bytes[EVENTS_LINE_BYTES];
    struct json_text line;
    size_t length;

    if (events == NULL)
        return FSDP_OK;
    line = begin_line(bytes, sizeof bytes, clock_epoch_us(), generation, event, fields);
    length = end_line(&line, events->term);
    if (length == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the event %s is longer than %d bytes", event, EVENTS_LINE_BYTES);
    events->owed = strcmp(event, "failure") == 0 || strcmp(event, "complete") == 0;
    append(events, bytes, length);
    return FSDP_OK;
}

/*
 * Append the members of an object that a worker sent. Members that the agent writes itself are left out:
 * those of the first `n_ours` fields, and `term`.
 */
static void add_members(struct json_text *line, const cJSON *object, size_t n_ours, uint64_t term)
{
    static const char *const ours[] = { "time", "event", "generation", "rank" };
    const cJSON *member;

    cJSON_ArrayForEach(member, object)
    {
        bool skip = term > 0 && strcmp(member->string, "term") == 0;
        char *value;

        for (size_t i = 0; i < n_ours; i++)
            skip |= strcmp(member->string, ours[i]) == 0;
        if (skip)
            continue;
        value = cJSON_PrintUnformatted(member);
        if (value == NULL)
            line->failed = true;
        else
            json_field(line, member->string, "%s", value);
        cJSON_free(value);
    }
}

enum fsdp_status events_relay(struct events *events, int generation, int rank, const char *json,
                              size_t length, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    char bytes[EVENTS_LINE_BYTES];
    size_t clean_length = 0, n;
    char *clean = utf8_clean_copy(json, length, &clean_length);
    cJSON *object = NULL;
    const cJSON *event;
    struct events_field fields[2] = { EVENT_INT("rank", rank), EVENT_END };

    if (clean == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for an event of %zu bytes", length);
    object = json_parse_object(clean, clean_length);
    event = cJSON_GetObjectItemCaseSensitive(object, "event");
    if (!cJSON_IsString(event) || event->valuestring[0] == '\0') {
        status =
            fsdp_fail(err, FSDP_ERR_FORMAT, "an event of rank %d is no JSON object with an \"event\"", rank);
    } else if (events != NULL) {
        struct json_text line = begin_line(bytes, sizeof bytes, clock_epoch_us(), generation,
                                           event->valuestring, rank < 0 ? NULL : fields);

        add_members(&line, object, rank < 0 ? 3 : 4, events->term);
        n = end_line(&line, events->term);
        if (n > 0)
            append(events, bytes, n);
        else
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "an event of rank %d is longer than %d bytes", rank,
                               EVENTS_LINE_BYTES);
    }
    cJSON_Delete(object);
    free(clean);
    return status;
}
