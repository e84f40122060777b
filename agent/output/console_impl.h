/*
 * What the files of the console share: console_source.c takes lines from files that grow, console_outlet.c
 * makes batches of them and moves these into a sink, console.c is the console's life, our own lines, and the
 * end.
 *
 * A batch is made only when the one before is written. While it is made, a source puts a line only where
 * outlet_has_room(): no line is parted between two batches, and what is left is the status line's.
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
    BURST_BYTES = 32, /* what short texts are copied as: one move of a fixed size, the rest is written over */
    LINE_ROOM = 2 * BURST_BYTES + PREFIX_BYTES + CONSOLE_LINE_BYTES + PATH_BYTES + 128,
    BATCH_BYTES = SAY_BYTES + 2 * LINE_ROOM + 2 * STATUS_BYTES,
};

struct outlet { /* a sink, the batch on its way into it, and its place in the loop */
    struct console *console;
    struct sink sink;
    union {
        uv_handle_t handle;
        uv_poll_t poll;
        uv_idle_t idle;
    } uv;
    bool armed, polled;
    bool full;         /* the sink did not take all of a batch: wait until it says that it takes more */
    size_t start, end; /* what of `batch` is still to be written */
    uint64_t taken;    /* bytes the sink took so far */
    struct console_source *turn; /* whose turn it is; NULL: the list's first */
    char *batch;
};

struct console_source {
    struct console *console;
    struct console_source *next, *previous;
    struct outlet *outlet;
    const char *(*look)(void *data, uint64_t offset, char *room, size_t want, size_t *n);
    uint64_t size;     /* of the log */
    uint64_t cursor;   /* start of the first line not taken yet */
    uint64_t searched; /* no line ends in [cursor, searched) */
    uint64_t looked;   /* `size` when it was looked at last */
    uint64_t gone;     /* what lies before cannot be had any more */
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
    uint64_t written;

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

/** Open `fd` as the console's next outlet, and make its handle the loop's. */
enum fsdp_status outlet_open(struct console *console, int fd, struct fsdp_err *err);
/** There may be something to write: have the loop see to it. */
void outlet_arm(struct outlet *outlet);
/** Batches on their way, a bounded number: made when the one before is written, written as far as the sink goes. */
void outlet_pump(struct outlet *outlet);
/** `source` has news: show it now where the sink is known to take bytes, else when it does. */
void outlet_offer(struct outlet *outlet, struct console_source *source);
/** Is anything left to write now? What a source does not know yet is not counted. */
bool outlet_has_work(const struct console *console, const struct outlet *outlet);

/* While a batch is made. */
void outlet_put(struct outlet *outlet, const char *bytes, size_t n);
static inline bool outlet_has_room(const struct outlet *outlet)
{
    return BATCH_BYTES - STATUS_BYTES - outlet->end >= LINE_ROOM;
}

/** Is there something to look at? */
bool source_is_ready(const struct console_source *source);
/** One turn of one source: into its outlet's batch what it has and fits. It is gone when it was finished. */
void source_take_turn(struct console_source *source);
/** Nobody will see it: pass over what it has. It is gone when it has ended. */
void source_pass(struct console_source *source);

/** The last thing a callback does: the console may be destroyed by it. */
void console_check_drained(struct console *console);

#endif
