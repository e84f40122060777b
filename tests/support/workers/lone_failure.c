/*
 * One rank alone fails or differs in the middle of a step, between real processes: all are told, none hangs;
 * links libfsdp.
 *
 *   lone_failure train W NODES      Each rank fails in turn, at each place, in each way of sharding.
 *   lone_failure unused W NODES     The last rank does not use the second block. Its gradients are reduced
 *                                   all the same, or the step ends with FSDP_ERR_MISMATCH.
 *   lone_failure custom W NODES     A gather, a reduction or a hook of the program's own gives up before it
 *                                   calls any collective, or its rank fails before. The other ranks' calls
 *                                   end at once, with that rank's number and words.
 *   lone_failure outside W NODES    The last rank fails outside a step: it cannot create its context, or it
 *                                   cannot split the tree. Then it creates the model or destroys its context.
 *
 * After fsdp_module_reset_iteration() losses, norms and weights have the bits of a run in which nothing
 * failed. A rank that hangs is the script's to kill. Exit 0 if all is as it must be; else 1, with words on
 * stderr.
 */
#include <fsdp/fsdp.h>

#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"
#include "tests/support/workers/comm_rank.h"

enum { BATCH = 3, SEQ = 5, VOCAB = 13, DIM = 10, BLOCKS = 2, STEPS = 6, MAX_BATCHES = 2 };

/*
 * Where it fails: an operation of the graph forward or backward, a hook on reduced gradients, the batch
 * itself.
 */
enum place { NOWHERE, IN_FORWARD, IN_BACKWARD, IN_HOOK, IN_BATCH, PLACES };

static const struct way {
    const char *name;
    bool hybrid, overlaps, halves;
    int reshard_size;
    size_t n_micro;
    enum fsdp_gradient_sync sync;
} ways[] = {
    { .name = "plain", .n_micro = 1 },
    { .name = "overlap", .n_micro = 1, .overlaps = true },
    { .name = "micro-steps", .n_micro = 2, .sync = FSDP_SYNC_EVERY },
    { .name = "two forwards", .n_micro = 2, .halves = true },
    { .name = "hybrid", .n_micro = 1, .hybrid = true },
    { .name = "reshard to 2", .n_micro = 1, .reshard_size = 2 },
};

static const struct way alone = { .name = "alone", .n_micro = 1 };
static const struct fsdp_model_options sizes = { .batch = BATCH, .seq = SEQ, .seed = 3 };

struct seen {
    double losses[STEPS], norms[STEPS];
    float weights[VOCAB * DIM];
};

/*
 * What fails in this step on this rank; and the operation in the middle, with gathers and reductions before
 * and behind it.
 */
static enum place armed;
static struct graph_op *doomed;
static struct graph_kind false_kind;
static const struct graph_kind *real;

static enum fsdp_status no_memory(struct fsdp_err *e)
{
    return fsdp_fail(e, FSDP_ERR_NOMEM, "no memory, as the test wants it");
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *e)
{
    return armed == IN_FORWARD ? no_memory(e) : real->forward(run, op, e);
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *e)
{
    return armed == IN_BACKWARD ? no_memory(e) : real->backward(run, op, e);
}

static enum fsdp_status hook(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                             void *user, struct fsdp_err *e)
{
    (void)row, (void)n_elems, (void)dtype, (void)stream, (void)user;
    return armed == IN_HOOK ? no_memory(e) : FSDP_OK;
}

static void lay_fuse(struct fsdp_model *model)
{
    doomed = model->training.graph.ops[model->training.graph.n_ops / 2];
    real = doomed->kind;
    false_kind = *real;
    false_kind.forward = forward;
    false_kind.backward = backward;
    doomed->kind = &false_kind;
}

/* A context of this rank; NULL, with words on stderr, where it cannot be had. */
static struct fsdp_context *open_context(int r)
{
    const struct fsdp_context_options options = { .device = "cpu", .numerics = "ref", .threads = 1 };
    struct fsdp_context *context = NULL;

    if (join_all(r, 0) != FSDP_OK || context_create_on(&context, &options, link_, comm, &err) != FSDP_OK)
        failed("opening");
    return context;
}

