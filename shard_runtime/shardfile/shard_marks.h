/*
 * Metadata by which each file of a checkpoint tells which save it belongs to. So a file of another save is
 * not used by mistake (contents.h has the keys). Pure.
 */
#ifndef SHARDFILE_SHARD_MARKS_H
#define SHARDFILE_SHARD_MARKS_H

#include <stdint.h>

#include "shard_runtime/shardfile/safetensors.h"

/* Which save a file belongs to, and which rank wrote it. */
struct shards_save {
    int64_t step;
    uint32_t generation;
    int W, rank;
};

enum { SHARDS_MARKS = 4 };

/* The values of struct shards_save as metadata of a safetensors file. `list` points into `words`. */
struct shards_marks {
    char words[SHARDS_MARKS][24];
    struct safetensors_metadata list[SHARDS_MARKS];
};

/** Fills in `marks` from `save`. */
void shards_mark(struct shards_marks *marks, const struct shards_save *save);

#endif
