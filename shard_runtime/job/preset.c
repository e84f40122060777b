#include "shard_runtime/job/preset.h"

#include <string.h>

/*
 * Sizes of Radford et al., 2019, table 2, named by the parameter counts that are usually quoted. Every head
 * has 64 features.
 */
static const struct job_preset_key sizes[][3] = {
    [JOB_PRESET_124M] = { { "model.layers", "12" }, { "model.dim", "768" }, { "model.heads", "12" } },
    [JOB_PRESET_355M] = { { "model.layers", "24" }, { "model.dim", "1024" }, { "model.heads", "16" } },
    [JOB_PRESET_774M] = { { "model.layers", "36" }, { "model.dim", "1280" }, { "model.heads", "20" } },
    [JOB_PRESET_1558M] = { { "model.layers", "48" }, { "model.dim", "1600" }, { "model.heads", "25" } },
};
/* Keys that all sizes share. */
static const struct job_preset_key shared[] = { { "model.vocab", "50257" }, { "model.seq", "1024" } };
static const struct job_preset_key of_gpt2[] = { { "model.tied", "true" } };

enum { N_SIZES = 3, N_SHARED = sizeof shared / sizeof *shared, N_GPT2 = sizeof of_gpt2 / sizeof *of_gpt2 };

bool job_preset_at(const struct job *job, size_t index, struct job_preset_key *out, const char **source)
{
    if (job->model.kind == NULL || strcmp(job->model.kind, "gpt2") != 0)
        return false;
    *source = "model.preset";
    if (job->model.preset != JOB_PRESET_NONE && index < N_SIZES + N_SHARED) {
        *out = index < N_SIZES ? sizes[job->model.preset][index] : shared[index - N_SIZES];
        return true;
    }
    if (job->model.preset != JOB_PRESET_NONE)
        index -= N_SIZES + N_SHARED;
    *source = "model.kind";
    if (index >= N_GPT2)
        return false;
    *out = of_gpt2[index];
    return true;
}
