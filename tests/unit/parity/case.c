#include "tests/unit/parity/case.h"

#include <criterion/criterion.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/module.h"
#include "tests/unit/engine/world.h"
#include "tests/unit/parity/sabotage.h"

enum { MAX_MICRO = 4, MAX_SEQ = 70 };

struct run {
    const struct reference *reference;
    const struct way *way;
    struct seen *seen;
};

/* --- the models ------------------------------------------------------------------------------------------ */

static struct fsdp_value *linears_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_gelu(fsdp_call(fsdp_module_child(self, "a"), x));
    return fsdp_call(fsdp_module_child(self, "b"), x);
}

static struct fsdp_value *mlp_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_gelu(fsdp_call(fsdp_module_child(self, "w1"), x));
    return fsdp_call(fsdp_module_child(self, "w2"), x);
}

/* Of a case that skips: this rank's samples are of the half that does. Forward is recorded on the rank's own thread. */
static _Thread_local bool skips;

static struct fsdp_value *block_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct fsdp_value *h = fsdp_call(fsdp_module_child(self, "attention_norm"), x);

    x = fsdp_add(x, fsdp_call(fsdp_module_child(self, "attention"), h));
    if (user != NULL && skips)
        return x;
    h = fsdp_call(fsdp_module_child(self, "ffn_norm"), x);
    return fsdp_add(x, fsdp_call(fsdp_module_child(self, "feed_forward"), h));
}

static struct fsdp_value *tiny_forward(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    const struct reference *r = user;
    struct fsdp_module *layers = fsdp_module_child(self, "layers");
    struct fsdp_value *x;

    x = fsdp_embed(fsdp_module_child(self, "tok_embeddings"), fsdp_module_child(self, "pos_embeddings"),
                   tokens);
    for (int visit = 0; visit < r->visits; visit++)
        for (size_t i = 0; i < fsdp_module_child_count(layers); i++)
            x = fsdp_call(fsdp_module_child_at(layers, i), x);
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_call(fsdp_module_child(self, "norm"), x));
}

static struct fsdp_module *build_tiny(const struct reference *r)
{
    struct fsdp_module *root = fsdp_module_create(tiny_forward, (void *)(uintptr_t)r);
    struct fsdp_module *layers = fsdp_module_add(root, "layers", NULL, NULL);

    fsdp_embedding(root, "tok_embeddings", r->vocab, r->dim);
    fsdp_embedding(root, "pos_embeddings", r->seq, r->dim);
    for (size_t i = 0; i < r->layers; i++) {
        struct fsdp_module *block, *mlp;
        char name[24];

        snprintf(name, sizeof name, "%zu", i);
        block = fsdp_module_add(layers, name, block_forward, r->skips && i == 1 ? root : NULL);
        fsdp_layer_norm(block, "attention_norm", r->dim, 1e-5f);
        fsdp_attention(block, "attention", r->dim, r->heads, true, 0);
        fsdp_layer_norm(block, "ffn_norm", r->dim, 1e-5f);
        mlp = fsdp_module_add(block, "feed_forward", mlp_forward, NULL);
        fsdp_linear(mlp, "w1", r->dim, r->hidden, true);
        fsdp_linear(mlp, "w2", r->hidden, r->dim, true);
    }
    fsdp_layer_norm(root, "norm", r->dim, 1e-5f);
    fsdp_linear(root, "output", r->dim, r->vocab, false);
    if (r->tied)
        fsdp_module_tie_parameter(fsdp_module_child(root, "output"), "weight",
                                  fsdp_module_child(root, "tok_embeddings"), "weight", NULL);
    return root;
}

static struct fsdp_module *build(const struct reference *r)
{
    struct fsdp_module *root;

    if (strcmp(r->kind, "linears") != 0)
        return build_tiny(r);
    root = fsdp_module_create(linears_forward, NULL);
    fsdp_linear(root, "a", r->widths[0], r->widths[1], true);
    fsdp_linear(root, "b", r->widths[1], r->widths[2], true);
    return root;
}

