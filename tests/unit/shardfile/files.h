/*
 * Small things the checkpoint suites share: a directory of their own, raw files, and a two-rank checkpoint
 * made by hand, so that a test of reading does not rest on the code that saves.
 */
#ifndef TESTS_SHARDFILE_FILES_H
#define TESTS_SHARDFILE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

/** A fresh directory, removed with all in it by files_end(). The path is valid until then. */
const char *files_begin(void);
void files_end(void);

/** "<directory>/<name>" in one of a few static buffers. */
const char *files_path(const char *directory, const char *name);
/** All bytes of a file, to be freed; fails the test when it is not there. */
unsigned char *files_read(const char *path, size_t *size_bytes);
void files_write(const char *path, const void *bytes, size_t size_bytes);
bool files_exist(const char *path);
/** Entries of a directory, -1 when it is not there. */
int files_count(const char *path);

enum { FILES_RANKS = 2, FILES_ROWS = 5, FILES_COLUMNS = 3 };

/**
 * One checkpoint of FILES_RANKS ranks: tensors "w" F32 (5, 3), its "optimizer.exp_avg.w", and "b" BF16 (1),
 * whose values depend on `step`. Written into the temporary directory of (step, generation) and not
 * published.
 */
struct files_save {
    char temporary[COMMIT_NAME_BYTES];
    char names[FILES_RANKS][MANIFEST_SHARD_NAME_BYTES];
    struct manifest_file files[FILES_RANKS];
    char *head;
    size_t head_length;
    struct commit_fence fence;
};
enum fsdp_status files_save_parts(struct fsdp_io *io, const char *directory, int64_t step,
                                  uint32_t generation, struct files_save *save, struct fsdp_err *err);
void files_save_free(struct files_save *save);
/** The whole of it, published; the usual case. */
enum fsdp_status files_save_all(struct fsdp_io *io, const char *directory, int64_t step, uint32_t generation,
                                struct fsdp_err *err);
/** Element `i` of "w" at `step`. */
float files_value(int64_t step, size_t i);

#endif
