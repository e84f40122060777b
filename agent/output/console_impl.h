/*
 * Shared by the files of the console. Each owns one part:
 *   console.c         struct console: its life, our own lines, the status line, and the drain at the end
 *   console_outlet.c  struct outlet: makes batches of lines, and writes them to one sink
 *   console_source.c  struct console_source: takes lines from one log that grows
 *
 * A batch is made only after the one before was written completely. While it is made, a source adds a line
 * only if outlet_has_room() returns true. So no line is split between two batches, and there is always room
 * for the status line at the end.
 */
#ifndef AGENT_CONSOLE_IMPL_H
#define AGENT_CONSOLE_IMPL_H

#include "agent/os/sink.h"
#include "agent/output/console.h"

enum {
    PREFIX_BYTES = 256,
    PATH_BYTES = 4096,
    STATUS_BYTES = 1024,
    SAY_BYTES = 65536, /* queue of our own lines */
    LOOK_BYTES = CONSOLE_LINE_BYTES + 1,
    /*
     * a text shorter than this is copied as one block of this size, which is faster; what is too much is
     * overwritten
     */
    BURST_BYTES = 32,
    LINE_ROOM = 2 * BURST_BYTES + PREFIX_BYTES + CONSOLE_LINE_BYTES + PATH_BYTES + 128,
    BATCH_BYTES = SAY_BYTES + 2 * LINE_ROOM + 2 * STATUS_BYTES,
};

struct outlet { /* one for each sink: the batch that is being written to it, and its handle in the loop */
    struct console *console;
    struct sink sink;
    union {
        uv_handle_t handle;
        uv_poll_t poll;
        uv_idle_t idle;
    } uv;
    bool armed, polled;
    bool full;         /* the sink did not take all of a batch: wait until it says that it takes more */
    size_t start, end; /* the bytes of `batch` from `start` to `end` are still to be written */
    uint64_t taken;    /* bytes the sink took so far */
    struct console_source *turn; /* the source that may add lines next; NULL: the first of the list */
    char *batch;
};

struct console_source {
    struct console *console;
    struct console_source *next;
    struct outlet *outlet;
    const char *(*look)(void *data, uint64_t offset, char *room, size_t want, size_t *n);
    uint64_t size;     /* of the log */
    uint64_t cursor;   /* offset of the first line that the console has not taken */
    uint64_t searched; /* no line ends in [cursor, searched) */
    uint64_t looked;   /* `size` when it was looked at last */
    uint64_t gone;     /* bytes of the log below this offset no longer exist */
    bool ended;
    char *path;
    size_t n_prefix;
    char prefix[PREFIX_BYTES + BURST_BYTES]; /* readable to a whole number of bursts */
    void (*shown)(void *data);
    void *data;
};

struct console {
    uv_loop_t *loop;
    struct outlet outlets[2];
    int n_outlets;
    struct outlet *of[2]; /* by enum console_sink */
    struct console_source *sources;

    char *said; /* our own lines, waiting */
    size_t n_said, n_dropped;

    bool can_status, status_shown, status_dirty;
    char status[STATUS_BYTES];

    uv_timer_t timer; /* of console_drain() */
    bool draining;
    uint64_t stall_ms, limit_ms, drain_begun_ms, moved_ms, moved;
    void (*drained)(uint64_t left, void *data);
    void *drained_data;

    int n_open_handles;
    char look[LOOK_BYTES];
};

/**
 * Open `fd` as the next outlet of the console, with a handle on the loop. After an error console_destroy()
 * closes it.
 */
enum fsdp_status outlet_open(struct console *console, int fd, struct fsdp_err *err);
/**
 * Call it if there may be something to write: the loop calls outlet_pump() as soon as the sink takes bytes.
 */
void outlet_arm(struct outlet *outlet);
/**
 * Write a limited number of batches. A new batch is made when the one before was written. Stop when the sink
 * takes no more.
 */
void outlet_pump(struct outlet *outlet);
/** The log of `source` has grown: show the new lines now if the sink takes bytes, else when it does. */
void outlet_offer(struct outlet *outlet, struct console_source *source);
/**
 * Returns whether anything is left to write: of a batch, our own lines, or of a source that has something to
 * show.
 */
bool outlet_has_work(const struct console *console, const struct outlet *outlet);

/* The next two functions are used only while a batch is made. */

/** Append n bytes to the batch. They must fit. */
void outlet_put(struct outlet *outlet, const char *bytes, size_t n);

/** Returns whether one more line of any allowed size fits into the batch. */
static inline bool outlet_has_room(const struct outlet *outlet)
{
    return BATCH_BYTES - STATUS_BYTES - outlet->end >= LINE_ROOM;
}

/** Returns whether the source has something new to show, or has ended. */
bool source_is_ready(const struct console_source *source);
/**
 * Add the source's lines to the batch of its outlet, as many as fit. Frees a source that has ended and is
 * shown.
 */
void source_take_turn(struct console_source *source);
/** The sink has no reader: skip all that the source has. Frees the source if it has ended. */
void source_pass(struct console_source *source);

/**
 * End the drain if everything is shown. This must be the last act of a callback: it may destroy the console.
 */
void console_check_drained(struct console *console);

#endif
