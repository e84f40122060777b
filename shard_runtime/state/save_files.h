/*
 * The directory that fsdp_checkpoint_save() writes to. Another user may own it, or the folders above it: its files are
 * reached by the rule of core/beneath.h.
 */
#ifndef STATE_SAVE_FILES_H
#define STATE_SAVE_FILES_H

#include "shard_runtime/engine/context.h"

struct save_files {
    char directory[IO_PATH_BYTES]; /* absolute, as the ranks and the agent name it; empty: the run's */
    struct fsdp_io *root;          /* NULL: the context's files are used as they are */
};

/**
 * Make `directory` (NULL: the run's, which is there) and have context_files() reach what is below it from its
 * descriptor. Under an agent rank 0 also removes what an earlier run left unfinished in `directory`: the caller has
 * the ranks wait for it before any of them writes. On failure nothing is changed, and save_files_close() is still to be called.
 *   FSDP_ERR_CONFIG  it belongs to another user, and everyone may write to it
 *   FSDP_ERR_ARG, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status save_files_open(struct save_files *files, struct fsdp_context *context,
                                 const char *directory, struct fsdp_err *err);
void save_files_close(struct save_files *files, struct fsdp_context *context);

#endif