/* A mesh of all ranks, with two copies where it is hybrid. */
static enum fsdp_status open_mesh(struct fsdp_device_mesh **mesh, struct fsdp_context *context, bool hybrid)
{
    static const char *const names[] = { "replicate", "shard" };

    return fsdp_init_device_mesh(mesh, context, 2, (int[]){ hybrid ? 2 : 1, hybrid ? want.W / 2 : want.W },
                                 names, &err);
}

/* The model */

static bool skips; /* this rank goes past the second block, which is entered all the same */

static struct fsdp_value *block(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    if (user != NULL && skips)
        return x;
    return fsdp_call(fsdp_module_child(self, "down"), fsdp_gelu(fsdp_call(fsdp_module_child(self, "up"), x)));
}

static struct fsdp_value *whole(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct fsdp_module *blocks = fsdp_module_child(self, "blocks");

    (void)user;
    x = fsdp_call(fsdp_module_child(self, "embedding"), x);
    for (size_t i = 0; i < BLOCKS; i++)
        x = fsdp_call(fsdp_module_child_at(blocks, i), x);
    return fsdp_call(fsdp_module_child(self, "output"), x);
}

static struct fsdp_module *build(const struct way *way, struct fsdp_device_mesh *mesh)
{
    const struct fsdp_fully_shard_options options = { .mesh = mesh,
                                                      .reshard_size = way->reshard_size,
                                                      .reshard_after_forward = way->reshard_size > 0
                                                                                   ? FSDP_RESHARD_TO
                                                                                   : FSDP_RESHARD_AUTO };
    struct fsdp_module *root = fsdp_module_create(whole, NULL);
    struct fsdp_module *blocks = fsdp_module_add(root, "blocks", NULL, NULL);
    bool sound = fsdp_embedding(root, "embedding", VOCAB, DIM) != NULL;

    for (int i = 0; i < BLOCKS; i++) {
        struct fsdp_module *one = fsdp_module_add(blocks, i == 0 ? "0" : "1", block, i == 1 ? root : NULL);

        fsdp_linear(one, "up", DIM, 3 * DIM, true);
        fsdp_linear(one, "down", 3 * DIM, DIM, true);
        sound = sound && fsdp_fully_shard(one, &options, &err) == FSDP_OK;
        fsdp_module_set_all_reduce_hook(one, hook, NULL);
    }
    fsdp_linear(root, "output", DIM, VOCAB, false);
    return sound && fsdp_fully_shard(root, &options, &err) == FSDP_OK ? root : NULL;
}

/* A run */

static enum fsdp_status step(struct fsdp_model *model, const struct way *way, int number,
                             struct fsdp_loss *loss)
{
    static int32_t tokens[MAX_BATCHES][BATCH * SEQ], targets[MAX_BATCHES][BATCH * SEQ];
    struct fsdp_batch batches[MAX_BATCHES];
    enum fsdp_status status = FSDP_OK;
    struct fsdp_loss part;

    for (size_t m = 0; m < way->n_micro; m++) {
        for (int i = 0; i < BATCH * SEQ; i++) {
            tokens[m][i] = (int32_t)(((number * 5 + (int)m * 3 + rank) * 31 + i * i * 7) % VOCAB);
            targets[m][i] = (tokens[m][i] * 3 + 1) % VOCAB;
        }
        batches[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m] };
    }
    if (armed == IN_BATCH)
        tokens[way->n_micro - 1][2] = VOCAB;
    if (!way->halves)
        return fsdp_model_forward_backward(model, batches, way->n_micro, loss, &err);
    *loss = (struct fsdp_loss){ 0 };
    for (size_t m = 0; m < way->n_micro && status == FSDP_OK; m++) {
        status = fsdp_model_forward(model, &batches[m], &part, &err);
        loss->mean += part.mean;
    }
    return status == FSDP_OK ? fsdp_model_backward(model, &err) : status;
}

