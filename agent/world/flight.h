/*
 * The reading end of the flight recorder (<fsdp/link.h>): when a worker that used collectives has ended badly, its
 * last ones become one line of collectives.jsonl in its folder of the run directory:
 *
 *   {"time", "generation", "rank", "pid", "n", "collectives": [{"number", "group", "sequence", "kind", "dtype", "op",
 *     "bytes", "root", "began", "seconds"}]}
 *
 * `n` counts all that were begun; the last FSDP_FLIGHT_ENTRIES of them are listed, oldest first. `began` is seconds
 * before `time`; `seconds` is null for one that never ended. What a collective does not have is null.
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
    struct fsdp_progress *page; /* FSDP_PROGRESS_BYTES of it */
    double time_s;              /* CLOCK_REALTIME */
    uint64_t now_ns;            /* CLOCK_MONOTONIC at the same moment */
};

/**
 * The line with its newline, to be freed; NULL when memory ran out. Whatever bytes the worker left in its page, what
 * comes out is one valid JSON object.
 */
char *flight_json(const struct flight_source *source, size_t *length);

/** Append the line to `folder`/collectives.jsonl. A worker that began no collective leaves no file. */
enum fsdp_status flight_write(const struct flight_source *source, struct fsdp_io *io, const char *folder,
                              struct fsdp_err *err);

#endif
