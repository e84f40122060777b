/*
 * events.jsonl: what happened to the job, one JSON object per line.
 *
 * Every line begins with `time` (seconds since the epoch, with microseconds), `event` and `generation`.
 * The event's own keys follow. The last one is `term`, if an arbiter says who leads. A leader that was
 * stopped may write lines when it wakes: they have a lower term and an earlier time than lines before
 * them. Each line is one write(2) of at most EVENTS_LINE_BYTES on an O_APPEND descriptor, so a reader
 * never sees half of one.
 *
 * Lines are not synced while the job goes on. A sync waits for everything that other processes have written
 * to that file system: 1.2 s were measured after a PyTorch checkpoint. A restart must not wait for a disk.
 * Only events_close() syncs, if the last line reports the end.
 *
 * A line that cannot be written is counted, and the first of several in a row is reported. It has no other
 * consequence: the job does not depend on its events.
 *
 * With a disk (events_write_on()), its thread writes the lines, in their order. Those that the disk has not
 * taken yet are kept in memory, up to EVENTS_WAITING_BYTES. A line beyond that is lost: it is counted, and
 * the first of several in a row is reported.
 *
 *   events_emit(events, generation, "spawn",
 *               (struct events_field[]){ EVENT_INT("rank", 3), EVENT_INT("pid", pid), EVENT_END }, &err);
 */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/os/disk.h"

enum { EVENTS_LINE_BYTES = 16384, EVENTS_WAITING_BYTES = 32 << 20 };

struct events;

enum events_kind { EVENTS_END = 0, EVENTS_INT, EVENTS_REAL, EVENTS_TEXT, EVENTS_JSON, EVENTS_BOOL };

/** One member of an event's object. */
struct events_field {
    const char *key;
    enum events_kind kind;
    int64_t integer; /* INT, BOOL */
    double real;     /* REAL; NaN and infinities are written as null */
    /*
     * TEXT: NULL is written as null, and bytes that are not UTF-8 as U+FFFD. JSON: a value, written as it is.
     */
    const char *text;
};

#define EVENT_INT(k, v)  ((struct events_field){ .key = (k), .kind = EVENTS_INT, .integer = (int64_t)(v) })
#define EVENT_REAL(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_REAL, .real = (v) })
#define EVENT_TEXT(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_TEXT, .text = (v) })
#define EVENT_BOOL(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_BOOL, .integer = (v) })
#define EVENT_JSON(k, v) ((struct events_field){ .key = (k), .kind = EVENTS_JSON, .text = (v) })
#define EVENT_END        ((struct events_field){ .key = NULL, .kind = EVENTS_END })

/**
 * Open `name` ("events.jsonl") in the directory `dir_fd` for appending. The file may have lines of earlier
 * runs; half a line at its end is dropped. With a `dir_fd` of -1 there is no file: events only go to the
 * watcher.
 */
enum fsdp_status events_open(struct events **out, int dir_fd, const char *name, struct fsdp_err *err);
/** Close the file. Requires that its disk is idle. May wait for the disk. NULL is a no-op. */
void events_close(struct events *events);

/** Let the thread of `disk` write from now on. Borrowed until events_close(); NULL: the caller writes. */
void events_write_on(struct events *events, struct disk *disk);

/**
 * From now on each line has this term, in which the writer leads. No effect if `term` is 0 or `events` is
 * NULL.
 */
void events_lead(struct events *events, uint64_t term);

/**
 * Call `seen` with each line from now on. The call comes before the line is written, even if the disk then
 * refuses it.
 *   line  zero-terminated, with its newline; borrowed for the call
 */
void events_watch(struct events *events, void (*seen)(void *arg, const char *line), void *arg);

/**
 * Call `refused`, on the loop, for a lost line, if the line before it was not lost.
 *   words  "write events.jsonl: No space left on device"; borrowed for the call
 */
void events_on_refusal(struct events *events, void (*refused)(void *arg, const char *words), void *arg);

/** Returns the number of lines that were lost; 0 for NULL. */
uint64_t events_lost(const struct events *events);

/** Returns the number of lines that the disk has not answered yet; 0 for NULL. */
uint64_t events_waiting(const struct events *events);

/**
 * Append one line with the current time. `fields` ends with EVENT_END; NULL: there are none. A no-op if
 * `events` is NULL.
 *   FSDP_ERR_ARG  the line is too long
 */
enum fsdp_status events_emit(struct events *events, int generation, const char *event,
                             const struct events_field *fields, struct fsdp_err *err);

/**
 * Append an event that a worker sent (FSDP_LINK_EVENT): {"event": "resume", "step": 7, ...}. json[0..length)
 * must be one JSON object with a string `event`. The agent's own values replace its `time`, `generation` and
 * `rank`.
 *   rank             the rank that sent it. Below 0: another node's agent did, and the event's own `rank` is
 *                    kept
 *   FSDP_ERR_FORMAT  it is no such object, or too long; nothing was written
 */
enum fsdp_status events_relay(struct events *events, int generation, int rank, const char *json,
                              size_t length, struct fsdp_err *err);

/**
 * Print the line of an event, with its newline, to `out`. `time_us` is in microseconds since the epoch.
 * Returns its length, or 0 if it does not fit in `size` bytes.
 */
size_t events_format(char *out, size_t size, int64_t time_us, int generation, const char *event,
                     const struct events_field *fields);

#endif
