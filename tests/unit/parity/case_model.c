#include "tests/unit/parity/case_model.h"

#include <criterion/criterion.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/module.h"

void case_must(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", err->message); /* an assertion on a rank's thread tells nothing */
    cr_assert(status == FSDP_OK);
}

/* The models */

static struct fsdp_value *linears_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_gelu(fsdp_call(fsdp_module_child(self, "a"), x));
    return fsdp_call(fsdp_module_child(self, "b"), x);
}

struct tiny case_tiny(const struct reference *r, bool skips)
{
    return (struct tiny){ .layers = r->layers,
                          .dim = r->dim,
                          .heads = r->heads,
                          .vocab = r->vocab,
                          .seq = r->seq,
                          .hidden = r->hidden,
                          .causal = true,
                          .visits = (int)r->visits,
                          .skips = skips ? "layers.1" : NULL,
                          .tied = r->tied,
                          .rms = r->rms };
}

struct fsdp_module *case_build(const struct reference *r, const struct tiny *tiny)
{
    struct fsdp_module *root;

    if (strcmp(r->kind, "linears") != 0)
        return tiny_tree(tiny);
    root = fsdp_module_create(linears_forward, NULL);
    fsdp_linear(root, "a", r->widths[0], r->widths[1], true);
    fsdp_linear(root, "b", r->widths[1], r->widths[2], true);
    return root;
}

/* requires_grad false for all that the case's pattern leaves out. */
void case_freeze(struct fsdp_module *root, const char *trains)
{
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        for (size_t i = 0; i < m->n_parameters; i++)
            m->parameters[i]->frozen = fnmatch(trains, m->parameters[i]->name, 0) != 0;
}

/* How it is sharded */

static int last_dimension(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)n_dims;
    (void)shape;
    (void)user;
    return -1;
}

static void shard_children(struct fsdp_module *root, const struct reference *r, const struct way *way,
                           const struct fsdp_fully_shard_options *options)
{
    struct fsdp_module *blocks = fsdp_module_child(root, "layers");
    struct fsdp_err err = { 0 };

    if (way->groups == ROOT_ONLY)
        return;
    if (blocks == NULL) {
        case_must(fsdp_fully_shard(fsdp_module_child(root, "a"), options, &err), &err);
        case_must(fsdp_fully_shard(fsdp_module_child(root, "b"), options, &err), &err);
        return;
    }
    for (size_t i = 0; i < r->layers; i++) {
        struct fsdp_module *block = fsdp_module_child_at(blocks, i);

        if (way->groups == BY_LINEAR) {
            case_must(fsdp_fully_shard(fsdp_module_child(block, "attention"), options, &err), &err);
            case_must(fsdp_fully_shard(fsdp_module_child(block, "feed_forward"), options, &err), &err);
        }
        if (way->groups == IN_LISTS && i == 0)
            case_must(
                fsdp_fully_shard_modules((struct fsdp_module *[]){ block, fsdp_module_child_at(blocks, 1) },
                                         2, options, &err),
                &err);
        else if (way->groups != IN_LISTS || i > 1)
            case_must(fsdp_fully_shard(block, options, &err), &err);
    }
    if (r->tied || way->groups == IN_LISTS)
        case_must(
            fsdp_fully_shard_modules((struct fsdp_module *[]){ fsdp_module_child(root, "tok_embeddings"),
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
        case_must(fsdp_module_set_modules_to_forward_prefetch(block, next, n_next, &err), &err);
        case_must(fsdp_module_set_modules_to_backward_prefetch(block, before, n_before, &err), &err);
    }
}

int case_data_ranks(const struct way *way)
{
    return way->W / way->tensor;
}

void case_open_meshes(struct case_meshes *meshes, struct fsdp_context *context, const struct way *way)
{
    static const char *const names[] = { "replicate", "shard", "tensor" };
    const int R = way->replicate;
    struct fsdp_err err = { 0 };

    *meshes = (struct case_meshes){ 0 };
    if (R == 1 && way->tensor <= 1)
        return;
    case_must(fsdp_init_device_mesh(&meshes->all, context, 3,
                                    (int[]){ R, case_data_ranks(way) / R, way->tensor }, names, &err),
              &err);
    case_must(
        fsdp_device_mesh_slice(&meshes->data, meshes->all, R > 1 ? names : &names[1], R > 1 ? 2 : 1, &err),
        &err);
    case_must(fsdp_device_mesh_slice(&meshes->tensor, meshes->all, &names[2], 1, &err), &err);
    if (way->mixed_meshes)
        case_must(fsdp_device_mesh_flatten(&meshes->flat, meshes->data, "data", &err), &err);
}

void case_close_meshes(struct case_meshes *meshes)
{
    fsdp_device_mesh_destroy(meshes->flat);
    fsdp_device_mesh_destroy(meshes->tensor);
    fsdp_device_mesh_destroy(meshes->data);
    fsdp_device_mesh_destroy(meshes->all);
}

void case_split(struct fsdp_module *root, const struct way *way, struct fsdp_device_mesh *mesh)
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
        case_must(fsdp_parallelize_module(root, mesh, blocks ? of_blocks : of_linears, blocks ? 4 : 2, &err),
                  &err);
}

void case_shard(struct fsdp_module *root, const struct reference *r, const struct way *way,
                const struct case_meshes *meshes)
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
    policy.float8_gather = way->float8;
    shard_children(root, r, way, &options);
    if (way->auto_root)
        options.reshard_after_forward = FSDP_RESHARD_AUTO;
    if (way->mixed_meshes)
        options.mesh = meshes->flat;
    case_must(fsdp_fully_shard(root, &options, &err), &err);
    for (size_t i = 0; i < fsdp_module_child_count(blocks); i++)
        fsdp_checkpoint_wrapper(fsdp_module_child_at(blocks, i), way->recompute);
    if (way->prefetch > 0)
        prefetch_lists(root, way->prefetch);
    if (way->in_flight > 0)
        case_must(fsdp_module_set_reduce_scatter_max_input_buffers(root, way->in_flight, true, &err), &err);
    if (way->keep_after_backward)
        fsdp_module_set_reshard_after_backward(root, false, true);
    if (way->force_sum)
        fsdp_module_set_force_sum_reduction_for_comms(root, true, true);
    fsdp_module_set_separate_reduce_scatter_group(root, way->own_reduce_group, true);
    fsdp_module_set_reduce_scatter_unused_params(root, r->skips && !way->keeps_unused, true);
    fsdp_module_set_requires_all_reduce(root, !way->defers_all_reduce, true);
}
