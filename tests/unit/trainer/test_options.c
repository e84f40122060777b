#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "shard_runtime/trainer/options.h"

#define PARSE(options, err, ...)                                                                             \
    options_parse(options, (int)(sizeof((char *[]){ "fsdp-train", __VA_ARGS__ }) / sizeof(char *)),          \
                  (char *[]){ "fsdp-train", __VA_ARGS__ }, err)

Test(options, nothing_means_a_worker_of_an_agent)
{
    struct options options;
    char *argv[] = { "fsdp-train", NULL };

    cr_assert(eq(int, options_parse(&options, 1, argv, NULL), FSDP_OK));
    cr_assert_null(options.job_path);
    cr_assert_null(options.sample);
}

Test(options, sample_takes_its_settings_in_both_spellings)
{
    struct options options;

    cr_assert(eq(int,
                 PARSE(&options, NULL, "--sample", "runs/x", "--prompt=In the", "--tokens", "50",
                       "--temperature=0.5", "--seed", "7", "--top-k=3"),
                 FSDP_OK));
    cr_assert_str_eq(options.sample, "runs/x");
    cr_assert_str_eq(options.prompt, "In the");
    cr_assert(eq(u64, options.tokens, 50));
    cr_assert(eq(dbl, options.temperature, 0.5));
    cr_assert(eq(u64, options.seed, 7));
    cr_assert(eq(u64, options.top_k, 3));
}

static void refused(const char *word, int argc, char **argv)
{
    struct fsdp_err err = { 0 };
    struct options options;

    cr_assert(eq(int, options_parse(&options, argc, argv, &err), FSDP_ERR_ARG));
    cr_assert_not_null(strstr(err.message, word), "%s: %s", word, err.message);
}

Test(options, bad_usage_is_refused_by_name)
{
    refused("--nonsense", 2, (char *[]){ "x", "--nonsense" });
    refused("--samples", 2, (char *[]){ "x", "--samples" });
    refused("--tokens", 4, (char *[]){ "x", "--sample", "a", "--tokens" });
    refused("-5", 5, (char *[]){ "x", "--sample", "a", "--tokens", "-5" });
    refused("5x", 5, (char *[]){ "x", "--sample", "a", "--tokens", "5x" });
    refused("99999999999999999999", 5,
            (char *[]){ "x", "--sample", "a", "--tokens", "99999999999999999999" });
    refused("nan", 5, (char *[]){ "x", "--sample", "a", "--temperature", "nan" });
    refused("-1", 5, (char *[]){ "x", "--sample", "a", "--temperature", "-1" });
    refused("only for --sample", 3, (char *[]){ "x", "--tokens", "5" });
    refused("b.json", 3, (char *[]){ "x", "a.json", "b.json" });
    refused("--sample", 4, (char *[]){ "x", "a.json", "--sample", "a" });
    refused("--help", 2, (char *[]){ "x", "--help=yes" });
}

Test(options, plan_takes_a_job_and_a_size)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = { { "80G", UINT64_C(80) << 30 },
                  { "1.5T", UINT64_C(3) << 39 },
                  { "512MiB", 512 << 20 },
                  { "4KB", 4096 },
                  { "4096", 4096 },
                  { "7B", 7 },
                  { "2P", UINT64_C(2) << 50 } };
    struct options options;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cr_assert(
            eq(int, PARSE(&options, NULL, "--plan", "a.json", "--memory", (char *)sizes[i].text), FSDP_OK));
        cr_assert(options.plan && !options.json);
        cr_assert(eq(u64, options.memory, sizes[i].bytes));
    }
    cr_assert(eq(int, PARSE(&options, NULL, "a.json", "--json", "--plan"), FSDP_OK));
    cr_assert(options.json && options.memory == 0);
}

Test(options, a_plan_that_makes_no_sense_is_refused)
{
    static char *sizes[] = { "", "G", "0", "-1G", "80X", "80GG", "nan", "inf", "1e30P", "0.5" };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        refused("no size", 5, (char *[]){ "x", "--plan", "a.json", "--memory", sizes[i] });
    refused("needs a job", 2, (char *[]){ "x", "--plan" });
    refused("only for --plan", 3, (char *[]){ "x", "a.json", "--json" });
    refused("not both", 4, (char *[]){ "x", "--plan", "--sample", "a" });
    refused("only for --plan", 3, (char *[]){ "x", "a.json", "--schedule" });
    refused("no figures", 5, (char *[]){ "x", "--plan", "a.json", "--schedule", "--json" });
    refused("no figures", 5, (char *[]){ "x", "--plan", "a.json", "--schedule", "--memory=1G" });
    refused("no figures", 5, (char *[]){ "x", "--plan", "a.json", "--schedule", "--evaluation=2" });
    refused("only for --plan", 3, (char *[]){ "x", "a.json", "--evaluation=2" });
    refused("not a whole number", 4, (char *[]){ "x", "--plan", "a.json", "--evaluation=some" });
}
