/*
 * A worker's end of the link to its node's agent (<fsdp/link.h>). Blocking. Any thread may call anything but link_open()
 * and link_close(); a second link_get() waits for the first. Packets that arrive while an answer is awaited are kept:
 * notices are seen by link_poll_notice(), nothing is lost.
 *
 * A process that was not started by an agent has no FSDP_LINK_FD and is a world of one: link_open() then gives
 * a link with `hello.world_size` 1, whose put and get work within the process, whose events go nowhere, and
 * whose save is published by the caller itself (link_alone()).
 *
 * Failure is sticky: once the agent is gone, sent what is not this protocol, or said ABORT, every call that would
 * wait or send returns that same status; notices already taken in can still be read.
 */
#ifndef COMM_LINK_CLIENT_H
#define COMM_LINK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link;

/**
 * Take FSDP_LINK_FD from the environment (and make it close-on-exec and unset it), read HELLO and, if there is one, JOB.
 *   FSDP_ERR_PEER    the agent is gone
 *   FSDP_ERR_FORMAT  what came is not this version's hello
 */
enum fsdp_status link_open(struct link **out, struct fsdp_err *err);
void link_close(struct link *link);

bool link_alone(const struct link *link);
const struct fsdp_link_hello *link_hello(const struct link *link);
/** The resolved job as JSON text of *length bytes, zero-terminated, owned by the link; NULL if there is none. */
const char *link_job(const struct link *link, size_t *length);
/** Never NULL: a private page when there is no agent. */
struct fsdp_progress *link_progress(const struct link *link);
/** Show the agent, on the progress page, that this process goes on. Any thread. */
void link_alive(const struct link *link);
/** The socket, to poll for a hang-up beside other things; -1 when alone. */
int link_fd(const struct link *link);

/**
 * Publish `key` in this generation; `fd` >= 0 travels along (a copy; the caller keeps its own) to ranks of this host.
 * A key is put once: alone, a second put is FSDP_ERR_ARG. Too long a key or value is FSDP_ERR_ARG, and nothing is sent.
 */
enum fsdp_status link_put(struct link *link, const char *key, const void *value, size_t size_bytes, int fd,
                          struct fsdp_err *err);
/**
 * Wait until `key` is there. *size_bytes: in the capacity of `value`, out the length.
 *   fd   NULL, or receives the descriptor that travelled along (close-on-exec, the caller's), -1 if none
 *   FSDP_ERR_PEER       the agent is gone, or it said that a peer is (ABORT)
 *   FSDP_ERR_FORMAT     the value is longer than the capacity
 *   FSDP_ERR_NOT_FOUND  alone, and the key was never put: nobody else will
 */
enum fsdp_status link_get(struct link *link, const char *key, void *value, size_t *size_bytes, int *fd,
                          struct fsdp_err *err);

/** Append `json_object` to events.jsonl; the agent adds time and generation. */
enum fsdp_status link_event(struct link *link, const char *json_object, struct fsdp_err *err);

/** Tell that this rank's part is saved (manifest_fd: rank 0's head, else -1). */
enum fsdp_status link_saved(struct link *link, const struct fsdp_link_saved *saved, int manifest_fd,
                            struct fsdp_err *err);
/** Wait for the coordinator's verdict on `step`. */
enum fsdp_status link_published(struct link *link, int64_t step, struct fsdp_link_published *published,
                                struct fsdp_err *err);

/** True once, for each notice that has arrived; never waits. */
bool link_poll_notice(struct link *link, struct fsdp_link_notice *notice);

/**
 * Take in what has arrived, without waiting; for whoever waits elsewhere and must notice that it waits in vain.
 *   FSDP_ERR_PEER    the agent is gone, or it said that a peer is (ABORT, or the progress page's abort_word)
 *   FSDP_ERR_FORMAT  it sent what this version does not know
 */
enum fsdp_status link_check(struct link *link, struct fsdp_err *err);

#endif
