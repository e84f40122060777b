/*
 * Advice is what the plan says of the changed job, and a job changed so needs no more than was said.
 */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/trainer/advice.h"
#include "tests/unit/job/resolve_text.h"

/* The job of a YAML text as the trainer gets it; to be freed. */
static char *text_of(const char *yaml)
{
    struct job_origins origins;
    char lines[1000], *text;
    struct job job;

    cr_assert(resolve_text(&job, &origins, yaml, strlen(yaml), NULL, 0, lines, sizeof lines) == FSDP_OK, "%s",
              lines);
    cr_assert(job_to_json(&job, &text, NULL) == FSDP_OK);
    job_free(&job);
    return text;
}

static char *job_text(uint64_t global_batch)
{
    char yaml[600];

    snprintf(yaml, sizeof yaml,
             "launch: {nproc_per_node: 2, threads: 1}\n"
             "data: {path: /d}\n"
             "model: {layers: 8, dim: 128, heads: 2, vocab: 256, seq: 16}\n"
             "train: {steps: 1, batch: 8, %s: %d}\n"
             "parallel: {reshard_after_forward: false, reshard_after_backward: false}\n",
             global_batch > 0 ? "global_batch" : "grad_accumulation",
             global_batch > 0 ? (int)global_batch : 2);
    return text_of(yaml);
}

static struct forecast forecast_text(const char *text)
{
    struct job job = { 0 };
    struct forecast forecast;
    struct fsdp_err err = { 0 };

    cr_assert(job_from_json(&job, text, strlen(text), &err) == FSDP_OK, "%s", err.message);
    cr_assert(forecast_job(&forecast, &job, 0, &err) == FSDP_OK, "%s", err.message);
    job_free(&job);
    return forecast;
}

/* Put "section.key=value section.key=value" into the job, as --set would. */
static char *with_setting(const char *text, const char *setting)
{
    cJSON *job = cJSON_Parse(text);
    char words[ADVICE_WORDS_BYTES], *rest = words, *one, *out;

    snprintf(words, sizeof words, "%s", setting);
    while ((one = strsep(&rest, " ")) != NULL) {
        char *section = strsep(&one, "."), *key = strsep(&one, "=");
        cJSON *value = cJSON_Parse(one);

        cJSON_ReplaceItemInObjectCaseSensitive(cJSON_GetObjectItem(job, section), key,
                                               value != NULL ? value : cJSON_CreateString(one));
    }
    out = cJSON_PrintUnformatted(job);
    cJSON_Delete(job);
    return out;
}

/* Sizes of the process itself differ from one forecast to the next: only what is planned is compared. */
static size_t planned(const struct forecast *forecast)
{
    return forecast->total - forecast->baseline;
}

Test(advice, what_fits_is_said_and_then_nothing_is_piled_up)
{
    char *text = job_text(0);
    const struct forecast now = forecast_text(text);
    struct advice_list list;

    cr_assert(advice_find(&list, text, &now, now.total - 1, 2, NULL) == FSDP_OK);
    cr_assert(list.n_alone > 0 && list.alone[0].fits);
    cr_assert_eq(list.n_together, 0);
    free(text);
}

static char *config_text(const char *path)
{
    char yaml[4000] = "";
    FILE *file = fopen(path, "r");

    cr_assert_not_null(file, "%s", path);
    (void)!fread(yaml, 1, sizeof yaml - 1, file);
    fclose(file);
    return text_of(yaml);
}

/* What is proposed first */

Test(advice, what_fits_comes_first_then_what_changes_least_then_the_smaller_change)
{
    struct advice list[] = {
        { .setting = "saves little", .share = 90, .effect = ADVICE_SAME_BITS },
        { .setting = "nodes", .fits = true, .share = 10, .effect = ADVICE_MORE_HARDWARE, .place = 9 },
        { .setting = "bfloat16", .fits = true, .share = 20, .effect = ADVICE_PRECISION, .place = 8 },
        { .setting = "full", .fits = true, .share = 20, .effect = ADVICE_SAME_BITS, .place = 4 },
        { .setting = "saves more", .share = 80, .effect = ADVICE_PRECISION },
        { .setting = "reshard", .fits = true, .share = 50, .effect = ADVICE_SAME_BITS, .place = 0 },
        { .setting = "batch", .fits = true, .share = 15, .effect = ADVICE_ROUNDING, .place = 7 },
    };
    static const char *const order[] = { "reshard", "full",       "batch",       "bfloat16",
                                         "nodes",   "saves more", "saves little" };

    qsort(list, sizeof list / sizeof *list, sizeof *list, advice_compare);

    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        cr_expect_str_eq(list[i].setting, order[i], "%zu", i);
}

/* Is something proposed whose setting begins so? */
static const struct advice *proposed(const struct advice_list *list, const char *setting)
{
    for (int i = 0; i < list->n_alone; i++)
        if (strncmp(list->alone[i].setting, setting, strlen(setting)) == 0)
            return &list->alone[i];
    return NULL;
}

