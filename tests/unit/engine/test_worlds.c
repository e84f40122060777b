/*
 * One model, one global batch, every world size and every way of sharding: the same losses, norms, gradients
 * and weights. The world of one, in a single micro-step, is what the others are held against.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/rig.h"

enum { GLOBAL_BATCH = 12, STEPS = 4, MAX_PARAMS = 64 };

struct way {
    int W;         /* all ranks */
    int replicate; /* copies of the model; 0 and 1: one */
    bool defers_all_reduce;
    int sync_root;  /* 1: in every micro-step, -1: in the last, 0: as `sync` says */
    double divide;  /* the factor said outright, of all W ranks; negative: the same, and sums are forced */
    size_t n_micro; /* 0 counts as 1 */
    bool every;     /* gradients are reduced in every micro-step, not in the last */
    enum fsdp_reshard reshard;
    int reshard_size;
    bool one_group, keep_after_backward;
    bool tied, listed, frozen, columns; /* as of struct tiny */
    enum fsdp_optimizer_kind kind;
    float dropout;
};

/* Whole parameters, one after the other. */
struct part {
    size_t n_params, n_elems[MAX_PARAMS];
    float values[RIG_ELEMS];
};

/* What rank 0 saw; gradients and norms as they are with a factor of W. */
struct seen {
    struct way way;
    double losses[STEPS], norms[STEPS];
    struct part gradients, weights; /* of step 1; at the end */
};

/* How much smaller gradients are than with a factor of W. */
static double scale_of(const struct way *way)
{
    return way->divide != 0 ? way->W / fabs(way->divide) : 1;
}

static void look(struct rig *rig, enum fsdp_which which, double scale, struct part *out)
{
    const size_t n = rig_gather(rig, which, out->values);

    out->n_params = 0;
    for (size_t i = 0; i < fsdp_model_parameter_count(rig->model); i++) {
        struct fsdp_parameter_info info;

        fsdp_model_parameter(rig->model, i, &info, NULL);
        if (which == FSDP_VALUE || info.has_gradient)
            out->n_elems[out->n_params++] = info.n_elems;
    }
    for (size_t e = 0; e < n; e++)
        out->values[e] /= (float)scale;
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
    static _Thread_local struct seen scratch;
    struct seen *kept = user, *seen = fsdp_context_rank(context) == 0 ? kept : &scratch;
    const struct way *way = &kept->way;
    const double scale = scale_of(way);
    struct rig rig;

    rig_init(&rig, context);
    rig.n_micro = way->n_micro > 0 ? way->n_micro : 1;
    rig.options.batch = GLOBAL_BATCH / (size_t)way->W / rig.n_micro;
    rig.options.accumulates = rig.n_micro > 1;
    rig.options.gradient_sync = way->every ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST;
    rig.tiny.reshard = way->reshard_size > 0 ? FSDP_RESHARD_TO : way->reshard;
    rig.tiny.reshard_size = way->reshard_size;
    rig.tiny.one_group = way->one_group;
    rig.tiny.keep_after_backward = way->keep_after_backward;
    rig.tiny.dropout = way->dropout;
    rig.tiny.tied = way->tied;
    rig.tiny.listed = way->listed;
    rig.tiny.frozen = way->frozen;
    rig.tiny.columns = way->columns;
    rig.updates.kind = way->kind;
    rig.updates.lr = way->kind == FSDP_SGD ? 0.3 : 3e-3;
    rig.updates.momentum = 0.9;
    rig.updates.eps = 1e-5 * scale; /* gradients near 0 would turn rounding into sign */
    rig_mesh(&rig, way->replicate, 1);
    tune(rig_root(&rig), way);
    rig_open(&rig);
    for (int step = 0; step < STEPS; step++) {
        must(rig_backward(&rig, step, RIG_IN_ONE_CALL), &rig.err);
        if (step == 0)
            look(&rig, FSDP_GRADIENT, scale, &seen->gradients);
        must(fsdp_clip_grad_norm(rig.model, 0.5 * scale, &seen->norms[step], &rig.err), &rig.err);
        must(fsdp_optimizer_step(rig.optimizer, &rig.err), &rig.err);
        seen->losses[step] = rig.loss.mean;
        seen->norms[step] /= scale;
    }
    look(&rig, FSDP_VALUE, 1, &seen->weights);
    rig_close(&rig);
}

