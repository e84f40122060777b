/*
 * The JSON of a job under libFuzzer: refused with words, or taken and then written and read to the same text.
 */
#include "shard_runtime/job/job.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fsdp_err err = { 0 };
    struct job job, again;
    char *first = NULL, *second = NULL;

    if (!taken(job_from_json(&job, (const char *)data, size, &err), &err))
        return 0;
    never(job_to_json(&job, &first, NULL) != FSDP_OK ||
          job_from_json(&again, first, strlen(first), NULL) != FSDP_OK ||
          job_to_json(&again, &second, NULL) != FSDP_OK || strcmp(first, second) != 0);
    free(first);
    free(second);
    job_free(&job);
    job_free(&again);
    return 0;
}