/* A step in which rank `victim` fails at `place`; then as if it had not been. */
static bool fail_one(struct fsdp_model *model, const struct way *way, enum place place, int victim)
{
    const char *words = place == IN_BATCH ? "token 13" : "no memory, as the test wants it";
    const enum fsdp_status expected = place == IN_BATCH ? FSDP_ERR_ARG : FSDP_ERR_NOMEM;
    enum fsdp_status status;
    struct fsdp_loss loss;
    char prefix[24];
    bool names;

    snprintf(prefix, sizeof prefix, "rank %d: ", victim);
    armed = rank == victim ? place : NOWHERE;
    status = step(model, way, 77, &loss);
    armed = NOWHERE;
    names = strncmp(err.message, prefix, strlen(prefix)) == 0;
    if (status != expected || strstr(err.message, words) == NULL || names != (rank != victim)) {
        fprintf(stderr, "%s, place %d, rank %d of the failed rank %d: %s\n", way->name, place, rank, victim,
                status == FSDP_OK ? "nothing failed" : err.message);
        return false;
    }
    return fsdp_module_reset_iteration(model, &err) == FSDP_OK;
}

static bool train(struct fsdp_context *context, const struct way *way, bool fails, struct seen *seen)
{
    struct fsdp_model_options options = sizes;
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer = NULL;
    struct fsdp_device_mesh *mesh = NULL;
    struct fsdp_module *root = NULL;
    struct fsdp_model *model = NULL;
    bool sound;

    options.accumulates = way->n_micro > 1 && !way->halves;
    options.forwards = way->halves ? way->n_micro : 1;
    options.gradient_sync = way->sync;
    options.overlap = way->overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF;
    sound = open_mesh(&mesh, context, way->hybrid) == FSDP_OK && (root = build(way, mesh)) != NULL &&
            fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK &&
            fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK;
    if (sound)
        lay_fuse(model);
    for (int s = 0; s < STEPS && sound; s++) {
        struct fsdp_loss loss;

        for (int place = IN_FORWARD; place < PLACES && fails && sound; place++)
            sound = fail_one(model, way, (enum place)place, (s + place) % want.W);
        sound = sound && step(model, way, s, &loss) == FSDP_OK &&
                fsdp_clip_grad_norm(model, 0.3, &seen->norms[s], &err) == FSDP_OK &&
                fsdp_optimizer_step(optimizer, &err) == FSDP_OK;
        seen->losses[s] = sound ? loss.mean : 0;
    }
    sound = sound && fsdp_parameter_gather(model, "output.weight", FSDP_VALUE, seen->weights, VOCAB * DIM,
                                           &err) == FSDP_OK;
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(mesh);
    return sound;
}

static int train_rank(int r, void *arg)
{
    struct fsdp_context *context = open_context(r);
    int bad = context == NULL;

    (void)arg;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && bad == 0; i++) {
        struct seen plain = { 0 }, after = { 0 };

        if (want.W % 2 != 0 && (ways[i].hybrid || ways[i].reshard_size > 0))
            continue;
        if (!train(context, &ways[i], false, &plain) || !train(context, &ways[i], true, &after))
            bad = failed(ways[i].name);
        else if (memcmp(&plain, &after, sizeof plain) != 0 || !(plain.losses[0] > 0))
            bad = failed("other bits than without a failure");
    }
    fsdp_context_destroy(context);
    return bad;
}

/* Ranks whose graphs differ */

/* One step; its status, or FSDP_ERR_FORMAT where it could not even begin. */
static enum fsdp_status one_step(struct fsdp_context *context, bool reduces_unused, double *loss)
{
    struct fsdp_module *root = build(&alone, NULL);
    enum fsdp_status status = FSDP_ERR_FORMAT;
    struct fsdp_model *model = NULL;
    struct fsdp_loss seen = { 0 };

    if (root == NULL)
        return status;
    for (size_t i = 0; i < BLOCKS; i++)
        fsdp_module_set_all_reduce_hook(fsdp_module_child_at(fsdp_module_child(root, "blocks"), i), NULL,
                                        NULL);
    fsdp_module_set_reduce_scatter_unused_params(root, reduces_unused, true);
    if (fsdp_model_create(&model, context, root, &sizes, &err) == FSDP_OK)
        status = step(model, &alone, 1, &seen);
    *loss = seen.mean;
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    return status;
}