/* requires_grad false for all that the case's pattern leaves out. */
static void freeze(struct fsdp_module *root, const char *trains)
{
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        for (size_t i = 0; i < m->n_parameters; i++)
            m->parameters[i]->frozen = fnmatch(trains, m->parameters[i]->name, 0) != 0;
}

/* --- how it is sharded ----------------------------------------------------------------------------------- */

static int last_dimension(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)n_dims;
    (void)shape;
    (void)user;
    return -1;
}

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", err->message); /* an assertion on a rank's thread tells nothing */
    cr_assert(status == FSDP_OK);
}

static void shard_children(struct fsdp_module *root, const struct reference *r, const struct way *way,
                           const struct fsdp_fully_shard_options *options)
{
    struct fsdp_module *blocks = fsdp_module_child(root, "layers");
    struct fsdp_err err = { 0 };

    if (way->groups == ROOT_ONLY)
        return;
    if (blocks == NULL) {
        must(fsdp_fully_shard(fsdp_module_child(root, "a"), options, &err), &err);
        must(fsdp_fully_shard(fsdp_module_child(root, "b"), options, &err), &err);
        return;
    }
    for (size_t i = 0; i < r->layers; i++) {
        struct fsdp_module *block = fsdp_module_child_at(blocks, i);

        if (way->groups == BY_LINEAR) {
            must(fsdp_fully_shard(fsdp_module_child(block, "attention"), options, &err), &err);
            must(fsdp_fully_shard(fsdp_module_child(block, "feed_forward"), options, &err), &err);
        }
        if (way->groups == IN_LISTS && i == 0)
            must(fsdp_fully_shard_modules((struct fsdp_module *[]){ block, fsdp_module_child_at(blocks, 1) },
                                          2, options, &err),
                 &err);
        else if (way->groups != IN_LISTS || i > 1)
            must(fsdp_fully_shard(block, options, &err), &err);
    }
    if (r->tied || way->groups == IN_LISTS)
        must(fsdp_fully_shard_modules((struct fsdp_module *[]){ fsdp_module_child(root, "tok_embeddings"),
                                                                fsdp_module_child(root, "norm"),
                                                                fsdp_module_child(root, "output") },
                                      3, options, &err),
             &err);
}

/* Each block's list: the blocks that come after it, and before it in backward. */
static void prefetch_lists(struct fsdp_module *root, int ahead)
{
    struct fsdp_module *blocks = fsdp_module_child(root, "layers");
    const int n = (int)fsdp_module_child_count(blocks);
    struct fsdp_err err = { 0 };

    for (int i = 0; i < n; i++) {
        struct fsdp_module *block = fsdp_module_child_at(blocks, (size_t)i), *next[8], *before[8];
        size_t n_next = 0, n_before = 0;

        for (int k = 1; k <= ahead && i + k < n; k++)
            next[n_next++] = fsdp_module_child_at(blocks, (size_t)(i + k));
        for (int k = 1; k <= ahead && i - k >= 0; k++)
            before[n_before++] = fsdp_module_child_at(blocks, (size_t)(i - k));
        must(fsdp_module_set_modules_to_forward_prefetch(block, next, n_next, &err), &err);
        must(fsdp_module_set_modules_to_backward_prefetch(block, before, n_before, &err), &err);
    }
}

struct meshes {
    struct fsdp_device_mesh *all, *data, *flat, *tensor; /* the others are of the first; NULL: not needed */
};

static int parts_of(const struct way *way)
{
    return way->tensor > 1 ? way->tensor : 1;
}

/* Ranks with samples of their own. */
static int data_ranks(const struct way *way)
{
    return way->W / parts_of(way);
}

static void open_meshes(struct meshes *meshes, struct fsdp_context *context, const struct way *way)
{
    static const char *const names[] = { "replicate", "shard", "tensor" };
    const int R = way->replicate > 1 ? way->replicate : 1;
    struct fsdp_err err = { 0 };

    *meshes = (struct meshes){ 0 };
    if (R == 1 && way->tensor <= 1)
        return;
    must(fsdp_init_device_mesh(&meshes->all, context, 3, (int[]){ R, data_ranks(way) / R, parts_of(way) },
                               names, &err),
         &err);
    must(fsdp_device_mesh_slice(&meshes->data, meshes->all, R > 1 ? names : &names[1], R > 1 ? 2 : 1, &err),
         &err);
    must(fsdp_device_mesh_slice(&meshes->tensor, meshes->all, &names[2], 1, &err), &err);
    if (way->mixed_meshes)
        must(fsdp_device_mesh_flatten(&meshes->flat, meshes->data, "data", &err), &err);
}

