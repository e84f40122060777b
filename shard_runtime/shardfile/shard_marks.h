/*
 * What each file of a checkpoint says of the save that it belongs to, so that no file of another save is
 * taken for one of it (contents.h has the keys). Pure.
 */
#ifndef SHARDFILE_SHARD_MARKS_H
#define SHARDFILE_SHARD_MARKS_H

#include <stdint.h>

#include "shard_runtime/shardfile/safetensors.h"

/* Which save a file belongs to, and whose it is. */
struct shards_save {
    int64_t step;
    uint32_t generation;
    int W, rank;
};

enum { SHARDS_MARKS = 4 };

/* The same as metadata of a safetensors file. The list points into the struct. */
struct shards_marks {
    char words[SHARDS_MARKS][24];
    struct safetensors_metadata list[SHARDS_MARKS];
};

/** Fills in `marks`. */
void shards_mark(struct shards_marks *marks, const struct shards_save *save);

#endif
