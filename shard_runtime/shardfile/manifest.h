/*
 * manifest.json: what a published checkpoint is. It names the step, the world, the job's state, every tensor
 * with its global shape and every file with its size and checksum; docs/checkpoint-format.md gives each key.
 * The text ends in a checksum of itself, so that no byte of it can change unseen.
 *
 * It comes about in two halves: rank 0 writes the head (everything but the files), the coordinator adds the
 * files of all ranks. The reader is strict: unknown, missing or doubled keys, names that are no plain file
 * names and numbers out of range are refused.
 */
#ifndef SHARDFILE_MANIFEST_H
#define SHARDFILE_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

#define MANIFEST_FILE "manifest.json"

enum {
    MANIFEST_FORMAT_VERSION = 1,
    MANIFEST_MAX_DIMS = 8,
    MANIFEST_MAX_BYTES = 64 << 20,
    MANIFEST_MAX_WORLD = 99999, /* five digits in a file's name */
};

struct manifest_tensor {
    const char *name;
    enum fsdp_dtype dtype;
    size_t n_dims;
    uint64_t shape[MANIFEST_MAX_DIMS]; /* global */
};

struct manifest_file {
    const char *name;
    uint32_t rank;
    uint64_t size_bytes;
    uint64_t checksum[2]; /* XXH3-128 of the whole file: low, high */
};

/*
 * Filled by the writer of a head (strings borrowed) or by manifest_parse() (strings in `text`).
 * The raw members are JSON objects as text, `..._length` bytes and not terminated after parsing; NULL:
 * absent.
 */
struct manifest {
    uint64_t step;       /* optimizer updates done */
    uint64_t world_size; /* ranks that saved */
    uint64_t generation;
    uint64_t seed;
    uint64_t cursor;         /* samples consumed so far */
    uint64_t optimizer_step; /* updates the optimizer counts: less than `step` after skipped ones */
    const char *numerics;    /* raw: what the bits depend on (threads, CPU features, libraries) */
    size_t numerics_length;
    const char *job; /* raw: the resolved job, or the part of it that must fit */
    size_t job_length;
    const char *extra; /* raw: the caller's own */
    size_t extra_length;
    struct manifest_tensor *tensors;
    size_t n_tensors;
    struct manifest_file *files; /* in order of rank; a rank that owns no rows has none */
    size_t n_files;
    char *text; /* owned by a parsed manifest, as are the two arrays; NULL in one that a caller filled */
};

/**
 * The head as one JSON object without files, to be freed. FSDP_ERR_ARG: a raw member that is no JSON object.
 */
enum fsdp_status manifest_head_text(const struct manifest *head, char **text, size_t *length,
                                    struct fsdp_err *err);

/** Read a head back (the coordinator's check before it publishes). */
enum fsdp_status manifest_parse_head(struct manifest *out, const char *text, size_t length,
                                     struct fsdp_err *err);

/** Head + files + checksum: the bytes of manifest.json, to be freed. `files` in rising order of rank. */
enum fsdp_status manifest_compose(const char *head, size_t head_length, const struct manifest_file *files,
                                  size_t n_files, char **text, size_t *length, struct fsdp_err *err);

/**
 * Read manifest.json's bytes (a copy is made). Every failure is FSDP_ERR_FORMAT but a newer format's
 * (UNSUPPORTED).
 */
enum fsdp_status manifest_parse(struct manifest *out, const char *text, size_t length, struct fsdp_err *err);

/** Read <step_directory>/manifest.json. FSDP_ERR_NOT_FOUND when there is none. */
enum fsdp_status manifest_read(struct fsdp_io *io, const char *step_directory, struct manifest *out,
                               struct fsdp_err *err);

/** Release what parsing allocated and zero the struct. */
void manifest_free(struct manifest *manifest);

/** "shard-00003-model-00001-of-00001.safetensors" for rank 2. */
enum { MANIFEST_SHARD_NAME_BYTES = 64 };
void manifest_shard_name(uint32_t rank, char out[MANIFEST_SHARD_NAME_BYTES]);

#endif