static void run_way(struct seen *seen, const struct way *way)
{
    seen->way = *way;
    world_run(way->W, train, seen);
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

static void compare_part(const struct part *got, const struct part *want, double tolerance, const char *what)
{
    cr_assert(got->n_params == want->n_params && want->n_params > 10);
    for (size_t i = 0, first = 0; i < want->n_params; first += want->n_elems[i++]) {
        const double off = distance(got->values + first, want->values + first, want->n_elems[i]);

        cr_expect(got->n_elems[i] == want->n_elems[i] && off < tolerance, "%s of parameter %zu: %g off", what,
                  i, off);
    }
}

static void compare(const struct seen *got, const struct seen *want)
{
    for (int step = 0; step < STEPS; step++) {
        cr_expect(fabs(got->losses[step] - want->losses[step]) <= 1e-6 * want->losses[step],
                  "step %d: loss %.9g, not %.9g", step, got->losses[step], want->losses[step]);
        cr_expect(fabs(got->norms[step] - want->norms[step]) <= 5e-6 * want->norms[step],
                  "step %d: norm %.9g, not %.9g", step, got->norms[step], want->norms[step]);
    }
    compare_part(&got->gradients, &want->gradients, 2e-6, "gradient");
    compare_part(&got->weights, &want->weights, 1e-5, "weights");
}

ParameterizedTestParameters(worlds, train_alike)
{
    static struct way ways[] = {
        { .W = 1, .n_micro = 3 },
        { .W = 1, .n_micro = 3, .every = true, .kind = FSDP_SGD },
        { .W = 2 },
        { .W = 3, .kind = FSDP_SGD },
        { .W = 4, .dropout = 0.2f },
        { .W = 6 }, /* more ranks than some parameters have chunks for: empty shards */
        { .W = 2, .n_micro = 3, .dropout = 0.2f },
        { .W = 2, .n_micro = 3, .every = true },
        { .W = 3, .n_micro = 2, .keep_after_backward = true },
        { .W = 3, .n_micro = 2, .every = true, .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true },
        { .W = 2, .n_micro = 2, .reshard = FSDP_RESHARD_TRUE, .keep_after_backward = true },
        { .W = 2, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .reshard = FSDP_RESHARD_FALSE },
        { .W = 4, .one_group = true },
        /* lists of modules, shared and frozen parameters, other dimensions */
        { .W = 1, .n_micro = 2, .tied = true },
        { .W = 2, .tied = true, .kind = FSDP_SGD },
        { .W = 3, .n_micro = 2, .tied = true, .every = true },
        { .W = 3, .n_micro = 2, .tied = true, .reshard = FSDP_RESHARD_TRUE, .dropout = 0.1f },
        { .W = 2, .listed = true },
        { .W = 4, .replicate = 2, .n_micro = 3, .listed = true, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .n_micro = 3, .frozen = true },
        { .W = 3, .n_micro = 2, .frozen = true, .every = true, .dropout = 0.2f },
        { .W = 6, .replicate = 2, .frozen = true, .tied = true },
        { .W = 2, .columns = true },
        { .W = 4, .n_micro = 3, .columns = true, .tied = true },
        { .W = 4, .replicate = 2, .columns = true, .frozen = true },
        /* slices between forward and backward */
        { .W = 4, .reshard_size = 2 },
        { .W = 4, .n_micro = 3, .reshard_size = 2, .dropout = 0.1f },
        { .W = 6, .reshard_size = 2, .one_group = true },
        { .W = 6, .n_micro = 2, .reshard_size = 3, .every = true, .tied = true },
        { .W = 4, .n_micro = 3, .reshard_size = 2, .keep_after_backward = true },
        { .W = 4, .reshard_size = 2, .columns = true },
        { .W = 3, .reshard_size = 1 },
        { .W = 3, .reshard_size = 3 },
        /* two dimensions: replicate x shard */
        { .W = 4, .replicate = 2 },
        { .W = 4, .replicate = 4 },
        { .W = 6, .replicate = 2, .reshard = FSDP_RESHARD_FALSE },
        { .W = 6, .replicate = 3, .n_micro = 2, .dropout = 0.2f },
        { .W = 4, .replicate = 2, .n_micro = 3, .every = true },
        { .W = 4, .replicate = 2, .n_micro = 3, .every = true, .defers_all_reduce = true },
        { .W = 2, .replicate = 2, .n_micro = 3, .every = true, .defers_all_reduce = true },
        { .W = 4, .replicate = 2, .n_micro = 3, .defers_all_reduce = true },
        /* units that are not all synchronised alike */
        { .W = 2, .n_micro = 3, .sync_root = 1 },
        { .W = 2, .n_micro = 3, .every = true, .sync_root = -1 },
        /* the same division by other ways */
        { .W = 2, .divide = 2 },
        { .W = 4, .divide = -4 },
        { .W = 4, .replicate = 2, .divide = 4 },
        { .W = 4, .replicate = 2, .n_micro = 3, .every = true, .defers_all_reduce = true, .divide = -4 },
        /* by twice and by half of the ranks: AdamW with an eps to match takes the same steps */
        { .W = 2, .divide = 4 },
        { .W = 1, .n_micro = 2, .divide = 2 },
        { .W = 4, .replicate = 2, .divide = -8 },
        { .W = 4, .replicate = 2, .n_micro = 3, .every = true, .defers_all_reduce = true, .divide = 2 },
    };

    return cr_make_param_array(struct way, ways, sizeof ways / sizeof *ways);
}

ParameterizedTest(struct way *way, worlds, train_alike)
{
    struct way alone = {
        .W = 1, .kind = way->kind, .dropout = way->dropout, .tied = way->tied, .frozen = way->frozen
    };
    static struct seen want, got;

    run_way(&want, &alone);
    run_way(&got, way);

    cr_expect(way->dropout > 0 || want.losses[STEPS - 1] < want.losses[0], "nothing was learnt");
    compare(&got, &want);
}

/* Two runs of the same world: the same bits. */
Test(worlds, repeat_bit_for_bit)
{
    const struct way way = { .W = 3, .n_micro = 2, .dropout = 0.1f };
    static struct seen one, two;

    run_way(&one, &way);
    run_way(&two, &way);

    cr_assert(memcmp(one.losses, two.losses, sizeof one.losses) == 0);
    cr_assert(memcmp(one.norms, two.norms, sizeof one.norms) == 0);
    cr_assert(memcmp(&one.weights, &two.weights, sizeof one.weights) == 0);
}
