#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/module.h"
#include "shard_runtime/shard/layout_text.h"
#include "tests/unit/plan/models.h"

static char *text_of(struct blocks *blocks, int W, int R)
{
    struct plan_options options = options_for(W);
    struct planned planned;
    char *text;

    options.R = R;
    plan_it(&planned, blocks_build(blocks), &options, true);
    text = layout_text(&planned.plan);
    planned_fini(&planned);
    cr_assert_not_null(text);
    return text;
}

static void has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);

    cr_assert(at != NULL && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n',
              "no line \"%s\" in\n%s", line, text);
}

Test(layout_text, has_a_line_of_each_parameter)
{
    struct blocks blocks = { .n_blocks = 1 };
    char *text = text_of(&blocks, 3, 1);
    size_t n_lines = 0;

    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n_lines++;
    cr_assert_eq(n_lines, 1 + 5);
    has_line(
        text,
        "(root) embedding.weight shape=(11,8) dim=0 ranks=3 copies=1 own=0+4 rows=4*2,3 padding=1 float32 "
        "gathered=float32");
    has_line(text,
             "layers.0 layers.0.w1.bias shape=(12) dim=0 ranks=3 copies=1 own=0+4 rows=4*3 padding=0 float32 "
             "gathered=float32");
    free(text);
}

Test(layout_text, says_copies_and_data_types)
{
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    struct blocks blocks = { .n_blocks = 1, .mp_policy = &mp, .root_in_f32 = true };
    char *text;

    mp.param_dtype = FSDP_BF16;
    mp.output_dtype = FSDP_F32;
    mp.float8_gather = true;
    text = text_of(&blocks, 2, 2);
    has_line(text,
             "(root) output.weight shape=(11,8) dim=0 ranks=2 copies=2 own=0+6 rows=6,5 padding=1 float32 "
             "gathered=float32");
    has_line(text,
             "layers.0 layers.0.w1.bias shape=(12) dim=0 ranks=2 copies=2 own=0+6 rows=6*2 padding=0 float32 "
             "gathered=bfloat16");
    has_line(text,
             "layers.0 layers.0.w2.weight shape=(8,12) dim=0 ranks=2 copies=2 own=0+4 rows=4*2 padding=0 "
             "float32 gathered=float8");
    free(text);
}

/* The list of rows, read back, is D rows over W ranks, and with the padding W equal buffers. */
Test(layout_text, rows_of_all_ranks_add_up_in_every_world)
{
    for (int W = 1; W <= 24; W++) {
        struct blocks blocks = { .n_blocks = 1 };
        char *text = text_of(&blocks, W, 1), *at = strstr(text, "shape=(11,8)");
        size_t rows = 0, own, padding;
        long ranks = 0;

        cr_assert_not_null(at);
        cr_assert(sscanf(strstr(at, "own="), "own=0+%zu", &own) == 1);
        cr_assert(sscanf(strstr(at, "padding="), "padding=%zu", &padding) == 1);
        at = strstr(at, "rows=") + 4;
        do {
            const size_t n = strtoul(at + 1, &at, 10);
            const long times = *at == '*' ? strtol(at + 1, &at, 10) : 1;

            rows += n * (size_t)times;
            ranks += times;
        } while (*at == ',');
        cr_assert(rows == 11 && ranks == W && own * (size_t)W == 11 + padding, "W %d: %s", W, text);
        free(text);
    }
}

/* Marks */

static struct fsdp_value *in_a_row(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    for (size_t i = 0; i < fsdp_module_child_count(self); i++)
        x = fsdp_call(fsdp_module_child_at(self, i), x);
    return x;
}

/* Along the last dimension where there are two. */
static int last(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)shape;
    (void)user;
    return n_dims - 1;
}

/*
 * embedding, a and b in one list cut along their last dimension, output ignored; of b the bias learns
 * nothing.
 */
static struct fsdp_module *build_marked(void)
{
    static const char *const ignored[] = { "output.weight" };
    const struct fsdp_fully_shard_options of_list = { .shard_placement_fn = last },
                                          of_root = { .ignored_params = ignored, .n_ignored_params = 1 };
    struct fsdp_module *root = fsdp_module_create(in_a_row, NULL), *list[2];

    fsdp_embedding(root, "embedding", 11, 8);
    list[0] = fsdp_linear(root, "a", 8, 12, true);
    list[1] = fsdp_linear(root, "b", 12, 8, true);
    fsdp_linear(root, "output", 8, 11, false);
    cr_assert(fsdp_parameter_set_requires_grad(list[1], "bias", false, NULL) == FSDP_OK);
    cr_assert(fsdp_fully_shard_modules(list, 2, &of_list, NULL) == FSDP_OK);
    cr_assert(fsdp_fully_shard(root, &of_root, NULL) == FSDP_OK);
    return root;
}

static char *marked_text(struct planned *planned, int n_parts, int part)
{
    const struct plan_options options = options_for(4);
    struct fsdp_module *root = build_marked();
    char *text;

    plan_it(planned, root, &options, true);
    if (n_parts > 1)
        parameter_split(fsdp_module_child(root, "a")->parameters[0], 0, n_parts, part);
    text = layout_text(&planned->plan);
    planned_fini(planned);
    cr_assert_not_null(text);
    return text;
}

Test(layout_text, marks_what_is_ignored_frozen_listed_and_cut_along_another_dimension)
{
    struct planned planned;
    char *text = marked_text(&planned, 1, 0);

    has_line(text, "(root) output.weight shape=(11,8) ignored float32");
    has_line(text, "a+1 b.bias shape=(8) dim=0 ranks=4 copies=1 own=0+2 rows=2*4 padding=0 float32 "
                   "gathered=float32 no-gradient");
    has_line(text, "a+1 a.weight shape=(12,8) dim=1 ranks=4 copies=1 own=0+2 rows=2*4 padding=0 float32 "
                   "gathered=float32");
    has_line(text, "a+1 b.weight shape=(8,12) dim=1 ranks=4 copies=1 own=0+3 rows=3*4 padding=0 float32 "
                   "gathered=float32");
    has_line(text, "(root) embedding.weight shape=(11,8) dim=0 ranks=4 copies=1 own=0+3 rows=3*3,2 padding=1 "
                   "float32 gathered=float32");
    cr_assert_null(strstr(text, "part="));
    free(text);
}

/* What tensor parallelism splits: the rank's own part is the shape, and which of how many it is. */
Test(layout_text, says_which_part_of_a_split_parameter_a_rank_has)
{
    struct planned planned;
    char *text = marked_text(&planned, 3, 2);

    has_line(text, "a+1 a.weight shape=(4,8) part=2/3 dim=1 ranks=4 copies=1 own=0+2 rows=2*4 padding=0 "
                   "float32 gathered=float32");
    free(text);
}
