/*
 * One model, one global batch, every world size and every way of sharding: the same losses, norms, gradients
 * and weights. The world of one, in a single micro-step, is what the others are held against.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/world.h"

enum { GLOBAL_BATCH = 12, STEPS = 4, MAX_PARAMS = 64 };

struct way {
    int W;         /* all ranks */
    int replicate; /* copies of the model; 0 and 1: one */
    bool defers_all_reduce;
    int sync_root; /* 1: in every micro-step, -1: in the last, 0: as `sync` says */
    double divide; /* the factor said outright, of all W ranks; negative: the same, and sums are forced */
    size_t n_micro;
    enum fsdp_gradient_sync sync;
    enum fsdp_reshard reshard;
    int reshard_size;
    bool one_group, keep_after_backward;
    bool tied, listed, frozen, columns; /* as of struct tiny */
    enum fsdp_optimizer_kind kind;
    float dropout;
};

/* What rank 0 saw; gradients and norms as they are with a factor of W. */
struct seen {
    double losses[STEPS], norms[STEPS];
    size_t n_params;
    float *gradients[MAX_PARAMS], *weights[MAX_PARAMS]; /* of step 1; at the end */
    size_t n_elems[MAX_PARAMS];
};

struct try_it {
    struct way way;
    struct tiny tiny;
    struct seen seen;
};

/* How much smaller gradients are than with a factor of W. */
static double scale_of(const struct way *way)
{
    return way->divide != 0 ? way->W / fabs(way->divide) : 1;
}

static void copy_all(struct fsdp_model *model, enum fsdp_which which, double scale, float **into,
                     struct seen *seen, bool keep)
{
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        struct fsdp_err err = { 0 };
        float *whole;

        fsdp_model_parameter(model, i, &info, NULL);
        if (which == FSDP_GRADIENT && !info.has_gradient)
            continue;
        whole = calloc(info.n_elems, sizeof *whole);
        cr_assert(fsdp_parameter_gather(model, info.name, which, whole, info.n_elems, &err) == FSDP_OK, "%s",
                  err.message);
        if (!keep) {
            free(whole);
            continue;
        }
        seen->n_params = fsdp_model_parameter_count(model);
        seen->n_elems[i] = info.n_elems;
        for (size_t e = 0; scale != 1 && e < info.n_elems; e++)
            whole[e] /= (float)scale;
        into[i] = whole;
    }
}

static void one_step(struct fsdp_model *model, const struct try_it *t, int step, struct fsdp_loss *loss)
{
    const size_t batch = GLOBAL_BATCH / (size_t)t->way.W / t->way.n_micro;
    struct fsdp_context *context = fsdp_model_context(model);
    int32_t tokens[12][GLOBAL_BATCH * 8], targets[12][GLOBAL_BATCH * 8];
    struct fsdp_batch micro[12];
    struct fsdp_err err = { 0 };

    for (size_t m = 0; m < t->way.n_micro; m++) {
        const uint64_t first = (uint64_t)step * GLOBAL_BATCH +
                               (m * (size_t)t->way.W + (size_t)fsdp_context_rank(context)) * batch;

        tiny_samples(&t->tiny, first, batch, tokens[m], targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
    }
    cr_assert(fsdp_model_forward_backward(model, micro, t->way.n_micro, loss, &err) == FSDP_OK, "%s",
              err.message);
}

static void tune(struct fsdp_module *root, const struct way *way)
{
    fsdp_module_set_requires_all_reduce(root, !way->defers_all_reduce, true);
    if (way->sync_root != 0)
        fsdp_module_set_requires_gradient_sync(root, way->sync_root > 0, false);
    if (way->divide < 0)
        fsdp_module_set_force_sum_reduction_for_comms(root, true, true);
    if (way->divide != 0)
        fsdp_module_set_gradient_divide_factor(root, fabs(way->divide), true);
}

static void train(struct fsdp_context *context, void *user)
{
    struct try_it *t = user;
    const bool first = fsdp_context_rank(context) == 0;
    const struct fsdp_model_options options = {
        .batch = GLOBAL_BATCH / (size_t)t->way.W / t->way.n_micro,
        .seq = t->tiny.seq,
        .seed = 42,
        .accumulates = t->way.n_micro > 1,
        .gradient_sync = t->way.sync,
    };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    const double scale = scale_of(&t->way);
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err = { 0 };
    struct fsdp_device_mesh *mesh = NULL;
    struct tiny tiny = t->tiny;
    struct fsdp_module *root;
    struct fsdp_model *model;

    if (t->way.replicate > 1) {
        const char *const names[] = { "replicate", "shard" };
        const int sizes[] = { t->way.replicate, t->way.W / t->way.replicate };

        cr_assert(fsdp_init_device_mesh(&mesh, context, 2, sizes, names, &err) == FSDP_OK, "%s", err.message);
    }
    tiny.mesh = mesh;
    root = tiny_build(&tiny, &err);
    tune(root, &t->way);
    updates.kind = t->way.kind;
    updates.lr = t->way.kind == FSDP_SGD ? 0.3 : 3e-3;
    updates.momentum = 0.9;
    updates.eps = 1e-5 * scale; /* gradients near 0 would turn rounding into sign */
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    for (int step = 0; step < STEPS; step++) {
        struct fsdp_loss loss;
        double norm;

        one_step(model, t, step, &loss);
        if (step == 0)
            copy_all(model, FSDP_GRADIENT, scale, t->seen.gradients, &t->seen, first);
        cr_assert(fsdp_clip_grad_norm(model, 0.5 * scale, &norm, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK, "%s", err.message);
        if (first) {
            t->seen.losses[step] = loss.mean;
            t->seen.norms[step] = norm / scale;
        }
    }
    copy_all(model, FSDP_VALUE, 1, t->seen.weights, &t->seen, first);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(mesh);
}

static void run_way(struct try_it *t, const struct way *way)
{
    memset(t, 0, sizeof *t);
    t->way = *way;
    t->tiny = tiny_defaults;
    t->tiny.reshard = way->reshard_size > 0 ? FSDP_RESHARD_TO : way->reshard;
    t->tiny.reshard_size = way->reshard_size;
    t->tiny.one_group = way->one_group;
    t->tiny.keep_after_backward = way->keep_after_backward;
    t->tiny.dropout = way->dropout;
    t->tiny.tied = way->tied;
    t->tiny.listed = way->listed;
    t->tiny.frozen = way->frozen;
    t->tiny.columns = way->columns;
    world_run(way->W, train, t);
}

static void release(struct try_it *t)
{
    for (size_t i = 0; i < t->seen.n_params; i++) {
        free(t->seen.gradients[i]);
        free(t->seen.weights[i]);
    }
}

/* |a - b| over |b|, as vectors. */
static double distance(const float *a, const float *b, size_t n)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference) / (sqrt(size) + 1e-12);
}

