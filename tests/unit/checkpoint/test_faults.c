/*
 * The nth file operation fails, for every n, of everything that touches checkpoints: no descriptor or byte
 * leaks, and what was saved before is still there.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/memory_io.h"

TestSuite(faults, .timeout = 1200);

static const int errors[] = { EIO, ENOSPC, EDQUOT, EROFS, EINTR };

/* The one step that must be there and whole, whatever happened. */
static void check_step(struct memory_io *io, int64_t wanted, uint64_t D, int n)
{
    struct fsdp_err err = { 0 };
    int64_t step = -1;

    io->fail_at = 0;
    cr_assert(io->n_open == 0, "call %d: %d descriptors are left open", n, io->n_open);
    cr_assert(commit_clean(&io->base, "c", NULL, &err) == FSDP_OK);
    cr_assert(verify_newest(&io->base, "c", VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK && step == wanted,
              "call %d: step %d: %s", n, (int)step, err.message);
    cr_assert(state_load(&io->base, "c", step, D, 1, &err) == FSDP_OK, "call %d: %s", n, err.message);
}

/* Save 50 beside 40 with each call failing once; returns how many calls there are. */
static int fail_each_call_of_a_save(uint64_t D, int error)
{
    int n = 0;

    for (bool reached = true; reached;) {
        struct fsdp_err err = { 0 };
        enum fsdp_status status;
        struct memory_io io;

        memory_io_init(&io);
        io.fail_errno = error;
        cr_assert(state_save(&io.base, "c", 40, 0, D, 2, NULL) == FSDP_OK);
        io.calls = 0;
        io.fail_at = ++n;
        status = state_save(&io.base, "c", 50, 0, D, 2, &err);
        reached = io.calls >= n;
        cr_assert(status == FSDP_OK || err.message[0] != '\0');
        if (status == FSDP_OK)
            check_step(&io, 50, D, n);
        else {
            /* After a failed sync of the parent the new one may be seen, and is whole then. */
            int64_t step = -1;

            io.fail_at = 0;
            cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, NULL, &err) == FSDP_OK);
            check_step(&io, step == 50 ? 50 : 40, D, n);
            cr_assert(state_save(&io.base, "c", 60, 0, D, 2, &err) == FSDP_OK, "the next save: %s",
                      err.message);
        }
        memory_io_fini(&io);
    }
    return n - 1;
}

Test(faults, a_failed_save_leaves_the_old_step_and_no_descriptor)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const int n = fail_each_call_of_a_save(5, errors[i]);

        cr_assert(n > 40, "only %d calls were made to fail", n);
    }
}

Test(faults, a_failed_save_of_large_files_too)
{
    cr_assert(fail_each_call_of_a_save(60000, ENOSPC) > 40);
}

Test(faults, a_failed_save_leaves_no_half_written_name_behind)
{
    /* Failures of writing and syncing: the removal that follows works, and must be complete. */
    for (int n = 1; n < 200; n++) {
        struct io_names names;
        struct memory_io io;
        enum fsdp_status status;

        memory_io_init(&io);
        cr_assert(state_save(&io.base, "c", 40, 0, 5, 2, NULL) == FSDP_OK);
        io.calls = 0;
        io.fail_at = n;
        io.fail_errno = ENOSPC;
        status = state_save(&io.base, "c", 50, 0, 5, 2, NULL);
        io.fail_at = 0;
        cr_assert(io.base.list(&io.base, "c", &names) == 0);
        /*
         * Only removing the very leftovers of an exchange or a step may leave something, and nothing is
         * removed here.
         */
        cr_assert(names.n == (status == FSDP_OK ? 2u
                              : names.n == 2    ? 2u
                                                : 1u),
                  "call %d: %d names", n, (int)names.n);
        for (size_t i = 0; i < names.n; i++)
            cr_assert(commit_parse_step(names.names[i]) >= 0, "call %d: %s", n, names.names[i]);
        io_names_free(&names);
        memory_io_fini(&io);
    }
}

/* Save 50 again over 50 with call n failing once. True: the new one has the name, and was not said to be saved. */
static bool fail_after_the_name(struct memory_io *io, int n, bool *reached)
{
    struct fsdp_err err = { 0 };
    struct manifest manifest;
    enum fsdp_status status;
    bool in_place;

    memory_io_init(io);
    cr_assert(state_save(&io->base, "c", 50, 0, 5, 2, NULL) == FSDP_OK);
    io->calls = 0;
    io->fail_at = n;
    status = state_save(&io->base, "c", 50, 1, 5, 2, &err);
    *reached = io->calls >= n;
    io->fail_at = 0;
    cr_assert(verify_step(&io->base, "c/step-00000050", VERIFY_CHECKSUMS, &manifest, NULL) == FSDP_OK,
              "call %d", n);
    in_place = status != FSDP_OK && manifest.generation == 1;
    manifest_free(&manifest);
    cr_assert(in_place == (strstr(err.message, "c/step-00000050 is complete and in place") != NULL),
              "call %d: %s", n, err.message);
    return in_place;
}