static void close_meshes(struct meshes *meshes)
{
    fsdp_device_mesh_destroy(meshes->flat);
    fsdp_device_mesh_destroy(meshes->tensor);
    fsdp_device_mesh_destroy(meshes->data);
    fsdp_device_mesh_destroy(meshes->all);
}

static void split(struct fsdp_module *root, const struct way *way, struct fsdp_device_mesh *mesh)
{
    static const struct fsdp_parallel_rule of_linears[] = { { "a", FSDP_COLWISE_PARALLEL },
                                                            { "b", FSDP_ROWWISE_PARALLEL } },
                                           of_blocks[] = { { "layers.*.w[qkv]", FSDP_COLWISE_PARALLEL },
                                                           { "layers.*.wo", FSDP_ROWWISE_PARALLEL },
                                                           { "layers.*.w1", FSDP_COLWISE_PARALLEL },
                                                           { "layers.*.w2", FSDP_ROWWISE_PARALLEL } };
    const bool blocks = fsdp_module_child(root, "layers") != NULL;
    struct fsdp_err err = { 0 };

    if (way->tensor > 1)
        must(fsdp_parallelize_module(root, mesh, blocks ? of_blocks : of_linears, blocks ? 4 : 2, &err),
             &err);
}

static void shard(struct fsdp_module *root, const struct reference *r, const struct way *way,
                  const struct meshes *meshes)
{
    struct fsdp_mixed_precision_policy policy = fsdp_mixed_precision_defaults();
    struct fsdp_fully_shard_options options = { .reshard_after_forward = way->reshard,
                                                .reshard_size = way->reshard_size,
                                                .mp_policy = &policy,
                                                .mesh = meshes->data,
                                                .shard_placement_fn = way->columns ? last_dimension : NULL };
    struct fsdp_module *blocks = fsdp_module_child(root, "layers");
    struct fsdp_err err = { 0 };

    if (way->reshard_size > 0)
        options.reshard_after_forward = FSDP_RESHARD_TO;
    if (way->param_dtype != 0 || way->reduce_dtype != 0) {
        policy.param_dtype = way->param_dtype;
        policy.reduce_dtype = way->reduce_dtype;
    }
    shard_children(root, r, way, &options);
    if (way->auto_root)
        options.reshard_after_forward = FSDP_RESHARD_AUTO;
    if (way->mixed_meshes)
        options.mesh = meshes->flat;
    must(fsdp_fully_shard(root, &options, &err), &err);
    for (size_t i = 0; i < fsdp_module_child_count(blocks); i++)
        fsdp_checkpoint_wrapper(fsdp_module_child_at(blocks, i), way->recompute);
    if (way->prefetch > 0)
        prefetch_lists(root, way->prefetch);
    if (way->in_flight > 0)
        must(fsdp_module_set_reduce_scatter_max_input_buffers(root, way->in_flight, true, &err), &err);
    if (way->keep_after_backward)
        fsdp_module_set_reshard_after_backward(root, false, true);
    if (way->force_sum)
        fsdp_module_set_force_sum_reduction_for_comms(root, true, true);
    fsdp_module_set_separate_reduce_scatter_group(root, way->own_reduce_group, true);
    fsdp_module_set_reduce_scatter_unused_params(root, r->skips && !way->keeps_unused, true);
    fsdp_module_set_requires_all_reduce(root, !way->defers_all_reduce, true);
}

/* --- data ------------------------------------------------------------------------------------------------ */

struct slice {
    float features[REFERENCE_BATCH * 16];
    int32_t tokens[REFERENCE_BATCH * MAX_SEQ], targets[REFERENCE_BATCH * MAX_SEQ];
};

