/*
 * Shared by the files of the table of an object store:
 *   io_s3.c         is the table: opening, publishing, removing, lists
 *   io_s3_place.c   finds what a path stands for, and owns the trash names that this process has given
 *   io_s3_file.c    owns the open files: their descriptors, and what is read and written
 *   io_s3_store.c   owns the client of the process, and turns errors of the store into those of a file system
 *
 * The functions that return int return 0, or -1 and errno, as those of struct fsdp_io do.
 */
#ifndef SHARDFILE_IO_S3_IMPL_H
#define SHARDFILE_IO_S3_IMPL_H

#include "shard_runtime/objectstore/s3_client.h"
#include "shard_runtime/shardfile/io_s3.h"

enum { IO_S3_NAME_BYTES = 128 };

enum io_s3_kind { IO_S3_READS, IO_S3_WRITES, IO_S3_DIRECTORY };

/* A path of the table, and the client. */
struct io_s3_place {
    struct s3_client *client;
    struct s3_location at;
    char name[IO_S3_NAME_BYTES]; /* the last part of the path; "": too long to be one of ours */
};

/* In io_s3.c */

/** Describes the object or directory at `at`. */
void io_s3_describe(const struct s3_location *at, bool is_directory, uint64_t size_bytes,
                    struct io_stat *out);

/* In io_s3_store.c */

/** Sets errno for an error of the store. Returns -1. */
int io_s3_fail(const struct fsdp_err *err);
/** The same of a list: only the bucket can be missing, and then there is no store for checkpoints. */
int io_s3_fail_list(const struct fsdp_err *err);
/** Sets errno to `error`. Returns -1. */
int io_s3_fail_as(int error);
/** Finds the client of the process, which lives as long as it. */
enum fsdp_status io_s3_client(struct s3_client **out, struct fsdp_err *err);
/** Returns how large the parts of an object of `size_bytes` are; 0: it is too large. */
uint64_t io_s3_part_bytes(uint64_t size_bytes);

/* In io_s3_place.c */

/** Is it the name of a published checkpoint? It stands for another directory. */
bool io_s3_is_step(const char *name);
bool io_s3_is_temporary(const char *name);
/** Is it a trash name? It stands for another directory. */
bool io_s3_is_trash(const char *name);
bool io_s3_is_directory_name(const char *name);
/** Copies a name; "": it is too long. */
void io_s3_copy_name(char out[IO_S3_NAME_BYTES], const char *from, size_t length);
/** Takes a path apart. */
int io_s3_find(const char *path, struct io_s3_place *place);
/** Remembers that the trash name at that place stands for `target`. */
int io_s3_add_alias(const struct s3_location *at, const char *target);
void io_s3_drop_alias(const struct s3_location *at);
/** Reads the object DIR/step-N: which temporary name it has. ENOENT: there is no such checkpoint. */
int io_s3_read_pointer(struct s3_client *client, const struct s3_location *at, char target[IO_S3_NAME_BYTES]);
/**
 * Returns -1 and ENOENT if that temporary name was published, as after a rename: what is below it is the
 * checkpoint's now. Any other name is as it was: 0.
 */
int io_s3_check_unpublished(const struct io_s3_place *place);
/** Makes `at`, whose last part is `name`, the directory that it stands for. */
int io_s3_resolve_directory(struct s3_client *client, struct s3_location *at, const char *name);
/** Makes place->at the object of a file in a directory that stands for another one. */
int io_s3_resolve_file(struct io_s3_place *place);

/* In io_s3_file.c */

/** Enters a file. Returns its descriptor. */
int io_s3_add_file(const struct io_s3_place *place, enum io_s3_kind kind, uint64_t size_bytes);
/* The functions of struct fsdp_io on descriptors. */
ssize_t io_s3_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset);
ssize_t io_s3_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset);
int io_s3_allocate(struct fsdp_io *io, int fd, uint64_t size_bytes);
int io_s3_ftruncate(struct fsdp_io *io, int fd, uint64_t size_bytes);
int io_s3_fsync(struct fsdp_io *io, int fd);
int io_s3_close(struct fsdp_io *io, int fd);
int io_s3_fstat(struct fsdp_io *io, int fd, struct io_stat *out);

#endif
