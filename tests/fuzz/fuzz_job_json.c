/*
 * The JSON of a job under libFuzzer: refused with words, or taken and then written and read to the same text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fsdp_err err = { 0 };
    struct job job, again;
    char *first, *second;

    if (job_from_json(&job, (const char *)data, size, &err) != FSDP_OK) {
        if (err.message[0] == '\0')
            abort();
        return 0;
    }
    if (job_to_json(&job, &first, NULL) != FSDP_OK ||
        job_from_json(&again, first, strlen(first), NULL) != FSDP_OK ||
        job_to_json(&again, &second, NULL) != FSDP_OK || strcmp(first, second) != 0)
        abort();
    free(first);
    free(second);
    job_free(&job);
    job_free(&again);
    return 0;
}
