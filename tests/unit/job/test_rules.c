/*
 * Rules by name pattern: what they set, what they leave, what they refuse.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "shard_runtime/job/rules.h"

static const struct job base = { .optimizer = { .lr = 0.5, .weight_decay = 0.25 } };

Test(job_rules, each_rule_has_its_patterns_and_the_job_with_its_settings)
{
    const char *at = " a + b.* : param_dtype=bfloat16  reshard_after_forward=4 ;; c:gradient_sync=every;d";
    struct fsdp_err err = { 0 };
    struct job_rule rule;
    bool there;

    cr_assert(job_rule_next(&base, "parallel", &at, &rule, &there, &err) == FSDP_OK && there, "%s",
              err.message);
    cr_expect(rule.n_patterns == 2);
    cr_expect_str_eq(rule.patterns[0], "a");
    cr_expect_str_eq(rule.patterns[1], "b.*");
    cr_expect(rule.job.parallel.param_dtype == JOB_BFLOAT16);
    cr_expect((int)rule.job.parallel.reshard_after_forward == JOB_RESHARD_TO + 4);
    cr_expect(rule.job.optimizer.lr == 0.5, "the rest is the job's");
    cr_expect(job_rule_sets(&rule, "param_dtype") && !job_rule_sets(&rule, "gradient_sync"));
    cr_assert(job_rule_next(&base, "parallel", &at, &rule, &there, &err) == FSDP_OK && there, "%s",
              err.message);
    cr_expect_str_eq(rule.patterns[0], "c");
    cr_expect(rule.job.parallel.gradient_sync == JOB_SYNC_EVERY &&
              rule.job.parallel.param_dtype == JOB_FLOAT32);
    cr_assert(job_rule_next(&base, "parallel", &at, &rule, &there, &err) == FSDP_OK && there &&
              rule.n_set == 0);
    cr_expect_str_eq(rule.patterns[0], "d");
    cr_assert(job_rule_next(&base, "parallel", &at, &rule, &there, &err) == FSDP_OK && !there);
}

Test(job_rules, what_is_no_rule_is_refused_with_its_place)
{
    static const struct {
        const char *section, *text, *words;
    } wrong[] = {
        { "parallel", "a: lr=1", "lr cannot be set for a alone" },
        { "optimizer", "a: param_dtype=bfloat16", "param_dtype cannot be set for a alone" },
        { "parallel", "a: replicate=2", "replicate cannot be set" },
        { "parallel", "a: param_dtype", "key=value is missing" },
        { "parallel", "a: param_dtype=", "has no value" },
        { "parallel", "a: param_dtype=float16", "gradients of that type vanish" },
        { "parallel", "a: param_dtype=float32 param_dtype=float32", "is set twice" },
        { "parallel", "a + : param_dtype=float32", "a name is missing" },
        { "parallel", ": param_dtype=float32", "a name is missing" },
        { "parallel", "a b", "has a blank" },
        { "parallel", "a param_dtype=float32", "has a blank or =" },
        { "parallel", "a+b+c+d+e+f+g+h+i", "is the 9th" },
        { "optimizer", "a: weight_decay=-1", "must be a number" },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = wrong[i].text;
        struct fsdp_err err = { 0 };
        struct job_rule rule;
        bool there;

        cr_expect(job_rule_next(&base, wrong[i].section, &at, &rule, &there, &err) == FSDP_ERR_CONFIG, "%s",
                  wrong[i].text);
        cr_expect_not_null(strstr(err.message, wrong[i].words), "%s: %s", wrong[i].text, err.message);
    }
}

/* Every short text over the letters that mean something: read to its end or refused, never past it. */
Test(job_rules, no_text_is_read_past_its_end)
{
    static const char letters[] = "a:;+= ";
    char text[7];

    for (int n = 0; n < 6 * 6 * 6 * 6 * 6 * 6; n++) {
        const char *at = text;
        struct job_rule rule;
        bool there = true;
        int left = n, rounds = 0;

        for (int i = 0; i < 6; i++, left /= 6)
            text[i] = letters[left % 6];
        text[6] = '\0';
        while (there && job_rule_next(&base, "parallel", &at, &rule, &there, NULL) == FSDP_OK)
            cr_assert(++rounds < 8 && at <= text + 6, "%s", text);
        cr_assert(at >= text && at <= text + 6, "%s", text);
    }
}

Test(job_rules, a_star_stays_between_two_dots)
{
    cr_expect(job_rule_matches("layers.*", "layers.0"));
    cr_expect(!job_rule_matches("layers.*", "layers.0.attention"));
    cr_expect(job_rule_matches("layers.*.attention", "layers.11.attention"));
    cr_expect(job_rule_matches("layers.[02468]", "layers.4") &&
              !job_rule_matches("layers.[02468]", "layers.5"));
    cr_expect(!job_rule_matches("layer", "layers"));
}
