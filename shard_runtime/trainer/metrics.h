/*
 * metrics.jsonl: one JSON object a logged step, appended by rank 0. A line is one write(2) on an O_APPEND
 * descriptor: half of one is left only by a kill, until the next run drops it. Floats have 9 significant digits:
 * equal text means equal fp32 bits.
 *
 * Metrics are a record, not a condition: a line that the disk does not take is counted, and training goes on.
 */
#ifndef TRAINER_METRICS_H
#define TRAINER_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

struct fsdp_progress;

/* How the GPU of rank 0 is, as the agent says (<fsdp/link.h>): the last of its samples. -1: not known. */
struct metrics_gpu {
    bool known; /* false: nothing is written of it */
    int64_t memory_bytes, ecc_uncorrected, xids;
    int utilisation_percent, temperature_c;
    uint64_t throttle_reasons;
};

struct metrics_record {
    uint64_t step;    /* updates done after it, from 1 */
    double loss;      /* before the update */
    double grad_norm; /* before clipping */
    double lr, tokens_per_s, step_s;
    double host_s; /* of step_s: all but waiting for the device; 0: computed on the cpu, and not written */
    uint64_t memory_bytes; /* largest so far */
    int generation;
    double time; /* seconds since the epoch */
    struct metrics_gpu gpu;
};

enum { METRICS_LINE_BYTES = 768 };

/** What the page says of this rank's GPU. */
struct metrics_gpu metrics_read_gpu(const struct fsdp_progress *page);

/** The line with its newline and a final zero; returns its length. Numbers that JSON has no word for become
 * null. */
size_t metrics_format(char out[METRICS_LINE_BYTES], const struct metrics_record *record);

/* The open file. Zero-initialised with fd = -1: no file, and metrics_close() does nothing. */
struct metrics {
    int fd;
    bool torn;       /* half a line may stand at its end */
    uint64_t n_lost; /* lines that were not written */
};

/**
 * Open RUN/metrics.jsonl for appending, creating it. Half a line at its end, which a writer that was killed left
 * behind, is dropped.
 *   FSDP_ERR_IO      it cannot be opened. Where the disk is full this is FSDP_OK, and metrics_write() says so
 *   FSDP_ERR_CONFIG  it is a link of another user, a FIFO, a socket or a directory (core/beneath.h)
 */
enum fsdp_status metrics_open(struct metrics *metrics, const char *run_dir, struct fsdp_err *err);

/**
 * Append one line. FSDP_ERR_IO: the disk is full, or worse; the line is counted in n_lost, and nothing of it stays
 * in the file.
 */
enum fsdp_status metrics_write(struct metrics *metrics, const struct metrics_record *record,
                               struct fsdp_err *err);

void metrics_close(struct metrics *metrics);

#endif
