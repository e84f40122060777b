/*
 * Which parameters form a group, and what is gathered and reduced of it. Cases: lists of modules, shared,
 * frozen, ignored and unused parameters, dimensions to cut along.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/engine/must.h"
#include "tests/unit/plan/models.h"

TestSuite(plan_groups, .fini = planned_drop);

/* first(x), then what `order` says: names of children, in order. */
static struct fsdp_value *run_children(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    x = fsdp_call(fsdp_module_child(self, "e"), x);
    for (const char *name = user; *name != '\0'; name++)
        x = fsdp_call(fsdp_module_child(self, (char[]){ *name, '\0' }), x);
    return fsdp_call(fsdp_module_child(self, "o"), x);
}

/* Children e (embedding), a, b, c (linear, with bias), o (output); `list` names those that form one group. */
static struct fsdp_module *build(const char *order, const char *list)
{
    struct fsdp_module *root = fsdp_module_create(run_children, (void *)(uintptr_t)order), *listed[8];
    struct fsdp_err err = { 0 };
    size_t n = 0;

    fsdp_embedding(root, "e", 11, 8);
    for (char name = 'a'; name <= 'c'; name++)
        fsdp_linear(root, (char[]){ name, '\0' }, 8, 8, true);
    fsdp_linear(root, "o", 8, 11, false);
    for (; *list != '\0'; list++)
        listed[n++] = fsdp_module_child(root, (char[]){ *list, '\0' });
    if (n > 0)
        must(fsdp_fully_shard_modules(listed, n, NULL, &err), &err);
    return root;
}

static void shard_root(struct fsdp_module *root)
{
    struct fsdp_err err = { 0 };

    must(fsdp_fully_shard(root, NULL, &err), &err);
}

/* See expect_events(). A list is gathered once for a run of all its modules. */
static const struct {
    const char *order, *list, *events;
} lists[] = {
    { "abc", "ab", " U(root) Ua Fa | Ua Fa PBa F(root) PB(root)" },
    { "abc", "ac", " U(root) Ua Fa | Ua Fa PBa F(root) PB(root)" },
    { "aab", "ab", " U(root) Ua Fa | Ua Fa PBa F(root) PB(root)" },
    { "abab", "ab", " U(root) Ua Fa Ua Fa | Ua Fa Ua Fa PBa F(root) PB(root)" },
    /* one of them runs again alone: whole from there until its backward is done */
    { "aba", "ab", " U(root) Ua Fa Ua | Fa Ua Fa PBa F(root) PB(root)" },
    /* one of them never runs: it stays whole */
    { "acc", "ab", " U(root) Ua | Fa PBa F(root) PB(root)" },
};

Test(plan_groups, a_list_is_gathered_freed_and_reduced_as_one)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct plan_options options = options_for(2);
        struct fsdp_module *root = build(lists[i].order, lists[i].list);

        options.prefetch = 0;
        shard_root(root);
        plan_it(&made, root, &options, true);

        expect_events(&made.plan, true, lists[i].events);
        cr_expect(made.plan.n_groups == 2);
    }
}

Test(plan_groups, an_evaluation_leaves_no_list_whole)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct plan_options options = options_for(2);
        struct fsdp_module *root = build(lists[i].order, lists[i].list);
        int n_whole = 0;

        shard_root(root);
        plan_it(&made, root, &options, false);
        for (int e = 0; e < made.plan.n_entries; e++)
            n_whole +=
                (made.plan.entries[e].kind == PLAN_UNPACK) - (made.plan.entries[e].kind == PLAN_RESHARD);
        cr_expect(n_whole == 0, "%s of %s", lists[i].list, lists[i].order);
    }
}

