/*
 * fsdp-agent as a service of one user: fsdprun --agent SOCKET hands it a job, and it runs the job as fsdprun would
 * have run it itself.
 *
 * The daemon only listens. Each job is a process of its own (this program, started anew with the environment,
 * working directory and terminal of the fsdprun that asked) that calls agent_run(): the same guard, the same agent,
 * the same bits; jobs share nothing and several may run at once. Three rules end them:
 *   - fsdprun's connection breaks: its job's guard is killed, and what the guard watched ends as it always does,
 *     unless the job was detached and has started;
 *   - the daemon is told to stop (TERM, INT): a job file's job saves and ends, a program gets TERM; told again: all are
 *     killed;
 *   - the daemon dies: the guards die by their parent-death signal, detached jobs too.
 *
 * The socket is 0600, its folder is ours and nobody else's to write, and a peer must be of our own uid or root. What
 * a client may send before it is known to be whole is bounded in size and time; what is damaged is refused and
 * touches no job.
 */
#ifndef AGENT_DAEMON_H
#define AGENT_DAEMON_H

#include <fsdp/status.h>

#include "agent/os/os.h"

enum {
    DAEMON_REQUEST_MS = 5000, /* a request must be whole after this */
    DAEMON_MAX_CONNECTIONS = 256,
};

struct daemon_config {
    const char *socket_path;
    const char *pidfile; /* NULL: none */
    const char *program; /* what a job's process executes: this program */
    const struct os_baseline *baseline;
};

/**
 * Serve until told to stop; the caller becomes the daemon. Returns the exit status: 0 after TERM or INT, 75 when
 * another agent serves the socket or holds the pidfile, 74 or 78 when these cannot be made; one line on stderr says why.
 */
int daemon_run(const struct daemon_config *config);

/**
 * The process of one job. Returns the job's exit status.
 *   request_fd  has the request (a memfd); closed when it has been read
 *   start_fd    gets one byte once the job's workers run, and is closed then; -1: no caller waits for that
 */
int daemon_run_job(int request_fd, int start_fd);

/**
 * Listen on `path`: its folder is made (0700) where it is not there, a socket left behind is removed, two agents are
 * kept apart by a lock on `path`.lock (*lock_fd, held as long as it is open).
 *   FSDP_ERR_BUSY    another agent serves it
 *   FSDP_ERR_CONFIG  others may write the folder, something that is no socket of ours stands there, or too long
 */
enum fsdp_status daemon_listen(const char *path, int *listen_fd, int *lock_fd, struct fsdp_err *err);

/** Tell systemd, where it asked to be told ($NOTIFY_SOCKET): "READY=1", "STOPPING=1". */
void daemon_notify(const char *state);

#endif
