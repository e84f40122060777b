/*
 * The entries of this node (agent/snapshot/entries.h): what the workers have renamed in their directory, and
 * which of it stays.
 *
 *   1. A worker renames something to its final name. The small files of that entry and its name are reported.
 *   2. When the coordinator says that all nodes have it, the small files of the other nodes are put into it.
 *      It is written to a disk, if that is wanted. Then older entries are removed.
 *   3. When the generation is over, all entries are reported again, for a coordinator that is new.
 *   4. Before the next one, the entry that the coordinator has chosen stays. Everything else is removed.
 *
 * Thread: the loop's. What was removed is deleted on a thread of libuv's.
 */
#ifndef AGENT_ENTRY_DIR_H
#define AGENT_ENTRY_DIR_H

#include <uv.h>

#include <fsdp/status.h>

#include "agent/snapshot/entries.h"
#include "agent/snapshot/persist.h"
#include "agent/snapshot/place.h"

struct entry_dir;

struct entry_dir_handlers {
    void *arg;
    void (*found)(void *arg, const struct snapshot_entry *entry); /* this node has it: for the coordinator */
    void (*line)(void *arg, const char *words);                   /* for people */
};

/**
 * Begin to watch a place, which exists. `persist` is where complete entries are written; NULL: nowhere.
 * FSDP_ERR_IO, FSDP_ERR_NOMEM: *out is NULL.
 */
enum fsdp_status entry_dir_open(struct entry_dir **out, uv_loop_t *loop, const struct place *place,
                                const char *persist, const struct entry_dir_handlers *handlers,
                                struct fsdp_err *err);

/**
 * Call it before the workers of a generation start. Only the entry `keep` stays, if it is there ("": none
 * stays). `seat` is this node's place for what is written to the disk.
 */
void entry_dir_begin(struct entry_dir *dir, const char *keep, int first_rank, int world_size,
                     const struct persist_seat *seat);

/** No worker of the generation is left: report all entries, the oldest first. NULL is a no-op. */
void entry_dir_tell(struct entry_dir *dir);

/** Takes a message of the coordinator: small files of another node, or that an entry is complete. */
void entry_dir_take(struct entry_dir *dir, const struct snapshot_entry *entry);

/**
 * Stop, and free it in a close callback of the loop, which goes on until all is on the disk. NULL is a no-op.
 */
void entry_dir_close(struct entry_dir *dir);

#endif
