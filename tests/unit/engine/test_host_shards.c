/*
 * Shards, gradients and optimizer state in host memory, on a device with memory of its own: the same bits as with all of it
 * on the device, whatever the job; nothing of it on the device; every copy on a stream of its own.
 */
#include <criterion/criterion.h>
#include <fsdp/mesh.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/optimizer.h"
#include "shard_runtime/engine/state_file.h"
#include "tests/unit/engine/apart_device.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, SEQ = 6, STEPS = 3, MAX_MICRO = 3, MAX_ELEMS = 1024 };

struct job {
    const char *what;
    struct tiny tiny;
    int replicate; /* 0: no mesh */
    size_t n_micro;
    enum fsdp_gradient_sync sync;
    bool defers, momentum, unshards;
    const char *directory; /* of optimizer state; NULL: in memory */
};

struct run {
    struct tiny tiny; /* forward looks at it as long as the model lives */
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    struct fsdp_device_mesh *mesh;
};

static void open_run(struct run *run, struct fsdp_context *context, const struct job *job, bool offloads)
{
    const struct fsdp_model_options options = {
        .batch = BATCH, .seq = SEQ, .seed = 5, .accumulates = job->n_micro > 1, .gradient_sync = job->sync
    };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };

    *run = (struct run){ .tiny = job->tiny };
    run->tiny.offloads = offloads;
    if (job->replicate > 0) {
        const int sizes[2] = { job->replicate, fsdp_context_world_size(context) / job->replicate };
        const char *const names[2] = { "replicate", "shard" };

        cr_assert(fsdp_init_device_mesh(&run->mesh, context, 2, sizes, names, &err) == FSDP_OK, "%s",
                  err.message);
        run->tiny.mesh = run->mesh;
    }
    run->root = tiny_build(&run->tiny, &err);
    cr_assert_not_null(run->root, "%s", err.message);
    if (job->defers)
        fsdp_module_set_requires_all_reduce(run->root, false, true);
    if (job->momentum) {
        updates.kind = FSDP_SGD;
        updates.momentum = 0.9;
    }
    updates.offload_dir = offloads ? job->directory : NULL;
    updates.offload_window_bytes = 3 * 4096;
    cr_assert(fsdp_model_create(&run->model, context, run->root, &options, &err) == FSDP_OK, "%s: %s",
              job->what, err.message);
    cr_assert(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &err) == FSDP_OK, "%s: %s",
              job->what, err.message);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
    fsdp_device_mesh_destroy(run->mesh);
}

