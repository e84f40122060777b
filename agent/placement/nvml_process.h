/*
 * NVML runs in a process of its own, because its calls may block without limit, crash, or leave threads and
 * mappings. That process is this program, executed again. No code of ours runs between fork and exec, so a
 * program with threads may start it. It has nothing of ours open except the socket for its answer.
 *
 * A program that starts such a process must call nvml_process_main() first in its own main().
 */
#ifndef AGENT_NVML_PROCESS_H
#define AGENT_NVML_PROCESS_H

#include <sys/types.h>

#include <fsdp/status.h>

enum nvml_role {
    NVML_ASK, /* lists the devices, and ends (nvml.c) */
    /*
     * Samples the devices until the socket is closed, or ends at once if NVML is missing or refuses
     * (nvml_watch.c). It writes one struct gpu_sample after another, each with one write():
     *   - samples of every GPU: one at the start, and one at once for every byte that it is sent. After such
     *     a byte, one every 20 ms for a second, then every 250 ms for ten seconds, then every 5 s;
     *   - an XID when it comes.
     */
    NVML_WATCH,
};

/**
 * Start the process. *fd (close-on-exec) is our end of the stream socket that is its input and its output.
 * The process dies with the calling thread. The caller reaps it and closes *fd.
 *   library  for dlopen(); NULL: the driver's own name
 *   FSDP_ERR_IO  the process or the socket could not be made
 * Thread: any.
 */
enum fsdp_status nvml_process_start(enum nvml_role role, const char *library, pid_t *pid, int *fd,
                                    struct fsdp_err *err);

/** If argv[0] is one of such a process, do its work and exit. Otherwise return at once. */
void nvml_process_main(int argc, char **argv);

#endif
