/*
 * Files below a directory that may belong to another user: a run directory on a shared disk.
 *
 * A user who owns such a directory can replace any name in it by a symbolic link at any moment, and so make us append to a
 * file, or write a tree, somewhere else. Every path here is therefore walked from the directory's descriptor, one
 * name at a time. A symbolic link on the way is followed only if this user or root owns it: then its target is where
 * that user wants the files to be (checkpoints on another disk). The target itself is opened like any other path.
 *
 * "This user" is the effective user, and whoever owns the files that this process creates on that file system: an
 * NFS server may turn root, or all users, into one (root_squash, all_squash). Ownership alone refuses nothing else:
 * group folders and directories of other users can be used.
 *
 * The functions that return an int return -1 with errno. ELOOP is a link that is not followed; beneath_words()
 * describes it.
 */
#ifndef CORE_BENEATH_H
#define CORE_BENEATH_H

#include <stdbool.h>
#include <sys/types.h>

#include <fsdp/status.h>

/**
 * Open the directory `path` for the functions below; *fd is the caller's.
 *   FSDP_ERR_CONFIG  it belongs to another user, and everyone may write to it
 *   FSDP_ERR_IO      it cannot be opened
 */
enum fsdp_status beneath_open_root(int *fd, const char *path, struct fsdp_err *err);

/** openat(root_fd, path, flags | O_CLOEXEC, mode) by the rule above. With O_NOFOLLOW the last name is no link at all. */
int beneath_open(int root_fd, const char *path, int flags, mode_t mode);

/**
 * Make the folders of `path` that are missing (0777 & ~umask), and open the last one (O_PATH). `path` "" or ".": the
 * root.
 */
int beneath_make_folders(int root_fd, const char *path);

/** Open the folder (O_PATH) in which the last name of `path` stands; *name points to that name, within `path`. */
int beneath_open_folder(int root_fd, const char *path, const char **name);

/**
 * Open `path` for reading and appending, creating it (0666 & ~umask): a record that grows, such as events.jsonl. It must
 * be a regular file or a device.
 *   FSDP_ERR_CONFIG  it is a link of another user, a FIFO, a socket or a directory
 *   FSDP_ERR_IO      it cannot be opened; errno says why
 * The message names `path`. *fd is -1 after an error.
 */
enum fsdp_status beneath_open_record(int *fd, int root_fd, const char *path, struct fsdp_err *err);

/** FSDP_ERR_CONFIG: `name` in the root is a symbolic link that is not followed. One that is not there is fine. */
enum fsdp_status beneath_check_link(int root_fd, const char *name, struct fsdp_err *err);

/** strerror(error), except for ELOOP. */
const char *beneath_words(int error);

#endif
