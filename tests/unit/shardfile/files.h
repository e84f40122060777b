/* Small things that the checkpoint suites share: a directory of their own, and raw files. */
#ifndef TESTS_SHARDFILE_FILES_H
#define TESTS_SHARDFILE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/shardfile/io.h"

/** A fresh directory, removed with all in it by files_end(). The path is valid until then. */
const char *files_begin(void);
void files_end(void);

/** "<directory>/<name>" in one of a few static buffers. */
const char *files_path(const char *directory, const char *name);
/** All bytes of a file, to be freed; fails the test when it is not there. */
unsigned char *files_read(const char *path, size_t *size_bytes);
void files_write(const char *path, const void *bytes, size_t size_bytes);
bool files_exist(const char *path);
/** A lock() of a file system without locks. */
int files_no_locks(struct fsdp_io *io, int fd, int operation);
/** Entries of a directory, -1 when it is not there. */
int files_count(const char *path);

#endif
