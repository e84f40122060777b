/*
 * Inside agent/daemon: daemon.c listens, accepts and ends; daemon_client.c is one connection and its job;
 * daemon_pidfile.c the file with the daemon's number.
 */
#ifndef AGENT_DAEMON_IMPL_H
#define AGENT_DAEMON_IMPL_H

#include <stdbool.h>
#include <uv.h>

#include "agent/daemon/daemon.h"
#include "agent/os/os.h"
#include "agent/wire/frame.h"

enum { DAEMON_N_SIGNALS = 3 };

struct service {
    const struct daemon_config *config;
    uv_loop_t loop;
    uv_poll_t listener;
    uv_timer_t again; /* accepting waits for descriptors */
    uv_signal_t signals[DAEMON_N_SIGNALS];
    int listen_fd, lock_fd, pidfile_fd;
    struct client *clients;
    int n_clients;
    bool stopping;
};

/* A connection, its job, or a job without a connection. Freed when it has neither. */
struct client {
    struct service *service;
    struct client *next, *previous;
    int fd; /* -1: closed */
    uv_poll_t poll;
    uv_timer_t deadline; /* of the request */
    uv_poll_t job_poll;  /* on the pidfd */
    uv_poll_t start_poll;
    struct frame_parser parser;
    int stdio[3], n_stdio;
    struct os_child child; /* pidfd -1: no job, or reaped */
    int start_fd;          /* a byte comes when the job's workers run; -1: no job, or it has come */
    bool detached, started;
    bool saves; /* a job of ours: it can be asked for a checkpoint */
    int n_open_handles;
};

/* --- daemon.c --- */

__attribute__((format(printf, 1, 2))) void daemon_log(const char *format, ...);

/** Call it when a client was freed: once no job is left, a daemon that is told to stop closes what is open. */
void daemon_settle(struct service *service);

/* --- daemon_client.c --- */

/** A new connection; `fd` is the client's from here on, on failure too. */
void daemon_welcome(struct service *service, int fd);

/** Close the connection, if it is open. The job is killed with it, unless it was detached and has started. */
void daemon_hang_up(struct client *client);

void daemon_signal_job(const struct client *client, int signal);

/* --- daemon_pidfile.c --- */

/**
 * Write this process's number to `path` and hold a lock on it as long as *fd is open. What stands there is not changed
 * when it fails, and *fd is -1.
 *   FSDP_ERR_BUSY  another agent holds it
 *   FSDP_ERR_IO    it cannot be opened or written
 */
enum fsdp_status daemon_pidfile_take(const char *path, int *fd, struct fsdp_err *err);

/** Remove the file and let go of it; an fd of -1 is a no-op. */
void daemon_pidfile_drop(const char *path, int fd);

#endif
