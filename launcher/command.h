/*
 * Run a program of the cluster's, as scontrol or munge, and take what it writes. Not for workers: those are
 * the agent's (agent/os). To be called while this process has no other child.
 */
#ifndef LAUNCHER_COMMAND_H
#define LAUNCHER_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { COMMAND_OUT_BYTES = 16384, COMMAND_INPUT_BYTES = 4096 };

/**
 * Run the program argv[0], which is looked up on PATH, and wait for its end. Meanwhile no signal but KILL
 * ends it or this process.
 *   argv        zero-terminated
 *   input       its standard input, of at most COMMAND_INPUT_BYTES; NULL: nothing
 *   timeout_ms  it is killed after so long
 *   out         gets the first COMMAND_OUT_BYTES - 1 bytes of its stdout and stderr together, zero-terminated
 *   status      gets its exit status; 128 + n after signal n
 *   FSDP_ERR_NOT_FOUND  there is no such program
 *   FSDP_ERR_IO         it could not be started, or did not end in time
 */
enum fsdp_status command_run(const char *const argv[], const char *input, int64_t timeout_ms,
                             char out[COMMAND_OUT_BYTES], int *status, struct fsdp_err *err);

#endif
