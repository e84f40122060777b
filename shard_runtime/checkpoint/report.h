/*
 * What a rank tells the coordinator of its part of a save, and what it is told: the two halves of publishing
 * through an agent.
 */
#ifndef CHECKPOINT_REPORT_H
#define CHECKPOINT_REPORT_H

#include <stddef.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link;

/**
 * Sends the report. Rank 0's has the manifest's head (`length` bytes); NULL: none. If there is no memory for
 * the head, the report says that this rank's part failed: saved->status and words are changed.
 *   FSDP_ERR_PEER  the agent is gone
 */
enum fsdp_status report_send(struct link *link, struct fsdp_link_saved *saved, const char *head,
                             size_t length, struct fsdp_err *err);

/** Waits for the verdict on `step`, and returns it. `own` is the status of this rank's report. */
enum fsdp_status report_wait(struct link *link, int64_t step, enum fsdp_status own, struct fsdp_err *err);

/** The verdict as a status, with its words in `err`. */
enum fsdp_status report_verdict(struct fsdp_link_published *published, enum fsdp_status own,
                                struct fsdp_err *err);

#endif
