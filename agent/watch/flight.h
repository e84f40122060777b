/*
 * Reads the flight recorder (<fsdp/link.h>). When a worker has failed, its last collectives become one line
 * of collectives.jsonl in its folder of the run directory:
 *
 *   {"time", "generation", "rank", "pid", "n", "collectives": [{"number", "group", "sequence", "kind",
 *     "dtype", "op", "bytes", "layer", "root", "began", "seconds"}]}
 *
 * `n` counts all collectives that were begun. The last FSDP_FLIGHT_ENTRIES of them are listed, the oldest
 * first. `began` is in seconds before `time`. `seconds` is null if the collective never ended. Fields that a
 * collective does not have are null; `layer` is null outside of a step's plan.
 */
#ifndef AGENT_FLIGHT_H
#define AGENT_FLIGHT_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

struct flight_source {
    int generation, rank, pid;
    struct fsdp_progress *page; /* (FSDP_PROGRESS_BYTES) the worker's progress page */
    double time_s;              /* CLOCK_REALTIME */
    uint64_t now_ns;            /* CLOCK_MONOTONIC at the same moment */
};

enum {
    FLIGHT_NAME_BYTES =
        1 + (FSDP_GROUP_NAME_BYTES > FSDP_PLACE_BYTES ? FSDP_GROUP_NAME_BYTES : FSDP_PLACE_BYTES)
};

/**
 * Copies the name of a group, or of a place, with that number on the progress page, to `out`
 * (FLIGHT_NAME_BYTES). An empty text: there is none. The bytes are whatever the worker wrote. Returns `out`.
 */
const char *flight_group_name(const struct fsdp_progress *page, uint32_t number, char *out);
const char *flight_place_name(struct fsdp_progress *page, uint32_t number, char *out);

/**
 * Make the line, with its newline. The caller frees it; NULL: out of memory. It is one valid JSON object,
 * whatever bytes the worker wrote to its page.
 */
char *flight_json(const struct flight_source *source, size_t *length);

/** Append a line of flight_json() to `folder`/collectives.jsonl. Thread: any. */
enum fsdp_status flight_write(const char *line, size_t length, struct fsdp_io *io, const char *folder,
                              struct fsdp_err *err);

#endif
