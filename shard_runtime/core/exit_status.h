/*
 * The exit code of a process that ends because of a failure. Launcher, agent and trainer all use this one
 * table (docs/operations.md, exit status).
 */
#ifndef CORE_EXIT_STATUS_H
#define CORE_EXIT_STATUS_H

#include <fsdp/link.h>
#include <fsdp/status.h>

/**
 * Returns the exit code for `status`: 0 for FSDP_OK, else one of enum fsdp_exit. Returns FSDP_EXIT_BUG for a
 * number that is not a status.
 *
 * A caller chooses another code only if the place of the failure is more telling than its status. Two such
 * places exist: a bad option or request (exit_status_of_request()), and a second agent on a socket, which is
 * FSDP_EXIT_PEER.
 */
int exit_status_of(enum fsdp_status status);

/**
 * Returns the exit code for the status of what a user asked for on the command line: FSDP_EXIT_USAGE for
 * FSDP_ERR_CONFIG, else exit_status_of().
 */
int exit_status_of_request(enum fsdp_status status);

#endif
