/*
 * The loop's side of the process that writes snapshots to the disk (writer_process.h). The process is started
 * when the first slot is to be written. A process that has died is replaced for the next one.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_WRITER_H
#define AGENT_WRITER_H

#include <uv.h>

#include "agent/snapshot/writer_process.h"

struct writer;

/** The answer to a request. Called from the loop, once, unless writer_stop() is called before. */
typedef void writer_answered(void *arg, const struct writer_answer *answer);

/**
 * Creates a writer without a process. `answered` is called with `arg` for each answer. `word` (NULL: none) is
 * called with `arg` and the state of a request while that takes long (word_ms of the request). Returns NULL
 * if there is no memory.
 */
struct writer *writer_create(uv_loop_t *loop, writer_answered *answered, writer_answered *word, void *arg);

/**
 * Fills in the request for the slot that a worker named in its report: what is written, and where.
 *   checkpoint_dir  as `directory` of the request; NULL: empty
 *   FSDP_ERR_ARG    such a slot cannot be written
 */
enum fsdp_status writer_request_fill(struct writer_request *request, const struct fsdp_link_saved *saved,
                                     const char *run_dir, const char *checkpoint_dir, struct fsdp_err *err);

/**
 * Have a slot of `segment` written, whose descriptor stays the caller's. `request` needs an id that no other
 * request has that is not answered. If the process dies before it answers, the answer is FSDP_ERR_IO.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  there is no process, or it does not take the request. No answer will come
 */
enum fsdp_status writer_submit(struct writer *writer, const struct writer_request *request, int segment,
                               struct fsdp_err *err);

/**
 * Kill the process, and free the writer in a close callback of the loop. Requests that were not answered get
 * no answer. NULL is a no-op.
 */
void writer_stop(struct writer *writer);

#endif
