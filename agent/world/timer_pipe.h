/*
 * The FIFO by which workers set watchdog timers (agent/world/timers.h), and what happens when one expires. There where the
 * agent's environment asks for it, as with torchrun: TORCHELASTIC_ENABLE_FILE_TIMER=1 makes one, TORCHELASTIC_TIMER_FILE
 * says where. Workers find it as TORCHELASTIC_TIMER_FILE.
 *
 * Nothing is polled: the loop wakes for a line, and at the first deadline (a timerfd of the epoch clock, so that a
 * clock that is set takes its deadlines along). Only processes below this one are ever signalled, never this one.
 * Thread: the loop's.
 */
#ifndef AGENT_TIMER_PIPE_H
#define AGENT_TIMER_PIPE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/world/timers.h"

struct timer_pipe;

struct timer_handlers {
    void *arg;
    /* One has expired; its process is alive and below us. It is signalled when this returns, if it has a signal. */
    void (*expired)(void *arg, const struct timer_request *timer);
    void (*note)(void *arg, const char *words); /* a line for people: what was dropped, and why */
};

/** Where the environment wants it: false, it wants none; else `path` (4096 bytes), empty where we choose. */
bool timer_pipe_wanted(char *const *environment, char *path);

/**
 * Make it, mode 0600. A FIFO that nobody reads (left by a run that was killed) at `path` is replaced; one that is read
 * is another agent's, whose worker we are: then, and where `path` is empty or stands for a file of another kind, a fresh
 * one is made in `folder` (NULL: TMPDIR, or /tmp).
 */
enum fsdp_status timer_pipe_create(struct timer_pipe **out, uv_loop_t *loop, const char *path,
                                   const char *folder, const struct timer_handlers *handlers,
                                   struct fsdp_err *err);

/** Close and remove it; memory is freed as the loop runs. NULL is a no-op. */
void timer_pipe_destroy(struct timer_pipe *pipe);

const char *timer_pipe_path(const struct timer_pipe *pipe);

/** A generation begins: nothing of the one before is left. */
void timer_pipe_reset(struct timer_pipe *pipe);
/** A process has ended. */
void timer_pipe_drop(struct timer_pipe *pipe, pid_t pid);
/** The processes stood still for so long. */
void timer_pipe_suspended(struct timer_pipe *pipe, int64_t slept_ns);

#endif
