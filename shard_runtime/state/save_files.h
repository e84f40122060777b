/*
 * The directory to which fsdp_checkpoint_save() writes. The directory, or one above it, may belong to another
 * user. So its files are opened by the rule of core/beneath.h: from a descriptor, and without following links
 * that another user placed.
 */
#ifndef STATE_SAVE_FILES_H
#define STATE_SAVE_FILES_H

#include "shard_runtime/engine/context.h"

struct save_files {
    char directory[IO_PATH_BYTES]; /* absolute, as the ranks and the agent name it; empty: that of the run */
    struct fsdp_io *root;          /* NULL: the context's file operations were not changed */
    struct fsdp_io before;         /* what they were */
};

/**
 * Creates `directory`, and changes context_files() so that it opens paths below the directory from a
 * descriptor. NULL means the run's directory, which exists already. Under an agent, rank 0 also removes what
 * an earlier run left unfinished there. The caller makes all ranks wait for that before any of them writes.
 * An error leaves context_files() unchanged. The caller must call save_files_close() in every case.
 *   FSDP_ERR_CONFIG  the directory belongs to another user, and every user may write to it
 *   FSDP_ERR_ARG, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status save_files_open(struct save_files *files, struct fsdp_context *context,
                                 const char *directory, struct fsdp_err *err);
/** Restores context_files(), so that it opens paths as before. */
void save_files_close(struct save_files *files, struct fsdp_context *context);

#endif
