#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/job/job.h"

Test(split_batch, every_split_is_whole_within_the_maximum_and_the_largest)
{
    for (int W = 1; W <= 9; W++)
        for (uint64_t most = 1; most <= 20; most++)
            for (uint64_t total = 1; total <= 120; total++) {
                struct job job = { .train = {
                                       .batch = most, .grad_accumulation = 1, .global_batch = total } };
                uint64_t batch = 0, n_micro = 0;
                enum fsdp_status status = job_split_batch(&job, W, &batch, &n_micro, NULL);

                if (total % (uint64_t)W != 0) {
                    cr_assert(eq(int, status, FSDP_ERR_CONFIG));
                    continue;
                }
                cr_assert(eq(int, status, FSDP_OK));
                cr_assert(batch <= most && batch * n_micro * (uint64_t)W == total);
                for (uint64_t larger = batch + 1; larger <= most; larger++)
                    cr_assert(total / (uint64_t)W % larger != 0, "%lu was possible", (unsigned long)larger);
            }
}
