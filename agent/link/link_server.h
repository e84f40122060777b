/*
 * The agent's end of the link (<fsdp/link.h>). Each worker of the node's current generation has a socket and
 * a progress page here. All of them share the generation's store of keys. A worker that violates the protocol
 * or its limits loses its link and is reported. Never blocks.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_LINK_SERVER_H
#define AGENT_LINK_SERVER_H

#include <stddef.h>
#include <uv.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link_server;

/* Called on the loop's thread for messages of workers. `rank` is the worker's global rank. */
struct link_server_handlers {
    void *arg;
    /* A worker has written its part of a checkpoint, or failed to. The callee owns manifest_fd. */
    void (*saved)(void *arg, int rank, const struct fsdp_link_saved *saved, int manifest_fd);
    /* A worker reports an event: `length` bytes of JSON. */
    void (*event)(void *arg, int rank, const char *json, size_t length);
    /* A worker's link was closed because it violated the protocol; its process still runs. */
    void (*broken)(void *arg, int rank, const char *words);
    /* Optional: a worker put a key without a descriptor, which workers of other nodes may ask for. */
    void (*put)(void *arg, const char *key, const void *value, size_t size_bytes);
    /* Optional: a worker asked for a key that is not there. Called once for each key. */
    void (*want)(void *arg, const char *key);
};

/** Make a server for n_workers workers, none of which is linked yet. `handlers` is copied. */
enum fsdp_status link_server_create(struct link_server **out, uv_loop_t *loop, int n_workers,
                                    const struct link_server_handlers *handlers, struct fsdp_err *err);

/** Close every link and page. The loop's close callbacks free the memory. NULL is a no-op. */
void link_server_destroy(struct link_server *server);

/**
 * Open the link of worker `index` (0 to n_workers - 1). Sends `hello`, the worker's page and, unless it is
 * NULL, the job. *worker_fd is the worker's end, close-on-exec; the caller hands it over and closes it.
 */
enum fsdp_status link_server_add(struct link_server *server, int index, const struct fsdp_link_hello *hello,
                                 const char *job_json, int *worker_fd, struct fsdp_err *err);

/**
 * Open the link of worker `index`, which exists already and has the other end of `socket`. All else is as in
 * link_server_add(). On success the server owns the socket. Otherwise the caller keeps it, and nothing was
 * sent.
 */
enum fsdp_status link_server_take(struct link_server *server, int index, const struct fsdp_link_hello *hello,
                                  const char *job_json, int socket, struct fsdp_err *err);

/** The worker's progress page, valid until link_server_destroy(). NULL before link_server_add(). */
struct fsdp_progress *link_server_page(const struct link_server *server, int index);

/** Send a notice, or the outcome of a save, to every worker that is still linked. */
void link_server_notify(struct link_server *server, const struct fsdp_link_notice *notice);
void link_server_publish(struct link_server *server, const struct fsdp_link_published *published);

/** A rank is gone: set the abort word of every page, and send ABORT. A second call changes nothing. */
void link_server_abort(struct link_server *server);

/** Put a key that a worker of another node has put. FSDP_ERR_ARG: the key exists already. */
enum fsdp_status link_server_put(struct link_server *server, const char *key, const void *value,
                                 size_t size_bytes, struct fsdp_err *err);

/**
 * Put a key with a copy of descriptor `fd`, for the workers of this node. FSDP_ERR_ARG: the key exists
 * already.
 */
enum fsdp_status link_server_put_fd(struct link_server *server, const char *key, int fd,
                                    struct fsdp_err *err);

/** Worker `index` has died: read what it had sent before, then close its link. */
void link_server_drop(struct link_server *server, int index);

#endif
