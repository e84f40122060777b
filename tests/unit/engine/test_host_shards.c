/*
 * Shards, gradients and optimizer state in host memory, on a device with memory of its own. The bits are the
 * same as with all of it on the device, whatever the job. Nothing of it is on the device, and every copy is
 * on a stream of its own.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/optimizer.h"
#include "shard_runtime/optim/state_file.h"
#include "tests/unit/engine/apart_device.h"
#include "tests/unit/engine/rig.h"

enum { STEPS = 3 };

struct job {
    const char *what;
    struct tiny tiny;
    int replicate; /* 0: no mesh */
    size_t n_micro;
    enum fsdp_gradient_sync sync;
    bool defers, momentum, unshards;
    const char *directory; /* of optimizer state; NULL: in memory */
};

static void open_run(struct rig *rig, struct fsdp_context *context, const struct job *job, bool offloads)
{
    rig_init(rig, context);
    rig->tiny = job->tiny;
    rig->tiny.offloads = offloads;
    rig->n_micro = job->n_micro;
    rig->options.accumulates = job->n_micro > 1;
    rig->options.gradient_sync = job->sync;
    rig_mesh(rig, job->replicate, 1);
    if (job->defers)
        fsdp_module_set_requires_all_reduce(rig_root(rig), false, true);
    if (job->momentum) {
        rig->updates.kind = FSDP_SGD;
        rig->updates.momentum = 0.9;
    }
    rig->updates.offload_dir = offloads ? job->directory : NULL;
    rig->updates.offload_window_bytes = 3 * 4096;
    rig_open(rig);
}

/* Returns the norm of the gradients. */
static double step(struct rig *rig, const struct job *job, int number)
{
    double norm;

    if (job->unshards)
        must(fsdp_module_unshard(rig->model, rig->root, false, NULL, &rig->err), &rig->err);
    must(rig_backward(rig, number, RIG_IN_ONE_CALL), &rig->err);
    must(fsdp_clip_grad_norm(rig->model, INFINITY, &norm, &rig->err), &rig->err);
    must(fsdp_optimizer_step(rig->optimizer, &rig->err), &rig->err);
    return norm;
}

static void compare(struct rig *a, struct rig *b, const struct job *job)
{
    static _Thread_local float left[RIG_ELEMS], right[RIG_ELEMS];

    for (int which = FSDP_VALUE; which <= FSDP_GRADIENT; which++) {
        const size_t n = rig_gather(a, (enum fsdp_which)which, left);

        cr_assert_eq(rig_gather(b, (enum fsdp_which)which, right), n);
        cr_assert(memcmp(left, right, n * sizeof *left) == 0, "%s: %s differ", job->what,
                  which == FSDP_VALUE ? "values" : "gradients");
    }
}

/* Shards and state are page-locked or, as was asked for, not; and on the device there is none of them. */
static void expect_places(const struct rig *run, const struct apart_device *apart)
{
    const bool pinned = !run->tiny.unpinned;
    struct fsdp_memory memory;

    fsdp_model_memory(run->model, &memory);
    cr_assert(memory.host_parameters == memory.parameters && memory.host_gradients == memory.gradients);
    cr_assert(run->model->memory[PLACE_DEVICE].parameter_bytes == 0 &&
              run->model->memory[PLACE_DEVICE].gradients == NULL &&
              run->optimizer->state_bytes[PLACE_DEVICE] == 0);
    cr_assert(run->model->memory[pinned ? PLACE_PAGED : PLACE_PINNED].parameter_bytes == 0);
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        if (pinned && s != PLAN_COMPUTE) /* which takes the batch where it lies */
            for (int kind = 0; kind < 2; kind++)
                cr_assert(apart->copies[s][kind].n_unpinned == 0);
}

