/*
 * The agent's end of the link (<fsdp/link.h>): for the workers of one generation on this node it keeps one
 * socket and one progress page each, and the generation's store of keys. A worker that breaks the protocol or
 * its limits loses its link, and is reported; one that dies is simply gone. Never blocks.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_LINK_SERVER_H
#define AGENT_LINK_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link_server;

/* What comes from the workers; called on the loop's thread. `rank` is the worker's global rank. */
struct link_server_handlers {
    void *arg;
    void (*saved)(void *arg, int rank, const struct fsdp_link_saved *saved,
                  int manifest_fd); /* the callee's fd */
    void (*event)(void *arg, int rank, const char *json, size_t length);
    void (*broken)(void *arg, int rank, const char *words); /* its link is closed; the process lives on */
    /* Optional: a worker of this node put a key (told to the other nodes). */
    void (*put)(void *arg, const char *key, const void *value, size_t size_bytes);
};

enum fsdp_status link_server_create(struct link_server **out, uv_loop_t *loop, int n_workers,
                                    const struct link_server_handlers *handlers, struct fsdp_err *err);

/** Close every link and page; memory is freed by close callbacks of the loop. NULL is a no-op. */
void link_server_destroy(struct link_server *server);

/**
 * Open the link of worker `index` (0 ... n_workers - 1) and send it `hello`, its page and, unless NULL, the job.
 * *worker_fd: the worker's end, close-on-exec, the caller's to hand over and close.
 */
enum fsdp_status link_server_add(struct link_server *server, int index, const struct fsdp_link_hello *hello,
                                 const char *job_json, int *worker_fd, struct fsdp_err *err);

/** The worker's progress page, NULL before link_server_add(); valid until link_server_destroy(). */
struct fsdp_progress *link_server_page(const struct link_server *server, int index);

/** To every worker that is still linked. */
void link_server_notify(struct link_server *server, const struct fsdp_link_notice *notice);
void link_server_publish(struct link_server *server, const struct fsdp_link_published *published);

/** A peer is gone: set every page's abort word, and send ABORT. Doing it twice changes nothing. */
void link_server_abort(struct link_server *server);

/** A key that a worker of another node put. FSDP_ERR_ARG when it is there already. */
enum fsdp_status link_server_put(struct link_server *server, const char *key, const void *value,
                                 size_t size_bytes, struct fsdp_err *err);

/** The worker of `index` has died: read what it had still sent, then close. */
void link_server_drop(struct link_server *server, int index);

#endif
