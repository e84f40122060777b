/*
 * A power cut before every single file operation of a save: whatever was not synced is gone, or there, or in
 * part. What comes up must hold the old step or the new one, bit-exact, and a save that said it was done must
 * be there.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/memory_io.h"

TestSuite(crash, .timeout = 3000);

enum { OLD = 40, NEW = 50, W = 2 };

/* The values saved are those of `step`; `generation` tells two saves of one step apart. */
struct scene {
    uint64_t D;
    int64_t old_step, new_step;
    uint32_t new_generation;
    uint32_t keep;
    bool cannot_exchange, damaged;
    uint64_t n_random; /* crashes that keep a random part, at each call; 1: and of the other kinds but one */
};

static void damage(struct memory_io *io)
{
    const int fd = io->base.open(&io->base, "run/c/step-00000050/manifest.json", 1 /* O_WRONLY */, 0);

    cr_assert(fd >= 0 && io->base.pwrite(&io->base, fd, "damage", 6, 30) == 6 &&
              io->base.fsync(&io->base, fd) == 0);
    cr_assert(io->base.close(&io->base, fd) == 0);
}

/*
 * The newest valid one after the machine is up again; every value checked. Recovers as a coordinator would.
 */
static int64_t recover(struct memory_io *io, const struct scene *scene, uint32_t *generation,
                       struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    struct manifest manifest;
    int64_t step = -2;

    *generation = 0;
    if (commit_clean(&io->base, "run/c", 0, NULL, err) != FSDP_OK ||
        verify_newest(&io->base, "run/c", VERIFY_CHECKSUMS, &step, NULL, err) != FSDP_OK)
        return -2;
    if (step < 0)
        return step;
    if (state_load(&io->base, "run/c", step, scene->D, 3, err) != FSDP_OK ||
        commit_step_path("run/c", step, path, err) != FSDP_OK ||
        verify_step(&io->base, path, VERIFY_STRUCTURE, &manifest, err) != FSDP_OK)
        return -2;
    *generation = (uint32_t)manifest.generation;
    manifest_free(&manifest);
    return step;
}

/* Bring the machine up from `image` in one way, and look. */
static void check_crash(const struct memory_io *image, const struct scene *scene, enum memory_crash kind,
                        uint64_t seed, bool said_done, int stopped_at)
{
    struct fsdp_err err = { 0 };
    struct memory_io io;
    uint32_t generation;
    int64_t step;
    bool is_new;

    memory_io_copy(&io, image);
    memory_io_crash(&io, kind, seed);
    step = recover(&io, scene, &generation, &err);
    is_new = step == scene->new_step && generation == scene->new_generation;
    cr_assert(is_new || (step == scene->old_step && !said_done),
              "stopped at %d, kind %d, seed %d: step %d: %s", stopped_at, (int)kind, (int)seed, (int)step,
              err.message);
    cr_assert(state_save(&io.base, "run/c", 60, 9, scene->D, W, &err) == FSDP_OK,
              "stopped at %d: the next save: %s", stopped_at, err.message);
    cr_assert(recover(&io, scene, &generation, &err) == 60, "%s", err.message);
    memory_io_fini(&io);
}

static void walk(const struct scene *scene)
{
    int n_done = 0, n_stopped = 0;
    struct memory_io start;

    memory_io_init(&start);
    start.cannot_exchange = scene->cannot_exchange;
    if (scene->old_step >= 0)
        cr_assert(state_save(&start.base, "run/c", scene->old_step, 0, scene->D, W, NULL) == FSDP_OK);
    if (scene->damaged) {
        cr_assert(state_save(&start.base, "run/c", scene->new_step, 0, scene->D, W, NULL) == FSDP_OK);
        damage(&start);
    }
    for (int stop_at = 1; n_done < 2; stop_at++) {
        enum fsdp_status status;
        struct memory_io io;
        bool reached;

        memory_io_copy(&io, &start);
        io.stop_at = stop_at;
        status = state_save(&io.base, "run/c", scene->new_step, scene->new_generation, scene->D, W, NULL);
        if (status == FSDP_OK && scene->keep > 0)
            commit_retain(&io.base, "run/c", scene->keep, scene->new_step, -1, NULL, NULL);
        reached = io.calls >= stop_at;
        check_crash(&io, scene, CRASH_KEEP_SYNCED, 0, status == FSDP_OK, stop_at);
        if (scene->n_random > 1) {
            check_crash(&io, scene, CRASH_KEEP_ALL, 0, status == FSDP_OK, stop_at);
            check_crash(&io, scene, CRASH_KEEP_NAMES, 0, status == FSDP_OK, stop_at);
        }
        for (uint64_t seed = 1; seed <= scene->n_random; seed++)
            check_crash(&io, scene, CRASH_KEEP_RANDOM, seed, status == FSDP_OK, stop_at);
        n_stopped += reached;
        n_done += !reached;
        memory_io_fini(&io);
    }
    cr_assert(n_stopped > 40, "only %d operations were reached", n_stopped);
    memory_io_fini(&start);
}

Test(crash, the_first_save_is_there_or_nothing_is)
{
    walk(&(struct scene){ .D = 5, .n_random = 12, .old_step = -1, .new_step = NEW });
}

Test(crash, a_save_beside_an_old_one_leaves_old_or_new)
{
    walk(&(struct scene){ .D = 5, .n_random = 12, .old_step = OLD, .new_step = NEW });
    /* Large files go around the page cache. */
    walk(&(struct scene){ .D = 38000, .n_random = 1, .old_step = OLD, .new_step = NEW });
}

Test(crash, retention_after_the_save_leaves_the_new_one)
{
    walk(&(struct scene){ .D = 5, .n_random = 12, .old_step = OLD, .new_step = NEW, .keep = 1 });
}

Test(crash, saving_a_step_again_leaves_either_save_of_it)
{
    walk(&(struct scene){ .D = 5, .n_random = 12, .old_step = NEW, .new_step = NEW, .new_generation = 1 });
}

Test(crash, saving_over_a_damaged_one_falls_back_until_it_is_done)
{
    struct scene scene = {
        .D = 5, .n_random = 12, .old_step = OLD, .new_step = NEW, .new_generation = 1, .damaged = true
    };

    walk(&scene);
    scene.cannot_exchange = true;
    walk(&scene);
}
