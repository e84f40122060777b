/*
 * Lists of names and of rules: what they set, what they leave, and that they read back as they were written.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/rules.h"
#include "tests/unit/job/resolve_text.h"

static const char text[] =
    "data: {path: d}\n"
    "model: {frozen: [\"*.bias\", layers.0.*]}\n"
    "train: {clip_norm: 0, clip_norm_type: inf}\n"
    "optimizer:\n  lr: 0.5\n  in_backward: true\n"
    "  groups: [{parameters: \"*norm.*\", weight_decay: 0.0}, {lr: 1, parameters: [a, \"b?[0-9]\"]}]\n"
    "parallel:\n  ignored: tok_embeddings.*\n  forward_prefetch: 2\n"
    "  placement:\n    - {parameters: \"*.w2.weight\", dim: 1}\n"
    "  groups:\n"
    "    - modules: [a, b.*]\n      param_dtype: bfloat16\n      reshard_after_forward: 4\n"
    "    - modules: c\n      gradient_sync: every\n      unshard_in_backward: false\n"
    "      modules_to_forward_prefetch: [d, e]\n      modules_to_backward_prefetch: f\n"
    "      forward_prefetch: auto\n      gradient_divide_factor: 3\n      force_sum_reduction: true\n";

static void read_job(struct job *job, const char *yaml)
{
    struct job_origins origins;
    char lines[2048];

    cr_assert(resolve_text(job, &origins, yaml, strlen(yaml), NULL, 0, lines, sizeof lines) == FSDP_OK, "%s",
              lines);
}

Test(job_rules, each_rule_has_its_names_and_the_job_with_its_settings)
{
    const struct job_rule *rule;
    struct job job, own;

    read_job(&job, text);

    cr_assert(job.parallel.groups != NULL && job.parallel.groups->n == 2);
    rule = &job.parallel.groups->list[0];
    cr_expect(rule->names.n == 2);
    cr_expect_str_eq(rule->names.list[1], "b.*");
    job_rule_apply(rule, &job, &own);
    cr_expect(own.parallel.param_dtype == JOB_BFLOAT16 && job.parallel.param_dtype == JOB_FLOAT32);
    cr_expect((int)own.parallel.reshard_after_forward == JOB_RESHARD_TO + 4);
    cr_expect(own.optimizer.lr == 0.5 && own.parallel.forward_prefetch == 2, "the rest is the job's");
    cr_expect(job_rule_value(rule, "param_dtype") != NULL && job_rule_value(rule, "gradient_sync") == NULL);
    rule = &job.parallel.groups->list[1];
    job_rule_apply(rule, &job, &own);
    cr_expect(own.parallel.gradient_sync == JOB_SYNC_EVERY && own.parallel.param_dtype == JOB_FLOAT32);
    cr_expect(own.parallel.forward_prefetch == 0 && own.parallel.gradient_divide_factor == 3 &&
              own.parallel.force_sum_reduction);
    cr_expect(!job_rule_value(rule, "unshard_in_backward")->flag);
    cr_expect(rule->modules_to_forward_prefetch.n == 2 && rule->modules_to_backward_prefetch.n == 1);
    cr_expect_str_eq(rule->modules_to_backward_prefetch.list[0], "f");
    cr_expect(job_rule_value(&job.parallel.placement->list[0], "dim")->count == 1);
    cr_expect(job_rule_value(&job.optimizer.groups->list[1], "lr")->number[0] == 1.0);
    cr_expect(job.model.frozen->n == 2 && job.parallel.ignored->n == 1);
    cr_expect(job.train.clip_norm_type == JOB_NORM_INF && job.optimizer.in_backward);
    job_free(&job);
}

/* As job.json and as --dry-run print it, all of it. */
Test(job_rules, lists_read_back_as_they_were_written)
{
    char *first, *second, *yaml = NULL;
    struct job_origins origins = { 0 };
    struct fsdp_err err = { 0 };
    struct job job, again;
    size_t size = 0;
    FILE *out;

    read_job(&job, text);
    cr_assert(job_to_json(&job, &first, NULL) == FSDP_OK);
    cr_assert(job_from_json(&again, first, strlen(first), &err) == FSDP_OK, "%s", err.message);
    cr_assert(job_to_json(&again, &second, NULL) == FSDP_OK);
    cr_expect_str_eq(first, second);
    cr_expect_not_null(strstr(first, "\"groups\": [{\"parameters\": \"*norm.*\", \"weight_decay\": 0.0}, "
                                     "{\"parameters\": [\"a\", \"b?[0-9]\"], \"lr\": 1.0}]"),
                       "%s", first);
    cr_expect_not_null(strstr(first, "\"clip_norm_type\": \"inf\""));
    free(second);
    job_free(&again);

    out = open_memstream(&yaml, &size);
    for (size_t i = 0; i < job_schema_size; i++)
        origins.of[i].source = "here";
    cr_assert(job_print_yaml(&job, &origins, out, &err) == FSDP_OK);
    fclose(out);
    read_job(&again, yaml);
    cr_assert(job_to_json(&again, &second, NULL) == FSDP_OK);
    cr_expect_str_eq(first, second);
    free(first);
    free(second);
    free(yaml);
    job_free(&again);
    job_free(&job);
}

