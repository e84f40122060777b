/*
 * How a rank publishes its part of a save through its agent: it reports its part to the coordinator, and then
 * receives the coordinator's verdict.
 */
#ifndef CHECKPOINT_REPORT_H
#define CHECKPOINT_REPORT_H

#include <stddef.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link;

/**
 * Sends this rank's report. Only rank 0 passes the manifest's head (`length` bytes); the others pass NULL. If
 * there is no memory for the head, the report says that this rank's part failed: saved->status and words are
 * changed.
 *   FSDP_ERR_PEER  the agent is gone
 */
enum fsdp_status report_send(struct link *link, struct fsdp_link_saved *saved, const char *head,
                             size_t length, struct fsdp_err *err);

/**
 * Waits for the coordinator's verdict on `step`, and returns it. `own` is the status that this rank reported.
 */
enum fsdp_status report_wait(struct link *link, int64_t step, enum fsdp_status own, struct fsdp_err *err);

/**
 * Returns the coordinator's verdict as a status, with its words in `err`. `own` is the status that this rank
 * reported.
 */
enum fsdp_status report_verdict(struct fsdp_link_published *published, enum fsdp_status own,
                                struct fsdp_err *err);

#endif
