/*
 * Waiting for words in the head of a snapshot segment, from one process to another (futex(2)): a worker fills
 * slots, and a process of its agent copies them (agent/snapshot/copies.h).
 *
 * Thread: any.
 */
#ifndef SHARDFILE_SNAPSHOT_WAIT_H
#define SHARDFILE_SNAPSHOT_WAIT_H

#include <fsdp/link.h>

/** The value to give to snapshot_wait(). Read it before the words that are waited for. */
uint32_t snapshot_changes(const struct fsdp_snapshot_head *head);
/** Waits until snapshot_wake() is called in some process, at most so long. It may return early. */
void snapshot_wait(struct fsdp_snapshot_head *head, uint32_t changes, int timeout_ms);
/** A word has changed. */
void snapshot_wake(struct fsdp_snapshot_head *head);

#endif