static void compare(const struct seen *got, const struct seen *want)
{
    for (int step = 0; step < STEPS; step++) {
        cr_expect(fabs(got->losses[step] - want->losses[step]) <= 1e-6 * want->losses[step],
                  "step %d: loss %.9g, not %.9g", step, got->losses[step], want->losses[step]);
        cr_expect(fabs(got->norms[step] - want->norms[step]) <= 5e-6 * want->norms[step],
                  "step %d: norm %.9g, not %.9g", step, got->norms[step], want->norms[step]);
    }
    cr_assert(got->n_params == want->n_params && want->n_params > 20);
    for (size_t i = 0; i < want->n_params; i++) {
        cr_assert((got->gradients[i] == NULL) == (want->gradients[i] == NULL));
        cr_expect(want->gradients[i] == NULL ||
                      distance(got->gradients[i], want->gradients[i], want->n_elems[i]) < 2e-6,
                  "gradient of parameter %zu: %g off", i,
                  distance(got->gradients[i], want->gradients[i], want->n_elems[i]));
        cr_expect(distance(got->weights[i], want->weights[i], want->n_elems[i]) < 1e-5,
                  "weights of parameter %zu: %g off", i,
                  distance(got->weights[i], want->weights[i], want->n_elems[i]));
    }
}

