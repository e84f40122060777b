/*
 * fsdp-agent as a service of one user. `fsdprun --agent SOCKET` hands a job to it, and the job runs as it
 * would have run under that fsdprun itself.
 *
 * The daemon only listens and watches. Each job is a process of its own: fsdprun, started with the arguments,
 * environment, working directory, limits and standard streams of the fsdprun that asked. It has the usual
 * guard and agent, so jobs share nothing, several may run at once, and the results are the same, bit for bit.
 *
 * How a job starts:
 *   1. The asking fsdprun, the client, sends a RUN with its own description (agent/daemon/control_proto.h).
 *   2. The daemon starts its own program again, with the request in a memfd (daemon_run_job()).
 *   3. That process takes over umask, limits, affinity and signals, and executes the fsdprun in the daemon's
 *      own folder. A client never chooses which program is executed.
 *   4. This fsdprun learns from its first argument that a daemon waits for it. It runs the job itself,
 *      ignores --agent, and says once the workers run.
 *
 * GPUs of the node are leased to one job at a time. The job's fsdprun reads the command line, finds out which
 * GPUs it could use, and asks for as many as it needs (agent/daemon/lease.h). The daemon keeps the order
 * (agent/daemon/queue.h), and never asks a driver. A job that waits is a process that has started no worker.
 *
 * How a job ends before it is complete:
 *   - The client's connection breaks. The daemon kills the job's guard, which ends everything below it.
 *     Exception: a detached job that has started, or waits for GPUs, goes on.
 *   - The daemon gets TERM or INT. A job of a job file saves and ends; a program gets TERM. At a second
 *     signal all are killed.
 *   - The daemon dies. The guards die by their parent-death signal, those of detached jobs too.
 *
 * A client may also ask which jobs there are (JOBS). It then finds each one's own socket in the registry
 * (agent/desk), and asks the job itself.
 *
 * The socket has mode 0600 in a folder that no other user may write. A client must be of the daemon's uid, or
 * root. What a client sends is limited in size and time until it is a whole request. A damaged request is
 * refused and touches no job. At most DAEMON_MAX_CONNECTIONS clients and jobs are held; one more takes the
 * place of the oldest that has asked for nothing. The daemon leaves no core dump.
 */
#ifndef AGENT_DAEMON_H
#define AGENT_DAEMON_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/os/os.h"

enum {
    DAEMON_REQUEST_MS = 5000, /* a request must be whole after this */
    /* a job must report within this time how many GPUs it needs, or it loses its place in the queue */
    DAEMON_NEED_MS = 5000,
    DAEMON_MAX_CONNECTIONS = 256,
};

struct daemon_config {
    const char *socket_path;
    /* a socket of systemd's that listens already, and stays when the daemon ends; -1: none */
    int socket_fd;
    const char *pidfile; /* NULL: none */
    /* the configuration file (agent/daemon/settings.h); NULL: none, and all settings are the defaults */
    const char *settings_path;
    bool with_groups;  /* make a control group for each job (agent/daemon/job_group.h) */
    char *credentials; /* systemd's folder of secrets, for the jobs; "": none */
    int idle_exit_s;   /* end after so many seconds without a job and a connection; 0: never */
    /* is sent one byte once the daemon serves, and is closed; then stderr is closed too; -1: none */
    int started_fd;
    const char *program; /* the path of this program, executed again for each job */
    const struct os_baseline *baseline;
};

/**
 * Serve until a signal says stop. The caller becomes the daemon. Returns the exit status, after one line on
 * stderr where it is not 0:
 *   0       stopped by TERM or INT, or idle for too long
 *   75      another agent serves the socket or holds the pidfile
 *   74, 78  the socket or the pidfile cannot be made; 78 where another user could replace it,
 *           and where the configuration is wrong
 */
int daemon_run(const struct daemon_config *config);

/**
 * Become the fsdprun of one job. Returns only when that fails, with the exit status of the job and after one
 * line on stderr.
 *   request_fd  a memfd with the payload of a RUN; this function closes it
 *   start_fd    the socket of agent/daemon/lease.h; stays open in fsdprun
 */
int daemon_run_job(int request_fd, int start_fd);

/**
 * Listen on the unix socket `path`. Makes its folder (mode 0700) where that is missing, and removes a socket
 * that a dead daemon left there.
 *   listen_fd  the listening socket, the caller's
 *   lock_fd    holds a lock on `path`.lock as long as it is open, so that a second daemon is refused; the
 *              caller's, for daemon_unlock()
 *   FSDP_ERR_BUSY    another daemon serves the socket
 *   FSDP_ERR_CONFIG  others may write the folder, the path is too long, or the file there is not a socket of
 *                    this user
 *   FSDP_ERR_IO      the system refuses something
 * On failure both descriptors are -1.
 */
enum fsdp_status daemon_listen(const char *path, int *listen_fd, int *lock_fd, struct fsdp_err *err);

/** Remove the lock's file, and release the lock. The socket's file must have been removed before. */
void daemon_unlock(const char *path, int lock_fd);

/**
 * Do the same for a socket that systemd listens on at `path` (agent/daemon/activation.h): check its folder,
 * and take the lock. The socket itself stays as it is.
 */
enum fsdp_status daemon_adopt(const char *path, int *lock_fd, struct fsdp_err *err);

#endif
