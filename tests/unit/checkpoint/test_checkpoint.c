#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/shardfile/verify.h"
#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/files.h"
#include "tests/unit/shardfile/memory_io.h"

TestSuite(checkpoint, .timeout = 1200);

Test(checkpoint, any_world_size_loads_what_any_other_saved)
{
    static const uint64_t D[] = { 0, 1, 2, 3, 5, 8, 13 };

    for (size_t d = 0; d < sizeof D / sizeof *D; d++)
        for (int W_save = 1; W_save <= 5; W_save++) {
            struct fsdp_err err = { 0 };
            struct memory_io io;

            memory_io_init(&io);
            cr_assert(state_save(&io.base, "run/checkpoints", 7, 0, D[d], W_save, &err) == FSDP_OK, "%s",
                      err.message);
            for (int W_load = 1; W_load <= 9; W_load++)
                cr_expect(state_load_verified(&io.base, "run/checkpoints", 7, D[d], W_load, &err) ==
                              FSDP_OK,
                          "D %d W %d -> %d: %s", (int)D[d], W_save, W_load, err.message);
            cr_expect(io.n_open == 0);
            memory_io_fini(&io);
        }
}

Test(checkpoint, a_rank_without_rows_writes_no_file)
{
    struct manifest manifest;
    struct memory_io io;

    memory_io_init(&io);
    cr_assert(state_save(&io.base, "c", 7, 0, 5, 15, NULL) == FSDP_OK);

    cr_assert(verify_step(&io.base, "c/step-00000007", VERIFY_CHECKSUMS, &manifest, NULL) == FSDP_OK);
    cr_assert(manifest.world_size == 15 && manifest.n_files == 11, "%zu files", manifest.n_files);
    cr_assert(state_load(&io.base, "c", 7, 5, 3, NULL) == FSDP_OK);
    manifest_free(&manifest);
    memory_io_fini(&io);
}

Test(checkpoint, short_and_interrupted_calls_change_nothing)
{
    struct fsdp_err err = { 0 };
    struct memory_io io;

    memory_io_init(&io);
    io.takes_direct = false;
    io.short_calls = true;

    cr_assert(state_save(&io.base, "c", 7, 0, 13, 3, &err) == FSDP_OK, "%s", err.message);
    cr_assert(state_load_verified(&io.base, "c", 7, 13, 2, &err) == FSDP_OK, "%s", err.message);
    memory_io_fini(&io);
}

/* --- what does not fit --- */

static enum fsdp_status load_with(struct memory_io *io, struct state_shard *shard, size_t n_tensors,
                                  unsigned flags, struct fsdp_err *err)
{
    memset(shard->tensors[0].rows, 0xee, 13 * 7 * 4);
    return checkpoint_load(&io->base, "c/step-00000007", 1, 0, shard->tensors, n_tensors, flags, NULL, NULL,
                           err);
}

static bool untouched(const struct state_shard *shard)
{
    const unsigned char *bytes = shard->tensors[0].rows;

    for (int at = 0; at < 13 * 7 * 4; at++)
        if (bytes[at] != 0xee)
            return false;
    return true;
}

Test(checkpoint, another_model_is_a_mismatch_that_names_the_tensor_and_touches_nothing)
{
    struct state_shard shard;
    struct memory_io io;

    memory_io_init(&io);
    state_init(&shard, 13, 1, 0);
    cr_assert(state_save(&io.base, "c", 7, 0, 13, 3, NULL) == FSDP_OK);

    for (int fault = 0; fault < 5; fault++) {
        static const char *const words[] = { "renamed is not in the checkpoint",
                                             "norm.weight is (2) float32 here and (2) bfloat16",
                                             "norm.weight is (1) bfloat16 here and (2) bfloat16",
                                             "norm.weight is (2, 1) bfloat16 here and (2) bfloat16",
                                             "holds none, which is not there here" };
        const struct checkpoint_tensor kept = shard.tensors[2];
        struct fsdp_err err = { 0 };

        if (fault == 0)
            shard.tensors[2].name = "renamed";
        else if (fault == 1)
            shard.tensors[2].dtype = FSDP_F32;
        else if (fault == 2)
            shard.tensors[2].shape[0] = 1;
        else if (fault == 3)
            shard.tensors[2].shape[shard.tensors[2].n_dims++] = 1;
        cr_expect(load_with(&io, &shard, fault == 4 ? STATE_TENSORS - 1 : STATE_TENSORS, 0, &err) ==
                      FSDP_ERR_MISMATCH,
                  "fault %d: %s", fault, err.message);
        cr_expect(strstr(err.message, words[fault]) != NULL, "fault %d: %s", fault, err.message);
        shard.tensors[2] = kept;
        cr_expect(untouched(&shard), "fault %d", fault);
    }
    state_free(&shard);
    memory_io_fini(&io);
}

