/*
 * Forecasts what each rank of a job will need. The job's text is enough: no data, run directory or other
 * ranks are used.
 */
#ifndef TRAINER_FORECAST_H
#define TRAINER_FORECAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/forecast.h>

#include "shard_runtime/job/job.h"

struct forecast {
    int W, ranks_per_host;
    uint64_t batch, n_micro; /* sequences per rank and micro-step; micro-steps per step */
    size_t n_parameters;     /* elements of the whole model */
    /* sequences of an evaluation in addition to training; 0: there is no evaluation */
    uint64_t evaluation;
    struct fsdp_forecast need;
    bool on_device;  /* the plan is for cuda: `baseline` and `total` are device memory, not host memory */
    size_t baseline; /* bytes of a process that is ready to train and has not touched an arena */
    size_t total;    /* all bytes of a rank; they must fit in its memory */
    /*
     * Two copies of its rows and their optimizer state, in memory of the agent; 0: the job makes none. Not in
     * `total`: without room for them, saving waits for the disk
     */
    size_t snapshot;
    /*
     * bytes for copies of another node's snapshots (checkpoint.replicas), as many as `snapshot`; 0: no node
     * holds copies
     */
    size_t copies;
    /* Host memory of a plan for cuda; 0 for other devices. */
    size_t host_baseline; /* RssAnon + RssShmem, without the driver's memory */
    size_t host_total;
};

/**
 * Forecasts the job, with an evaluation of `evaluation` sequences. FSDP_ERR_CONFIG or FSDP_ERR_UNSUPPORTED:
 * the job cannot be run; the message gives the reason.
 */
enum fsdp_status forecast_job(struct forecast *forecast, const struct job *job, uint64_t evaluation,
                              struct fsdp_err *err);

/**
 * Gives the same plan as text: rank 0's layout and the program of a micro-step. The caller frees *text, which
 * is NULL after a failure.
 */
enum fsdp_status forecast_schedule(const struct job *job, char **text, struct fsdp_err *err);

/** Host memory of all ranks of a node. Shared segments are counted once. */
uint64_t forecast_node_bytes(const struct forecast *forecast);

/** Bytes that one rank sends in one step, in all collectives together. */
uint64_t forecast_sent_bytes(const struct forecast *forecast);

#endif