Test(plan_groups, what_cannot_be_a_list_is_refused)
{
    struct fsdp_module *root = build("abc", "");
    struct fsdp_module *a = fsdp_module_child(root, "a"), *b = fsdp_module_child(root, "b");
    struct fsdp_err err = { 0 };

    cr_expect(fsdp_fully_shard_modules(NULL, 0, NULL, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_fully_shard_modules((struct fsdp_module *[]){ a, a }, 2, NULL, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_fully_shard_modules((struct fsdp_module *[]){ a, root }, 2, NULL, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_fully_shard_modules((struct fsdp_module *[]){ a, b }, 2, NULL, &err) == FSDP_OK, "%s",
              err.message);
    cr_expect(fsdp_fully_shard(b, NULL, &err) == FSDP_ERR_ARG);
    fsdp_module_set_reshard_after_forward(b, false, false);
    cr_expect(a->policy.reshard_after_forward == FSDP_RESHARD_FALSE, "the list has one policy");
    fsdp_module_destroy(root);
}

Test(plan_groups, a_shared_parameter_is_one_in_one_group)
{
    const struct plan_options options = options_for(2);
    struct fsdp_module *root = build("abc", "eo");
    struct fsdp_err err = { 0 };
    int n_weights = 0, n_adds = 0;

    must(fsdp_module_tie_parameter(fsdp_module_child(root, "o"), "weight", fsdp_module_child(root, "e"),
                                   "weight", &err),
         &err);
    shard_root(root);
    plan_it(&made, root, &options, true);

    for (int i = 0; i < made.plan.n_params; i++)
        n_weights += strcmp(made.plan.params[i].parameter->name, "e.weight") == 0 ||
                     strcmp(made.plan.params[i].parameter->name, "o.weight") == 0;
    for (int i = 0; i < made.plan.n_entries; i++)
        if (made.plan.entries[i].kind == PLAN_BACKWARD)
            n_adds += made.plan.entries[i].back.add_d_param[0];
    cr_expect(n_weights == 1 && n_adds == 1, "two uses: the second adds");
}

Test(plan_groups, a_parameter_shared_by_two_groups_is_refused_with_both_names)
{
    const struct plan_options options = options_for(2);
    struct fsdp_module *root = build("abc", "ab"), *output = fsdp_module_child(root, "o");
    struct fsdp_module *b = fsdp_module_child(root, "b");
    struct fsdp_err err = { 0 };

    must(fsdp_module_tie_parameter(fsdp_module_child(root, "c"), "weight", b, "weight", &err), &err);
    cr_expect(fsdp_module_tie_parameter(output, "weight", b, "weight", &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_module_tie_parameter(output, "nothing", b, "weight", &err) == FSDP_ERR_ARG);
    shard_root(root);
    expect_refused(plan_try(&made, root, &options, true, 1, &err), FSDP_ERR_ARG,
                   "\"b.weight\" is shared by the groups of \"a\" and \"\": shard the modules that use "
                   "it as one list",
                   &err);
}

static const struct plan_param *find(const struct plan *plan, const char *name)
{
    for (int i = 0; i < plan->n_params; i++)
        if (strcmp(plan->params[i].parameter->name, name) == 0)
            return &plan->params[i];
    cr_assert_fail("%s", name);
    return NULL;
}

/* Every subset of {e, a, b, c, o} frozen: it is gathered all the same, and what is reduced is what learns. */
Test(plan_groups, frozen_parameters_are_gathered_and_not_reduced)
{
    for (unsigned frozen = 0; frozen < 32; frozen++) {
        const struct plan_options options = options_for(2);
        struct fsdp_module *root = build("abc", "ab");
        size_t packed = 0, gathered = 0, learns = 0, all = 0;

        for (int i = 0; i < 5; i++)
            if ((frozen >> i & 1u) != 0)
                fsdp_module_requires_grad(fsdp_module_child(root, (char[]){ "eabco"[i], '\0' }), false);
        shard_root(root);
        plan_it(&made, root, &options, true);

        for (int i = 0; i < made.plan.n_params; i++) {
            const struct plan_param *param = &made.plan.params[i];

            cr_assert(param->trains == !param->parameter->frozen, "%s", param->parameter->name);
            all += param->chunk_elems;
            learns += param->trains ? param->chunk_elems : 0;
        }
        for (int g = 0; g < made.plan.n_groups; g++)
            gathered += made.plan.groups[g].row_elems;
        for (int b = 0; b < made.plan.n_buffers; b++)
            if (made.plan.buffers[b].what == PLAN_PACK_ROWS)
                packed += made.plan.buffers[b].size_bytes / (2 * sizeof(float));
        cr_assert(gathered == all && packed == learns, "%zu of %zu, %zu of %zu", gathered, all, packed,
                  learns);
    }
}

Test(plan_groups, unused_parameters_are_reduced_only_when_told)
{
    for (int told = 0; told < 2; told++) {
        const struct plan_options options = options_for(2);
        struct fsdp_module *root = build("a", "abc");

        shard_root(root);
        fsdp_module_set_reduce_scatter_unused_params(root, told != 0, true);
        plan_it(&made, root, &options, true);

        cr_expect(find(&made.plan, "a.weight")->trains);
        cr_expect(find(&made.plan, "b.weight")->trains == (told != 0));
        cr_expect(made.plan.groups[1].grad_row_elems == (told ? 3u : 1u) * (4u * 8u + 4u));
    }
}

static struct fsdp_module *ignoring(const char *const *names, size_t n, enum fsdp_status *status,
                                    struct fsdp_err *err)
{
    const struct fsdp_fully_shard_options options = { .ignored_params = names, .n_ignored_params = n };
    struct fsdp_module *root = build("abc", "ab");

    *status = fsdp_fully_shard(root, &options, err);
    return root;
}

Test(plan_groups, ignored_parameters_never_travel)
{
    static const char *const names[] = { "c.weight", "e.weight" }, *const wrong[] = { "a.weight" };
    const struct plan_options options = options_for(3);
    enum fsdp_status status;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = ignoring(names, 2, &status, &err);
    const struct plan_group *local;

    must(status, &err);
    plan_it(&made, root, &options, true);
    local = &made.plan.groups[made.plan.n_groups - 1];

    cr_expect(local->local && local->n_params == 2 && !local->gathers && !local->reduces);
    cr_expect(local->row_elems == 8 * 8 + 11 * 8 && local->grad_row_elems == local->row_elems);
    for (int i = 0; i < made.plan.n_entries; i++)
        if (made.plan.entries[i].kind == PLAN_GATHER || made.plan.entries[i].kind == PLAN_REDUCE)
            cr_expect(!made.plan.groups[made.plan.entries[i].index].local);

    root = ignoring(wrong, 1, &status, &err);
    cr_expect(status == FSDP_ERR_ARG, "a deeper unit's parameter is not this one's to ignore");
    fsdp_module_destroy(root);
}

static int along(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)shape;
    return n_dims > 1 ? *(const int *)user : 0;
}

Test(plan_groups, a_parameter_is_cut_along_the_dimension_that_was_asked_for)
{
    for (int dim = -3; dim <= 2; dim++)
        for (int W = 1; W <= 5; W++) {
            const struct fsdp_fully_shard_options cut = { .shard_placement_fn = along,
                                                          .placement_user = &dim };
            const struct plan_options options = options_for(W);
            const bool rows = dim == 0 || dim == -2;
            struct fsdp_module *root = build("abc", "");
            const struct plan_param *e;
            struct fsdp_err err = { 0 };
            enum fsdp_status status = fsdp_fully_shard(root, &cut, &err);

            cr_assert((status == FSDP_OK) == (dim >= -2 && dim <= 1), "dimension %d: %s", dim, err.message);
            if (status != FSDP_OK) {
                fsdp_module_destroy(root);
                continue;
            }
            status = plan_try(&made, root, &options, true, 1, &err);
            /* 8 columns; rows are 11 and 8, and uneven ones are padded */
            cr_assert((status == FSDP_OK) == (rows || 8 % W == 0), "%d of %d: %s", dim, W, err.message);
            if (status != FSDP_OK)
                continue;
            e = find(&made.plan, "e.weight");
            cr_expect(e->parameter->shard_dim == (dim < 0 ? dim + 2 : dim));
            cr_expect(e->chunk_elems == (rows ? (11 + (size_t)W - 1) / (size_t)W * 8 : 88 / (size_t)W));
        }
}
