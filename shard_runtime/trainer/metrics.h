/*
 * metrics.jsonl: rank 0 appends one JSON object for each logged step. It writes each line by one write(2) on
 * an O_APPEND descriptor. Only a kill can leave half a line, which the next run removes. Floats have 9
 * significant digits, so equal text means equal fp32 bits.
 *
 * Training does not depend on metrics: a line that the disk refuses is counted, and training goes on.
 */
#ifndef TRAINER_METRICS_H
#define TRAINER_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

struct fsdp_progress;

/* The state of rank 0's GPU in the agent's last sample (<fsdp/link.h>). -1: not known. */
struct metrics_gpu {
    bool known; /* false: no field of the GPU is written */
    int64_t memory_bytes, ecc_uncorrected, xids;
    int utilisation_percent, temperature_c;
    uint64_t throttle_reasons;
};

struct metrics_record {
    uint64_t step;    /* number of updates done with this step, counted from 1 */
    double loss;      /* before the update */
    double grad_norm; /* before clipping */
    double lr, tokens_per_s, step_s;
    double host_s; /* part of step_s without waiting for the device; 0 on the cpu, and then not written */
    uint64_t memory_bytes; /* largest so far */
    int generation;
    uint64_t term; /* the leader's term; 0: no arbiter says who leads, and the line leaves the term out */
    double time;   /* seconds since the epoch */
    struct metrics_gpu gpu;
};

enum { METRICS_LINE_BYTES = 768 };

/** Reads the state of this rank's GPU from the progress page. */
struct metrics_gpu metrics_read_gpu(const struct fsdp_progress *page);

/**
 * Writes the line with its newline and a final zero, and returns its length without the zero. NaN and
 * infinity become null, because JSON has no word for them.
 */
size_t metrics_format(char out[METRICS_LINE_BYTES], const struct metrics_record *record);

/* The open metrics file. With fd -1 there is no file, and metrics_close() does nothing. */
struct metrics {
    int fd;
    bool torn;       /* the file may end in half a line */
    uint64_t n_lost; /* lines that were not written */
};

/**
 * Opens RUN/metrics.jsonl for appending, and creates it if it is missing. If a killed writer left half a line
 * at the end, that half is removed.
 *   FSDP_ERR_IO      the file cannot be opened. If the disk is full, this call returns FSDP_OK, and
 *                    metrics_write() reports the full disk
 *   FSDP_ERR_CONFIG  the file is a link of another user, a FIFO, a socket or a directory (core/beneath.h)
 */
enum fsdp_status metrics_open(struct metrics *metrics, const char *run_dir, struct fsdp_err *err);

/**
 * Appends one line. FSDP_ERR_IO: the disk is full, or another write error occurred. The line is then counted
 * in n_lost, and no part of it stays in the file.
 */
enum fsdp_status metrics_write(struct metrics *metrics, const struct metrics_record *record,
                               struct fsdp_err *err);

void metrics_close(struct metrics *metrics);

#endif