/* Of a step: what goes in is every shard once a gather, what comes out every gradient once a reduction. */
static void expect_copies(const struct rig *run, const struct apart_device *apart)
{
    struct fsdp_memory memory;

    fsdp_model_memory(run->model, &memory);
    for (int s = 0; s < PLAN_N_STREAMS; s++) {
        if (s != PLAN_COPIES_IN && s != PLAN_COMPUTE && s != PLAN_GATHERS)
            cr_assert_eq(apart->copies[s][DEVICE_COPY_TO].n, 0, "stream %d", s);
        if (s != PLAN_COPIES_OUT)
            cr_assert_eq(apart->copies[s][DEVICE_COPY_FROM].n, 0, "stream %d", s);
    }
    cr_assert(apart->copies[PLAN_COPIES_IN][DEVICE_COPY_TO].bytes >= memory.parameters);
    cr_assert(apart->copies[PLAN_COPIES_OUT][DEVICE_COPY_FROM].bytes >= memory.gradients &&
              apart->copies[PLAN_COPIES_OUT][DEVICE_COPY_FROM].bytes % memory.gradients == 0);
}

static void train_both(struct fsdp_context *context, void *user)
{
    const struct job *job = user;
    struct apart_device apart;
    struct rig kept, offloaded;

    apart_device_install(&apart, context);
    open_run(&kept, context, job, false);
    open_run(&offloaded, context, job, true);
    for (int i = 0; i < STEPS; i++) {
        const double norm = step(&kept, job, i);
        double other;

        memset(apart.copies, 0, sizeof apart.copies);
        other = step(&offloaded, job, i);
        cr_assert(kept.loss.mean == offloaded.loss.mean && kept.loss.sum == offloaded.loss.sum,
                  "%s: step %d: a loss of %.17g, not %.17g", job->what, i, offloaded.loss.mean,
                  kept.loss.mean);
        /* Sums of squares in double, in another order. */
        cr_assert(fabs(norm - other) <= 1e-12 * norm, "%s: step %d: a norm of %.17g, not %.17g", job->what, i,
                  other, norm);
        expect_places(&offloaded, &apart);
        expect_copies(&offloaded, &apart);
        compare(&kept, &offloaded, job);
    }
    rig_close(&kept);
    rig_close(&offloaded);
    apart_device_remove(&apart, context);
}

static const struct fsdp_mixed_precision_policy all_bf16 = { .param_dtype = FSDP_BF16,
                                                             .reduce_dtype = FSDP_BF16,
                                                             .output_dtype = FSDP_DTYPE_NONE,
                                                             .cast_forward_inputs = true };
static const struct fsdp_mixed_precision_policy sums_in_f32 = { .param_dtype = FSDP_BF16,
                                                                .reduce_dtype = FSDP_F32,
                                                                .output_dtype = FSDP_DTYPE_NONE,
                                                                .cast_forward_inputs = true };

/* Each job with the sizes of the default model; without micro-steps, of one. */
static void try_worlds(struct job job, int first_W, int last_W)
{
    job.tiny = tiny_with(job.tiny);
    job.n_micro = job.n_micro > 0 ? job.n_micro : 1;
    for (int W = first_W; W <= last_W; W++)
        if (job.replicate == 0 || W % job.replicate == 0)
            world_run(W, train_both, &job);
}

static struct fsdp_mixed_precision_policy with(bool draws, bool float8, bool wide)
{
    struct fsdp_mixed_precision_policy mp = sums_in_f32;

    mp.stochastic_rounding = draws;
    mp.float8_gather = float8;
    mp.param_dtype = wide ? FSDP_F32 : FSDP_BF16;
    return mp;
}

TestSuite(host_shards, .timeout = 3000);

Test(host_shards, change_no_bit_at_any_world_size)
{
    try_worlds((struct job){ .what = "as it is" }, 1, 5);
}

Test(host_shards, change_no_bit_of_any_dtype)
{
    const struct fsdp_mixed_precision_policy drawn = with(true, false, false);

    try_worlds((struct job){ .what = "bfloat16", .tiny.mp_policy = &all_bf16 }, 1, 3);
    try_worlds((struct job){ .what = "bfloat16 with float32 sums", .tiny.mp_policy = &sums_in_f32 }, 1, 3);
    try_worlds((struct job){ .what = "rounded stochastically", .tiny.mp_policy = &drawn }, 1, 3);
}

