#include "agent/record/events.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/json_text.h"
#include "agent/os/os.h"
#include "shard_runtime/core/beneath.h"
#include "shard_runtime/core/lines.h"

struct events {
    int fd;
    bool torn;   /* half a line may stand at its end */
    bool failed; /* said once; forgotten when a line is written again */
    uint64_t n_lost;
    bool owed; /* the last line is one that is to be on the disk when this is closed */
    char name[64];
};

enum fsdp_status events_open(struct events **out, int dir_fd, const char *name, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct events *events;

    *out = NULL;
    events = calloc(1, sizeof *events);
    if (events == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", name);
    snprintf(events->name, sizeof events->name, "%s", name);
    status = beneath_open_record(&events->fd, dir_fd, name, err);
    if (status == FSDP_OK && !lines_drop_half(events->fd, EVENTS_LINE_BYTES))
        status = fsdp_fail(err, FSDP_ERR_IO, "open %s: %s", name, strerror(errno));
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
        fsync(events->fd); /* nobody is left to be told that it failed */
    close(events->fd);
    free(events);
}

/* Append to out[*end...size); false once it does not fit. */
__attribute__((format(printf, 4, 5))) static bool put(char *out, size_t size, size_t *end, const char *format,
                                                      ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(out + *end, size - *end, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= size - *end)
        return false;
    *end += (size_t)n;
    return true;
}

static bool put_text(char *out, size_t size, size_t *end, const char *text)
{
    size_t n;

    if (text == NULL)
        return put(out, size, end, "null");
    n = json_quote(out + *end, size - *end, text, strlen(text));
    *end += n;
    return n > 0;
}

static bool put_field(char *out, size_t size, size_t *end, const struct events_field *field)
{
    if (!put(out, size, end, ", ") || !put_text(out, size, end, field->key) || !put(out, size, end, ": "))
        return false;
    switch (field->kind) {
    case EVENTS_INT:
        return put(out, size, end, "%" PRId64, field->integer);
    case EVENTS_REAL:
        return isfinite(field->real) ? put(out, size, end, "%.9g", field->real) : put(out, size, end, "null");
    case EVENTS_TEXT:
        return put_text(out, size, end, field->text);
    case EVENTS_JSON:
        return put(out, size, end, "%s", field->text);
    case EVENTS_BOOL:
        return put(out, size, end, "%s", field->integer != 0 ? "true" : "false");
    case EVENTS_END:
        break;
    }
    return false;
}

size_t events_format(char *out, size_t size, int64_t time_us, int generation, const char *event,
                     const struct events_field *fields)
{
    size_t end = 0;

    if (!put(out, size, &end, "{\"time\": %" PRId64 ".%06d, \"event\": ", time_us / 1000000,
             (int)(time_us % 1000000)) ||
        !put_text(out, size, &end, event) || !put(out, size, &end, ", \"generation\": %d", generation))
        return 0;
    for (; fields != NULL && fields->kind != EVENTS_END; fields++)
        if (!put_field(out, size, &end, fields))
            return 0;
    return put(out, size, &end, "}\n") ? end : 0;
}

/* One write; of a line that did not fit nothing stays in the file. */
static enum fsdp_status append(struct events *events, const char *line, size_t length, struct fsdp_err *err)
{
    int error = ENOSPC; /* of a line that was cut short */
    ssize_t written = -1;

    if (events->torn)
        events->torn = !lines_drop_half(events->fd, EVENTS_LINE_BYTES);
    if (!events->torn) {
        do
            written = write(events->fd, line, length);
        while (written < 0 && errno == EINTR);
        if (written < 0)
            error = errno;
    }
    if (written == (ssize_t)length) {
        events->failed = false;
        return FSDP_OK;
    }
    if (written > 0)
        events->torn = !lines_drop_half(events->fd, EVENTS_LINE_BYTES);
    events->n_lost++;
    if (events->failed)
        return FSDP_OK;
    events->failed = true;
    return fsdp_fail(err, FSDP_ERR_IO, "write %s: %s", events->name, strerror(error));
}

uint64_t events_lost(const struct events *events)
{
    return events == NULL ? 0 : events->n_lost;
}

enum fsdp_status events_emit(struct events *events, int generation, const char *event,
                             const struct events_field *fields, struct fsdp_err *err)
{
    char line[EVENTS_LINE_BYTES];
    size_t length;

    if (events == NULL)
        return FSDP_OK;
    length = events_format(line, sizeof line, os_epoch_us(), generation, event, fields);
    if (length == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the event %s is longer than %d bytes", event, EVENTS_LINE_BYTES);
    events->owed = strcmp(event, "failure") == 0 || strcmp(event, "complete") == 0;
    return append(events, line, length, err);
}

/* What stands in the object apart from what the agent itself says (its first `n_ours`), as fields: ", \"step\": 7". */
static bool put_members(char *out, size_t size, size_t *end, const cJSON *object, size_t n_ours)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, object)
    {
        static const char *const ours[] = { "time", "event", "generation", "rank" };
        bool skip = false;
        char *text;
        bool fits;

        for (size_t i = 0; i < n_ours; i++)
            skip = skip || strcmp(member->string, ours[i]) == 0;
        if (skip)
            continue;
        text = cJSON_PrintUnformatted(member);
        fits = text != NULL && put(out, size, end, ", ") && put_text(out, size, end, member->string) &&
               put(out, size, end, ": %s", text);
        cJSON_free(text);
        if (!fits)
            return false;
    }
    return true;
}

enum fsdp_status events_relay(struct events *events, int generation, int rank, const char *json,
                              size_t length, struct fsdp_err *err)
{
    enum fsdp_status status;
    char line[EVENTS_LINE_BYTES];
    size_t clean_length = 0, end;
    char *clean = json_clean_copy(json, length, &clean_length);
    cJSON *object = NULL;
    const cJSON *event;
    struct events_field fields[2] = { EVENT_INT("rank", rank), EVENT_END };

    if (clean == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for an event of %zu bytes", length);
    object = cJSON_ParseWithLengthOpts(clean, clean_length + 1, NULL, 1);
    event = cJSON_GetObjectItemCaseSensitive(object, "event");
    if (!cJSON_IsObject(object) || !cJSON_IsString(event) || event->valuestring[0] == '\0') {
        status =
            fsdp_fail(err, FSDP_ERR_FORMAT, "an event of rank %d is no JSON object with an \"event\"", rank);
        goto done;
    }
    if (events == NULL) {
        status = FSDP_OK;
        goto done;
    }
    end = events_format(line, sizeof line, os_epoch_us(), generation, event->valuestring,
                        rank < 0 ? NULL : fields);
    if (end > 0) {
        end -= 2; /* "}\n" comes back behind the members */
        if (!put_members(line, sizeof line, &end, object, rank < 0 ? 3 : 4) ||
            !put(line, sizeof line, &end, "}\n"))
            end = 0;
    }
    status = end == 0 ? fsdp_fail(err, FSDP_ERR_FORMAT, "an event of rank %d is longer than %d bytes", rank,
                                  EVENTS_LINE_BYTES)
                      : append(events, line, end, err);
done:
    cJSON_Delete(object);
    free(clean);
    return status;
}
