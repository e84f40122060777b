/*
 * Shared by the files of the registry:
 *   registry.c         the entry of a run: how it is made and removed
 *   registry_folder.c  the folders, and which one is refused
 *   registry_read.c    the readers
 *   registry_watch.c   readers that wait for the next run
 */
#ifndef AGENT_DESK_REGISTRY_IMPL_H
#define AGENT_DESK_REGISTRY_IMPL_H

#include <stdbool.h>

#include "agent/desk/registry.h"

enum { REGISTRY_FOLDERS = 2 };

/**
 * Write the path of folder `i` into `path` (REGISTRY_PATH_BYTES): 0 is that of $XDG_RUNTIME_DIR, 1 that of
 * the temporary directory. Returns false if there is none: the variable is not set, or names no directory of
 * this user.
 */
bool registry_folder_path(int i, char *path);

/**
 * Write the path of the folder that a job of `owner` enters into `path`. Its environment has `runtime_dir`
 * and `temporary`. Returns false if that is too long.
 */
bool registry_folder_of(uid_t owner, const char *runtime_dir, const char *temporary, char *path);

/**
 * Open a folder, and make it if `create` is set.
 *   owner  the user that must own it
 *   fd     receives the descriptor, the caller's; -1: there is no folder, or after an error
 *   FSDP_ERR_CONFIG  it is refused
 *   FSDP_ERR_IO      the system refuses something
 */
enum fsdp_status registry_folder_open(const char *path, bool create, uid_t owner, int *fd,
                                      struct fsdp_err *err);

/** Is the file locked by another process? */
bool registry_is_held(int fd);

/** Set `address` to the path of `name` in the folder `fd`. It is short, however long the folder's is. */
struct sockaddr_un;
bool registry_address(struct sockaddr_un *address, int fd, const char *name);

#endif