ParameterizedTestParameters(worlds, train_alike)
{
    static struct way ways[] = {
        { .W = 1, .n_micro = 3 },
        { .W = 1, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .kind = FSDP_SGD },
        { .W = 2, .n_micro = 1 },
        { .W = 3, .n_micro = 1, .kind = FSDP_SGD },
        { .W = 4, .n_micro = 1, .dropout = 0.2f },
        { .W = 6, .n_micro = 1 }, /* more ranks than some parameters have chunks for: empty shards */
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST, .dropout = 0.2f },
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
        { .W = 3, .n_micro = 2, .sync = FSDP_SYNC_LAST, .keep_after_backward = true },
        { .W = 3,
          .n_micro = 2,
          .sync = FSDP_SYNC_EVERY,
          .reshard = FSDP_RESHARD_FALSE,
          .keep_after_backward = true },
        { .W = 2, .n_micro = 2, .reshard = FSDP_RESHARD_TRUE, .keep_after_backward = true },
        { .W = 2, .n_micro = 1, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .n_micro = 1, .reshard = FSDP_RESHARD_FALSE },
        { .W = 4, .n_micro = 1, .one_group = true },
        /* lists of modules, shared and frozen parameters, other dimensions */
        { .W = 1, .n_micro = 2, .tied = true },
        { .W = 2, .n_micro = 1, .tied = true, .kind = FSDP_SGD },
        { .W = 3, .n_micro = 2, .tied = true, .sync = FSDP_SYNC_EVERY },
        { .W = 3, .n_micro = 2, .tied = true, .reshard = FSDP_RESHARD_TRUE, .dropout = 0.1f },
        { .W = 2, .n_micro = 1, .listed = true },
        { .W = 4, .replicate = 2, .n_micro = 3, .listed = true, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .n_micro = 3, .frozen = true },
        { .W = 3, .n_micro = 2, .frozen = true, .sync = FSDP_SYNC_EVERY, .dropout = 0.2f },
        { .W = 6, .replicate = 2, .n_micro = 1, .frozen = true, .tied = true },
        { .W = 2, .n_micro = 1, .columns = true },
        { .W = 4, .n_micro = 3, .columns = true, .tied = true },
        { .W = 4, .replicate = 2, .n_micro = 1, .columns = true, .frozen = true },
        /* slices between forward and backward */
        { .W = 4, .n_micro = 1, .reshard_size = 2 },
        { .W = 4, .n_micro = 3, .reshard_size = 2, .dropout = 0.1f },
        { .W = 6, .n_micro = 1, .reshard_size = 2, .one_group = true },
        { .W = 6, .n_micro = 2, .reshard_size = 3, .sync = FSDP_SYNC_EVERY, .tied = true },
        { .W = 4, .n_micro = 3, .reshard_size = 2, .keep_after_backward = true },
        { .W = 4, .n_micro = 1, .reshard_size = 2, .columns = true },
        { .W = 3, .n_micro = 1, .reshard_size = 1 },
        { .W = 3, .n_micro = 1, .reshard_size = 3 },
        /* two dimensions: replicate x shard */
        { .W = 4, .replicate = 2, .n_micro = 1 },
        { .W = 4, .replicate = 4, .n_micro = 1 },
        { .W = 6, .replicate = 2, .n_micro = 1, .reshard = FSDP_RESHARD_FALSE },
        { .W = 6, .replicate = 3, .n_micro = 2, .dropout = 0.2f },
        { .W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
        { .W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .defers_all_reduce = true },
        { .W = 2, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .defers_all_reduce = true },
        { .W = 4, .replicate = 2, .n_micro = 3, .defers_all_reduce = true },
        /* units that are not all synchronised alike */
        { .W = 2, .n_micro = 3, .sync_root = 1 },
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .sync_root = -1 },
        /* the same division by other ways */
        { .W = 2, .n_micro = 1, .divide = 2 },
        { .W = 4, .n_micro = 1, .divide = -4 },
        { .W = 4, .replicate = 2, .n_micro = 1, .divide = 4 },
        { .W = 4,
          .replicate = 2,
          .n_micro = 3,
          .sync = FSDP_SYNC_EVERY,
          .defers_all_reduce = true,
          .divide = -4 },
        /* by twice and by half of the ranks: AdamW with an eps to match takes the same steps */
        { .W = 2, .n_micro = 1, .divide = 4 },
        { .W = 1, .n_micro = 2, .divide = 2 },
        { .W = 4, .replicate = 2, .n_micro = 1, .divide = -8 },
        { .W = 4,
          .replicate = 2,
          .n_micro = 3,
          .sync = FSDP_SYNC_EVERY,
          .defers_all_reduce = true,
          .divide = 2 },
    };

    return cr_make_param_array(struct way, ways, sizeof ways / sizeof *ways);
}

ParameterizedTest(struct way *way, worlds, train_alike)
{
    struct way alone = { .W = 1,
                         .n_micro = 1,
                         .kind = way->kind,
                         .dropout = way->dropout,
                         .tied = way->tied,
                         .frozen = way->frozen };
    static struct try_it want, got;

    run_way(&want, &alone);
    run_way(&got, way);

    cr_expect(way->dropout > 0 || want.seen.losses[STEPS - 1] < want.seen.losses[0], "nothing was learnt");
    compare(&got.seen, &want.seen);
    release(&want);
    release(&got);
}

/* Two runs of the same world: the same bits. */
Test(worlds, repeat_bit_for_bit)
{
    const struct way way = { .W = 3, .n_micro = 2, .dropout = 0.1f };
    static struct try_it one, two;

    run_way(&one, &way);
    run_way(&two, &way);

    cr_assert(memcmp(one.seen.losses, two.seen.losses, sizeof one.seen.losses) == 0);
    cr_assert(memcmp(one.seen.norms, two.seen.norms, sizeof one.seen.norms) == 0);
    for (size_t i = 0; i < one.seen.n_params; i++)
        cr_assert(memcmp(one.seen.weights[i], two.seen.weights[i], one.seen.n_elems[i] * sizeof(float)) == 0);
    release(&one);
    release(&two);
}
