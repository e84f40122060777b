/*
 * The console: standard output and standard error of fsdprun, written without ever waiting for them.
 *
 * Sources are logs that grow. The console copies complete lines from them by offset, round robin, only as fast as
 * the terminal, pipe or file takes them: a terminal that stops reading leaves the sources behind in their files, and
 * memory stays at one batch of lines per sink. While the sink keeps up, lines are taken at the moment they come, from
 * where their owner still has them in memory; nothing is read back then. Lines of up to CONSOLE_LINE_BYTES are never
 * torn or mixed; a longer one is cut and ends with "... [cut: N bytes in FILE]", N being the whole line's size. A carriage
 * return that no newline follows ends a line too (progress bars of other programs). The last line of a source gets
 * a newline when it has none.
 *
 * Writing never blocks and never changes a description that others share: a terminal or pipe is opened anew
 * through /proc/self/fd with O_NONBLOCK, a socket is written with MSG_DONTWAIT, a regular file is written as it is.
 * Where opening anew is refused (a terminal of another user after su), it is polled and written in pieces of 256
 * bytes. When stdout and stderr are the same object they are one sink, so that their lines do not mix either.
 * A sink whose reader is gone (EPIPE) swallows what follows; the job goes on and the files have it all.
 *
 * Thread: the loop's. console_create() makes the process ignore SIGPIPE; children get the default back from spawn.
 */
#ifndef AGENT_CONSOLE_H
#define AGENT_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

enum { CONSOLE_LINE_BYTES = 65536 };

struct console;
struct console_source;

enum console_sink { CONSOLE_OUT, CONSOLE_ERR };

/** `out_fd` and `err_fd` are borrowed until console_destroy(). A closed descriptor (-1, EBADF) swallows its lines. */
enum fsdp_status console_create(struct console **out, uv_loop_t *loop, int out_fd, int err_fd,
                                struct fsdp_err *err);

/**
 * Write what is queued of our own lines (at most 200 ms), take the status line away, forget all sources, close.
 * Memory is freed by close callbacks: run the loop to its end before closing it. NULL is a no-op.
 */
void console_destroy(struct console *console);

/**
 * One line of our own on stderr (a newline is put behind it), before anything queued of the sources. Kept in a
 * queue of 64 KiB; what does not fit there is dropped and counted. console == NULL: written to descriptor 2.
 */
void console_say(struct console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * Show `text` as the last line of the terminal, NULL to take it away. It is cleared before lines are written and
 * drawn again after them. Nothing happens unless console_is_tty(). `text` has no newline, no control bytes but
 * colours, fits the width, and is copied.
 */
void console_status(struct console *console, const char *text);

/** Can a status line be shown? Stderr must be a terminal, and stdout the same terminal, a file or closed. */
bool console_is_tty(const struct console *console);
int console_width(const struct console *console);   /* columns of stderr's terminal now, 80 where unknown */

struct console_source_spec {
    /*
     * The bytes of the log at `offset`: at most `want` of them read into `room`, which is returned, or a pointer to
     * where they are in memory until the loop goes on (then *n may be more than `want`). *n 0: they are gone.
     */
    const char *(*look)(void *data, uint64_t offset, char *room, size_t want, size_t *n);
    uint64_t offset;    /* where to begin */
    const char *path;   /* for the cut mark; copied */
    const char *prefix; /* put before every line; NULL or "" for none; copied */
    enum console_sink sink;
    void (*shown)(void *data); /* all of it was taken over, the source is gone. Or NULL */
    void *data;
};

/** Begin to show a growing log. */
enum fsdp_status console_add(struct console *console, struct console_source **out,
                             const struct console_source_spec *spec, struct fsdp_err *err);
/** The log has `size` bytes now. Shows them at once where the sink takes them; `shown` of others may be called. */
void console_grew(struct console_source *source, uint64_t size);
/** Bytes before this offset are not looked at any more. */
uint64_t console_taken(const struct console_source *source);
/** What lies before `offset` cannot be had any more: if it was not shown, a line says how much is missing here. */
void console_skip(struct console_source *source, uint64_t offset);
/** It grows no more: what is left of it is shown, then `shown` is called from the loop. Call once. */
void console_end(struct console_source *source);

/** Forget it now, shown or not; `shown` is not called. */
void console_drop(struct console_source *source);

/** Bytes of all sources that were not written yet, and bytes written so far (prefixes and marks not counted). */
uint64_t console_backlog(const struct console *console);
uint64_t console_written(const struct console *console);

/**
 * Let every source that has ended be shown, then call `done` from the loop (`left` = bytes not shown). Gives up
 * after `stall_ms` in which the sinks took nothing, and after `limit_ms` in all where stderr or stdout is a
 * terminal (a pipe that is being read is served to its end). Call once, after every source has ended.
 */
void console_drain(struct console *console, uint64_t stall_ms, uint64_t limit_ms,
                   void (*done)(uint64_t left, void *data), void *data);

#endif
