/*
 * A process of our own for work that may block without limit. It is this program, executed again, under
 * another argv[0]. No code of ours runs between fork and exec, so a program with threads may start one.
 *
 * A program that starts such a process must look at its argv[0] first in its own main(), and then call
 * self_process_begin().
 */
#ifndef CORE_SELF_PROCESS_H
#define CORE_SELF_PROCESS_H

#include <sys/types.h>

#include <fsdp/status.h>

/**
 * Starts the process, with default signals, all of them blocked: only SIGKILL and SIGSTOP reach it. It has
 * nothing of ours open but `input` and `output`, which are its stdin and stdout (-1: /dev/null), and dies
 * with the calling thread. Its arguments are `role`, `argument` and our pid. The caller reaps it.
 *   FSDP_ERR_IO  it could not be started; the message has the system's reason
 * Thread: any.
 */
enum fsdp_status self_process_start(const char *role, const char *argument, int input, int output, pid_t *pid,
                                    struct fsdp_err *err);

/**
 * Starts the process as self_process_start() does, with a SOCK_SEQPACKET as its stdin. *socket is our end,
 * close-on-exec and not blocking.
 */
enum fsdp_status self_process_talk(const char *role, pid_t *pid, int *socket, struct fsdp_err *err);
/** Kills the process. If it was reaped already, its pid may be another process's, so nothing is killed. */
void self_process_kill(pid_t pid);

/**
 * The process itself calls this: it will die with its parent, whose pid is the text `parent`, and ignores
 * SIGPIPE.
 */
void self_process_begin(const char *role, const char *parent);

#endif
