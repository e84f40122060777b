/*
 * Steps of a small model between real processes, in many ways of sharding. They have delays where PyTorch's
 * FSDP2 is tested with them: before a gather, before a reduction, after forward, before the optimizer, and at
 * all four. Of the same mesh every way and every delay gives the same bits. Included by one program, which
 * plays the agent (comm_rank.h).
 */
#ifndef TESTS_SLOW_STEPS_H
#define TESTS_SLOW_STEPS_H

#include <fsdp/fsdp.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/tiny.c"
/* After the model: its words are other functions' arguments too. */
#include "tests/support/workers/comm_rank.h"

enum { SLOW_GATHER = 1, SLOW_REDUCE = 2, SLOW_AFTER_FORWARD = 4, SLOW_BEFORE_OPTIMIZER = 8, SLOW_ALL = 15 };
enum { SLOW_STEPS = 2, SLOW_BATCH = 2, SLOW_SEQ = 6 };

struct slow_way {
    const char *name;
    int slow;
    bool hybrid; /* over replicate 2 x shard */
    enum fsdp_reshard reshard;
    int reshard_size;
    bool lists; /* each block names the other, to be gathered ahead in forward and backward */
    bool own_reduces, inlined;
    bool misses_waits; /* a mutant: computes without waiting for gathers */
};

/* What all ways of the same mesh have in common. */
struct slow_seen {
    double losses[SLOW_STEPS], norms[SLOW_STEPS];
    float *shards; /* of this rank, in the end */
    size_t bytes;
};

/* Groups that are late */

static int slow_at, slow_ms;

static void slow_down(void)
{
    const struct timespec pause = { .tv_sec = slow_ms / 1000, .tv_nsec = slow_ms % 1000 * 1000000L };

    nanosleep(&pause, NULL);
}

/* A back end's operations, some of them late; the sound ones stay at hand. */
struct late_ops {
    struct comm_ops ops;
    const struct comm_ops *sound;
};

static const struct comm_ops *sound_of(const struct fsdp_comm *group)
{
    return ((const struct late_ops *)(const void *)group->ops)->sound;
}

/* One rank after the other is, so that all the others are ahead of it. */
static void be_late(const struct fsdp_comm *group, int place)
{
    if (slow_at & place && group->sequence % (uint64_t)group->size == (uint64_t)group->rank)
        slow_down();
}

static enum fsdp_status late_run(struct fsdp_comm *group, const struct comm_work *work, struct fsdp_err *e)
{
    if (work->call.kind == COMM_ALL_GATHER)
        be_late(group, SLOW_GATHER);
    if (work->call.kind == COMM_REDUCE_SCATTER || work->call.kind == COMM_ALL_REDUCE)
        be_late(group, SLOW_REDUCE);
    return sound_of(group)->run(group, work, e);
}

static void make_late(struct fsdp_comm *group)
{
    static struct late_ops made[4]; /* a back end each */
    size_t i = 0;

    if (group == NULL || group->ops->run == late_run)
        return;
    while (made[i].sound != NULL && made[i].sound != group->ops)
        i++;
    made[i] = (struct late_ops){ .ops = *group->ops, .sound = group->ops };
    made[i].ops.run = late_run;
    group->ops = &made[i].ops;
}

static void make_groups_late(struct fsdp_model *model)
{
    for (int m = 0; m < model->n_meshes; m++) {
        make_late(model->meshes[m].shards);
        make_late(model->meshes[m].replicas);
        make_late(model->meshes[m].own_reduces);
    }
    for (int p = 0; p < model->n_parts; p++)
        make_late(model->parts[p].comm);
}

static void on_phase(enum fsdp_phase phase, void *user)
{
    (void)user;
    if (phase == FSDP_PHASE_BACKWARD && slow_at & SLOW_AFTER_FORWARD && rank == 0)
        slow_down();
}

/* A run */

static bool name_each_other(struct fsdp_module *root)
{
    struct fsdp_module *layers = fsdp_module_child(root, "layers");
    struct fsdp_module *first = fsdp_module_child_at(layers, 0), *last = fsdp_module_child_at(layers, 1);

    return fsdp_module_set_modules_to_forward_prefetch(first, &last, 1, &err) == FSDP_OK &&
           fsdp_module_set_modules_to_backward_prefetch(last, &first, 1, &err) == FSDP_OK;
}

static struct fsdp_module *build(struct tiny *tiny, const struct slow_way *way, struct fsdp_device_mesh *mesh)
{
    struct fsdp_module *root;

    *tiny = tiny_defaults;
    tiny->mesh = mesh;
    tiny->reshard = way->reshard_size > 0 ? FSDP_RESHARD_TO : way->reshard;
    tiny->reshard_size = way->reshard_size;
    root = tiny_build(tiny, &err);
    if (root != NULL && way->lists && !name_each_other(root)) {
        fsdp_module_destroy(root);
        return NULL;
    }
    if (root != NULL)
        fsdp_module_set_separate_reduce_scatter_group(root, way->own_reduces, true);
    return root;
}