static int32_t text(const struct reference *r, uint64_t place)
{
    place %= 40;
    return (int32_t)((place * place * 7 + place * 3 + 1) % r->vocab);
}

/* Samples first ... first + batch - 1 of the step. What lies behind its last one pads a batch that the ranks do not
 * divide, and its targets are ignored. */
static void fill(const struct reference *r, int step, size_t first, size_t batch, struct slice *out)
{
    const size_t seq = r->seq > 0 ? r->seq : 1;

    for (size_t i = 0; i < batch; i++) {
        const bool pads = first + i >= REFERENCE_BATCH;
        const uint64_t sample = (uint64_t)step * REFERENCE_BATCH + first + i;

        for (size_t f = 0; f < r->widths[0]; f++)
            out->features[i * r->widths[0] + f] = (float)((f * 7 + sample * 3) % 11) * 0.2f - 1.0f;
        for (size_t t = 0; t < seq; t++) {
            out->tokens[i * seq + t] = r->vocab > 0 ? text(r, sample * seq + t) : 0;
            out->targets[i * seq + t] = pads           ? FSDP_IGNORED_TARGET
                                        : r->vocab > 0 ? text(r, sample * seq + t + 1)
                                                       : (int32_t)(sample * 3 % 11 % r->widths[2]);
        }
    }
}

/* --- a run ----------------------------------------------------------------------------------------------- */

static size_t micro_steps(const struct way *way)
{
    return way->n_micro > 0 ? way->n_micro : 1;
}

static size_t batch_of(const struct way *way)
{
    const size_t parts = (size_t)data_ranks(way) * micro_steps(way);

    return (REFERENCE_BATCH + parts - 1) / parts;
}

static size_t forwards_of(const struct way *way)
{
    return way->forwards > 0 ? way->forwards : 1;
}

/* The forwards, then a backward of all of them or one of each. */
static void in_halves(struct fsdp_model *model, const struct way *way, const struct fsdp_batch *micro,
                      struct fsdp_loss *sum)
{
    const size_t n = forwards_of(way), n_backwards = way->backwards == FSDP_BACKWARD_OF_EACH ? n : 1;
    struct fsdp_err err = { 0 };

    *sum = (struct fsdp_loss){ 0 };
    for (size_t f = 0; f < n; f++) {
        struct fsdp_loss loss;

        must(fsdp_model_forward(model, &micro[f], &loss, &err), &err);
        sum->sum += loss.sum;
        sum->n_targets += loss.n_targets;
    }
    for (size_t b = 0; b < n_backwards; b++)
        must(fsdp_model_backward(model, &err), &err);
}

/* PyTorch's loop. */
static double call_by_call(struct fsdp_model *model, const struct way *way, const struct fsdp_batch *micro,
                           size_t n_micro)
{
    const size_t n = forwards_of(way);
    struct fsdp_err err = { 0 };
    double sum = 0, n_targets = 0;

    for (size_t m = 0; m < n_micro; m += n) {
        struct fsdp_loss loss;

        if (n_micro > n)
            fsdp_module_set_is_last_backward(model, m + n == n_micro);
        if (way->halves)
            in_halves(model, way, &micro[m], &loss);
        else
            must(fsdp_model_forward_backward(model, &micro[m], n, &loss, &err), &err);
        sum += loss.sum;
        n_targets += (double)loss.n_targets;
    }
    return sum / n_targets;
}

static double forward_backward(struct fsdp_model *model, const struct run *run, int step)
{
    const size_t batch = batch_of(run->way), n_micro = micro_steps(run->way);
    const size_t rank = (size_t)(fsdp_context_rank(fsdp_model_context(model)) / parts_of(run->way));
    struct slice slices[MAX_MICRO];
    struct fsdp_batch micro[MAX_MICRO];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    cr_assert(n_micro <= MAX_MICRO && run->reference->seq <= MAX_SEQ);
    for (size_t m = 0; m < n_micro; m++) {
        const size_t first = (m * (size_t)data_ranks(run->way) + rank) * batch;

        fill(run->reference, step, first, batch, &slices[m]);
        micro[m] = (struct fsdp_batch){ .input = run->reference->vocab > 0 ? (void *)slices[m].tokens
                                                                           : (void *)slices[m].features,
                                        .targets = slices[m].targets,
                                        .first_sample = first };
    }
    if (run->way->calls || run->way->halves)
        return call_by_call(model, run->way, micro, n_micro);
    must(fsdp_model_forward_backward(model, micro, n_micro, &loss, &err), &err);
    return loss.mean;
}

