/*
 * The nth file operation fails, for every n, of everything that touches checkpoints. No descriptor or byte
 * leaks, and what was saved before is still there.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/memory_io.h"

TestSuite(faults, .timeout = 1200);

static uint64_t D = 5;

static void save(struct memory_io *io, int64_t step)
{
    cr_assert(state_save(&io->base, "c", step, 0, D, 2, NULL) == FSDP_OK);
}

static void fail_from_here(struct memory_io *io, int n)
{
    io->calls = 0;
    io->fail_at = n;
}

/* The one step that must be there and whole, whatever happened. */
static void check_step(struct memory_io *io, int64_t wanted, int n)
{
    struct fsdp_err err = { 0 };
    int64_t step = -1;

    cr_assert(io->n_open == 0, "call %d: %d descriptors are left open", n, io->n_open);
    cr_assert(commit_clean(&io->base, "c", 0, NULL, &err) == FSDP_OK);
    cr_assert(verify_newest(&io->base, "c", VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK && step == wanted,
              "call %d: step %d: %s", n, (int)step, err.message);
    cr_assert(state_load(&io->base, "c", step, D, 1, &err) == FSDP_OK, "call %d: %s", n, err.message);
}

/* No temporary name stays, as one call fails alone and the removal after it works. */
static void check_names(struct memory_io *io, bool saved, int n)
{
    struct io_names names;

    cr_assert(io->base.list(&io->base, "c", &names) == 0);
    cr_assert(names.n == 2 || (!saved && names.n == 1), "call %d: %zu names", n, names.n);
    for (size_t i = 0; i < names.n; i++)
        cr_assert(commit_parse_step(names.names[i]) >= 0, "call %d: %s", n, names.names[i]);
    io_names_free(&names);
}

static void save_beside(struct memory_io *io, int n)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    int64_t step = 50;

    save(io, 40);
    fail_from_here(io, n);
    status = state_save(&io->base, "c", 50, 0, D, 2, &err);
    io->fail_at = 0;
    cr_assert(status == FSDP_OK || err.message[0] != '\0');
    check_names(io, status == FSDP_OK, n);
    if (status != FSDP_OK) /* after a failed sync of the parent the new one may be seen, and is whole then */
        cr_assert(verify_newest(&io->base, "c", VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK);
    check_step(io, step == 50 ? 50 : 40, n);
    save(io, 60);
}

Test(faults, a_failed_save_leaves_the_old_step_no_descriptor_and_no_half_written_name)
{
    static const int errors[] = { EIO, ENOSPC, EDQUOT, EROFS, EINTR };

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        cr_assert_gt(memory_io_fail_each(errors[i], save_beside), 40);
    D = 60000; /* large files too */
    cr_assert_gt(memory_io_fail_each(ENOSPC, save_beside), 40);
}

static int n_in_place;

/*
 * Saves 50 again over 50. Where the names were swapped, and the disk may not know it, neither save of the
 * step may be touched.
 */
static void save_over(struct memory_io *io, int n)
{
    struct fsdp_err err = { 0 };
    struct manifest manifest;
    enum fsdp_status status;
    bool in_place;

    save(io, 50);
    fail_from_here(io, n);
    status = state_save(&io->base, "c", 50, 1, D, 2, &err);
    io->fail_at = 0;
    cr_assert(verify_step(&io->base, "c/step-00000050", VERIFY_CHECKSUMS, &manifest, NULL) == FSDP_OK,
              "call %d", n);
    in_place = status != FSDP_OK && manifest.generation == 1;
    manifest_free(&manifest);
    cr_assert(in_place == (strstr(err.message, "c/step-00000050 is complete and in place") != NULL),
              "call %d: %s", n, err.message);
    if (!in_place)
        return;
    n_in_place++;
    cr_assert(commit_clean(&io->base, "c", 0, NULL, NULL) == FSDP_OK); /* as the next save does */
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct memory_io up;

        memory_io_copy(&up, io);
        memory_io_crash(&up, CRASH_KEEP_RANDOM, seed);
        check_step(&up, 50, n);
        memory_io_fini(&up);
    }
}

Test(faults, after_a_failed_sync_of_the_names_nothing_is_removed)
{
    memory_io_fail_each(EIO, save_over);
    cr_assert_gt(n_in_place, 0);
}

static void retain(struct memory_io *io, int n)
{
    for (int64_t step = 10; step <= 40; step += 10)
        save(io, step);
    fail_from_here(io, n);
    commit_retain(&io->base, "c", 2, 40, 10, NULL, NULL);
    io->fail_at = 0;
    check_step(io, 40, n);
    cr_assert(state_load(&io->base, "c", 30, D, 1, NULL) == FSDP_OK, "call %d", n);
    cr_assert(state_load(&io->base, "c", 10, D, 1, NULL) == FSDP_OK, "call %d: the loaded one", n);
}

Test(faults, retention_fails_without_losing_what_it_keeps)
{
    cr_assert_gt(memory_io_fail_each(EIO, retain), 9);
}

static int n_failed;

static void load(struct memory_io *io, int n)
{
    struct manifest manifest = { 0 };
    struct state_shard shard;
    enum fsdp_status status;

    state_init(&shard, D, 1, 0);
    save(io, 40);
    fail_from_here(io, n);
    status = checkpoint_load(&io->base, "c/step-00000040", 1, 0, shard.tensors, STATE_TENSORS, 0, NULL,
                             &manifest, NULL, NULL);
    if (status == FSDP_OK)
        cr_assert(state_is(&shard, 40), "call %d: it said that it loaded", n);
    else
        cr_assert(manifest.text == NULL && manifest.tensors == NULL);
    n_failed += status != FSDP_OK;
    manifest_free(&manifest);
    state_free(&shard);
}

Test(faults, a_failed_load_says_so_and_leaks_nothing)
{
    memory_io_fail_each(EIO, load);
    cr_assert_gt(n_failed, 15);
}

static void find_newest(struct memory_io *io, int n)
{
    int64_t step = -1;

    save(io, 40);
    save(io, 50);
    fail_from_here(io, n);
    cr_assert(verify_newest(&io->base, "c", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK
                  ? step == 40 || step == 50
                  : step == -1,
              "call %d: step %d", n, (int)step);
}

Test(faults, finding_the_newest_falls_back_or_fails_but_never_makes_one_up)
{
    cr_assert_gt(memory_io_fail_each(EIO, find_newest), 0);
}
