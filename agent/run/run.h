/*
 * One run on this node, on the caller's loop: run directory, console, logs, coordinator and world put together.
 * An agent has one (agent/run/agent.c). It takes every child of the process for its own, and SIGCHLD; other signals are the caller's, which says what came by run_signal().
 */
#ifndef AGENT_RUN_H
#define AGENT_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/os/os.h"

struct run;

/**
 * Begin. `config` and `baseline` are borrowed until `done`, which is called once, from the loop, when every handle
 * is closed and the last line is written; `run` is gone then. `stuck`: a thread still waits for the disk, so that
 * the process must be left by _exit().
 *   FSDP_ERR_BUSY, FSDP_ERR_CONFIG  the run directory
 *   FSDP_ERR_UNSUPPORTED            a CPU binding that this machine does not have
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM     the system refuses something
 * On failure nothing is left and `done` is not called; run the loop once to its end.
 */
enum fsdp_status run_start(struct run **out, uv_loop_t *loop, const struct agent_config *config,
                           const struct os_baseline *baseline,
                           void (*done)(void *arg, int status, bool stuck), void *arg, struct fsdp_err *err);

/** What the signal means to a run: it stops it, asks for a checkpoint first, or goes on to the workers (config). */
void run_signal(struct run *run, int signal);

/** The terminal may have another size (SIGWINCH). */
void run_resized(struct run *run);

/** The process, and its workers with it, stood still for so long (Ctrl-Z, fg). */
void run_suspended(struct run *run, int64_t slept_ns);

#endif