static bool is_near_the_last(int r)
{
    const int per_node = want.W / want.n_nodes;

    return per_node == 1 || r / per_node == want.n_nodes - 1;
}

static int unused_rank(int r, void *arg)
{
    struct fsdp_context *context = open_context(r);
    enum fsdp_status status;
    double loss = 0;

    (void)arg;
    skips = r == want.W - 1;
    if (context == NULL)
        return 1;
    if (one_step(context, true, &loss) != FSDP_OK || !(loss > 0))
        return failed("a parameter that is reduced all the same");
    status = one_step(context, false, &loss);
    fsdp_context_destroy(context);
    /* Hosts away from those that see it are told so, or find them gone. */
    if (status != FSDP_ERR_MISMATCH && (is_near_the_last(r) || status != FSDP_ERR_PEER))
        return failed("no mismatch");
    return strstr(err.message, "rank ") != NULL ? 0 : failed("no rank is named");
}

/* Collectives of the program's own */

enum custom { OWN_GATHER, OWN_REDUCE, TALKING_HOOK, BEFORE_TALKING_HOOK, OWN_UNSHARD };

static const struct custom_case {
    const char *name;
    bool hybrid, overlaps;
    enum custom what;
} customs[] = {
    { "a gather", false, false, OWN_GATHER },
    { "a gather on a second thread", false, true, OWN_GATHER },
    { "a reduction", false, false, OWN_REDUCE },
    { "a reduction over 2 copies", true, false, OWN_REDUCE },
    { "a gather over 2 copies, on a second thread", true, true, OWN_GATHER },
    { "a gather by hand", false, false, OWN_UNSHARD },
    { "a gather by hand over 2 copies, on a second thread", true, true, OWN_UNSHARD },
    { "a hook that talks", false, false, TALKING_HOOK },
    { "a hook that talks, over 2 copies", true, true, TALKING_HOOK },
    { "before a hook that talks", false, false, BEFORE_TALKING_HOOK },
    { "before a hook that talks, over 2 copies", true, true, BEFORE_TALKING_HOOK },
};

static bool gives_up;

static enum fsdp_status own_gather(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                   enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                   struct fsdp_err *e)
{
    (void)user;
    return gives_up ? no_memory(e) : fsdp_all_gather(group, send, recv, n_elems, dtype, stream, e);
}

static enum fsdp_status own_reduce(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                   enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                   struct device_stream *stream, void *user, struct fsdp_err *e)
{
    (void)user;
    return gives_up ? no_memory(e) : fsdp_reduce_scatter(group, send, recv, n_elems, dtype, op, stream, e);
}

static enum fsdp_status talking_hook(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                     struct device_stream *stream, void *user, struct fsdp_err *e)
{
    return gives_up ? no_memory(e) : fsdp_all_reduce(user, row, n_elems, dtype, FSDP_MAX, stream, e);
}

/* The second step's; the first went well. What this rank was told, and whether that is what it should be. */
static bool is_told(const struct custom_case *how, enum fsdp_status status, int victim)
{
    char number[32];

    snprintf(number, sizeof number, "world rank %d: ", victim);
    if (status == (rank == victim ? FSDP_ERR_NOMEM : FSDP_ERR_PEER) &&
        strstr(err.message, "no memory, as the test wants it") != NULL &&
        (rank == victim || strstr(err.message, number) != NULL))
        return true;
    fprintf(stderr, "%s of rank %d, rank %d: %s\n", how->name, victim, rank,
            status == FSDP_OK ? "nothing failed" : err.message);
    return false;
}

/*
 * What is to go wrong: a step, or a gather by hand before it, of which the other copy's ranks learn in the
 * step.
 */
