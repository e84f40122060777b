#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/shardfile/verify.h"
#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/files.h"
#include "tests/unit/shardfile/memory_io.h"

static struct memory_io io;
static struct state_shard shard;
static struct fsdp_err err;

static void begin(void)
{
    memory_io_init(&io);
    state_init(&shard, 13, 1, 0);
    unsetenv(FSDP_LINK_FD_ENV);
}

static void end(void)
{
    cr_expect(io.n_open == 0);
    state_free(&shard);
    memory_io_fini(&io);
}

TestSuite(checkpoint, .init = begin, .fini = end, .timeout = 1200);

static void save(uint64_t D, int W)
{
    cr_assert(state_save(&io.base, "c", 7, 0, D, W, &err) == FSDP_OK, "%s", err.message);
}

Test(checkpoint, any_world_size_loads_what_any_other_saved)
{
    static const uint64_t D[] = { 0, 1, 2, 3, 5, 8, 13 };

    for (size_t d = 0; d < sizeof D / sizeof *D; d++)
        for (int W_save = 1; W_save <= 5; W_save++) {
            save(D[d], W_save);
            for (int W_load = 1; W_load <= 9; W_load++)
                cr_expect(state_load(&io.base, "c", 7, D[d], W_load, &err) == FSDP_OK, "D %d W %d -> %d: %s",
                          (int)D[d], W_save, W_load, err.message);
        }
}

/* The files of memory_io, which count how often a tensor file is opened. */
static int (*open_in_memory)(struct fsdp_io *io, const char *path, int flags, mode_t mode);
static int n_opens;

static int count_open(struct fsdp_io *files, const char *path, int flags, mode_t mode)
{
    n_opens += strstr(path, ".safetensors") != NULL;
    return open_in_memory(files, path, flags, mode);
}

static int opens_of_load(int W)
{
    open_in_memory = io.base.open;
    io.base.open = count_open;
    n_opens = 0;
    cr_assert(state_load(&io.base, "c", 7, 16, W, &err) == FSDP_OK, "%s", err.message);
    io.base.open = open_in_memory;
    return n_opens;
}

Test(checkpoint, a_rank_opens_the_files_of_its_rows_and_no_others)
{
    save(16, 8);
    /* of each file: the header, which state_load() reads twice for each rank, and the rows */
    cr_expect_eq(opens_of_load(8), 3 * 8, "%d opens", n_opens);
    cr_expect_eq(opens_of_load(1), 2 * 8, "%d opens", n_opens); /* alone it reads none of them twice */
    /* each tensor is cut elsewhere now: a rank needs two or three files, and not the headers of the others */
    cr_expect_leq(opens_of_load(16), 2 * 8 + 3 * 16, "%d opens", n_opens);
}

Test(checkpoint, a_rank_without_rows_writes_no_file)
{
    struct manifest manifest;

    save(5, 15);
    cr_assert(verify_step(&io.base, "c/step-00000007", VERIFY_CHECKSUMS, &manifest, NULL) == FSDP_OK);
    cr_assert(manifest.world_size == 15 && manifest.n_files == 11, "%zu files", manifest.n_files);
    cr_assert(state_load(&io.base, "c", 7, 5, 3, NULL) == FSDP_OK);
    manifest_free(&manifest);
}

Test(checkpoint, short_and_interrupted_calls_change_nothing)
{
    io.takes_direct = false;
    io.short_calls = true;
    save(13, 3);
    cr_assert(state_load(&io.base, "c", 7, 13, 2, &err) == FSDP_OK, "%s", err.message);
}

/* What does not fit */

static enum fsdp_status load(size_t n_tensors, unsigned flags)
{
    memset(shard.tensors[0].rows, 0xee, 13 * 7 * 4);
    return checkpoint_load(&io.base, "c/step-00000007", 1, 0, shard.tensors, n_tensors, flags, NULL, NULL,
                           NULL, &err);
}

static bool untouched(void)
{
    const unsigned char *bytes = shard.tensors[0].rows;

    for (int at = 0; at < 13 * 7 * 4; at++)
        if (bytes[at] != 0xee)
            return false;
    return true;
}

