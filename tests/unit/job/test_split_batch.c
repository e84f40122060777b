#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/job/job.h"

Test(split_batch, without_a_global_batch_the_keys_stand)
{
    struct job job = { .train = { .batch = 8, .grad_accumulation = 3 } };
    uint64_t batch = 0, n_micro = 0;

    cr_assert(eq(int, job_split_batch(&job, 5, &batch, &n_micro, NULL), FSDP_OK));

    cr_assert(eq(u64, batch, 8));
    cr_assert(eq(u64, n_micro, 3));
}

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

Test(split_batch, an_impossible_one_names_the_numbers)
{
    struct job job = { .train = { .batch = 8, .grad_accumulation = 1, .global_batch = 10 } };
    uint64_t batch, n_micro;
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, job_split_batch(&job, 4, &batch, &n_micro, &err), FSDP_ERR_CONFIG));

    cr_assert(eq(str, err.message, "10 sequences cannot be split evenly over 4 ranks"));
}