static enum fsdp_status go_wrong(struct fsdp_model *model, const struct custom_case *how,
                                 const struct fsdp_module *unit)
{
    struct fsdp_unshard_handle *handle;
    enum fsdp_status status;
    struct fsdp_loss loss;

    if (how->what == OWN_UNSHARD) {
        status = fsdp_module_unshard(model, unit, how->overlaps, &handle, &err);
        if (status == FSDP_OK)
            status = fsdp_unshard_handle_wait(handle, &err);
        if (status != FSDP_OK)
            return status;
    }
    return step(model, &alone, 2, &loss);
}

static bool give_up(struct fsdp_context *context, const struct custom_case *how, int victim)
{
    struct fsdp_model_options options = sizes;
    struct fsdp_device_mesh *mesh = NULL;
    struct fsdp_module *root = NULL, *unit;
    struct fsdp_model *model = NULL;
    struct fsdp_loss loss;
    bool sound = open_mesh(&mesh, context, how->hybrid) == FSDP_OK && (root = build(&alone, mesh)) != NULL;

    options.overlap = how->overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF;
    unit = sound ? fsdp_module_child_at(fsdp_module_child(root, "blocks"), 1) : NULL;
    if (how->what == OWN_GATHER || how->what == OWN_UNSHARD)
        fsdp_module_set_custom_all_gather(unit, own_gather, NULL);
    else if (how->what == OWN_REDUCE)
        fsdp_module_set_custom_reduce_scatter(unit, own_reduce, NULL);
    else if (sound)
        fsdp_module_set_all_reduce_hook(unit, talking_hook, fsdp_device_mesh_get_group(mesh, 1));
    sound = sound && fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK &&
            step(model, &alone, 1, &loss) == FSDP_OK;
    if (sound && how->what == BEFORE_TALKING_HOOK) {
        lay_fuse(model);
        armed = rank == victim ? IN_BACKWARD : NOWHERE;
    } else {
        gives_up = rank == victim;
    }
    sound = sound ? is_told(how, go_wrong(model, how, unit), victim) : failed(how->name) == 0;
    /* What is broken stays so, and is told, not waited for. */
    gives_up = false;
    armed = NOWHERE;
    sound = sound && step(model, &alone, 3, &loss) != FSDP_OK;
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(mesh);
    return sound;
}

static int custom_rank(int r, void *arg)
{
    struct fsdp_context *context = open_context(r);
    const bool sound = context != NULL && give_up(context, arg, want.W - 1);

    fsdp_context_destroy(context);
    return !sound;
}

/* Outside a step */

/* Of a call that failed on the last rank alone. */
static bool all_are_told(const char *what, enum fsdp_status status, enum fsdp_status expected,
                         const char *words)
{
    char prefix[24];

    snprintf(prefix, sizeof prefix, "rank %d: ", want.W - 1);
    if (status == expected && strstr(err.message, words) != NULL &&
        (strncmp(err.message, prefix, strlen(prefix)) == 0) == (rank != want.W - 1))
        return true;
    fprintf(stderr, "%s, rank %d: %s\n", what, rank, status == FSDP_OK ? "nothing failed" : err.message);
    return false;
}

static int device_rank(int r, void *arg)
{
    const struct fsdp_context_options options = { .device = r == want.W - 1 ? "abacus" : "cpu",
                                                  .numerics = "ref",
                                                  .threads = 1 };
    struct fsdp_context *context = NULL;

    (void)arg;
    if (join_all(r, 0) != FSDP_OK)
        return failed("opening");
    return all_are_told("a device", context_create_on(&context, &options, link_, comm, &err), FSDP_ERR_CONFIG,
                        "abacus")
               ? 0
               : 1;
}

static int left[2]; /* a pipe: a byte of each rank that was told of one that closed its context */

static struct fsdp_value *forward_two(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "second"), fsdp_call(fsdp_module_child(self, "first"), x));
}

/*
 * The last rank cannot split; the root is sharded over the other dimension of the mesh: the model is all
 * ranks' all the same.
 */