/* Largest sizes and codes are of the copy on the device, whoever unsharded it before. */
Test(host_shards, change_no_bit_of_gathers_in_float8)
{
    const struct fsdp_mixed_precision_policy narrow = with(false, true, false),
                                             wide = with(false, true, true);
    struct job kept = {
        .what = "float8, kept from one micro-step to the next",
        .tiny = { .mp_policy = &wide, .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true },
        .n_micro = 3
    };

    for (int is_wide = 0; is_wide < 2; is_wide++) {
        struct job job = { .what = "float8", .tiny.mp_policy = is_wide ? &wide : &narrow };

        try_worlds(job, 1, 4);
        job.unshards = true;
        try_worlds(job, 1, 3);
    }
    try_worlds((struct job){ .what = "slices of float8",
                             .tiny = { .mp_policy = &wide, .reshard = FSDP_RESHARD_TO, .reshard_size = 2 } },
               4, 4);
    try_worlds(kept, 2, 3);
}

/*
 * In a world of one, sums of every micro-step are added by the product itself without offload: held to a
 * tolerance elsewhere.
 */
Test(host_shards, change_no_bit_of_micro_steps)
{
    for (int every = 0; every < 2; every++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            try_worlds((struct job){ .what = every ? "reduced in every micro-step" : "reduced in the last",
                                     .n_micro = 3,
                                     .sync = every ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST,
                                     .tiny.mp_policy = bf16 ? &all_bf16 : NULL },
                       every ? 2 : 1, 3);
}

Test(host_shards, change_no_bit_of_replicas)
{
    const struct job defers = { .what = "replicas, summed at the end",
                                .replicate = 2,
                                .n_micro = 2,
                                .sync = FSDP_SYNC_EVERY,
                                .defers = true };

    try_worlds((struct job){ .what = "replicas", .replicate = 2 }, 2, 4);
    try_worlds(defers, 4, 4);
}

Test(host_shards, change_no_bit_of_any_way_to_shard)
{
    static const struct {
        struct job job;
        int first_W, last_W;
    } ways[] = {
        { { .what = "kept after forward", .tiny.reshard = FSDP_RESHARD_FALSE }, 1, 3 },
        { { .what = "slices", .tiny = { .reshard = FSDP_RESHARD_TO, .reshard_size = 2 } }, 4, 4 },
        { { .what = "tied, a list", .tiny.tied = true }, 1, 3 },
        { { .what = "frozen", .tiny.frozen = true }, 1, 3 },
        { { .what = "columns", .tiny.columns = true }, 2, 2 },
        { { .what = "one group, momentum", .tiny.one_group = true, .momentum = true }, 1, 3 },
        { { .what = "kept from one micro-step to the next",
            .tiny.keep_after_backward = true,
            .momentum = true,
            .n_micro = 2 },
          1,
          3 },
        { { .what = "unsharded by hand", .unshards = true }, 1, 3 },
        { { .what = "not page-locked", .tiny.unpinned = true }, 1, 3 },
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        try_worlds(ways[i].job, ways[i].first_W, ways[i].last_W);
}

Test(host_shards, take_optimizer_state_in_a_file)
{
    struct job job = { .what = "state in a file" };
    char directory[256];
    struct fsdp_err err = { 0 };
    struct state_file file = { .fd = -1 };
    enum fsdp_status status;

    snprintf(directory, sizeof directory, "%s/host-shards-XXXXXX", BUILD_DIR);
    cr_assert_not_null(mkdtemp(directory));
    job.directory = directory;
    status = state_file_open(&file, &io_posix, directory, 0, 4096, &err);
    state_file_close(&file);
    if (status != FSDP_ERR_CONFIG) /* the build is in memory: no file may be there */
        try_worlds(job, 1, 3);
    (void)rmdir(directory);
}

/* A window of a file is the host's: it cannot be of shards that are on the device. */
static void state_in_a_file(struct fsdp_context *context, void *user)
{
    struct apart_device apart;
    struct rig rig;

    (void)user;
    apart_device_install(&apart, context);
    rig_init(&rig, context);
    rig.updates.offload_dir = BUILD_DIR;
    rig_model(&rig);
    expect_refused(fsdp_optimizer_create(&rig.optimizer, rig.model, &rig.updates, &rig.err),
                   FSDP_ERR_UNSUPPORTED,
                   "optimizer state in a file needs shards in host memory: \"\" does not offload", &rig.err);
    rig_close(&rig);
    apart_device_remove(&apart, context);
}

WorldTest(host_shards, are_what_optimizer_state_in_a_file_needs, state_in_a_file, 1);
