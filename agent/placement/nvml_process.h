/*
 * NVML runs in a process of its own: its calls may block, for good even, crash, or leave threads and mappings behind. That process is
 * this very program, executed anew: nothing of ours runs between fork and exec, so that it may be started beside threads, and
 * it has nothing of ours open but the pipe that it answers on.
 *
 * A program that starts one calls nvml_process_main() first in its own main().
 */
#ifndef AGENT_NVML_PROCESS_H
#define AGENT_NVML_PROCESS_H

#include <sys/types.h>

#include <fsdp/status.h>

enum nvml_role {
    NVML_ASK,   /* agent/placement/nvml.c: tells what devices there are, and ends */
    NVML_WATCH, /* agent/placement/nvml_watch.c: tells how they are until it is killed */
};

/**
 * Start it. *fd (close-on-exec) is read from; it ends with the process. The process dies with the thread that called this; its end
 * is the caller's to reap, and *fd to close.
 *   library  as dlopen() takes it; NULL: the driver's own name
 *   FSDP_ERR_IO  no process, no pipe
 * Thread: any.
 */
enum fsdp_status nvml_process_start(enum nvml_role role, const char *library, pid_t *pid, int *fd,
                                    struct fsdp_err *err);

/** Is this process such a one, by how it was called? Then it does its work, and this does not return. */
void nvml_process_main(int argc, char **argv);

#endif