Test(advice, more_ranks_are_proposed_up_to_what_the_node_has)
{
    char *plain = config_text("configs/plan-7b.yaml"), *text = with_setting(plain, "launch.nproc_per_node=2");
    const struct forecast now = forecast_text(text);
    struct advice_list list;

    cr_assert(advice_find(&list, text, &now, 1, 0, NULL) == FSDP_OK);
    cr_expect_null(proposed(&list, "launch.nproc_per_node"), "what the node has is unknown");
    cr_assert(advice_find(&list, text, &now, 1, 3, NULL) == FSDP_OK);
    cr_expect_null(proposed(&list, "launch.nproc_per_node"));
    cr_assert(advice_find(&list, text, &now, 1, 7, NULL) == FSDP_OK);
    cr_assert_not_null(proposed(&list, "launch.nproc_per_node"));
    cr_expect_str_eq(proposed(&list, "launch.nproc_per_node")->setting, "launch.nproc_per_node=4");
    free(text);
    free(plain);
}

Test(advice, more_ranks_of_a_node_share_its_memory_on_the_cpu)
{
    char *text = job_text(64);
    const struct forecast now = forecast_text(text);
    struct advice_list list;

    cr_assert(advice_find(&list, text, &now, now.total * 9 / 10, 64, NULL) == FSDP_OK);
    for (int i = 0; i < list.n_alone; i++)
        cr_expect(!list.alone[i].fits ||
                      list.alone[i].total * (size_t)list.alone[i].ranks_per_host <= now.total * 9 / 10 * 2,
                  "%s: %zu on each of %d ranks", list.alone[i].setting, list.alone[i].total,
                  list.alone[i].ranks_per_host);
    free(text);
}

Test(advice, a_batch_is_halved_as_often_as_it_must_be_and_no_further)
{
    char *text = job_text(64), *four = with_setting(text, "train.batch=4"),
         *two = with_setting(text, "train.batch=2");
    const struct forecast now = forecast_text(text), of_four = forecast_text(four),
                          of_two = forecast_text(two);
    const size_t limit = now.baseline + (planned(&of_four) + planned(&of_two)) / 2;
    struct advice_list list;

    cr_assert(advice_find(&list, text, &now, limit, 2, NULL) == FSDP_OK);
    cr_assert_not_null(proposed(&list, "train.batch"));
    cr_expect_str_eq(proposed(&list, "train.batch")->setting, "train.batch=2");
    cr_expect(proposed(&list, "train.batch")->fits &&
              proposed(&list, "train.batch")->effect == ADVICE_ROUNDING);
    free(text);
    free(four);
    free(two);
}

/* Advice that is followed, on the large models of configs/ */

/* On cuda no process is measured: every byte is planned. */
static void expect_followed(const char *text, const struct advice *advice, size_t limit)
{
    const struct forecast then = forecast_text(text);

    cr_expect_eq(then.total, advice->total, "%s: said %zu, is %zu", advice->setting, advice->total,
                 then.total);
    cr_expect_eq(then.total <= limit, advice->fits, "%s in %zu", advice->setting, limit);
    cr_expect_eq(forecast_sent_bytes(&then), advice->sent_bytes, "%s", advice->setting);
}

/* Follow all that is said about `limit`; does some of it lead there? */
static bool follow(const char *text, const struct forecast *now, size_t limit)
{
    struct advice_list list;
    bool fits = false;
    char *so_far = strdup(text);

    cr_assert(advice_find(&list, text, now, limit, 8, NULL) == FSDP_OK);
    for (int i = 0; i < list.n_alone; i++) {
        char *changed = list.alone[i].fits ? with_setting(text, list.alone[i].setting) : NULL;

        if (changed != NULL)
            expect_followed(changed, &list.alone[i], limit);
        fits = fits || list.alone[i].fits;
        free(changed);
    }
    for (int i = 0; i < list.n_together; i++) {
        char *changed = with_setting(so_far, list.together[i].setting);

        expect_followed(changed, &list.together[i], limit);
        cr_expect(i + 1 == list.n_together || !list.together[i].fits, "it goes on where it fits already");
        fits = fits || list.together[i].fits;
        free(so_far);
        so_far = changed;
    }
    free(so_far);
    return fits;
}

/*
 * At parts of what the job takes as it is. Down to half of it something must help; below, what is said must
 * be true.
 */
static void expect_advice_fits(const char *path, const char *setting)
{
    static const double parts[] = { 0.95, 0.5, 0.1 };
    char *plain = config_text(path);
    char *text = with_setting(plain, setting);
    const struct forecast now = forecast_text(text);

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const bool fits = follow(text, &now, (size_t)(parts[i] * (double)now.total));

        cr_expect(fits || parts[i] < 0.5, "%s, %s: nothing was said that fits %g of %zu", path, setting,
                  parts[i], now.total);
    }
    free(text);
    free(plain);
}

Test(advice, what_is_said_of_large_models_is_true_when_it_is_followed, .timeout = 3000)
{
    expect_advice_fits("configs/plan-7b.yaml", "launch.nnodes=1");
    expect_advice_fits("configs/plan-7b.yaml", "parallel.activation_checkpoint=none");
    expect_advice_fits("configs/plan-70b.yaml", "parallel.activation_checkpoint=none");
}
