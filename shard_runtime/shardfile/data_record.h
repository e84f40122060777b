/*
 * What a manifest says about the data that a run was trained on. fsdp-train keeps it in `extra`:
 *
 *     {"data":{"size_bytes":4047392,"xxh3_128":"<32 digits>","order":"shuffled","seq":64}}
 *
 * The four values decide which tokens a position of the run (the cursor) stands for, together with the seed.
 */
#ifndef SHARDFILE_DATA_RECORD_H
#define SHARDFILE_DATA_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/fingerprint.h"
#include "shard_runtime/shardfile/manifest.h"

struct data_record {
    struct fingerprint bytes; /* shardfile/fingerprint.h */
    char order[16];           /* data.order as in a job file */
    uint64_t seq;             /* tokens of a sample */
};

enum { DATA_RECORD_BYTES = 256 };

/** The object above, as the value of `extra`, into `out`. */
void data_record_text(const struct data_record *record, char out[DATA_RECORD_BYTES]);

/**
 * Read it from a manifest. *found is false when the manifest does not have it: an older program or a user of
 * the C API saved the checkpoint.
 *   FSDP_ERR_FORMAT  `extra.data` is there and is not such an object
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status data_record_read(const struct manifest *manifest, struct data_record *out, bool *found,
                                  struct fsdp_err *err);

/**
 * Is the data now other than it was? Then the first difference is in `words`:
 * "it has 20005 bytes, and had 20000".
 */
bool data_record_differs(const struct data_record *was, const struct data_record *now, char *words,
                         size_t size);

#endif