/* Every parameter's whole gradient or value; collective, kept on rank 0. */
static void keep(struct fsdp_model *model, const struct run *run, enum fsdp_which which)
{
    struct seen *seen = run->seen;

    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        struct fsdp_err err = { 0 };
        float *whole;

        must(fsdp_model_parameter(model, i, &info, &err), &err);
        if (which == FSDP_GRADIENT && !info.has_gradient)
            continue;
        whole = calloc(info.n_elems, sizeof *whole);
        must(fsdp_parameter_gather(model, info.name, which, whole, info.n_elems, &err), &err);
        if (fsdp_context_rank(fsdp_model_context(model)) != 0) {
            free(whole);
            continue;
        }
        cr_assert(i < REFERENCE_MAX);
        seen->n_parameters = fsdp_model_parameter_count(model);
        seen->parameters[i].n_elems = info.n_elems;
        snprintf(seen->parameters[i].name, sizeof seen->parameters[i].name, "%s", info.name);
        *(which == FSDP_GRADIENT ? &seen->parameters[i].gradient : &seen->parameters[i].weight) = whole;
    }
}

static struct fsdp_model_options model_options(const struct run *run)
{
    const struct reference *r = run->reference;

    return (struct fsdp_model_options){ .batch = batch_of(run->way),
                                        .seq = r->seq > 0 ? r->seq : 1,
                                        .input_features = r->widths[0],
                                        .seed = REFERENCE_SEED,
                                        .accumulates = micro_steps(run->way) > forwards_of(run->way),
                                        .forwards = run->way->forwards,
                                        .backwards = run->way->backwards,
                                        .gradient_sync = run->way->sync,
                                        .overlap = run->way->overlap == FSDP_OVERLAP_AUTO
                                                       ? FSDP_OVERLAP_OFF
                                                       : run->way->overlap };
}

static struct fsdp_optimizer *optimizer_of(struct fsdp_model *model, const struct reference *r)
{
    const struct fsdp_optimizer_group group = { .pattern = r->group_pattern,
                                                .lr = r->group_lr,
                                                .weight_decay = r->group_decay };
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err = { 0 };

    options.lr = r->lr;
    options.eps = r->eps;
    options.weight_decay = r->decay;
    options.groups = &group;
    options.n_groups = r->group_pattern[0] != '\0';
    must(fsdp_optimizer_create(&optimizer, model, &options, &err), &err);
    return optimizer;
}

static void train(struct fsdp_model *model, const struct run *run)
{
    struct fsdp_optimizer *optimizer = optimizer_of(model, run->reference);
    struct fsdp_context *context = fsdp_model_context(model);
    const int n_steps = run->way->steps > 0 ? run->way->steps : REFERENCE_STEPS;
    struct fsdp_err err = { 0 };

    for (int step = 0; step < n_steps; step++) {
        const double loss = forward_backward(model, run, step);
        double norm;

        if (step == 0)
            keep(model, run, FSDP_GRADIENT);
        must(
            fsdp_clip_grad_norm_of(model, run->reference->clip_norm, run->reference->clip_order, &norm, &err),
            &err);
        sabotage_before_optimizer(context);
        must(fsdp_optimizer_step(optimizer, &err), &err);
        if (fsdp_context_rank(context) == 0) {
            run->seen->losses[step] = loss;
            run->seen->norms[step] = norm;
            run->seen->n_steps = step + 1;
        }
    }
    keep(model, run, FSDP_VALUE);
    fsdp_optimizer_destroy(optimizer);
}

