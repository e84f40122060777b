/*
 * The gate of a worker on standby (fsdprun --standby). The agent executes it before it is needed. The worker
 * waits at the gate until a generation begins that it belongs to. So this generation waits for no exec.
 */
#ifndef COMM_LINK_GATE_H
#define COMM_LINK_GATE_H

#include <stdbool.h>

#include <fsdp/status.h>

/**
 * Waits until the agent at FSDP_LINK_FD opens the gate. Then the environment, stdout and stderr of this
 * process are those of a worker of the generation, and link_open() finds its HELLO. Call it before any other
 * thread exists.
 *   opened  receives false if the agent closed its end: the worker is not needed, and should end
 * Fails with FSDP_ERR_FORMAT if there is no agent, or if what it sent opens no gate.
 */
enum fsdp_status link_gate_wait(bool *opened, struct fsdp_err *err);

#endif
