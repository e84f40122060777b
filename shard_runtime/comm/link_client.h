/*
 * A worker's end of the link to its node's agent (<fsdp/link.h>). Calls block unless they say otherwise. Any
 * thread may call any function but link_open() and link_close(); a second link_get() waits for the first.
 * Packets that arrive while a call waits for an answer are kept: link_poll_notice() returns the notices, and
 * no packet is lost.
 *
 * A process that no agent started has no FSDP_LINK_FD, and is a world of one. link_open() then gives a link
 * with hello.world_size 1. Put and get work within the process, events are dropped, and the caller itself
 * publishes what it saves (link_alone()).
 *
 * Failure is sticky. It is the agent's end, a packet that is not of this protocol, or ABORT. From then on
 * every call that would wait or send returns the same status. Notices that have been received can still be
 * read.
 */
#ifndef COMM_LINK_CLIENT_H
#define COMM_LINK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link;

/**
 * Takes FSDP_LINK_FD from the environment, makes it close-on-exec and unsets the variable. Then reads HELLO
 * and, if there is one, JOB. *out is the caller's to close; NULL after an error.
 *   FSDP_ERR_PEER    the agent is gone
 *   FSDP_ERR_FORMAT  what came is not this version's hello
 */
enum fsdp_status link_open(struct link **out, struct fsdp_err *err);
/** Closes the link, and all descriptors and memory that it owns. NULL is a no-op. */
void link_close(struct link *link);

/** Returns whether there is no agent. */
bool link_alone(const struct link *link);
/** Returns the agent's hello: rank, world, generation, token, run directory. Owned by the link. */
const struct fsdp_link_hello *link_hello(const struct link *link);
/**
 * Returns the resolved job as JSON text of *length bytes, zero-terminated, owned by the link; NULL if there
 * is none.
 */
const char *link_job(const struct link *link, size_t *length);
/** Returns the progress page, never NULL: without an agent it is a private page. Owned by the link. */
struct fsdp_progress *link_progress(const struct link *link);
/** Shows the agent, on the progress page, that this process still works. */
void link_alive(const struct link *link);

/**
 * Publishes `key` with its value (size_bytes) in this generation. If fd >= 0, a copy of it travels along to
 * ranks of this host; the caller keeps its own.
 *   FSDP_ERR_ARG   the key or value is too long, and nothing is sent; or, without an agent, the key was put
 *                  before
 *   FSDP_ERR_PEER  the agent is gone
 */
enum fsdp_status link_put(struct link *link, const char *key, const void *value, size_t size_bytes, int fd,
                          struct fsdp_err *err);
/**
 * Waits until a rank has put `key`.
 *
 *   value, size_bytes  *size_bytes is the capacity of `value` at first, and the value's length afterwards
 *   fd                 NULL, or receives the descriptor that travelled along, close-on-exec and the caller's;
 *                      -1 if none
 *
 *   FSDP_ERR_PEER       the agent is gone, or it said that another rank is (ABORT)
 *   FSDP_ERR_FORMAT     the value is longer than the capacity
 *   FSDP_ERR_NOT_FOUND  there is no agent and the key was not put: no other process will put it
 */
enum fsdp_status link_get(struct link *link, const char *key, void *value, size_t *size_bytes, int *fd,
                          struct fsdp_err *err);

/**
 * Appends `json_object` to events.jsonl; the agent adds time and generation. FSDP_ERR_ARG: it is no object,
 * or too long.
 */
enum fsdp_status link_event(struct link *link, const char *json_object, struct fsdp_err *err);

/**
 * Tells the coordinator that this rank's part of a checkpoint is saved, or that it failed. manifest_fd: a
 * file with the head of the manifest, from rank 0; -1 from others. The caller keeps the descriptor.
 */
enum fsdp_status link_saved(struct link *link, const struct fsdp_link_saved *saved, int manifest_fd,
                            struct fsdp_err *err);
/** Waits for the coordinator's verdict on `step`. */
enum fsdp_status link_published(struct link *link, int64_t step, struct fsdp_link_published *published,
                                struct fsdp_err *err);

/**
 * Returns true, with the verdict on `step`, if it has come. Never waits. A failure of the link shows in the
 * next call that waits.
 */
bool link_poll_published(struct link *link, int64_t step, struct fsdp_link_published *published);

/** Returns true once for each notice that has arrived, oldest first, with the notice. Never waits. */
bool link_poll_notice(struct link *link, struct fsdp_link_notice *notice);

/**
 * Receives what has arrived, without waiting. For a caller that waits for something else and must notice when
 * it waits in vain.
 *   FSDP_ERR_PEER    the agent is gone, or it said that another rank is (ABORT, or the progress page's
 *                    abort_word)
 *   FSDP_ERR_FORMAT  the agent sent what this version does not know
 */
enum fsdp_status link_check(struct link *link, struct fsdp_err *err);

#endif
