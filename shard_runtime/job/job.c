#include "shard_runtime/job/job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/schema.h"

void job_free(struct job *job)
{
    if (job == NULL)
        return;
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];

        if (key->field != JOB_NO_FIELD &&
            (key->type == JOB_TEXT || key->type == JOB_WORD || job_key_is_list(key)))
            free(*(char **)(void *)((char *)job + key->field));
    }
    memset(job, 0, sizeof *job);
}

enum fsdp_status job_split_batch(const struct job *job, int W, uint64_t *batch, uint64_t *n_micro,
                                 struct fsdp_err *err)
{
    uint64_t total = job->train.global_batch, world = (uint64_t)W, per_rank, largest;

    if (W < 1 || job->train.batch == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "a batch of %" PRIu64 " on %d ranks", job->train.batch, W);
    if (total == 0) {
        *batch = job->train.batch;
        *n_micro = job->train.grad_accumulation;
        return FSDP_OK;
    }
    if (total % world != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%" PRIu64 " sequences cannot be split evenly over %d ranks",
                         total, W);
    per_rank = total / world;
    largest = job->train.batch < per_rank ? job->train.batch : per_rank;
    while (per_rank % largest != 0)
        largest--; /* ends at 1 at the latest */
    *batch = largest;
    *n_micro = per_rank / largest;
    return FSDP_OK;
}