Test(checkpoint, a_subset_is_loaded_when_asked_for)
{
    struct state_shard shard;
    struct fsdp_err err = { 0 };
    struct memory_io io;

    memory_io_init(&io);
    state_init(&shard, 13, 1, 0);
    cr_assert(state_save(&io.base, "c", 7, 0, 13, 3, NULL) == FSDP_OK);

    cr_assert(load_with(&io, &shard, 1, CHECKPOINT_SUBSET, &err) == FSDP_OK, "%s", err.message);
    cr_assert(!untouched(&shard));
    state_free(&shard);
    memory_io_fini(&io);
}

Test(checkpoint, saving_reports_what_cannot_be_saved)
{
    struct checkpoint_tensor tensor = {
        .name = "w", .dtype = FSDP_F32, .n_dims = 2, .shape = { 4, 1ull << 62 }
    };
    const struct checkpoint_state head = state_head(7);
    struct checkpoint_part part;
    struct memory_io io;

    memory_io_init(&io);
    cr_assert(checkpoint_write_part(&io.base, "c", ".step-00000007.g0.00000000", &head, 0, 1, 0, &tensor, 1,
                                    &part, NULL) == FSDP_ERR_ARG);
    tensor.shape[1] = 3;
    cr_assert(checkpoint_write_part(&io.base, "c", ".step-00000007.g0.00000000", &head, 0, 1, 0, &tensor, 1,
                                    &part, NULL) == FSDP_ERR_ARG,
              "no memory behind the rows");
    tensor.n_dims = 0;
    cr_assert(checkpoint_write_part(&io.base, "c", ".step-00000007.g0.00000000", &head, 0, 1, 0, &tensor, 1,
                                    &part, NULL) == FSDP_ERR_ARG);
    cr_assert(io.n_open == 0);
    memory_io_fini(&io);
}

/* --- alone: a process without an agent publishes by itself --- */

static int no_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    (void)io, (void)out;
    cr_assert_fail("a save without a place looked at %s", path);
    return -1;
}

Test(checkpoint, a_save_without_a_place_or_memory_touches_nothing)
{
    struct checkpoint_save_options options = { .loaded_step = -1 };
    const struct checkpoint_state head = state_head(1);
    struct state_shard shard;
    struct fsdp_err err = { 0 };
    struct fsdp_io io = io_posix;

    unsetenv(FSDP_LINK_FD_ENV);
    io.stat = no_stat;
    options.io = &io;
    cr_assert(link_open(&options.link, &err) == FSDP_OK, "%s", err.message);
    state_init(&shard, 13, 1, 0);
    cr_assert(checkpoint_save(&options, &head, shard.tensors, STATE_TENSORS, NULL, &err) == FSDP_ERR_ARG);
    cr_assert_str_eq(err.message, "saving step 1: there is no run directory to save in");
    options.directory = "/tmp/nothing-comes-here";
    cr_assert(checkpoint_save(&options, &head, NULL, 0, NULL, &err) == FSDP_ERR_NOMEM);
    cr_assert_str_eq(err.message, "saving step 1: out of memory");
    state_free(&shard);
    link_close(options.link);
}

Test(checkpoint, a_world_of_one_saves_keeps_and_finds_by_itself)
{
    char directory[600];
    struct checkpoint_save_options options = { .directory = directory, .keep = 2, .loaded_step = -1 };
    struct checkpoint_saved saved;
    struct state_shard shard;
    struct fsdp_err err = { 0 };
    int64_t step = 99;

    unsetenv(FSDP_LINK_FD_ENV);
    snprintf(directory, sizeof directory, "%s/run/checkpoints", files_begin());
    cr_assert(link_open(&options.link, &err) == FSDP_OK, "%s", err.message);
    state_init(&shard, 13, 1, 0);
    cr_assert(verify_newest(&io_posix, directory, VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK && step == -1,
              "%s", err.message);

    for (int64_t at = 1; at <= 4; at++) {
        const struct checkpoint_state head = state_head(at);

        state_fill(&shard, at);
        cr_assert(checkpoint_save(&options, &head, shard.tensors, STATE_TENSORS, &saved, &err) == FSDP_OK,
                  "%s", err.message);
        cr_assert(saved.size_bytes > 4096 && saved.seconds > 0);
    }

    cr_assert(files_count(directory) == 3, "two steps and the lock file");
    cr_assert(verify_newest(&io_posix, directory, VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK && step == 4, "%s",
              err.message);
    cr_assert(state_load_verified(&io_posix, directory, 4, 13, 3, &err) == FSDP_OK, "%s",
              err.message);
    state_free(&shard);
    link_close(options.link);
    files_end();
}
