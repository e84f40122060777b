/*
 * The console: standard output and standard error of fsdprun. Writing to them never blocks.
 *
 * A source is a log that grows. The console copies complete lines from its sources, by offset and round
 * robin, only as fast as the terminal, pipe or file takes them:
 *   - A terminal that stops reading delays no source: the lines wait in the log files. Memory stays at one
 *     batch of lines for each sink.
 *   - While the sink keeps up, lines are taken as soon as they arrive, from the memory of the source's owner.
 *     Nothing is read back from a file then.
 *
 * Lines of up to CONSOLE_LINE_BYTES are never torn or mixed with others. A longer line is cut and ends with
 * "... [cut: N bytes in FILE]", where N is the size of the whole line. A carriage return that is not followed
 * by a newline ends a line, too (progress bars of other programs). If the last line of a source has no
 * newline, it gets one.
 *
 * The console never changes an open file description that other processes share (agent/os/sink.h). If stdout
 * and stderr are the same object they are one sink, so that their lines do not mix either. When the reader of
 * a sink is gone (EPIPE), the sink swallows what follows: the job goes on, and the log files have everything.
 *
 * Thread: the loop's. console_create() makes the process ignore SIGPIPE; a spawned child gets the default
 * again.
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

/**
 * Create the console in *out. `out_fd` and `err_fd` are fsdprun's own descriptors, borrowed until
 * console_destroy(). A descriptor that is closed (-1, EBADF) swallows its lines.
 *   FSDP_ERR_NOMEM, FSDP_ERR_IO  *out is NULL
 */
enum fsdp_status console_create(struct console **out, uv_loop_t *loop, int out_fd, int err_fd,
                                struct fsdp_err *err);

/**
 * Write our own queued lines (for at most 200 ms), remove the status line, drop all sources, and close. Close
 * callbacks free the memory: run the loop to its end before closing it. NULL is a no-op.
 */
void console_destroy(struct console *console);

/**
 * Print one line of our own on stderr, before anything that sources have queued. The newline is added. The
 * queue holds 64 KiB; lines that do not fit are dropped and counted. If `console` is NULL, the line goes to
 * descriptor 2.
 */
void console_say(struct console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * Show `text` as the last line of the terminal; NULL removes it. The console clears that line before it
 * writes others, and draws it again after them. A no-op if console_is_tty() is false.
 *   text  no newline, no control bytes except colours, no wider than the terminal; copied
 */
void console_status(struct console *console, const char *text);

/**
 * Returns whether a status line can be shown: stderr is a terminal, and stdout is the same terminal, a file,
 * or closed.
 */
bool console_is_tty(const struct console *console);

/** Returns the current number of columns of stderr's terminal, or 80 if that is unknown. */
int console_width(const struct console *console);

/** What console_add() needs to know of a source. */
struct console_source_spec {
    /*
     * Returns the log's bytes from `offset` on, and sets *n to their number. Either at most `want` bytes were
     * read into `room`, which is returned. Or the result points to where the bytes are in memory until the
     * loop goes on; then *n may be more than `want`. *n is 0 if the bytes no longer exist.
     */
    const char *(*look)(void *data, uint64_t offset, char *room, size_t want, size_t *n);
    uint64_t offset;    /* of the first byte to show */
    const char *path;   /* for the cut mark; copied */
    const char *prefix; /* written before every line; NULL or "" for none; copied */
    enum console_sink sink;
    /* called when the console has taken everything and the source is freed; optional */
    void (*shown)(void *data);
    void *data; /* passed to both functions */
};

/**
 * Begin to show a log that grows; *out is valid until `shown` is called or console_drop().
 *   FSDP_ERR_NOMEM  *out is NULL
 */
enum fsdp_status console_add(struct console *console, struct console_source **out,
                             const struct console_source_spec *spec, struct fsdp_err *err);

/**
 * The log has `size` bytes now. The lines are shown at once if the sink takes them. This may call `shown` of
 * other sources.
 */
void console_grew(struct console_source *source, uint64_t size);

/** Returns the offset below which the console no longer needs the bytes of the log. */
uint64_t console_taken(const struct console_source *source);

/**
 * Tells the console that bytes below `offset` no longer exist. If some of them were not shown, a line says
 * how many.
 */
void console_skip(struct console_source *source, uint64_t offset);

/** The log will not grow any more: show what is left, then call `shown` from the loop. To be called once. */
void console_end(struct console_source *source);

/** Forget the source now, whether it was shown or not. `shown` is not called. */
void console_drop(struct console_source *source);

/** Returns how many bytes are not written yet: of batches, and of all sources without prefixes. */
uint64_t console_backlog(const struct console *console);

/**
 * Wait until every source was shown, then call `done` from the loop with the number of bytes that were not
 * shown. To be called once, after console_end() of every source.
 *   stall_ms  give up when the sinks have taken nothing for this time
 *   limit_ms  give up after this time if stdout or stderr is a terminal; a pipe that is read is served to its
 *             end
 */
void console_drain(struct console *console, uint64_t stall_ms, uint64_t limit_ms,
                   void (*done)(uint64_t left, void *data), void *data);

#endif
