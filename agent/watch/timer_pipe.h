/*
 * The FIFO through which workers set watchdog timers (agent/watch/timers.h), and the signals when one
 * expires. As with torchrun, the agent's environment asks for it: TORCHELASTIC_ENABLE_FILE_TIMER=1 makes a
 * FIFO, and TORCHELASTIC_TIMER_FILE names its path. Workers get the path in TORCHELASTIC_TIMER_FILE.
 *
 * Nothing is polled. The loop wakes for a line, and at the first deadline. That is a timerfd of the epoch
 * clock, so it follows when the clock is set. Only descendants of this process are signalled, never the
 * process itself. Thread: the loop's.
 */
#ifndef AGENT_TIMER_PIPE_H
#define AGENT_TIMER_PIPE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/watch/timers.h"

struct timer_pipe;

struct timer_handlers {
    void *arg;
    /*
     * A timer of a living descendant has expired. After this returns, the process gets the timer's signal, if
     * any.
     */
    void (*expired)(void *arg, const struct timer_request *timer);
    /* reports a line for the user: which request was dropped, and why */
    void (*note)(void *arg, const char *words);
};

/**
 * Does this process's environment ask for a FIFO? If so, `path` (4096 bytes) receives the wanted path; empty
 * if any path will do.
 */
bool timer_pipe_wanted(char *path);

/**
 * Make the FIFO, with mode 0600:
 *   - A FIFO at `path` without a reader is left over from a run that was killed. It is replaced.
 *   - A FIFO at `path` with a reader belongs to another agent, whose worker we are. A new one is made in
 *     `folder`.
 *   - If `path` is empty or another kind of file, a new one is made in `folder` (NULL: TMPDIR, or /tmp).
 */
enum fsdp_status timer_pipe_create(struct timer_pipe **out, uv_loop_t *loop, const char *path,
                                   const char *folder, const struct timer_handlers *handlers,
                                   struct fsdp_err *err);

/** Close and remove the FIFO. The loop's close callbacks free the memory. NULL is a no-op. */
void timer_pipe_destroy(struct timer_pipe *pipe);

const char *timer_pipe_path(const struct timer_pipe *pipe);

/** A generation begins: drop all timers. */
void timer_pipe_reset(struct timer_pipe *pipe);
/** A process has ended: drop its timers. */
void timer_pipe_drop(struct timer_pipe *pipe, pid_t pid);
/** All processes were stopped for that long: every deadline moves by as much. */
void timer_pipe_suspended(struct timer_pipe *pipe, int64_t slept_ns);

#endif
