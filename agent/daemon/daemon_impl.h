/*
 * Inside agent/daemon, by file:
 *   daemon.c          the service: signals, accepting, the end
 *   daemon_client.c   one connection, its request, and the watch over its job
 *   daemon_groups.c   the control groups of the jobs
 *   daemon_job.c      the process of a job, until it becomes fsdprun
 *   daemon_socket.c   the socket that is listened on
 *   daemon_systemd.c  what systemd is told, and the configuration that is read again
 *   daemon_pidfile.c  the file with the daemon's process id
 */
#ifndef AGENT_DAEMON_IMPL_H
#define AGENT_DAEMON_IMPL_H

#include <stdbool.h>
#include <uv.h>

#include "agent/daemon/daemon.h"
#include "agent/daemon/job_group.h"
#include "agent/daemon/settings.h"
#include "agent/daemon/watchdog.h"
#include "agent/os/os.h"
#include "agent/wire/frame.h"

enum { DAEMON_N_SIGNALS = 3 };

/* The daemon. daemon.c owns it; daemon_client.c links its clients in and out. */
struct service {
    const struct daemon_config *config;
    uv_loop_t loop;
    uv_poll_t listener;
    uv_timer_t again; /* runs while accepting waits for free descriptors */
    uv_signal_t signals[DAEMON_N_SIGNALS];
    struct watchdog watchdog;
    struct settings settings;
    struct job_groups groups;
    unsigned
        leaving[DAEMON_MAX_CONNECTIONS]; /* groups of jobs that have ended, with something still in them */
    int n_leaving;
    uv_timer_t leaving_again;
    int listen_fd, lock_fd, pidfile_fd;
    struct client *clients;
    int n_clients;
    bool stopping;
};

/*
 * A connection with its job, or a job whose connection has gone. daemon_client.c owns it, and frees it when
 * neither is left.
 */
struct client {
    struct service *service;
    struct client *next, *previous;
    int fd; /* of the connection; -1: closed */
    uv_poll_t poll;
    uv_timer_t deadline; /* of the request */
    uv_poll_t job_poll;  /* on the job's pidfd */
    uv_poll_t start_poll;
    struct frame_parser parser;
    int stdio[3], n_stdio;  /* the descriptors that came with the request */
    unsigned group;         /* the job's control group, as job_group_make() numbers it; 0: none */
    struct os_child child;  /* the job's process; pidfd -1: there is none, or it has been reaped */
    int start_fd;           /* a byte comes here when the workers run; -1: no job, or it has come */
    bool detached, started; /* --detach was given; the workers have run */
    bool saves;             /* the job is a job file's, and can be asked for a checkpoint */
    int n_open_handles;
};

/* daemon.c */

/** Write one line to stderr, after "fsdp-agent: ". */
__attribute__((format(printf, 1, 2))) void daemon_log(const char *format, ...);

/**
 * Close what is open, if the daemon has been told to stop and no job is left. Called whenever a client has
 * been freed.
 */
void daemon_settle(struct service *service);

/* daemon_client.c */

/** Take a new connection. `fd` belongs to the client from here on, also on failure. */
void daemon_welcome(struct service *service, int fd);

/** Close the connection if it is open. Kill the job with it, unless it is detached and has started. */
void daemon_hang_up(struct client *client);

/** Send a signal to the job's process, the guard. Without a job this does nothing. */
void daemon_signal_job(const struct client *client, int signal);

/* daemon_groups.c */

/** Begin to make groups, if the configuration wants them and the system lets us; else one line says why. */
void daemon_groups_begin(struct service *service);

/** Close what is open. The loop must run once more. */
void daemon_groups_end(struct service *service);

/**
 * Make a group for a job that is about to start.
 *   number, path  what job_group_make() returns; 0 and "" where there are no groups
 *   FSDP_ERR_IO      the system refuses it
 *   FSDP_ERR_CONFIG  jobs are to have a limit, and there are no groups
 */
enum fsdp_status daemon_group_make(struct service *service, unsigned *number, char *path,
                                   struct fsdp_err *err);

/** End what is left in the group of a job that has ended or was never started, and remove the group. */
void daemon_group_leave(struct service *service, unsigned number);

/* daemon_systemd.c */

/** Tell systemd that the daemon is ready, and how many jobs run. Called whenever that has changed. */
void daemon_tell_status(const struct service *service);

/** Read the configuration again. One that is wrong is told of, and the old one stays. */
void daemon_reload(struct service *service);

/* daemon_pidfile.c */

/**
 * Write the process id to the file `path` and lock it.
 *   fd  the open file: the lock lasts until it is closed
 *   FSDP_ERR_BUSY  another daemon holds the lock; the file stays as it is
 *   FSDP_ERR_IO    the file cannot be opened or written
 * On failure *fd is -1.
 */
enum fsdp_status daemon_pidfile_take(const char *path, int *fd, struct fsdp_err *err);

/** Remove the file and unlock it. With an `fd` of -1 this does nothing. */
void daemon_pidfile_drop(const char *path, int fd);

#endif
