/*
 * Runs a program that belongs to the cluster, such as scontrol or munge, and returns what it writes. It is
 * not for workers, which the agent starts (agent/os). Call it only while this process has no other child.
 */
#ifndef LAUNCHER_COMMAND_H
#define LAUNCHER_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { COMMAND_OUT_BYTES = 16384, COMMAND_INPUT_BYTES = 4096 };

/**
 * Runs the program argv[0], which is searched on PATH, and waits for its end. Meanwhile this process blocks
 * all signals, and the program inherits that. So only SIGKILL ends either.
 *   argv        terminated by NULL
 *   input       the program's standard input, at most COMMAND_INPUT_BYTES long; NULL: empty
 *   timeout_ms  after this time the program is killed
 *   out         receives the first COMMAND_OUT_BYTES - 1 bytes of its stdout and stderr together, terminated
 *               by a zero byte
 *   status      receives its exit status; 128 + n if signal n ended it
 *   FSDP_ERR_NOT_FOUND  there is no such program
 *   FSDP_ERR_IO         it could not be started, or did not end in time
 */
enum fsdp_status command_run(const char *const argv[], const char *input, int64_t timeout_ms,
                             char out[COMMAND_OUT_BYTES], int *status, struct fsdp_err *err);

#endif
