/*
 * Lets a process wait until another one changes words in the head of a snapshot segment (futex(2)). A worker
 * fills the slots, and a process of its agent copies them (agent/snapshot/copies.h).
 *
 * Thread: any.
 */
#ifndef SHARDFILE_SNAPSHOT_WAIT_H
#define SHARDFILE_SNAPSHOT_WAIT_H

#include <fsdp/link.h>

/** Returns the value to pass to snapshot_wait(). Read it before the words whose change is waited for. */
uint32_t snapshot_changes(const struct fsdp_snapshot_head *head);
/** Waits until some process calls snapshot_wake(), at most `timeout_ms`. May return early. */
void snapshot_wait(struct fsdp_snapshot_head *head, uint32_t changes, int timeout_ms);
/** Wakes all waiting processes. Call it after a word has changed. */
void snapshot_wake(struct fsdp_snapshot_head *head);

#endif
