/*
 * Opens files below a directory that may belong to another user, such as a run directory on a shared disk.
 *
 * The owner of such a directory can replace any name in it by a symbolic link at any moment. Our process
 * would then append to a file, or create directories, somewhere else. So these functions resolve each path
 * from the directory's descriptor, one name at a time. They follow a symbolic link only if this user or root
 * owns it, because its owner chose the target, such as checkpoints on another disk. A relative target is
 * resolved by the same rule. An absolute target is opened as the system opens any path.
 *
 * "This user" means the effective user. It also means the user who owns the files that this process creates
 * on that file system. An NFS server may map root, or all users, to another user (root_squash, all_squash).
 * Nothing else is refused because of its owner: group directories and directories of other users can be used.
 *
 * Functions that return an int return -1 with errno on failure. ELOOP means a link that was not followed;
 * beneath_words() describes it.
 */
#ifndef CORE_BENEATH_H
#define CORE_BENEATH_H

#include <stdbool.h>
#include <sys/types.h>

#include <fsdp/status.h>

/**
 * Opens the directory `path` as the root for the functions below. *fd receives the descriptor, which the
 * caller closes.
 *   FSDP_ERR_CONFIG  the directory belongs to another user, and all users may write to it
 *   FSDP_ERR_IO      it cannot be opened
 */
enum fsdp_status beneath_open_root(int *fd, const char *path, struct fsdp_err *err);

/**
 * Does openat(root_fd, path, flags | O_CLOEXEC, mode), with links followed by the rule above. With O_NOFOLLOW
 * in `flags`, the last name must not be a link at all.
 */
int beneath_open(int root_fd, const char *path, int flags, mode_t mode);

/**
 * Creates the missing directories of `path` (mode 0777 & ~umask) and opens the last one with O_PATH. A `path`
 * of "" or "." means the root.
 */
int beneath_make_folders(int root_fd, const char *path);

/**
 * Opens, with O_PATH, the directory that contains the last name of `path`. *name receives a pointer to that
 * name within `path`.
 */
int beneath_open_folder(int root_fd, const char *path, const char **name);

/**
 * Opens a record that grows, such as events.jsonl, for reading and appending. Creates the file `path` if it
 * is missing (mode 0666 & ~umask). The file must be a regular file or a character device.
 *   FSDP_ERR_CONFIG: `path` is a link of another user, a FIFO, a socket or a directory
 *   FSDP_ERR_IO: `path` cannot be opened; errno holds the reason
 * The message names `path`. *fd is -1 after an error.
 */
enum fsdp_status beneath_open_record(int *fd, int root_fd, const char *path, struct fsdp_err *err);

/**
 * Returns FSDP_ERR_CONFIG if `name` in the root is a symbolic link that these functions would not follow.
 * Returns FSDP_OK if there is no such name.
 */
enum fsdp_status beneath_check_link(int root_fd, const char *name, struct fsdp_err *err);

/** Returns strerror(error), but a text about links for ELOOP. */
const char *beneath_words(int error);

#endif