static bool one_step(struct fsdp_model *model, struct fsdp_optimizer *optimizer, int number,
                     struct slow_seen *seen)
{
    const uint64_t sample = (uint64_t)(number * want.W + rank) * SLOW_BATCH;
    int32_t tokens[SLOW_BATCH * SLOW_SEQ], targets[SLOW_BATCH * SLOW_SEQ];
    const struct fsdp_batch batch = { .input = tokens, .targets = targets, .first_sample = sample };
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, sample, SLOW_BATCH, tokens, targets);
    if (fsdp_model_forward_backward(model, &batch, 1, &loss, &err) != FSDP_OK ||
        fsdp_clip_grad_norm(model, 0.5, &seen->norms[number], &err) != FSDP_OK)
        return false;
    seen->losses[number] = loss.mean;
    if (slow_at & SLOW_BEFORE_OPTIMIZER && rank == want.W - 1)
        slow_down();
    return fsdp_optimizer_step(optimizer, &err) == FSDP_OK;
}

static void keep_shards(const struct fsdp_model *model, struct slow_seen *seen)
{
    seen->bytes = model->memory[PLACE_DEVICE].parameter_bytes;
    seen->shards = malloc(seen->bytes);
    memcpy(seen->shards, model->memory[PLACE_DEVICE].parameters, seen->bytes);
}

static void miss_waits(struct fsdp_model *model)
{
    struct plan *plan = &model->training.plan;

    for (int i = 0; i < plan->n_entries; i++)
        if (plan->entries[i].stream == PLAN_COMPUTE)
            plan->entries[i].waits[PLAN_GATHERS] = -1;
}

/* All of it; seen->shards is to be freed. */
static bool train(struct fsdp_context *context, const struct slow_way *way, struct fsdp_device_mesh *mesh,
                  struct slow_seen *seen)
{
    const struct fsdp_model_options options = { .batch = SLOW_BATCH,
                                                .seq = SLOW_SEQ,
                                                .seed = 5,
                                                .overlap =
                                                    way->inlined ? FSDP_OVERLAP_OFF : FSDP_OVERLAP_ON };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer = NULL;
    struct fsdp_model *model = NULL;
    struct tiny tiny;
    struct fsdp_module *root = build(&tiny, way, way->hybrid ? mesh : NULL);
    bool sound = root != NULL && fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK &&
                 fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK;

    *seen = (struct slow_seen){ 0 };
    slow_at = way->slow;
    if (sound)
        make_groups_late(model);
    if (sound && way->misses_waits)
        miss_waits(model);
    for (int s = 0; s < SLOW_STEPS && sound; s++)
        sound = one_step(model, optimizer, s, seen);
    if (sound)
        keep_shards(model, seen);
    slow_at = 0;
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    return sound;
}

static bool is_same(const struct slow_seen *a, const struct slow_seen *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 &&
           memcmp(a->norms, b->norms, sizeof a->norms) == 0 && a->losses[0] > 0 && a->bytes == b->bytes &&
           memcmp(a->shards, b->shards, a->bytes) == 0;
}

/* Each way against the first of its mesh; ways that this world is too small for are passed over. */
static int compare_ways(struct fsdp_context *context, const struct slow_way *ways, size_t n_ways)
{
    static const char *const names[] = { "replicate", "shard" };
    const bool divides = want.W % 2 == 0 && want.W > 2;
    struct fsdp_device_mesh *mesh = NULL;
    struct slow_seen first[2] = { { .shards = NULL } };
    int bad = 0;

    if (divides && fsdp_init_device_mesh(&mesh, context, 2, (int[]){ 2, want.W / 2 }, names, &err) != FSDP_OK)
        return failed("a mesh");
    fsdp_context_on_phase(context, on_phase, NULL);
    for (size_t i = 0; i < n_ways && bad == 0; i++) {
        struct slow_seen *base = &first[ways[i].hybrid], seen;

        if (!divides && (ways[i].hybrid || ways[i].reshard_size > 0))
            continue;
        if (!train(context, &ways[i], mesh, &seen))
            bad = failed(ways[i].name);
        else if (base->shards == NULL)
            *base = seen;
        else if (!is_same(&seen, base))
            bad = failed(ways[i].name), fprintf(stderr, "rank %d: other bits\n", rank);
        if (seen.shards != base->shards)
            free(seen.shards);
    }
    free(first[0].shards);
    free(first[1].shards);
    fsdp_device_mesh_destroy(mesh);
    return bad;
}

/* A world */

static const struct slow_way *slow_ways; /* what its ranks compare */
static size_t n_slow_ways;

static int slow_rank(int r, void *arg)
{
    const struct fsdp_context_options options = { .device = "cpu", .numerics = "ref", .threads = 1 };
    struct fsdp_context *context;
    int bad;

    if (join_all(r, 0) != FSDP_OK || context_create_on(&context, &options, link_, comm, &err) != FSDP_OK)
        return failed("opening");
    (void)arg;
    bad = compare_ways(context, slow_ways, n_slow_ways);
    fsdp_context_destroy(context);
    return bad;
}

/* W ranks on n_nodes, each a process; the largest exit status of any, or 99 where a signal ended one. */
static int run_world(int W, int n_nodes, int delay_ms, const struct slow_way *ways, size_t n_ways)
{
    int worst = 0;

    slow_ways = ways, n_slow_ways = n_ways;
    slow_ms = delay_ms;
    want.W = W;
    want.n_nodes = n_nodes;
    agent = (struct mini_agent){ .W = W, .n_nodes = n_nodes, .abort_on_death = true };
    mini_run(&agent, slow_rank, NULL);
    for (int r = 0; r < W; r++) {
        const int status = agent.statuses[r], code = WIFEXITED(status) ? WEXITSTATUS(status) : 99;

        worst = code > worst ? code : worst;
    }
    return worst;
}

#endif
