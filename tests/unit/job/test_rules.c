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

static char *json_of(const struct job *job)
{
    char *json;

    cr_assert(job_to_json(job, &json, NULL) == FSDP_OK);
    return json;
}

/* As job.json and as --dry-run print it, bit for bit, with the origin of each key. */
Test(job_rules, what_is_printed_reads_back_as_it_was_written)
{
    static const struct job_setting settings[] = {
        { "--set 1", "optimizer.lr=0.30000000000000004" },
        { "--set 2", "data.path=/odd \"name\" # \\ \xc3\xa9" },
        { "--set 3", "run.dir=true" },
        { "--set 4", "parallel.reshard_after_forward=true" },
        { "--set 5", "launch.threads=3" },
        { "--set 6", "train.global_batch=12" },
        { "--set 7", "run.seed=9007199254740991" },
        { "--set 8", "optimizer.schedule=cosine" },
        { "--set 9", "run.name=12" },
    };
    struct job_origins origins, origins_again;
    char lines[2048], *json, *json_again, *yaml = NULL;
    struct fsdp_err err = { 0 };
    struct job job, again;
    size_t size, n_lines = 0, n_comments = 0;
    FILE *out = open_memstream(&yaml, &size);

    cr_assert(resolve_text(&job, &origins, text, strlen(text), settings, 9, lines, sizeof lines) == FSDP_OK,
              "%s", lines);
    cr_expect(job.optimizer.lr == 0.1 + 0.2 && job.run.seed == 9007199254740991u);
    json = json_of(&job);
    cr_assert(job_from_json(&again, json, strlen(json), &err) == FSDP_OK, "%s", err.message);
    cr_expect(again.optimizer.lr == job.optimizer.lr && again.run.seed == job.run.seed);
    json_again = json_of(&again);
    cr_expect_str_eq(json, json_again);
    cr_expect_not_null(strstr(json, "\"groups\": [{\"parameters\": \"*norm.*\", \"weight_decay\": 0.0}, "
                                    "{\"parameters\": [\"a\", \"b?[0-9]\"], \"lr\": 1.0}]"),
                       "%s", json);
    cr_expect_not_null(strstr(json, "\"clip_norm_type\": \"inf\""));
    free(json_again);
    job_free(&again);

    cr_assert(job_print_yaml(&job, &origins, out, &err) == FSDP_OK);
    fclose(out);
    cr_assert(resolve_text(&again, &origins_again, yaml, size, NULL, 0, lines, sizeof lines) == FSDP_OK, "%s",
              lines);
    json_again = json_of(&again);
    cr_expect_str_eq(json, json_again);
    for (char *line = strtok(yaml, "\n"); line != NULL; line = strtok(NULL, "\n"), n_lines++)
        n_comments += strstr(line, " # ") != NULL;
    cr_expect(n_lines == job_schema_size + job_sections_size && n_comments == n_lines);
    for (size_t i = 0; i < job_schema_size; i++)
        cr_expect(origins_again.of[i].line > 0, "%s was not printed", job_schema[i].name);
    free(json);
    free(json_again);
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