static int sliced_rank(int r, void *arg)
{
    static const char *const names[] = { "dp", "tp" };
    static const struct fsdp_parallel_rule bad = { "nowhere", FSDP_COLWISE_PARALLEL },
                                           good[] = { { "first", FSDP_COLWISE_PARALLEL },
                                                      { "second", FSDP_ROWWISE_PARALLEL } };
    const struct fsdp_model_options two = { .batch = 2, .seq = 2, .input_features = 4 };
    const bool last = r == want.W - 1;
    struct fsdp_context *context = open_context(r);
    struct fsdp_module *root = fsdp_module_create(forward_two, NULL);
    struct fsdp_device_mesh *all, *dp, *tp;
    struct fsdp_fully_shard_options options = { 0 };
    struct fsdp_model *model = NULL;
    bool sound;

    (void)arg;
    fsdp_linear(root, "first", 4, 4, true);
    fsdp_linear(root, "second", 4, 4, true);
    if (context == NULL ||
        fsdp_init_device_mesh(&all, context, 2, (int[]){ want.W / 2, 2 }, names, &err) != FSDP_OK ||
        fsdp_device_mesh_slice(&dp, all, &names[0], 1, &err) != FSDP_OK ||
        fsdp_device_mesh_slice(&tp, all, &names[1], 1, &err) != FSDP_OK)
        return failed("meshes");
    options.mesh = dp;
    if ((fsdp_parallelize_module(root, tp, last ? &bad : good, last ? 1 : 2, &err) == FSDP_OK) == last ||
        fsdp_fully_shard(root, &options, &err) != FSDP_OK)
        return failed("sharding");
    sound = all_are_told("a split of a slice", fsdp_model_create(&model, context, root, &two, &err),
                         FSDP_ERR_ARG, "is called nowhere");
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(tp);
    fsdp_device_mesh_destroy(dp);
    fsdp_device_mesh_destroy(all);
    fsdp_context_destroy(context);
    return !sound;
}

/* The last rank fails and destroys its context; its process lives until all others were told. */
static int leaving_rank(int r, void *arg)
{
    static const struct fsdp_parallel_rule rule = { "nowhere", FSDP_COLWISE_PARALLEL };
    struct fsdp_context *context = open_context(r);
    struct fsdp_module *root = build(&alone, NULL);
    struct fsdp_model *model = NULL;
    char byte = 0;

    (void)arg;
    if (context == NULL || root == NULL ||
        (fsdp_parallelize_module(root, NULL, &rule, rank == want.W - 1, &err) == FSDP_OK) !=
            (rank != want.W - 1))
        return failed("leaving");
    if (rank == want.W - 1) {
        fsdp_module_destroy(root);
        fsdp_context_destroy(context);
        for (int i = 1; i < want.W; i++)
            if (read(left[0], &byte, 1) != 1)
                return failed("waiting for the others");
        return 0;
    }
    if (fsdp_model_create(&model, context, root, &sizes, &err) != FSDP_ERR_PEER)
        return failed("no rank left");
    fsdp_module_destroy(root);
    fsdp_context_destroy(context);
    return write(left[1], &byte, 1) != 1;
}

static int run(int (*rank_main)(int rank, void *arg), const struct custom_case *how)
{
    int bad = 0;

    agent = (struct mini_agent){ .W = want.W, .n_nodes = want.n_nodes, .abort_on_death = true };
    mini_run(&agent, rank_main, (void *)(uintptr_t)how);
    for (int r = 0; r < want.W; r++)
        bad |= agent.statuses[r] != 0;
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;

    if (!read_want(argc, argv))
        return 2;
    if (strcmp(argv[1], "train") == 0)
        return run(train_rank, NULL);
    if (strcmp(argv[1], "unused") == 0)
        return run(unused_rank, NULL);
    if (strcmp(argv[1], "outside") == 0)
        return run(device_rank, NULL) != 0 || (want.W % 2 == 0 && run(sliced_rank, NULL) != 0) ||
               pipe(left) != 0 || run(leaving_rank, NULL) != 0;
    if (strcmp(argv[1], "custom") != 0)
        return 2;
    for (size_t i = 0; i < sizeof customs / sizeof *customs && bad == 0; i++)
        if (!customs[i].hybrid || (want.W > 2 && want.W % 2 == 0))
            bad = run(custom_rank, &customs[i]);
    return bad;
}
