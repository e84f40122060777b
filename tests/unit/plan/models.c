#include "tests/unit/plan/models.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/shard/layout.h"
#include "tests/unit/engine/must.h"

static struct fsdp_value *block_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct fsdp_value *h = fsdp_gelu(fsdp_call(fsdp_module_child(self, "w1"), x));

    (void)user;
    return fsdp_add(x, fsdp_call(fsdp_module_child(self, "w2"), h));
}

static struct fsdp_value *root_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct blocks *blocks = user;
    struct fsdp_module *layers = fsdp_module_child(self, "layers");

    x = fsdp_call(fsdp_module_child(self, "embedding"), x);
    for (int visit = 0; visit < (blocks->visits > 0 ? blocks->visits : 1); visit++)
        for (size_t i = 0; i < fsdp_module_child_count(layers); i++)
            x = fsdp_call(fsdp_module_child_at(layers, i), x);
    return fsdp_call(fsdp_module_child(self, "output"), x);
}

struct fsdp_module *blocks_build(struct blocks *blocks)
{
    const enum fsdp_offload offload = blocks->offloads ? FSDP_OFFLOAD_CPU : FSDP_OFFLOAD_NONE;
    const struct fsdp_fully_shard_options of_blocks = { .reshard_after_forward = blocks->reshard_blocks,
                                                        .reshard_size = blocks->reshard_size,
                                                        .mp_policy = blocks->mp_policy,
                                                        .offload_policy = offload };
    const struct fsdp_fully_shard_options of_root = { .reshard_after_forward = blocks->reshard_root,
                                                      .reshard_size = blocks->reshard_size,
                                                      .mp_policy =
                                                          blocks->root_in_f32 ? NULL : blocks->mp_policy,
                                                      .offload_policy = offload };
    struct fsdp_module *root = fsdp_module_create(root_forward, blocks);
    struct fsdp_module *layers = fsdp_module_add(root, "layers", NULL, NULL);

    fsdp_embedding(root, "embedding", 11, 8);
    for (int i = 0; i < blocks->n_blocks; i++) {
        struct fsdp_module *block;
        char name[16];

        snprintf(name, sizeof name, "%d", i);
        block = fsdp_module_add(layers, name, block_forward, NULL);
        fsdp_linear(block, "w1", 8, 12, true);
        fsdp_linear(block, "w2", 12, 8, false);
        cr_assert(fsdp_fully_shard(block, &of_blocks, NULL) == FSDP_OK);
    }
    fsdp_linear(root, "output", 8, 11, false);
    cr_assert(fsdp_fully_shard(root, &of_root, NULL) == FSDP_OK);
    if (blocks->keep_after_backward)
        fsdp_module_set_reshard_after_backward(root, false, true);
    return root;
}

struct plan_options options_for(int W)
{
    return (struct plan_options){ .W = W, .prefetch = 1, .keeps_cheap = true, .chunk_rows = layout_chunk };
}

void plan_it(struct planned *p, struct fsdp_module *root, const struct plan_options *options, bool training)
{
    plan_forwards(p, root, options, training, 1);
}

struct planned made;

enum fsdp_status plan_try(struct planned *p, struct fsdp_module *root, const struct plan_options *options,
                          bool training, size_t n_forwards, struct fsdp_err *err)
{
    const struct graph_input input = { .dtype = FSDP_I32, .batch = 2, .seq = 3, .n_forwards = n_forwards };
    enum fsdp_status status;

    if (p == &made)
        planned_fini(p); /* of the plan before */
    *p = (struct planned){ .root = root };
    status = graph_record(&p->graph, root, &input, training, err);
    if (status != FSDP_OK)
        return status;
    for (size_t i = 0; i < p->graph.n_ops; i++) {
        struct graph_op *op = p->graph.ops[i];

        op->saved_bytes[0] = i % 3 == 0 ? 40 + i : 0;
        op->forward_scratch = i % 4 == 1 ? 300 : 0;
        op->backward_scratch = i % 2 == 0 ? 100 * i : 0;
    }
    return plan_make(&p->plan, &p->graph, root, options, err);
}

void plan_forwards(struct planned *p, struct fsdp_module *root, const struct plan_options *options,
                   bool training, size_t n_forwards)
{
    struct fsdp_err err = { 0 };

    must(plan_try(p, root, options, training, n_forwards, &err), &err);
}

void plan_blocks(int W, struct blocks blocks)
{
    static struct blocks kept; /* the tree's forward reads them */
    const struct plan_options options = options_for(W);

    kept = blocks;
    plan_it(&made, blocks_build(&kept), &options, true);
}

int count_entries(const struct plan *plan, enum plan_entry_kind kind)
{
    int n = 0;

    for (int i = 0; i < plan->n_entries; i++)
        n += plan->entries[i].kind == kind;
    return n;
}

void planned_fini(struct planned *p)
{
    plan_fini(&p->plan);
    graph_fini(&p->graph);
    fsdp_module_destroy(p->root);
    *p = (struct planned){ 0 };
}

void planned_drop(void)
{
    planned_fini(&made);
}

void expect_events(const struct plan *plan, bool frees, const char *want)
{
    static const char *const letters[] = {
        [PLAN_AMAX] = "A",    [PLAN_GATHER] = "U",      [PLAN_RESHARD] = "F",
        [PLAN_REDUCE] = "PB", [PLAN_ALL_REDUCE] = "AR", [PLAN_COMPLETE] = NULL
    };
    char got[1024] = "";
    size_t n = 0;

    for (int i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *e = &plan->entries[i];
        const char *name, *dot;

        if (e->kind == PLAN_LOSS)
            n += (size_t)snprintf(got + n, sizeof got - n, " |");
        if (letters[e->kind] == NULL || (e->kind == PLAN_RESHARD && !frees))
            continue;
        name = plan_unit_name(plan, e->index);
        dot = strrchr(name, '.');
        n += (size_t)snprintf(got + n, sizeof got - n, " %s%s%s", letters[e->kind],
                              dot != NULL ? dot + 1 : name, e->when == PLAN_FIRST ? "1" : "");
    }
    cr_expect_str_eq(got, want, "%s, not%s", got, want);
}