static void run_rank(struct fsdp_context *context, void *user)
{
    const struct run *run = user;
    const struct way *way = run->way;
    const struct fsdp_model_options options = model_options(run);
    struct fsdp_module *root = build(run->reference);
    struct meshes meshes;
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;

    sabotage_context(context);
    skips = run->reference->skips && 2 * fsdp_context_rank(context) >= way->W;
    open_meshes(&meshes, context, way);
    freeze(root, run->reference->trains);
    split(root, way, meshes.tensor);
    shard(root, run->reference, way, &meshes);
    must(fsdp_model_create(&model, context, root, &options, &err), &err);
    sabotage_model(model);
    if (way->prepare != NULL)
        way->prepare(model, way->user);
    train(model, run);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

void case_run(const struct reference *reference, const struct way *way, struct seen *seen)
{
    struct run run = { .reference = reference, .way = way, .seen = seen };

    memset(seen, 0, sizeof *seen);
    sabotage_choose(way->slow, way->sabotage);
    world_run_on(way->W, way->numerics != NULL ? way->numerics : "ref", run_rank, &run);
}

void seen_free(struct seen *seen)
{
    for (size_t i = 0; i < seen->n_parameters; i++) {
        free(seen->parameters[i].gradient);
        free(seen->parameters[i].weight);
    }
}

/* --- against the reference, and against each other ------------------------------------------------------- */

double distance(const float *a, const double *b, size_t n)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference) / (sqrt(size) + 1e-30);
}

/* Written so that NaN is far. */
static int is_far(const char *label, const char *what, double got, double want, double allowed)
{
    const double off = fabs(got - want) / fabs(want);

    if (off <= allowed)
        return 0;
    cr_expect(label == NULL, "%s: %s is %.9g, not %.9g (%.2g off)", label, what, got, want, off);
    return 1;
}

int seen_compare(const struct seen *seen, const struct reference *r, const char *label)
{
    int n_far = 0, n_gradients = 0;

    for (int step = 0; step < seen->n_steps; step++) {
        n_far += is_far(label, "a loss", seen->losses[step], r->losses[step], 2e-6);
        n_far += is_far(label, "a norm", seen->norms[step], r->norms[step], 5e-6);
    }
    for (size_t i = 0; i < seen->n_parameters; i++) {
        const struct reference_tensor *want = reference_gradient(r, seen->parameters[i].name);
        double off;

        if (want == NULL || seen->parameters[i].gradient == NULL)
            continue;
        cr_assert_eq(want->n_elems, seen->parameters[i].n_elems);
        off = distance(seen->parameters[i].gradient, want->values, want->n_elems);
        n_gradients++;
        if (!(off <= 5e-6)) {
            n_far++;
            cr_expect(label == NULL, "%s: the gradient of %s is %.2g off", label, want->name, off);
        }
    }
    cr_assert_eq(n_gradients, r->n_gradients, "%s: %d gradients, not %d", label, n_gradients, r->n_gradients);
    return n_far;
}

void case_expect(const char *name, const struct way *ways, size_t n_ways)
{
    static const char *const rows[] = { "ref", "auto" };
    struct reference *reference = reference_read(name);
    static struct seen seen;

    for (size_t i = 0; i < 2 * n_ways; i++) {
        struct way way = ways[i / 2];
        char label[96];

        way.numerics = rows[i % 2];
        snprintf(label, sizeof label, "%s, way %zu (W %d), numerics %s", name, i / 2, way.W, way.numerics);
        case_run(reference, &way, &seen);
        seen_compare(&seen, reference, label);
        seen_free(&seen);
    }
    reference_free(reference);
}

static bool same(const float *a, const float *b, size_t n)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, n * sizeof *a) == 0);
}

bool seen_same_bits(const struct seen *one, const struct seen *other)
{
    bool alike = one->n_steps == other->n_steps && one->n_parameters == other->n_parameters &&
                 one->n_steps > 0 && memcmp(one->losses, other->losses, sizeof one->losses) == 0 &&
                 memcmp(one->norms, other->norms, sizeof one->norms) == 0;

    for (size_t i = 0; alike && i < one->n_parameters; i++)
        alike =
            same(one->parameters[i].gradient, other->parameters[i].gradient, one->parameters[i].n_elems) &&
            same(one->parameters[i].weight, other->parameters[i].weight, one->parameters[i].n_elems);
    return alike;
}
