/*
 * Every file operation of a checkpoint goes through this table, so that a test can make the nth one fail or
 * throw away what was not synced. io_posix is the real one. A fake embeds the struct as its first member.
 *
 * The slots are the system calls: 0 (or a count, or a descriptor) on success, -1 with errno on failure; EINTR
 * may come out of any of them. Below them stand the few combinations that all callers share; they return a
 * status and name the path.
 *
 * Thread: io_posix may be used by any number of threads.
 */
#ifndef SHARDFILE_IO_H
#define SHARDFILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <fsdp/status.h>

enum io_kind { IO_FILE = 1, IO_DIRECTORY, IO_OTHER };

struct io_stat {
    enum io_kind kind; /* of the name itself: a symbolic link is IO_OTHER */
    uint64_t size_bytes;
    uint64_t device, inode; /* the same for two names of one file */
};

/** Names in a directory, sorted, without "." and "..". */
struct io_names {
    char **names;
    size_t n;
};

struct fsdp_io {
    int (*open)(struct fsdp_io *io, const char *path, int flags, mode_t mode); /* O_CLOEXEC is added */
    int (*close)(struct fsdp_io *io, int fd);
    ssize_t (*pwrite)(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset);
    ssize_t (*pread)(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset);
    /** Reserve space; EOPNOTSUPP is no failure. */
    int (*allocate)(struct fsdp_io *io, int fd, uint64_t size_bytes);
    int (*ftruncate)(struct fsdp_io *io, int fd, uint64_t size_bytes);
    int (*fsync)(struct fsdp_io *io, int fd); /* of a file or of a directory opened with O_DIRECTORY */
    int (*fstat)(struct fsdp_io *io, int fd, struct io_stat *out);
    /** flock(2), of a file or a directory; held until `fd` is closed. io_has_no_locks() knows the errors that are no failure. */
    int (*lock)(struct fsdp_io *io, int fd, int operation);
    int (*stat)(struct fsdp_io *io, const char *path, struct io_stat *out);
    int (*mkdir)(struct fsdp_io *io, const char *path, mode_t mode);
    int (*rmdir)(struct fsdp_io *io, const char *path);
    /** Directories: EEXIST where `to` is there and not empty. */
    int (*rename)(struct fsdp_io *io, const char *from, const char *to);
    /** Swap two names at once; EINVAL: this file system cannot. */
    int (*exchange)(struct fsdp_io *io, const char *one, const char *two);
    int (*unlink)(struct fsdp_io *io, const char *path);
    int (*list)(struct fsdp_io *io, const char *path, struct io_names *out); /* see io_names_free() */
    const struct io_root *root; /* of io_beneath.h; NULL elsewhere */
};

extern struct fsdp_io io_posix; /* without state: sharing it is harmless */

void io_names_free(struct io_names *names);

/** True for an errno of lock() that means: this file system has no locks, or none for a file that may only be read (NFS). */
bool io_has_no_locks(int error);

enum { IO_PATH_BYTES = 4096 };

/**
 * "directory/name" into `out`; FSDP_ERR_ARG when it does not fit, or `name` is empty, ".", ".." or holds a
 * '/'.
 */
enum fsdp_status io_join(char out[IO_PATH_BYTES], const char *directory, const char *name,
                         struct fsdp_err *err);

/**
 * True for a name that may stand in a manifest: 1 to 255 bytes, no '/', no control character, not "." or
 * "..".
 */
bool io_name_is_plain(const char *name);

/** All of `size_bytes` at `offset`; short and interrupted calls are carried on. `path` is for the message. */
enum fsdp_status io_write_all(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes,
                              uint64_t offset, const char *path, struct fsdp_err *err);

/** As above; FSDP_ERR_FORMAT where the file ends early. */
enum fsdp_status io_read_all(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset,
                             const char *path, struct fsdp_err *err);

/**
 * Open an existing regular file for reading, links refused. FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT (no regular
 * file).
 */
enum fsdp_status io_open_read(struct fsdp_io *io, const char *path, int *fd, uint64_t *size_bytes,
                              struct fsdp_err *err);

/**
 * Open a path that the user named, a regular file or a directory, for reading. Symbolic links are followed, as every
 * program follows them. *fd is the caller's; *stat says what was opened. Errors as io_open_read().
 */
enum fsdp_status io_open_named(struct fsdp_io *io, const char *path, int *fd, struct io_stat *stat,
                               struct fsdp_err *err);

/** Make the entries of directory `path` durable. */
enum fsdp_status io_sync_directory(struct fsdp_io *io, const char *path, struct fsdp_err *err);

/** Create `path` and what is missing above it, durably. One that exists is fine. */
enum fsdp_status io_make_directories(struct fsdp_io *io, const char *path, struct fsdp_err *err);

/**
 * Read a whole regular file, zero-terminated, to be freed; links refused. FSDP_ERR_FORMAT when it is larger than
 * `limit_bytes`.
 */
enum fsdp_status io_read_file(struct fsdp_io *io, const char *path, size_t limit_bytes, char **bytes,
                              size_t *size_bytes, struct fsdp_err *err);

/** Read a whole regular file that the user named, as io_read_file(). Symbolic links are followed, as in io_open_named(). */
enum fsdp_status io_read_named(struct fsdp_io *io, const char *path, size_t limit_bytes, char **bytes,
                               size_t *size_bytes, struct fsdp_err *err);

/** Write a file that must not exist, and sync it. On failure no such file is left. */
enum fsdp_status io_write_file(struct fsdp_io *io, const char *path, const void *bytes, size_t size_bytes,
                               struct fsdp_err *err);

#endif
