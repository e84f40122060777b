/*
 * Inside agent/daemon, by file:
 *   daemon.c          the service: signals, accepting, the end
 *   daemon_client.c   one connection, its request, and the watch over its job
 *   daemon_groups.c   the control groups of the jobs
 *   daemon_job.c      the process of a job, until it becomes fsdprun
 *   daemon_lease.c    the socket of that fsdprun: GPUs, and the start of the workers
 *   daemon_idle.c     when the daemon ends by itself
 *   daemon_socket.c   the socket that is listened on
 *   daemon_systemd.c  what systemd is told, and the configuration that is read again
 *   daemon_pidfile.c  the file with the daemon's process id
 */
#ifndef AGENT_DAEMON_IMPL_H
#define AGENT_DAEMON_IMPL_H

#include <stdbool.h>
#include <uv.h>

#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon.h"
#include "agent/daemon/job_group.h"
#include "agent/daemon/queue.h"
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
    uv_timer_t idle;  /* daemon_idle.c */
    uv_signal_t signals[DAEMON_N_SIGNALS];
    struct watchdog watchdog;
    struct settings settings;
    struct job_groups groups;
    unsigned
        /* groups of jobs that have ended, in which some process still lives */
        leaving[DAEMON_MAX_CONNECTIONS];
    int n_leaving;
    uv_timer_t leaving_again;
    int listen_fd, lock_fd, pidfile_fd;
    struct client *clients;
    int n_clients;
    struct queue queue; /* of the clients' jobs */
    bool stopping;
};

/*
 * A connection and its job, or a job whose connection is closed. daemon_client.c owns this struct, and frees
 * it when connection and job are gone and no process of the job is left.
 */
struct client {
    struct service *service;
    struct client *next, *previous;
    int fd; /* of the connection; -1: closed */
    uv_poll_t poll;
    /*
     * at first the time by which the client's request must be whole; later the time by which the job must
     * have said how many GPUs it needs
     */
    uv_timer_t deadline;
    uv_poll_t job_poll; /* on the job's pidfd */
    uv_poll_t channel_poll;
    struct frame_parser parser;
    int stdio[3], n_stdio; /* the descriptors that came with the request */
    unsigned group;        /* the job's control group, as job_group_make() numbers it; 0: none */
    struct os_child child; /* the job's process; pidfd -1: there is none, or it has been reaped */
    /* the socket of agent/daemon/lease.h; -1: no job, or no process of it is left */
    int channel_fd;
    struct queue_job place;       /* of the job */
    char told[QUEUE_WORDS_BYTES]; /* the words last sent to the job about what it waits for */
    bool detached, queued,
        /* detached: --detach was given; queued: the job has waited for GPUs; started: its workers have run */
        started;
    char *runtime_dir, *temporary; /* of the job's environment (struct control_place); NULL: no job yet */
    bool saves;                    /* the job is that of a job file, and can be asked for a checkpoint */
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

/** Take the connections that wait. */
void daemon_accept(struct service *service);

/** Take no more jobs, and ask those that run to end. The loop goes on until the last has ended. */
void daemon_stop(struct service *service);

/* daemon_idle.c */

enum fsdp_status daemon_idle_open(struct service *service);

/** The number of clients has changed. */
void daemon_idle_look(struct service *service);

/* daemon_client.c */

/** Take a new connection. `fd` belongs to the client from here on, also on failure. */
void daemon_welcome(struct service *service, int fd);

/** Close the connection if it is open. Kill the job with it, unless it is detached and has started. */
void daemon_hang_up(struct client *client);

/** Send a signal to the job's process, the guard. Without a job this does nothing. */
void daemon_signal_job(const struct client *client, int signal);

/** Send a message that is a number. Without a connection this does nothing. */
void daemon_say(struct client *client, enum control_type type, uint32_t number);

/** For uv_close() of a handle that counts in client->n_open_handles. */
void daemon_handle_closed(uv_handle_t *handle);

/* daemon_lease.c */

/**
 * The job has a process now, and gets a place in the queue. `fd` is the daemon's end of the job's socket; it
 * belongs to the client from here on. Returns false, with `fd` closed, if the socket cannot be watched.
 */
bool daemon_channel_open(struct client *client, int fd);

/** Read what the job has sent over its socket. Does nothing if there is no socket. */
void daemon_channel_look(struct client *client);

/** Close the socket: the job leaves the queue, and its GPUs are free. Without one this does nothing. */
void daemon_channel_close(struct client *client);

/**
 * The job has not said in time how many GPUs it needs: no GPU is kept for it any longer. Does nothing if it
 * has said so.
 */
void daemon_place_lost(struct client *client);

/** Give GPUs to the jobs that may have them now, and tell the others what they wait for. */
void daemon_queue_look(struct service *service);

/* daemon_groups.c */

/** Begin to make groups, if the configuration wants them and the system lets us; else one line says why. */
void daemon_groups_begin(struct service *service);

/** Close the folders of the groups. The loop must run once more. */
void daemon_groups_end(struct service *service);

/**
 * Make a group for a job that is about to start.
 *   number, path  what job_group_make() returns; 0 and "" where there are no groups
 *   FSDP_ERR_IO      the system refuses it
 *   FSDP_ERR_CONFIG  jobs are to have a limit, and there are no groups
 */
enum fsdp_status daemon_group_make(struct service *service, unsigned *number, char *path,
                                   struct fsdp_err *err);

/** Kill what is left in the group of a job that has ended or was never started, and remove the group. */
void daemon_group_leave(struct service *service, unsigned number);

/* daemon_systemd.c */

/** Tell systemd that the daemon is ready, and how many jobs run. Called whenever that has changed. */
void daemon_tell_status(const struct service *service);

/** Read the configuration again. If it is wrong, one line says so, and the old one stays. */
void daemon_reload(struct service *service);

/* daemon_pidfile.c */

/** Is `fd` the file at `path`? */
bool daemon_is_at(int fd, const char *path);

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
