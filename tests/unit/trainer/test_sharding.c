/*
 * What a job says about sharding, as it stands in the tree afterwards: groups, policies, parameters.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "shard_runtime/core/module.h"
#include "shard_runtime/trainer/models.h"
#include "tests/unit/job/resolve_text.h"

static const char model[] =
    "data: {path: d}\nmodel: {layers: 3, dim: 8, heads: 2, vocab: 256, seq: 5, tied: true, "
    "frozen: FROZEN}\n";

static struct job job;
static struct fsdp_module *tree;

/* The job of a small model with these lines of its own; `frozen` as in model.frozen. */
static void make_job(const char *frozen, const char *lines)
{
    const char *at = strstr(model, "FROZEN");
    struct job_origins origins;
    char text[4096], problems[2048];

    snprintf(text, sizeof text, "%.*s%s%s%s", (int)(at - model), model, frozen, at + 6, lines);
    cr_assert(resolve_text(&job, &origins, text, strlen(text), NULL, 0, problems, sizeof problems) == FSDP_OK,
              "%s", problems);
}

static void make(const char *frozen, const char *lines)
{
    struct fsdp_err err = { 0 };

    make_job(frozen, lines);
    cr_assert(models_create(&tree, &job, NULL, &err) == FSDP_OK, "%s", err.message);
}

static void end(void)
{
    fsdp_module_destroy(tree);
    job_free(&job);
}

TestSuite(sharding, .fini = end);

static void refuses(const char *frozen, const char *lines, const char *words)
{
    struct fsdp_err err = { 0 };

    make_job(frozen, lines);
    cr_expect(models_create(&tree, &job, NULL, &err) == FSDP_ERR_CONFIG, "%s", lines);
    cr_expect_not_null(strstr(err.message, words), "%s", err.message);
    cr_expect_null(tree);
    job_free(&job);
    job = (struct job){ 0 };
}

static const struct fsdp_module *at(const char *path)
{
    for (const struct fsdp_module *m = tree; m != NULL; m = module_next(tree, m))
        if (strcmp(fsdp_module_path(m), path) == 0)
            return m;
    cr_assert(false, "there is no module %s", path);
    return NULL;
}

static const struct fsdp_parameter *parameter(const char *module, const char *name)
{
    const struct fsdp_parameter *found = module_parameter(at(module), name);

    cr_assert_not_null(found, "%s.%s", module, name);
    return found;
}

