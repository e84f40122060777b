#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/job.h"
#include "tests/unit/job/resolve_text.h"

static void make_default(struct job *job)
{
    static const char text[] = "data: {path: \"/data/a \\\"b\\\" \\\\c \xc3\xa9.txt\"}";
    struct job_origins origins;
    char lines[1024];

    cr_assert(resolve_text(job, &origins, text, sizeof text - 1, NULL, 0, lines, sizeof lines) == FSDP_OK,
              "%s", lines);
}

/* The default job as JSON with `from` replaced by `to`; to be freed. */
static char *edited(const char *from, const char *to)
{
    struct job job;
    char *text, *at, *out = NULL;

    make_default(&job);
    cr_assert(eq(int, job_to_json(&job, &text, NULL), FSDP_OK));
    job_free(&job);
    at = strstr(text, from);
    cr_assert_not_null(at, "%s is not in\n%s", from, text);
    cr_assert(asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    free(text);
    return out;
}

static void refuses(const char *from, const char *to, const char *want)
{
    char *text = edited(from, to);
    struct fsdp_err err = { 0 };
    struct job job;

    cr_expect(eq(int, job_from_json(&job, text, strlen(text), &err), FSDP_ERR_FORMAT), "%s -> %s", from, to);
    cr_expect(eq(str, err.message, (char *)want));
    cr_expect_null(job.run.name, "a failed read leaves nothing to free");
    free(text);
}

Test(job_json, keys_without_a_field_are_written_typed)
{
    char *text = edited("\"name\"", "\"name\"");

    cr_assert_not_null(strstr(text, "\"output_dtype\": null"));
    cr_assert_not_null(strstr(text, "\"replicate\": 1,"));
    cr_assert_not_null(strstr(text, "\"reshard_after_forward\": \"auto\""));
    cr_assert_not_null(strstr(text, "\"threads\": \"auto\""));
    cr_assert_not_null(strstr(text, "\"global_batch\": null"));
    cr_assert_not_null(strstr(text, "\"betas\": [0.9, 0.95]"));
    cr_assert_not_null(strstr(text, "\"causal\": true"));
    cr_assert_not_null(strstr(text, "\"hang_timeout_s\": 600.0"));
    free(text);
}

Test(job_json, what_is_missing_unknown_twice_or_mistyped_is_named)
{
    refuses("\"path\": \"/data/a \\\"b\\\" \\\\c \xc3\xa9.txt\",", "", "data.path: is missing");
    refuses("\"seed\": 1234,", "\"sed\": 1234,", "run.sed: is no key of a job");
    refuses("\"seed\": 1234,", "\"seed\": 1, \"seed\": 2,", "run.seed: is there twice");
    refuses("\"seed\": 1234", "\"seed\": \"x\"",
            "run.seed: must be a whole number from 0 to 9007199254740991, not x");
    refuses("\"seed\": 1234", "\"seed\": 0.5",
            "run.seed: must be a whole number from 0 to 9007199254740991, not 0.5");
    refuses("\"seed\": 1234", "\"seed\": -1",
            "run.seed: must be a whole number from 0 to 9007199254740991, not -1");
    refuses("\"seed\": 1234", "\"seed\": {}", "run.seed: must be a value, not an object");
    refuses("[0.9, 0.95]", "[0.9]", "optimizer.betas: must be a list of two numbers, like [0.9, 0.95]");
    refuses("[0.9, 0.95]", "[0.9, 0.9, 0.9]", "optimizer.betas: must not be such a list");
    refuses("\"causal\": true", "\"causal\": 1", "model.causal: must be true or false, not 1");
    refuses("\"model\": {", "\"modell\": {", "modell: is no section of a job");
    refuses("\"replicate\": 1", "\"replicate\": 2",
            "parallel.replicate: 2 copies of the model do not divide 1 ranks");
    refuses("\"heads\": 8", "\"heads\": 7", "model.heads: 7 heads do not divide model.dim 512");
}

Test(job_json, an_absent_key_has_its_default)
{
    char *text = edited("\"order\": \"shuffled\",", ""); /* as of a program older than the key */
    struct fsdp_err err = { 0 };
    struct job job, want;

    cr_assert(eq(int, job_from_json(&job, text, strlen(text), &err), FSDP_OK), "%s", err.message);

    make_default(&want);
    cr_expect(job.data.order == want.data.order);
    job_free(&job);
    job_free(&want);
    free(text);
}

Test(job_json, the_defaults_are_every_key_or_those_that_decide)
{
    char *all, *deciding;

    cr_assert(eq(int, job_defaults_json(false, &all, NULL), FSDP_OK));
    cr_assert(eq(int, job_defaults_json(true, &deciding, NULL), FSDP_OK));

    cr_expect_not_null(strstr(all, "\"data\": {\n    \"path\": null,"));
    cr_expect_not_null(strstr(all, "\"steps\": 200"));
    cr_expect_not_null(strstr(all, "\"nproc_per_node\": 1"));
    cr_expect_not_null(strstr(deciding, "\"seed\": 1234}"));
    cr_expect_not_null(strstr(deciding, "\"lr\": 0.001"));
    cr_expect_not_null(strstr(deciding, "\"param_dtype\": \"float32\""));
    for (size_t i = 0; i < 6; i++) {
        static const char *const others[] = { "\"steps\"",     "\"launch\"", "\"checkpoint\"",
                                              "\"log_every\"", "\"preset\"", "\"overlap\"" };

        cr_expect_not_null(strstr(all, others[i]), "%s", others[i]);
        cr_expect_null(strstr(deciding, others[i]), "%s", others[i]);
    }
    free(all);
    free(deciding);
}

Test(job_json, damaged_text_is_refused)
{
    char *text = edited("\"name\"", "\"name\"");
    struct job job;

    for (size_t length = 0; length + 2 < strlen(text); length++)
        cr_assert(eq(int, job_from_json(&job, text, length, NULL), FSDP_ERR_FORMAT), "cut to %zu", length);
    cr_assert(eq(int, job_from_json(&job, "[]", 2, NULL), FSDP_ERR_FORMAT));
    cr_assert(eq(int, job_from_json(&job, "null", 4, NULL), FSDP_ERR_FORMAT));
    free(text);
    text = edited("}\n}\n", "}\n} x");
    cr_assert(eq(int, job_from_json(&job, text, strlen(text), NULL), FSDP_ERR_FORMAT));
    free(text);
    text = edited("\"name\": \"", "\"name\": \"caf\xe9");
    cr_assert(eq(int, job_from_json(&job, text, strlen(text), NULL), FSDP_ERR_FORMAT), "not UTF-8");
    free(text);
}
