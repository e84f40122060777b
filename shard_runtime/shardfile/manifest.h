/*
 * manifest.json describes a published checkpoint. It contains the step, the world size, the job's state,
 * every tensor with its global shape, and every file with its size and checksum. docs/checkpoint-format.md
 * describes each key. The text ends in a checksum of itself, so any change to it is detected.
 *
 * The manifest is written in two parts. Rank 0 writes the head, which is everything but the files. The
 * coordinator then adds the files of all ranks. The reader is strict: it refuses unknown, missing and
 * duplicate keys, names that are not plain file names, and numbers out of range.
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
    MANIFEST_MAX_WORLD = 99999, /* five digits in a file name */
};

struct manifest_tensor {
    const char *name;
    enum fsdp_dtype dtype;
    size_t n_dims;
    uint64_t shape[MANIFEST_MAX_DIMS]; /* shape of the whole tensor */
};

struct manifest_file {
    const char *name;
    uint32_t rank;
    uint64_t size_bytes;
    uint64_t checksum[2]; /* XXH3-128 of the whole file: low half, high half */
};

/*
 * A manifest is filled by the program that writes a head, or by manifest_parse(). In the first case it
 * borrows its strings; in the second case they point into `text`. The raw members are JSON objects as text;
 * NULL means absent. Their length is in `..._length`; after parsing they are not zero-terminated.
 */
struct manifest {
    uint64_t step;       /* number of optimizer updates done */
    uint64_t world_size; /* number of ranks that saved */
    uint64_t generation;
    uint64_t seed;
    uint64_t cursor; /* samples consumed so far */
    /* updates that the optimizer counts: fewer than `step` if updates were skipped */
    uint64_t optimizer_step;
    const char *numerics; /* raw: what bitwise results depend on (threads, CPU features, libraries) */
    size_t numerics_length;
    const char *job; /* raw: the resolved job, or the part of it that a resuming run must match */
    size_t job_length;
    const char *extra; /* raw: an object of the caller's own */
    size_t extra_length;
    struct manifest_tensor *tensors;
    size_t n_tensors;
    struct manifest_file *files; /* in ascending order of rank; a rank that owns no rows has no file */
    size_t n_files;
    /* checksum of the manifest's own text, set by manifest_parse(); it tells two manifests apart */
    uint64_t checksum[2];
    char *text; /* owned by a parsed manifest, like the two arrays; NULL if a caller filled the struct */
};

/**
 * Writes the head as one JSON object without files. The caller frees *text. Returns FSDP_ERR_ARG if a raw
 * member is not a JSON object, or if the text is too long.
 */
enum fsdp_status manifest_head_text(const struct manifest *head, char **text, size_t *length,
                                    struct fsdp_err *err);

/** Parses a head. The coordinator uses it to check the head before it publishes. */
enum fsdp_status manifest_parse_head(struct manifest *out, const char *text, size_t length,
                                     struct fsdp_err *err);

/**
 * Writes the bytes of manifest.json: the head, the files and the checksum. The caller frees *text. `files`
 * must be in ascending order of rank.
 */
enum fsdp_status manifest_compose(const char *head, size_t head_length, const struct manifest_file *files,
                                  size_t n_files, char **text, size_t *length, struct fsdp_err *err);

/**
 * Parses the bytes of manifest.json, which it copies. Returns FSDP_ERR_UNSUPPORTED for a newer format,
 * FSDP_ERR_NOMEM without memory, and FSDP_ERR_FORMAT for every other problem.
 */
enum fsdp_status manifest_parse(struct manifest *out, const char *text, size_t length, struct fsdp_err *err);

/** Reads and parses <step_directory>/manifest.json. Returns FSDP_ERR_NOT_FOUND if there is none. */
enum fsdp_status manifest_read(struct fsdp_io *io, const char *step_directory, struct manifest *out,
                               struct fsdp_err *err);

/**
 * Returns in *sorted a list of the tensors sorted by name, for lookups among thousands of them. The caller
 * frees the list, and must not use it after manifest_free(). NULL after a failure.
 */
enum fsdp_status manifest_sort(const struct manifest *manifest, const struct manifest_tensor ***sorted,
                               struct fsdp_err *err);
/** Returns the tensor called `name` in such a list of `n`, or NULL. */
const struct manifest_tensor *manifest_find(const struct manifest_tensor *const *sorted, size_t n,
                                            const char *name);

/** Frees what parsing allocated and sets *manifest to zero. */
void manifest_free(struct manifest *manifest);

/** Writes the name of a rank's file, such as "shard-00003-model-00001-of-00001.safetensors" for rank 2. */
enum { MANIFEST_SHARD_NAME_BYTES = 64 };
void manifest_shard_name(uint32_t rank, char out[MANIFEST_SHARD_NAME_BYTES]);

#endif
