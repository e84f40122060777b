#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/trainer/batch.h"
#include "tests/unit/shardfile/files.h"

enum { SEQ = 3, FILE_BYTES = 61 }; /* 20 samples; sample i begins with byte 3 i */

static struct tokens *tokens;
static struct batch batch;

static void begin(void)
{
    const char *path = files_path(files_begin(), "data");
    unsigned char bytes[FILE_BYTES];

    for (int i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)i;
    files_write(path, bytes, sizeof bytes);
    cr_assert(eq(int, tokens_open(&tokens, path, "byte", SEQ, NULL), FSDP_OK));
}

static void end(void)
{
    batch_fini(&batch);
    tokens_close(tokens);
    files_end();
}

TestSuite(batch, .init = begin, .fini = end);

Test(batch, ranks_and_micro_steps_take_the_samples_of_the_contract)
{
    enum { W = 2, SIZE = 2, MICRO = 3, CURSOR = 4 };
    const struct order order = { .n_samples = 20, .seed = 0, .shuffled = false };

    cr_assert(eq(int, batch_init(&batch, SIZE, SEQ, MICRO, NULL), FSDP_OK));
    for (int rank = 0; rank < W; rank++) {
        cr_assert(eq(int, batch_fill(&batch, tokens, &order, CURSOR, rank, W, NULL), FSDP_OK));
        for (int m = 0; m < MICRO; m++) {
            const int32_t *input = batch.micro[m].input, *targets = batch.micro[m].targets;
            const int first = CURSOR + m * W * SIZE + rank * SIZE;

            cr_assert(eq(u64, batch.micro[m].first_sample, first));
            for (int e = 0; e < SIZE * SEQ; e++) {
                const int sample = (first + e / SEQ) % 20;

                cr_assert(eq(int, input[e], sample *SEQ + e % SEQ));
                cr_assert(eq(int, targets[e], sample *SEQ + e % SEQ + 1));
            }
        }
    }
}

Test(batch, one_crosses_into_the_next_epoch)
{
    const struct order order = { .n_samples = 20, .seed = 5, .shuffled = true };

    cr_assert(eq(int, batch_init(&batch, 4, SEQ, 1, NULL), FSDP_OK));
    cr_assert(eq(int, batch_fill(&batch, tokens, &order, 18, 0, 1, NULL), FSDP_OK));

    for (int i = 0; i < 4; i++) {
        const uint64_t sample =
            i < 2 ? order_in_epoch(&order, 0, 18 + (uint64_t)i) : order_in_epoch(&order, 1, (uint64_t)i - 2);

        cr_assert(eq(int, ((const int32_t *)batch.micro[0].input)[i * SEQ], (int)sample *SEQ));
    }
    /* the position, not the sample: dropout differs by epoch */
    cr_assert(eq(u64, batch.micro[0].first_sample, 18));
}

Test(batch, sizes_that_overflow_are_refused)
{
    cr_assert(eq(int, batch_init(&batch, UINT64_MAX / 2, SEQ, 1, NULL), FSDP_ERR_NOMEM));
}
