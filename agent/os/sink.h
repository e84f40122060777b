/*
 * A descriptor to which we write without blocking, and without changing an open file description that other
 * processes share. (O_NONBLOCK on an inherited terminal or pipe would also affect the shell and the workers.)
 *
 *   terminal, pipe   opened again through /proc/self/fd with O_NONBLOCK, which gives a description of our
 *                    own. A pipe is enlarged to 1 MiB if the user may have that.
 *   socket           written with MSG_DONTWAIT
 *   regular file     written through the shared description, so that its offset stays right
 *   cannot reopen    (a terminal of another user after su; no /proc) polled, then at most 256 bytes are
 *                    written. This blocks only if a terminal stops within these bytes.
 *   closed           all bytes are discarded
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
    int own;   /* the description of our own, if SINK_REOPENED; else -1 */
    int ready; /* an epoll descriptor, readable when the sink takes bytes; -1: the sink always takes bytes */
    bool tty;
};

/** Never fails: a descriptor that cannot be used becomes SINK_NONE. `fd` is borrowed until sink_fini(). */
void sink_init(struct sink *sink, int fd);
void sink_fini(struct sink *sink);

/** Do both descriptors refer to the same terminal, pipe or file? */
bool sink_same(int fd, int other_fd);

/**
 * Write up to n bytes. Returns how many were taken, or 0 if none can be taken now. Returns -1 with errno if
 * the sink is lost: it is SINK_NONE from then on.
 */
ssize_t sink_write(struct sink *sink, const char *bytes, size_t n);

/**
 * Write all of `text` to `fd`, for a last line outside of the loop. Gives up when no byte was taken for
 * `patience_ms`; a negative value waits without limit. Blocking.
 */
void sink_say(int fd, const char *text, int patience_ms);

/**
 * Wait at most `timeout_ms` until the sink takes bytes; a negative value waits without limit. False: timeout.
 */
bool sink_wait(const struct sink *sink, int timeout_ms);

/** Width of the terminal in columns; 80 if it is unknown. */
int sink_width(const struct sink *sink);

#endif
