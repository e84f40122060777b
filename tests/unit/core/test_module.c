/* The module tree: names, what is refused, and the first failure that is remembered. */
#include <criterion/criterion.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/module.h"

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *input, void *user)
{
    (void)self;
    (void)user;
    return input;
}

Test(module, names_have_the_path_in_front)
{
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct fsdp_module *layers = fsdp_module_add(root, "layers", NULL, NULL);
    struct fsdp_module *first = fsdp_module_add(layers, "0", forward, NULL);

    fsdp_module_add_parameter(root, "scale", 1, (size_t[]){ 3 }, FSDP_INIT_ONES, NULL);
    fsdp_module_add_parameter(first, "weight", 2, (size_t[]){ 5, 7 }, FSDP_INIT_NORMAL, NULL);

    cr_expect_str_eq(fsdp_module_path(first), "layers.0");
    cr_expect_str_eq(root->parameters[0]->name, "scale");
    cr_expect_str_eq(first->parameters[0]->name, "layers.0.weight");
    cr_expect(first->parameters[0]->row_elems == 7 && first->parameters[0]->n_elems == 35);
    cr_expect(fsdp_module_n_elems(root) == 38 && fsdp_module_n_elems(layers) == 35);
    cr_expect(module_parameter(first, "weight") == first->parameters[0] &&
              module_parameter(first, "bias") == NULL);
    cr_expect(fsdp_module_child(root, "layers") == layers && fsdp_module_child_at(layers, 0) == first);
    cr_expect(fsdp_module_child_at(layers, 1) == NULL && fsdp_module_child(NULL, "x") == NULL);
    cr_expect(fsdp_module_check(first, NULL) == FSDP_OK);
    fsdp_module_destroy(root);
}

Test(module, a_walk_sees_parents_before_children_in_order)
{
    static const char *const wanted[] = { "", "a", "a.x", "a.y", "b", "b.z" };
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct fsdp_module *a = fsdp_module_add(root, "a", forward, NULL),
                       *b = fsdp_module_add(root, "b", forward, NULL);
    size_t n = 0;

    fsdp_module_add(a, "x", forward, NULL);
    fsdp_module_add(a, "y", forward, NULL);
    fsdp_module_add(b, "z", forward, NULL);

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m), n++)
        cr_assert_str_eq(m->path, wanted[n]);
    cr_expect(n == 6);
    n = 0;
    for (const struct fsdp_module *m = a; m != NULL; m = module_next(a, m))
        n++;
    cr_expect(n == 3, "a walk below a module does not leave it");
    fsdp_module_destroy(root);
}

Test(module, the_first_failure_is_remembered_at_the_root)
{
    static const struct {
        const char *name, *words;
    } refused[] = {
        { "", "empty" }, { NULL, "empty" }, { "a.b", "dot" }, { "taken", "taken" }, { "weight", "taken" },
    };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct fsdp_module *root = fsdp_module_create(forward, NULL);
        struct fsdp_err err = { 0 };

        fsdp_module_add(root, "taken", NULL, NULL);
        fsdp_module_add_parameter(root, "weight", 1, (size_t[]){ 3 }, FSDP_INIT_ONES, NULL);
        cr_expect(fsdp_module_add(root, refused[i].name, forward, NULL) == NULL);
        cr_expect(fsdp_module_add(NULL, "below", forward, NULL) == NULL, "NULL goes on as NULL");
        fsdp_module_add(root, "not. this", NULL, NULL);
        cr_expect(fsdp_fully_shard(NULL, NULL, NULL) == FSDP_ERR_NOMEM);

        cr_expect(fsdp_module_check(root, &err) == FSDP_ERR_ARG);
        cr_expect(strstr(err.message, refused[i].words) != NULL, "%s", err.message);
        cr_expect(fsdp_fully_shard(root, NULL, &err) == FSDP_ERR_ARG &&
                  strstr(err.message, refused[i].words) != NULL);
        fsdp_module_destroy(root);
    }
}

Test(module, shapes_that_cannot_be_are_refused)
{
    static const size_t none[] = { 3, 0 }, large[] = { (size_t)1 << 40, (size_t)1 << 40 },
                        five[] = { 1, 1, 1, 1, 1 };
    static const struct {
        int n_dims;
        const size_t *shape;
    } refused[] = { { 2, none }, { 2, large }, { 5, five }, { 0, five } };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct fsdp_module *root = fsdp_module_create(forward, NULL);

        cr_expect(fsdp_module_add_parameter(root, "p", refused[i].n_dims, refused[i].shape, FSDP_INIT_ONES,
                                            NULL) == FSDP_ERR_ARG);
        cr_expect(root->n_parameters == 0 && fsdp_module_check(root, NULL) == FSDP_ERR_ARG);
        fsdp_module_destroy(root);
    }
}

/* Build a tree, with whatever comes back. */
static struct fsdp_module *build(void)
{
    struct fsdp_module *root = fsdp_module_create(forward, NULL);

    for (int i = 0; i < 12; i++)
        fsdp_module_add_parameter(fsdp_module_add(root, (char[]){ (char)('a' + i), '\0' }, forward, NULL),
                                  "weight", 1, (size_t[]){ 2 }, FSDP_INIT_ONES, NULL);
    return root;
}

Test(module, every_allocation_may_fail)
{
    unsigned long nth = 0;
    bool whole = false;

    while (!whole) {
        struct fsdp_module *root;
        enum fsdp_status status;

        alloc_fail_nth(++nth);
        root = build();
        alloc_fail_nth(0);
        status = fsdp_module_check(root, NULL);

        whole = status == FSDP_OK;
        cr_expect(whole || status == FSDP_ERR_NOMEM, "failing call %lu: %s", nth, fsdp_status_name(status));
        fsdp_module_destroy(root);
    }
    cr_expect(nth > 50, "only %lu allocations", nth);
}