Test(job_rules, json_with_a_wrong_list_is_refused)
{
    static const struct {
        const char *now, *then, *words;
    } wrong[] = {
        { "\"frozen\": null", "\"frozen\": \"a b\"", "model.frozen: must be a name" },
        { "\"frozen\": null", "\"frozen\": [true, {}]", "model.frozen[1]: must be a name" },
        { "\"placement\": null", "\"placement\": [{\"parameters\": \"a\", \"dim\": 9}]",
          "parallel.placement[0].dim: must be a whole number" },
        { "\"placement\": null", "\"placement\": [{\"dim\": 1, \"dim\": 1}]", "must not be such a list" },
        { "\"placement\": null", "\"placement\": {}", "parallel.placement: must be a list" },
    };
    struct job job, again;
    char *json;

    read_job(&job, "data: {path: d}\n");
    cr_assert(job_to_json(&job, &json, NULL) == FSDP_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(json, wrong[i].now);
        struct fsdp_err err = { 0 };
        char *edited;

        cr_assert_not_null(at);
        cr_assert(asprintf(&edited, "%.*s%s%s", (int)(at - json), json, wrong[i].then,
                           at + strlen(wrong[i].now)) > 0);
        cr_expect(job_from_json(&again, edited, strlen(edited), &err) == FSDP_ERR_FORMAT, "%s",
                  wrong[i].then);
        cr_expect_not_null(strstr(err.message, wrong[i].words), "%s: %s", wrong[i].then, err.message);
        free(edited);
    }
    free(json);
    job_free(&job);
}

/* --set takes a list as YAML has it, and one name as it stands. */
Test(job_rules, settings_take_lists_too)
{
    static const struct job_setting settings[] = {
        { "--set 1", "model.frozen=*.bias" },
        { "--set 2", "parallel.groups=[{modules: layers.*, reshard_after_forward: 2}]" },
        { "--set 3", "parallel.ignored=[a, \"*.b\"]" },
        { "--set 4", "parallel.placement=null" },
    };
    static const struct job_setting wrong[] = { { "--set 1", "parallel.groups=[{modules: a, lr: 1}]" },
                                                { "--set 2", "model.frozen=a b" } };
    struct job_origins origins;
    struct job job;
    char lines[2048];

    cr_assert(resolve_text(&job, &origins, text, strlen(text), settings, 4, lines, sizeof lines) == FSDP_OK,
              "%s", lines);
    cr_expect(job.model.frozen->n == 1 && job.parallel.groups->n == 1 && job.parallel.ignored->n == 2);
    cr_expect_str_eq(job.model.frozen->list[0], "*.bias");
    cr_expect_null(job.parallel.placement);
    job_free(&job);

    cr_assert(resolve_text(&job, &origins, text, strlen(text), wrong, 2, lines, sizeof lines) ==
              FSDP_ERR_CONFIG);
    cr_expect_str_eq(lines,
                     "--set 1: parallel.groups[0].lr: is nothing that a rule can set\n"
                     "--set 2: model.frozen: must be a name or a pattern, like layers.* or "
                     "\"*.bias\"",
                     "%s", lines);
}

Test(job_rules, a_star_of_modules_stays_between_two_dots)
{
    cr_expect(job_module_matches("layers.*", "layers.0"));
    cr_expect(!job_module_matches("layers.*", "layers.0.attention"));
    cr_expect(job_module_matches("layers.*.attention", "layers.11.attention"));
    cr_expect(job_module_matches("layers.[02468]", "layers.4") &&
              !job_module_matches("layers.[02468]", "layers.5"));
    cr_expect(!job_module_matches("layer", "layers"));
    cr_expect(job_parameter_matches("*.bias", "layers.0.norm.bias"));
}
