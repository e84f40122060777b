/*
 * The files of entries (agent/snapshot/entries.h), below the directory in which programs keep them. A link
 * in an entry is removed as a link, and never packed. These files are in memory: no call waits for a disk.
 */
#ifndef AGENT_ENTRY_FILES_H
#define AGENT_ENTRY_FILES_H

#include <stdint.h>

#include <fsdp/status.h>

#include "agent/snapshot/entries.h"

enum {
    ENTRY_SMALL_BYTES = 1 << 20,  /* files below this size are copied to all nodes */
    ENTRY_PACKED_BYTES = 3 << 20, /* most bytes in one pack, which must fit into a frame of agent/wire */
    ENTRY_SMALL_FILES = 1024,     /* of one entry at most */
    ENTRY_SMALL_TOTAL = 32 << 20  /* bytes of these files at most */
};

/**
 * Pack the small files of an entry: each as its path below the directory with a zero, its size as a decimal
 * number with a zero, and its bytes. `take` gets them in one or more packs, the last one with `more` false;
 * an entry without small files gets one of 0 bytes.
 *   FSDP_ERR_CONFIG  there are more small files than the limits above allow; `take` may have been called
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status entry_pack(int folder_fd, const char *name,
                            void (*take)(void *arg, const char *files, size_t files_bytes, bool more),
                            void *arg, struct fsdp_err *err);

/**
 * Make the files of a pack, which may come from anyone, as parts of the entry `name`. A file that exists
 * stays as it is. Each file appears whole.
 *   FSDP_ERR_FORMAT  it is not such a pack, or has a file that is not below the entry
 *   FSDP_ERR_IO      a file could not be made
 */
enum fsdp_status entry_unpack(int folder_fd, const char *name, const char *files, size_t files_bytes,
                              struct fsdp_err *err);

/**
 * The bytes of memory that `name` takes with all below it, of which other links may take a share; 0 if it is
 * not there.
 */
uint64_t entry_size(int folder_fd, const char *name);

/** Remove `name` with all below it. What cannot be removed is left. */
void entry_remove(int folder_fd, const char *name);

#endif
