/*
 * The exit code that a failure ends a process with: the one table for launcher, agent and trainer (docs/operations.md,
 * exit status).
 */
#ifndef CORE_EXIT_STATUS_H
#define CORE_EXIT_STATUS_H

#include <fsdp/link.h>
#include <fsdp/status.h>

/**
 * The exit code for `status`: 0 for FSDP_OK, else an enum fsdp_exit. A value that is no status gives FSDP_EXIT_BUG.
 *
 * A caller decides itself only where the place of a failure says more than its status. Two such places exist: a bad
 * option or request is FSDP_EXIT_USAGE, and a second agent on a socket is FSDP_EXIT_PEER.
 */
int exit_status_of(enum fsdp_status status);

#endif
