/*
 * One run on this node, on the caller's loop. It puts together run directory, console, output, coordinator or
 * uplink, and world. An agent has one run (agent/run/agent.c).
 *
 * A run takes every child of the process for its own, and handles SIGCHLD. The caller handles the other
 * signals and passes them to run_signal().
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
 * Begins a run. `config`, `baseline` and `lease` (of a node of several; else NULL) are borrowed until `done`
 * is called. `done` is called once, from the loop, when every handle is closed and the last line is written;
 * `run` no longer exists then. `stuck`: a thread still waits for a disk and uses what the run has left open,
 * so `done` must end the process by _exit().
 *   FSDP_ERR_BUSY, FSDP_ERR_CONFIG  the run directory cannot be used
 *   FSDP_ERR_UNSUPPORTED            the machine does not have the CPU binding that was asked for
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM     the system refused an operation, or memory ran out
 * After a failure nothing is left and `done` is not called; run the loop once to its end.
 */
enum fsdp_status run_start(struct run **out, uv_loop_t *loop, const struct agent_config *config,
                           const struct os_baseline *baseline, const struct lease *lease,
                           void (*done)(void *arg, int status, bool stuck), void *arg, struct fsdp_err *err);

/**
 * Handles a signal: it stops the run, asks for a checkpoint first, or is forwarded to the workers (config).
 */
void run_signal(struct run *run, int signal);

/** Handles a possible change of the terminal's size (SIGWINCH). */
void run_resized(struct run *run);

/** Tells the coordinator that the guard is gone and every rank was killed. The caller ends the process. */
void run_swept(struct run *run);

/** Reports for how long the process and its workers were stopped (Ctrl-Z, fg). */
void run_suspended(struct run *run, int64_t slept_ns);

#endif
