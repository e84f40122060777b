/*
 * All file operations of checkpoints go through this table of functions. So a test can make the nth operation
 * fail, or discard data that was not synced. io_posix contains the real operations. A fake embeds the struct
 * as its first member.
 *
 * Each slot is one system call. A slot returns 0, a count or a descriptor on success, and -1 with errno on
 * failure. Any slot may fail with EINTR. The functions below the table combine slots; they return a status,
 * and their messages name the path.
 *
 * Thread safety: any number of threads may use io_posix.
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
    enum io_kind kind; /* kind of the name itself: a symbolic link is IO_OTHER */
    uint64_t size_bytes;
    uint64_t device, inode; /* identity of the file: equal for two names of one file */
    uint64_t n_links;       /* names of the file */
};

/** The names in a directory, sorted, without "." and "..". */
struct io_names {
    char **names;
    size_t n;
};

struct fsdp_io {
    int (*open)(struct fsdp_io *io, const char *path, int flags, mode_t mode); /* O_CLOEXEC is added */
    int (*close)(struct fsdp_io *io, int fd);
    ssize_t (*pwrite)(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset);
    ssize_t (*pread)(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset);
    /**
     * Returns whether the page cache has all of these bytes, and also true if that cannot be found out.
     * `offset` is a multiple of the page size. NULL in tables that serve no local files.
     */
    bool (*is_cached)(struct fsdp_io *io, int fd, size_t size_bytes, uint64_t offset);
    /** Reserves disk space for the file. Callers ignore EOPNOTSUPP: the file system cannot reserve. */
    int (*allocate)(struct fsdp_io *io, int fd, uint64_t size_bytes);
    int (*ftruncate)(struct fsdp_io *io, int fd, uint64_t size_bytes);
    int (*fsync)(struct fsdp_io *io, int fd); /* on a file, or on a directory opened with O_DIRECTORY */
    int (*fstat)(struct fsdp_io *io, int fd, struct io_stat *out);
    /**
     * flock(2) on a file or a directory. The lock lasts until `fd` is closed. Callers ignore the errors that
     * io_has_no_locks() recognises.
     */
    int (*lock)(struct fsdp_io *io, int fd, int operation);
    int (*stat)(struct fsdp_io *io, const char *path, struct io_stat *out);
    int (*mkdir)(struct fsdp_io *io, const char *path, mode_t mode);
    int (*rmdir)(struct fsdp_io *io, const char *path);
    /** Renames. Directories fail with EEXIST if `to` exists and is not empty. */
    int (*rename)(struct fsdp_io *io, const char *from, const char *to);
    /** Swaps two names atomically. EINVAL means that this file system cannot swap names. */
    int (*exchange)(struct fsdp_io *io, const char *one, const char *two);
    /** Gives a file a second name. Fails with EEXIST if `to` exists; atomic on NFS too. */
    int (*link)(struct fsdp_io *io, const char *from, const char *to);
    int (*unlink)(struct fsdp_io *io, const char *path);
    /* caller calls io_names_free() */
    int (*list)(struct fsdp_io *io, const char *path, struct io_names *out);
    const struct io_root *root; /* set by io_beneath.h; NULL in other tables */
    /* true: several threads may read and write one open file at the same time, unless its path is remote */
    bool any_thread;
};

extern struct fsdp_io io_posix; /* has no state, so all users may share it */

/** Frees the names and sets *names to zero. */
void io_names_free(struct io_names *names);

/** Compares two names of a list, for qsort() and bsearch(). */
int io_compare_names(const void *a, const void *b);

/**
 * Returns true if `error`, the errno of lock(), means that this file system has no locks. NFS gives one of
 * these errors for a file that is open read-only, which it cannot lock.
 */
bool io_has_no_locks(int error);

enum { IO_PATH_BYTES = 4096 };

/** Returns whether `path` is a place in an object store: "s3://bucket/key". io_anywhere.h serves it. */
bool io_is_remote(const char *path);

/**
 * Writes "directory/name" into `out`. Returns FSDP_ERR_ARG if the path is too long, or if io_name_is_plain()
 * refuses `name`.
 */
enum fsdp_status io_join(char out[IO_PATH_BYTES], const char *directory, const char *name,
                         struct fsdp_err *err);

/**
 * Returns true if a manifest may contain `name` as a file name. A file name has 1 to 255 bytes, is not "." or
 * "..", and contains neither '/' nor control characters.
 */
bool io_name_is_plain(const char *name);

/** Opens `path`, repeating an interrupted open. Returns the descriptor, or -1 with errno. */
int io_open(struct fsdp_io *io, const char *path, int flags, mode_t mode);

/**
 * Writes all `size_bytes` bytes at `offset`, repeating short and interrupted writes. `path` is used in
 * messages only.
 */
enum fsdp_status io_write_all(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes,
                              uint64_t offset, const char *path, struct fsdp_err *err);

/**
 * Reads all `size_bytes` bytes at `offset` in the same way. Returns FSDP_ERR_FORMAT if the file ends early.
 */
enum fsdp_status io_read_all(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset,
                             const char *path, struct fsdp_err *err);

/**
 * Opens an existing regular file for reading and refuses a symbolic link. *fd is the caller's to close.
 *   FSDP_ERR_NOT_FOUND  no such file
 *   FSDP_ERR_FORMAT     a link, or not a regular file
 *   FSDP_ERR_IO
 */
enum fsdp_status io_open_read(struct fsdp_io *io, const char *path, int *fd, uint64_t *size_bytes,
                              struct fsdp_err *err);

/**
 * Opens a regular file or a directory that the user named, for reading. Follows symbolic links, as other
 * programs do. *fd is the caller's to close; *stat describes what was opened. Errors are those of
 * io_open_read().
 */
enum fsdp_status io_open_named(struct fsdp_io *io, const char *path, int *fd, struct io_stat *stat,
                               struct fsdp_err *err);

/** Syncs directory `path`, so that names created or removed in it survive a power failure. */
enum fsdp_status io_sync_directory(struct fsdp_io *io, const char *path, struct fsdp_err *err);

/** Creates directory `path` and its missing parents, and syncs each new name. Succeeds if `path` exists. */
enum fsdp_status io_make_directories(struct fsdp_io *io, const char *path, struct fsdp_err *err);

/**
 * Reads a whole regular file into memory and adds a zero byte. The caller frees *bytes. Refuses a symbolic
 * link. Returns FSDP_ERR_FORMAT if the file is larger than `limit_bytes`.
 */
enum fsdp_status io_read_file(struct fsdp_io *io, const char *path, size_t limit_bytes, char **bytes,
                              size_t *size_bytes, struct fsdp_err *err);

/** Reads a whole regular file that the user named, like io_read_file(), but follows symbolic links. */
enum fsdp_status io_read_named(struct fsdp_io *io, const char *path, size_t limit_bytes, char **bytes,
                               size_t *size_bytes, struct fsdp_err *err);

/**
 * Writes and syncs a new file; fails if the name exists. If writing fails later, the function removes the
 * file.
 */
enum fsdp_status io_write_file(struct fsdp_io *io, const char *path, const void *bytes, size_t size_bytes,
                               struct fsdp_err *err);

#endif
