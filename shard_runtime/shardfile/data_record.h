/*
 * The manifest's record of the data that a run was trained on. fsdp-train stores it in the member `extra`:
 *
 *     {"data":{"size_bytes":4047392,"xxh3_128":"<32 digits>","order":"shuffled","seq":64}}
 *
 * These four values and the seed decide which tokens a position of the run (the cursor) means.
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
    struct fingerprint bytes; /* length and hash of the data file */
    char order[16];           /* the value of data.order in the job file */
    uint64_t seq;             /* tokens per sample */
};

enum { DATA_RECORD_BYTES = 256 };

/** Writes the JSON object above into `out`, to be used as the value of `extra`. */
void data_record_text(const struct data_record *record, char out[DATA_RECORD_BYTES]);

/**
 * Reads the record from a manifest. *found is false if the manifest has none: an older program or a user of
 * the C API saved the checkpoint.
 *   FSDP_ERR_FORMAT  `extra.data` exists and is not an object of that form
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status data_record_read(const struct manifest *manifest, struct data_record *out, bool *found,
                                  struct fsdp_err *err);

/**
 * Returns true if the data has changed since the record `was`. Then `words` receives the first difference,
 * such as "it has 20005 bytes, and had 20000".
 */
bool data_record_differs(const struct data_record *was, const struct data_record *now, char *words,
                         size_t size);

#endif
