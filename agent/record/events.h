/*
 * events.jsonl: one JSON object a line, what happened to the job.
 *
 * Every line begins with `time` (a number: seconds since the epoch, microseconds after the point), `event` and
 * `generation`; the event's own keys follow. One line is one write(2) on an O_APPEND descriptor, at most
 * EVENTS_LINE_BYTES, so that a reader never sees half of one. Nothing is synced while the job goes on: a sync waits for
 * what others have left dirty on that file system (behind a PyTorch checkpoint 1.2 s were seen), and a restart waits for
 * no disk. events_close() syncs a last line that says the end.
 * A line that cannot be written is reported once, counted, and costs nothing else: events are a record, not a condition.
 *
 *   events_emit(events, generation, "spawn",
 *               (struct events_field[]){ EVENT_INT("rank", 3), EVENT_INT("pid", pid), EVENT_END }, &err);
 */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { EVENTS_LINE_BYTES = 16384 };

struct events;

enum events_kind { EVENTS_END = 0, EVENTS_INT, EVENTS_REAL, EVENTS_TEXT, EVENTS_JSON, EVENTS_BOOL };

struct events_field {
    const char *key;
    enum events_kind kind;
    int64_t integer;
    double real;
    const char
        *text; /* TEXT: NULL is written as null, bytes that are not UTF-8 as U+FFFD; JSON: a value as it is */
};

#define EVENT_INT(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_INT, .integer = (int64_t)(v) })
#define EVENT_REAL(k, v)                                                                                     \
    ((struct events_field){ .key = (k), .kind = EVENTS_REAL, .real = (v) }) /* NaN, Inf: null */
#define EVENT_TEXT(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_TEXT, .text = (v) })
#define EVENT_BOOL(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_BOOL, .integer = (v) })
#define EVENT_JSON(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_JSON, .text = (v) })
#define EVENT_END        ((struct events_field){ .key = NULL, .kind = EVENTS_END })

/** Open `name` ("events.jsonl") in the directory `dir_fd` for appending; it may have lines of earlier runs; half a
 * line at its end is dropped. */
enum fsdp_status events_open(struct events **out, int dir_fd, const char *name, struct fsdp_err *err);
void events_close(struct events *events); /* NULL is a no-op */

/** How many lines the disk did not take; 0 for NULL. */
uint64_t events_lost(const struct events *events);

/** Append one line. `fields` ends with EVENT_END; NULL for none. events == NULL: nothing, FSDP_OK. */
enum fsdp_status events_emit(struct events *events, int generation, const char *event,
                             const struct events_field *fields, struct fsdp_err *err);

/**
 * Append an object that a worker sent (FSDP_LINK_EVENT): {"event": "resume", "step": 7, ...}. It must be one JSON
 * object with a string `event`; `time`, `generation` and `rank` of its own are replaced by the agent's. With
 * rank < 0 it comes from another node's agent, which may speak of any rank: its `rank` stays.
 *   FSDP_ERR_FORMAT  not such an object; nothing was written
 */
enum fsdp_status events_relay(struct events *events, int generation, int rank, const char *json,
                              size_t length, struct fsdp_err *err);

/**
 * The line alone, newline included, at `time_us` microseconds since the epoch. Returns its length, or 0 when it
 * does not fit in `size` bytes.
 */
size_t events_format(char *out, size_t size, int64_t time_us, int generation, const char *event,
                     const struct events_field *fields);

#endif
