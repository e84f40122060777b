/*
 * A descriptor that is written without ever waiting for it and without touching a description that others share
 * (O_NONBLOCK on an inherited terminal or pipe would change it for the shell and the workers as well).
 *
 *   terminal, pipe   opened anew through /proc/self/fd with O_NONBLOCK: a description of our own; a pipe is made to
 *                    hold 1 MiB where the user may have that
 *   socket           MSG_DONTWAIT
 *   regular file     written as it is, through the shared description, so that its offset stays right
 *   cannot reopen    (a terminal of another user after su, no /proc) polled, then at most 256 bytes: it waits only
 *                    while a terminal stops within these
 *   closed           everything is swallowed
 */
#ifndef AGENT_SINK_H
#define AGENT_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum sink_kind { SINK_NONE = 0, SINK_FILE, SINK_REOPENED, SINK_SOCKET, SINK_POLLED };

struct sink {
    enum sink_kind kind;
    int fd;    /* borrowed */
    int own;   /* REOPENED: ours; else -1 */
    int ready; /* epoll descriptor that is readable when the sink takes bytes; -1: it always does */
    bool tty;
};

/** Never fails: what cannot be used is SINK_NONE. `fd` is borrowed until sink_fini(). */
void sink_init(struct sink *sink, int fd);
void sink_fini(struct sink *sink);

/** Are both the same object (one terminal, one pipe, one file)? */
bool sink_same(int fd, int other_fd);

/** Bytes taken, 0 when it takes none now, -1 when it is gone for good (errno; it is SINK_NONE from then on). */
ssize_t sink_write(struct sink *sink, const char *bytes, size_t n);

/**
 * All of `text` to `fd`, for a last line outside of any loop: given up once nothing has been taken for `patience_ms`;
 * below 0: waits as long as the reader takes.
 */
void sink_say(int fd, const char *text, int patience_ms);

/** Wait at most `timeout_ms` (below 0: for ever) until it takes bytes. */
bool sink_wait(const struct sink *sink, int timeout_ms);

/** Columns of the terminal now; 80 where unknown. */
int sink_width(const struct sink *sink);

#endif