/* Clipped where it says so; the norm is returned. */
static double step(struct run *run, const struct job *job, int number, struct fsdp_loss *loss)
{
    struct fsdp_context *context = fsdp_model_context(run->model);
    const uint64_t W = (uint64_t)fsdp_context_world_size(context);
    int32_t tokens[MAX_MICRO][BATCH * SEQ], targets[MAX_MICRO][BATCH * SEQ];
    struct fsdp_batch micro[MAX_MICRO];
    struct fsdp_err err = { 0 };
    double norm;

    for (size_t m = 0; m < job->n_micro; m++) {
        const uint64_t first =
            (((uint64_t)number * job->n_micro + m) * W + (uint64_t)fsdp_context_rank(context)) * BATCH;

        tiny_samples(&run->tiny, first, BATCH, tokens[m], targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
    }
    if (job->unshards)
        cr_assert(fsdp_module_unshard(run->model, run->root, false, NULL, &err) == FSDP_OK, "%s",
                  err.message);
    cr_assert(fsdp_model_forward_backward(run->model, micro, job->n_micro, loss, &err) == FSDP_OK, "%s: %s",
              job->what, err.message);
    cr_assert(fsdp_clip_grad_norm(run->model, INFINITY, &norm, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_step(run->optimizer, &err) == FSDP_OK, "%s", err.message);
    return norm;
}

static void compare(struct run *a, struct run *b, const struct job *job)
{
    static _Thread_local float left[MAX_ELEMS], right[MAX_ELEMS];

    for (size_t i = 0; i < fsdp_model_parameter_count(a->model); i++) {
        struct fsdp_parameter_info info;

        cr_assert(fsdp_model_parameter(a->model, i, &info, NULL) == FSDP_OK && info.n_elems <= MAX_ELEMS);
        for (int which = FSDP_VALUE; which <= (info.has_gradient ? FSDP_GRADIENT : FSDP_VALUE); which++) {
            cr_assert(fsdp_parameter_gather(a->model, info.name, (enum fsdp_which)which, left, info.n_elems,
                                            NULL) == FSDP_OK);
            cr_assert(fsdp_parameter_gather(b->model, info.name, (enum fsdp_which)which, right, info.n_elems,
                                            NULL) == FSDP_OK);
            cr_assert(memcmp(left, right, info.n_elems * sizeof *left) == 0, "%s: %s of %s differs",
                      job->what, which == FSDP_VALUE ? "the value" : "the gradient", info.name);
        }
    }
}

/* Shards and state are page-locked or, as was asked for, not; and on the device there is none of them. */
static void expect_places(const struct run *run, const struct apart_device *apart)
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
static void expect_copies(const struct run *run, const struct apart_device *apart)
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
    struct run kept, offloaded;

    apart_device_install(&apart, context);
    open_run(&kept, context, job, false);
    open_run(&offloaded, context, job, true);
    for (int i = 0; i < STEPS; i++) {
        struct fsdp_loss a, b;
        const double norm = step(&kept, job, i, &a);
        double other;

        memset(apart.copies, 0, sizeof apart.copies);
        other = step(&offloaded, job, i, &b);
        cr_assert(a.mean == b.mean && a.sum == b.sum, "%s: step %d: a loss of %.17g, not %.17g", job->what, i,
                  b.mean, a.mean);
        /* Sums of squares in double, in another order. */
        cr_assert(fabs(norm - other) <= 1e-12 * norm, "%s: step %d: a norm of %.17g, not %.17g", job->what, i,
                  other, norm);
        expect_places(&offloaded, &apart);
        expect_copies(&offloaded, &apart);
        compare(&kept, &offloaded, job);
    }
    close_run(&kept);
    close_run(&offloaded);
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

static void try_worlds(struct job job, int first_W, int last_W)
{
    for (int W = first_W; W <= last_W; W++)
        if (job.replicate == 0 || W % job.replicate == 0)
            world_run(W, train_both, &job);
}

Test(host_shards, change_no_bit_at_any_world_size, .timeout = 3000)
{
    try_worlds((struct job){ .what = "as it is", .tiny = tiny_defaults, .n_micro = 1 }, 1, 5);
}

Test(host_shards, change_no_bit_of_any_dtype, .timeout = 3000)
{
    static const char *const words[] = { "bfloat16", "bfloat16 with float32 sums", "rounded stochastically" };
    struct fsdp_mixed_precision_policy drawn = sums_in_f32;
    const struct fsdp_mixed_precision_policy *const policies[] = { &all_bf16, &sums_in_f32, &drawn };

    drawn.stochastic_rounding = true;
    for (int i = 0; i < 3; i++) {
        struct job job = { .what = words[i], .n_micro = 1 };

        job.tiny = tiny_defaults;
        job.tiny.mp_policy = policies[i];
        try_worlds(job, 1, 3);
    }
}

/* Largest sizes and codes are of the copy on the device, whoever unsharded it before. */
Test(host_shards, change_no_bit_of_gathers_in_float8, .timeout = 3000)
{
    struct fsdp_mixed_precision_policy float8 = sums_in_f32;
    struct job job = { .what = "float8", .n_micro = 1 };

    float8.float8_gather = true;
    job.tiny = tiny_defaults;
    job.tiny.mp_policy = &float8;
    for (int wide = 0; wide < 2; wide++) {
        float8.param_dtype = wide ? FSDP_F32 : FSDP_BF16;
        try_worlds(job, 1, 4);
        job.unshards = true;
        try_worlds(job, 1, 3);
        job.unshards = false;
    }
    job.what = "slices of float8";
    job.tiny.reshard = FSDP_RESHARD_TO;
    job.tiny.reshard_size = 2;
    try_worlds(job, 4, 4);
    job.what = "float8, kept from one micro-step to the next";
    job.tiny.reshard = FSDP_RESHARD_FALSE;
    job.tiny.keep_after_backward = true;
    job.n_micro = 3;
    try_worlds(job, 2, 3);
}

/* In a world of one, sums of every micro-step are added by the product itself without offload: held to a tolerance elsewhere. */
Test(host_shards, change_no_bit_of_micro_steps, .timeout = 3000)
{
    for (int every = 0; every < 2; every++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct job job = { .what = every ? "reduced in every micro-step" : "reduced in the last",
                               .n_micro = 3,
                               .sync = every ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST };

            job.tiny = tiny_defaults;
            job.tiny.mp_policy = bf16 ? &all_bf16 : NULL;
            try_worlds(job, every ? 2 : 1, 3);
        }
}

Test(host_shards, change_no_bit_of_replicas, .timeout = 3000)
{
    for (int defers = 0; defers < 2; defers++) {
        struct job job = { .what = defers ? "replicas, summed at the end" : "replicas",
                           .replicate = 2,
                           .n_micro = defers ? 2 : 1,
                           .sync = defers ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST,
                           .defers = defers };

        job.tiny = tiny_defaults;
        try_worlds(job, defers ? 4 : 2, 4);
    }
}

Test(host_shards, change_no_bit_of_any_way_to_shard, .timeout = 3000)
{
    struct job job = { .n_micro = 1 };

    job.tiny = tiny_defaults;
    job.what = "kept after forward";
    job.tiny.reshard = FSDP_RESHARD_FALSE;
    try_worlds(job, 1, 3);
    job.what = "slices";
    job.tiny.reshard = FSDP_RESHARD_TO;
    job.tiny.reshard_size = 2;
    try_worlds(job, 4, 4);
    job.tiny = tiny_defaults;
    job.what = "tied, a list";
    job.tiny.tied = true;
    try_worlds(job, 1, 3);
    job.tiny = tiny_defaults;
    job.what = "frozen";
    job.tiny.frozen = true;
    try_worlds(job, 1, 3);
    job.tiny = tiny_defaults;
    job.what = "columns";
    job.tiny.columns = true;
    try_worlds(job, 2, 2);
    job.tiny = tiny_defaults;
    job.what = "one group, momentum";
    job.tiny.one_group = true;
    job.momentum = true;
    try_worlds(job, 1, 3);
    job.what = "kept from one micro-step to the next";
    job.tiny = tiny_defaults;
    job.tiny.keep_after_backward = true;
    job.n_micro = 2;
    try_worlds(job, 1, 3);
}

Test(host_shards, may_be_unsharded_by_hand_and_be_in_ordinary_memory, .timeout = 3000)
{
    struct job job = { .what = "unsharded by hand", .n_micro = 1, .unshards = true };

    job.tiny = tiny_defaults;
    try_worlds(job, 1, 3);
    job.what = "not page-locked";
    job.unshards = false;
    job.tiny.unpinned = true;
    try_worlds(job, 1, 3);
}

Test(host_shards, take_optimizer_state_in_a_file, .timeout = 3000)
{
    struct job job = { .what = "state in a file", .n_micro = 1 };
    char directory[256];
    struct fsdp_err err = { 0 };
    struct state_file file = { .fd = -1 };
    enum fsdp_status status;

    snprintf(directory, sizeof directory, "%s/host-shards-XXXXXX", BUILD_DIR);
    cr_assert_not_null(mkdtemp(directory));
    job.tiny = tiny_defaults;
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
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct tiny tiny = tiny_defaults;
    struct apart_device apart;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny, &err);
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;

    (void)user;
    apart_device_install(&apart, context);
    updates.offload_dir = BUILD_DIR;
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_expect(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_ERR_UNSUPPORTED);
    cr_expect_str_eq(err.message,
                     "optimizer state in a file needs shards in host memory: \"\" does not offload");
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    apart_device_remove(&apart, context);
}

Test(host_shards, are_what_optimizer_state_in_a_file_needs)
{
    world_run(1, state_in_a_file, NULL);
}
