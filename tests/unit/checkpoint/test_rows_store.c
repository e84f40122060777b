/*
 * Rows that a store keeps, in place of memory: the files are the same, and any world size reads them.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/memory_io.h"

enum { D = 60000, STEP = 7, TAKES_AT_MOST = 1 << 20 }; /* rows of more than one piece */

static bool refuses;

static enum fsdp_status from_shard(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                   struct fsdp_err *err)
{
    const struct state_shard *kept = user;

    if (refuses)
        return fsdp_fail(err, FSDP_ERR_IO, "read scratch (optimizer state): gone");
    memcpy(bytes, (const char *)kept->tensors[index].rows + offset, size_bytes);
    return FSDP_OK;
}

static enum fsdp_status to_shard(void *user, size_t index, uint64_t offset, const void *bytes,
                                 size_t size_bytes, struct fsdp_err *err)
{
    const struct state_shard *kept = user;

    if (refuses)
        return fsdp_fail(err, FSDP_ERR_IO, "write scratch (optimizer state): gone");
    cr_assert(size_bytes <= TAKES_AT_MOST);
    memcpy((char *)kept->tensors[index].rows + offset, bytes, size_bytes);
    return FSDP_OK;
}

/* The shard's tensors as a store's, but for the first, which stays in memory. */
static void through(const struct rows_store *store, const struct state_shard *shard,
                    struct checkpoint_tensor tensors[STATE_TENSORS])
{
    memcpy(tensors, shard->tensors, sizeof shard->tensors);
    for (size_t i = 1; i < STATE_TENSORS; i++) {
        tensors[i].rows = NULL;
        tensors[i].store = store;
        tensors[i].in_store = i;
    }
}

Test(rows_store, what_is_saved_is_the_same_file, .timeout = 600)
{
    for (int rank = 0; rank < 3; rank++) {
        const struct checkpoint_state head = state_head(STEP);
        struct checkpoint_tensor tensors[STATE_TENSORS];
        struct checkpoint_part plain, stored;
        struct state_shard shard;
        const struct rows_store store = { &shard, from_shard, to_shard };
        struct memory_io io;

        memory_io_init(&io);
        state_init(&shard, D, 3, rank);
        state_fill(&shard, STEP);
        through(&store, &shard, tensors);
        cr_assert(checkpoint_write_part(&io.base, "c", "one.tmp", &head, 0, 3, rank, shard.tensors,
                                        STATE_TENSORS, &plain, NULL) == FSDP_OK);
        cr_assert(checkpoint_write_part(&io.base, "c", "two.tmp", &head, 0, 3, rank, tensors, STATE_TENSORS,
                                        &stored, NULL) == FSDP_OK);
        cr_expect(plain.size_bytes == stored.size_bytes &&
                  memcmp(plain.checksum, stored.checksum, sizeof plain.checksum) == 0);
        state_free(&shard);
        memory_io_fini(&io);
    }
}

Test(rows_store, what_is_loaded_is_the_same_at_any_world_size, .timeout = 600)
{
    struct memory_io io;

    memory_io_init(&io);
    cr_assert(state_save(&io.base, "c", STEP, 0, D, 2, NULL) == FSDP_OK);
    for (int W = 1; W <= 5; W++)
        for (int rank = 0; rank < W; rank++) {
            struct checkpoint_tensor tensors[STATE_TENSORS];
            struct fsdp_err err = { 0 };
            struct state_shard shard;
            const struct rows_store store = { &shard, from_shard, to_shard };

            state_init(&shard, D, W, rank);
            state_wipe(&shard);
            through(&store, &shard, tensors);
            cr_assert(checkpoint_load(&io.base, "c/step-00000007", W, rank, tensors, STATE_TENSORS, 0, NULL,
                                      NULL, NULL, &err) == FSDP_OK,
                      "%s", err.message);
            cr_expect(state_is(&shard, STEP), "rank %d of %d", rank, W);
            state_free(&shard);
        }
    cr_assert_eq(io.n_open, 0);
    memory_io_fini(&io);
}

Test(rows_store, one_that_fails_fails_the_save_and_the_load)
{
    const struct checkpoint_state head = state_head(STEP);
    struct checkpoint_tensor tensors[STATE_TENSORS];
    struct fsdp_err err = { 0 };
    struct checkpoint_part part;
    struct state_shard shard;
    const struct rows_store store = { NULL, from_shard, to_shard };
    struct memory_io io;

    refuses = true;
    memory_io_init(&io);
    cr_assert(state_save(&io.base, "c", STEP, 0, 13, 2, NULL) == FSDP_OK);
    state_init(&shard, 13, 1, 0);
    through(&store, &shard, tensors);
    cr_expect(checkpoint_write_part(&io.base, "c", "one.tmp", &head, 0, 1, 0, tensors, STATE_TENSORS, &part,
                                    &err) == FSDP_ERR_IO);
    cr_expect_str_eq(err.message, "read scratch (optimizer state): gone");
    cr_expect(checkpoint_load(&io.base, "c/step-00000007", 1, 0, tensors, STATE_TENSORS, 0, NULL, NULL, NULL,
                              &err) == FSDP_ERR_IO);
    cr_expect_str_eq(err.message, "loading c/step-00000007: write scratch (optimizer state): gone");
    cr_assert_eq(io.n_open, 0);
    state_free(&shard);
    memory_io_fini(&io);
}