/* The names were swapped, and the disk may not know it: neither save of the step may be touched. */
Test(faults, after_a_failed_sync_of_the_names_nothing_is_removed)
{
    int n_in_place = 0;
    bool reached = true;

    for (int n = 1; reached; n++) {
        struct memory_io io, up;

        if (fail_after_the_name(&io, n, &reached)) {
            n_in_place++;
            cr_assert(commit_clean(&io.base, "c", NULL, NULL) == FSDP_OK); /* as the next save does */
            for (uint64_t seed = 0; seed < 40; seed++) {
                memory_io_copy(&up, &io);
                memory_io_crash(&up, CRASH_KEEP_RANDOM, seed);
                check_step(&up, 50, 5, n);
                memory_io_fini(&up);
            }
        }
        memory_io_fini(&io);
    }
    cr_assert(n_in_place > 0);
}

Test(faults, retention_fails_without_losing_what_it_keeps)
{
    int n = 0;

    for (bool reached = true; reached;) {
        struct memory_io io;

        memory_io_init(&io);
        for (int64_t step = 10; step <= 40; step += 10)
            cr_assert(state_save(&io.base, "c", step, 0, 5, 2, NULL) == FSDP_OK);
        io.calls = 0;
        io.fail_at = ++n;
        commit_retain(&io.base, "c", 2, 40, 10, NULL, NULL);
        reached = io.calls >= n;
        check_step(&io, 40, 5, n);
        cr_assert(state_load_verified(&io.base, "c", 30, 5, 1, NULL) == FSDP_OK, "call %d", n);
        cr_assert(state_load_verified(&io.base, "c", 10, 5, 1, NULL) == FSDP_OK,
                  "call %d: the loaded one", n);
        memory_io_fini(&io);
    }
    cr_assert(n > 10);
}

Test(faults, a_failed_load_says_so_and_leaks_nothing)
{
    int n = 0, n_failed = 0;

    for (bool reached = true; reached;) {
        struct manifest manifest;
        struct state_shard shard;
        enum fsdp_status status;
        struct memory_io io;

        memory_io_init(&io);
        state_init(&shard, 5, 1, 0);
        cr_assert(state_save(&io.base, "c", 40, 0, 5, 2, NULL) == FSDP_OK);
        io.calls = 0;
        io.fail_at = ++n;
        manifest = (struct manifest){ 0 };
        status = verify_named_step(&io.base, "c", 40, VERIFY_CHECKSUMS, NULL);
        if (status == FSDP_OK)
            status = checkpoint_load(&io.base, "c/step-00000040", 1, 0, shard.tensors, STATE_TENSORS, 0,
                                     &manifest, NULL, NULL);
        reached = io.calls >= n;
        cr_assert(io.n_open == 0, "call %d", n);
        if (status == FSDP_OK)
            cr_assert(state_is(&shard, 40), "call %d: it said that it loaded", n);
        else
            cr_assert(manifest.text == NULL && manifest.tensors == NULL);
        n_failed += status != FSDP_OK;
        manifest_free(&manifest);
        state_free(&shard);
        memory_io_fini(&io);
    }
    cr_assert(n_failed > 15, "%d of %d", n_failed, n);
}

Test(faults, finding_the_newest_falls_back_or_fails_but_never_makes_one_up)
{
    int n = 0;

    for (bool reached = true; reached;) {
        enum fsdp_status status;
        struct memory_io io;
        int64_t step = -1;

        memory_io_init(&io);
        cr_assert(state_save(&io.base, "c", 40, 0, 5, 2, NULL) == FSDP_OK);
        cr_assert(state_save(&io.base, "c", 50, 0, 5, 2, NULL) == FSDP_OK);
        io.calls = 0;
        io.fail_at = ++n;
        status = verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, NULL, NULL);
        reached = io.calls >= n;
        cr_assert(status == FSDP_OK ? step == 40 || step == 50 : step == -1, "call %d: step %d", n,
                  (int)step);
        cr_assert(io.n_open == 0);
        memory_io_fini(&io);
    }
}