Test(checkpoint, another_model_is_a_mismatch_that_names_the_tensor_and_touches_nothing)
{
    const struct checkpoint_tensor kept = shard.tensors[2];
    const struct { /* in place of norm.weight */
        const char *name;
        enum fsdp_dtype dtype;
        size_t n_dims;
        uint64_t shape[2];
        size_t n_tensors;
        const char *words;
    } faults[] = {
        { "renamed", FSDP_BF16, 1, { 2 }, STATE_TENSORS, "renamed is not in the checkpoint" },
        { kept.name, FSDP_F32, 1, { 2 }, STATE_TENSORS, "(2) float32 here and (2) bfloat16" },
        { kept.name, FSDP_BF16, 1, { 1 }, STATE_TENSORS, "(1) bfloat16 here and (2) bfloat16" },
        { kept.name, FSDP_BF16, 2, { 2, 1 }, STATE_TENSORS, "(2, 1) bfloat16 here and (2) bfloat16" },
        { kept.name, FSDP_BF16, 1, { 2 }, STATE_TENSORS - 1, "holds none, which is not there here" },
    };

    save(13, 3);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        shard.tensors[2].name = faults[i].name;
        shard.tensors[2].dtype = faults[i].dtype;
        shard.tensors[2].n_dims = faults[i].n_dims;
        memcpy(shard.tensors[2].shape, faults[i].shape, sizeof faults[i].shape);
        cr_expect(load(faults[i].n_tensors, 0) == FSDP_ERR_MISMATCH, "fault %zu", i);
        cr_expect(strstr(err.message, faults[i].words) != NULL, "fault %zu: %s", i, err.message);
        cr_expect(untouched(), "fault %zu", i);
    }
    shard.tensors[2] = kept;
}

Test(checkpoint, a_subset_is_loaded_when_asked_for)
{
    save(13, 3);
    cr_assert(load(1, CHECKPOINT_SUBSET) == FSDP_OK, "%s", err.message);
    cr_assert(!untouched());
}

Test(checkpoint, saving_reports_what_cannot_be_saved)
{
    static const struct checkpoint_tensor bad[] = {
        { .name = "w", .dtype = FSDP_F32, .n_dims = 2, .shape = { 4, 1ull << 62 } },
        { .name = "w", .dtype = FSDP_F32, .n_dims = 2, .shape = { 4, 3 } }, /* rows without memory */
        { .name = "w", .dtype = FSDP_F32, .n_dims = 0, .shape = { 4, 3 } },
    };
    const struct checkpoint_state head = state_head(7);
    struct checkpoint_part part;

    for (int i = 0; i < 3; i++)
        cr_assert(checkpoint_write_part(&io.base, "c", ".step-00000007.g0.00000000", &head, 0, 1, 0, &bad[i],
                                        1, &part, NULL) == FSDP_ERR_ARG,
                  "case %d", i);
}

/* Alone: a process without an agent publishes by itself */

static int no_stat(struct fsdp_io *posix, const char *path, struct io_stat *out)
{
    (void)posix, (void)out;
    cr_assert_fail("a save without a place looked at %s", path);
    return -1;
}

Test(checkpoint, a_save_without_a_place_or_memory_touches_nothing)
{
    struct checkpoint_save_options options = { .loaded_step = -1 };
    const struct checkpoint_state head = state_head(1);
    struct fsdp_io posix = io_posix;

    posix.stat = no_stat;
    options.io = &posix;
    cr_assert(link_open(&options.link, &err) == FSDP_OK, "%s", err.message);
    cr_assert(checkpoint_save(&options, &head, shard.tensors, STATE_TENSORS, NULL, &err) == FSDP_ERR_ARG);
    cr_assert_str_eq(err.message, "saving step 1: there is no run directory to save in");
    options.directory = "/tmp/nothing-comes-here";
    cr_assert(checkpoint_save(&options, &head, NULL, 0, NULL, &err) == FSDP_ERR_NOMEM);
    cr_assert_str_eq(err.message, "saving step 1: out of memory");
    link_close(options.link);
}

Test(checkpoint, a_world_of_one_saves_keeps_and_finds_by_itself)
{
    char directory[600];
    struct checkpoint_save_options options = { .directory = directory, .keep = 2, .loaded_step = -1 };
    struct checkpoint_saved saved;
    int64_t step = 99;

    snprintf(directory, sizeof directory, "%s/run/checkpoints", files_begin());
    cr_assert(link_open(&options.link, &err) == FSDP_OK, "%s", err.message);
    cr_assert(verify_newest(&io_posix, directory, VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK &&
                  step == -1,
              "%s", err.message);

    for (int64_t at = 1; at <= 4; at++) {
        const struct checkpoint_state head = state_head(at);

        state_fill(&shard, at);
        cr_assert(checkpoint_save(&options, &head, shard.tensors, STATE_TENSORS, &saved, &err) == FSDP_OK,
                  "%s", err.message);
        cr_assert(saved.size_bytes > 4096 && saved.seconds > 0);
    }

    cr_assert(files_count(directory) == 3, "two steps and the lock file");
    cr_assert(verify_newest(&io_posix, directory, VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK &&
                  step == 4,
              "%s", err.message);
    cr_assert(state_load(&io_posix, directory, 4, 13, 3, &err) == FSDP_OK, "%s", err.message);
    link_close(options.link);
    files_end();
}