static void expect_list(const struct unit_list *list, const char *want)
{
    char got[256] = "";

    for (size_t i = 0; i < list->n_units; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", list->units[i]->path);
    cr_expect_str_eq(got, want);
}

Test(sharding, groups_are_what_the_rules_say_and_the_rest_is_the_roots)
{
    make("null", "parallel:\n  groups:\n    - {modules: layers.*.attention, param_dtype: bfloat16}\n"
                 "    - modules: [tok_embeddings, norm, output]\n");

    cr_expect(at("layers.0.attention")->sharded && !at("layers.0")->sharded);
    cr_expect(module_group(at("output")) == at("tok_embeddings"));
    cr_expect(module_group(at("norm")) == at("tok_embeddings"));
    cr_expect(!at("pos_embeddings")->sharded && tree->sharded);
    cr_expect(group_param_dtype(module_group(at("layers.0.attention.wq"))) == FSDP_BF16);
    cr_expect(group_param_dtype(tree) == FSDP_F32);
}

Test(sharding, each_setting_reaches_its_groups_alone)
{
    make("null",
         "launch: {nproc_per_node: 4}\n"
         "parallel:\n  gradient_divide_factor: 2.5\n  reduce_scatter_max_input_buffers: 3\n"
         "  separate_reduce_scatter_group: true\n  activation_checkpoint: full\n"
         "  groups:\n    - modules: layers.1\n      gradient_divide_factor: 7\n      force_sum_reduction: "
         "true\n"
         "      reshard_after_forward: 2\n      reshard_after_backward: false\n      gradient_sync: every\n"
         "      all_reduce: last\n      reduce_dtype: bfloat16\n      output_dtype: bfloat16\n"
         "      cast_forward_inputs: false\n      activation_checkpoint: selective\n      float8_gather: "
         "true\n"
         "    - {modules: layers.*.feed_forward, activation_checkpoint: none}\n"
         "    - {modules: pos_embeddings, unshard_in_backward: false}\n");
    const struct unit_policy *own = &at("layers.1")->policy, *root = &tree->policy;

    cr_expect(own->divide_factor == 7 && own->force_sum && own->keep_after_backward);
    cr_expect(own->reshard_after_forward == FSDP_RESHARD_TO && own->reshard_size == 2);
    cr_expect(own->gradient_sync == UNIT_SYNC_EVERY && own->defers_all_reduce);
    cr_expect(own->precision.reduce_dtype == FSDP_BF16 && own->precision.output_dtype == FSDP_BF16 &&
              !own->precision.cast_forward_inputs && own->precision.float8_gather);
    cr_expect(parameter_is_coded(parameter("layers.1.attention.wq", "weight")) &&
              !parameter_is_coded(parameter("layers.0.attention.wq", "weight")) &&
              !parameter_is_coded(parameter("layers.1.attention_norm", "weight")));
    cr_expect(root->divide_factor == 2.5 && !root->force_sum && !root->keep_after_backward);
    cr_expect(root->reshard_after_forward == FSDP_RESHARD_AUTO && root->gradient_sync == UNIT_SYNC_LAST &&
              !root->defers_all_reduce);
    cr_expect(root->precision.reduce_dtype == FSDP_F32 && root->precision.cast_forward_inputs &&
              !root->precision.float8_gather);
    cr_expect(own->reduce_buffers == 3 && root->reduce_buffers == 3);
    cr_expect(own->separate_reduces && root->separate_reduces);
    cr_expect(at("pos_embeddings")->policy.not_in_backward && !own->not_in_backward);
    cr_expect(at("layers.0")->checkpoint == FSDP_CHECKPOINT_FULL);
    cr_expect(at("layers.1")->checkpoint == FSDP_CHECKPOINT_SELECTIVE);
    cr_expect(at("layers.0.feed_forward")->checkpoint == FSDP_CHECKPOINT_NONE);
}

Test(sharding, so_many_groups_ahead_are_those_that_follow_in_the_tree)
{
    make("null", "parallel: {forward_prefetch: 2, backward_prefetch: 1}\n");

    expect_list(&at("layers.0")->policy.prefetch[0], "layers.1 layers.2 ");
    expect_list(&at("layers.1")->policy.prefetch[0], "layers.2 ");
    expect_list(&at("layers.2")->policy.prefetch[0], "");
    expect_list(&at("layers.2")->policy.prefetch[1], "layers.1 ");
    expect_list(&at("layers.0")->policy.prefetch[1], "");
    expect_list(&tree->policy.prefetch[0], "");
}

Test(sharding, rules_name_the_groups_to_gather_early)
{
    make("null", "parallel:\n  backward_prefetch: 2\n  groups:\n"
                 "    - {modules: layers.0, modules_to_forward_prefetch: [layers.2, output]}\n"
                 "    - {modules: layers.2, modules_to_backward_prefetch: layers.0, forward_prefetch: 1}\n"
                 "    - {modules: \"layers.[13456]\", backward_prefetch: auto}\n"
                 "    - modules: [tok_embeddings, output]\n");

    expect_list(&at("layers.0")->policy.prefetch[0], "layers.2 tok_embeddings ");
    expect_list(&at("layers.2")->policy.prefetch[1], "layers.0 ");
    expect_list(&at("layers.2")->policy.prefetch[0], "");
    expect_list(&at("layers.1")->policy.prefetch[1], "");
    expect_list(&at("layers.0")->policy.prefetch[1], "tok_embeddings ");
}

Test(sharding, parameters_are_frozen_ignored_and_placed_by_name)
{
    make("[\"*.bias\", pos_embeddings.*]",
         "parallel:\n  ignored: \"*norm.bias\"\n"
         "  placement: [{parameters: layers.0.feed_forward.w2.weight, dim: 0}, "
         "{parameters: \"*.w2.weight\", dim: 1}]\n");

    cr_expect(parameter("layers.1.feed_forward.w1", "bias")->frozen);
    cr_expect(parameter("pos_embeddings", "weight")->frozen);
    cr_expect(!parameter("tok_embeddings", "weight")->frozen);
    cr_expect(parameter("layers.2.ffn_norm", "bias")->ignored && parameter("norm", "bias")->ignored);
    cr_expect(!parameter("layers.1.feed_forward.w1", "bias")->ignored);
    cr_expect(parameter("layers.0.feed_forward.w2", "weight")->shard_dim == 0);
    cr_expect(parameter("layers.1.feed_forward.w2", "weight")->shard_dim == 1);
    cr_expect(parameter("layers.1.feed_forward.w1", "weight")->shard_dim == 0);
}

Test(sharding, what_cannot_be_is_refused)
{
    refuses("null", "parallel: {groups: [{modules: blocks.*}]}\n",
            "parallel.groups: no module is called blocks.*");
    refuses("null", "parallel: {groups: [{modules: norm}, {modules: norm}]}\n", "unit of sharding already");
    refuses("null", "parallel: {groups: [{modules: layers}]}\n", "container without a forward");
    refuses("null", "parallel: {groups: [{modules: layers.*, modules_to_forward_prefetch: norm}]}\n",
            "norm is to be gathered early, and is no group");
    refuses("nothing.*", "", "model.frozen: no parameter is called nothing.*");
    refuses("null", "parallel: {ignored: norm.bias}\n",
            "parallel.ignored: norm.bias learns, and nothing sums its gradients over the ranks");
    refuses("null", "parallel: {placement: [{parameters: \"*.bias\", dim: 1}]}\n",
            "is placed along dimension 1");
    refuses("null", "parallel: {placement: [{parameters: zebra, dim: 1}]}\n",
            "parallel.placement: no parameter is called zebra");
}
