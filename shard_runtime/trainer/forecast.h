/*
 * What a job will need of a rank, from its text alone: no data, no run directory, no other ranks.
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
    uint64_t batch, n_micro; /* sequences of a rank and micro-step; micro-steps a step */
    size_t n_parameters;     /* elements of the whole model */
    uint64_t evaluation;     /* sequences of an evaluation beside training; 0: there is none */
    struct fsdp_forecast need;
    bool on_device;  /* the two below are of device memory: a plan for cuda */
    size_t baseline; /* of a process that is ready to train and has touched no arena */
    size_t total;    /* all of a rank: what must fit */
    /* Of a plan for cuda, in host memory; 0 elsewhere. */
    size_t host_baseline; /* RssAnon + RssShmem, but for what the driver takes */
    size_t host_total;
};

/** FSDP_ERR_CONFIG, FSDP_ERR_UNSUPPORTED: a job that could not be run; the message says why. */
enum fsdp_status forecast_job(struct forecast *forecast, const struct job *job, uint64_t evaluation,
                              struct fsdp_err *err);

/** The same plan as text: rank 0's layout and the program of a micro-step. To be freed; NULL after a failure. */
enum fsdp_status forecast_schedule(const struct job *job, char **text, struct fsdp_err *err);

/** Host memory of all ranks of a node. Segments that they share are counted once. */
uint64_t forecast_node_bytes(const struct forecast *forecast);

/** Bytes sent by one rank in one step, all collectives together. */
uint64_t forecast_sent_bytes(const struct forecast *forecast);

#endif
