#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/shardfile/data_record.h"
#include "shard_runtime/shardfile/job_changes.h"

TestSuite(job_changes, .timeout = 300);

static const char defaults[] = "{ \"data\": {\"path\": null, \"order\": \"shuffled\"},\n"
                               "  \"optimizer\": {\"lr\": 0.001, \"betas\": [0.9, 0.95], \"groups\": null} }";

static struct manifest saved(const char *job, const char *extra)
{
    return (struct manifest){ .job = job,
                              .job_length = job == NULL ? 0 : strlen(job),
                              .extra = extra,
                              .extra_length = extra == NULL ? 0 : strlen(extra) };
}

#define WAS                                                                                                  \
    "{\"data\":{\"path\":\"/a\",\"order\":\"shuffled\"},\"optimizer\":{\"lr\":0.1,\"betas\":[0.9, 0.95],"    \
    "\"groups\":null},\"other\":{\"x\":1}}"

Test(job_changes, each_changed_key_is_named_with_both_values_or_its_default)
{
    static const struct {
        const char *was, *is, *skip, *words;
        size_t n;
    } cases[] = {
        { WAS, WAS, NULL, "", 0 },
        { WAS,
          "{ \"data\": { \"path\": \"/b\", \"order\": \"shuffled\" },\n"
          "  \"optimizer\": { \"lr\": 0.2, \"betas\": [0.9, 0.95], \"groups\": null } }",
          NULL, "data.path \"/a\" -> \"/b\", optimizer.lr 0.1 -> 0.2", 2 },
        { WAS, "{\"data\":{\"path\":\"/b\"},\"optimizer\":{\"lr\":0.1}}", "data.path", "", 0 },
        /* A long value is left out. */
        { "{\"optimizer\":{\"groups\":null}}",
          "{\"optimizer\":{\"groups\":[{\"parameters\": [\"*.bias\"], \"lr\": 0.1}]}}", NULL,
          "optimizer.groups", 1 },
        /* A key that one job lacks has its default. */
        { "{\"optimizer\":{\"eps\":1}}", "{\"optimizer\":{\"lr\":0.001,\"betas\":[0.9, 0.95]}}", NULL, "",
          0 },
        { "{\"optimizer\":{\"eps\":1}}", "{\"optimizer\":{\"lr\":0.5}}", NULL, "optimizer.lr 0.001 -> 0.5",
          1 },
        /* Another program's job is not compared. */
        { NULL, "{\"optimizer\":{\"lr\":0.5}}", NULL, "", 0 },
        { "{\"optimizer\":\"adam\",\"n\":[1,{}]}", "{\"optimizer\":{\"lr\":0.5}}", NULL, "", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct manifest manifest = saved(cases[i].was, NULL);
        struct job_changes found;
        struct fsdp_err err = { 0 };

        cr_assert(
            eq(int, job_changes_find(&found, &manifest, cases[i].is, defaults, cases[i].skip, &err), FSDP_OK),
            "%s", err.message);
        cr_expect_str_eq(found.words, cases[i].words);
        cr_expect(eq(sz, found.n, cases[i].n), "case %zu", i);
    }
}

Test(job_changes, many_changes_are_cut_and_counted)
{
    char many[8192] = "{\"s\":{", was[8192], is[8192];
    struct job_changes found;
    struct manifest manifest;

    for (int i = 0; i < 100; i++)
        sprintf(many + strlen(many), "%s\"key_number_%d\": 0", i == 0 ? "" : ", ", i);
    strcat(many, "}}");
    strcpy(was, many);
    strcpy(is, many);
    for (char *c = is; (c = strstr(c, ": 0")) != NULL;)
        c[2] = '1';
    manifest = saved(was, NULL);

    cr_assert(eq(int, job_changes_find(&found, &manifest, is, many, NULL, NULL), FSDP_OK));

    cr_assert(eq(sz, found.n, 100));
    cr_assert_not_null(strstr(found.words, "s.key_number_0 0 -> 1, "));
    cr_assert_not_null(strstr(found.words, " more"), "%s", found.words);
}

Test(job_changes, a_count_is_read_out_of_the_job)
{
    const char *job = "{\"train\": {\"batch\": 8, \"global_batch\": null, \"x\": 1.5}}";
    const struct manifest manifest = saved(job, NULL);

    cr_expect(eq(u64, job_changes_count(&manifest, "train", "batch"), 8));
    cr_expect(eq(u64, job_changes_count(&manifest, "train", "global_batch"), 0));
    cr_expect(eq(u64, job_changes_count(&manifest, "train", "x"), 0));
    cr_expect(eq(u64, job_changes_count(&manifest, "model", "batch"), 0));
}

/* A run that has all its steps */

static const char job_a[] = "{\"data\":{\"path\":\"/a\",\"order\":\"shuffled\"},\"optimizer\":{\"lr\":0.1}}";
static const char job_b[] = "{\"data\":{\"path\":\"/b\",\"order\":\"shuffled\"},\"optimizer\":{\"lr\":0.1}}";
static const char extra[] = "{\"data\":{\"size_bytes\":5,\"xxh3_128\":\"00000000000000070000000000000006\","
                            "\"order\":\"shuffled\",\"seq\":2}}";
static const struct fingerprint same = { 5, { 6, 7 } }, other = { 5, { 6, 8 } };

struct end_case {
    const char *extra, *job;
    const struct fingerprint *bytes;
    bool check;
    const char *refusal; /* NULL: the same result */
};
static const struct end_case ends[] = {
    { extra, job_a, &same, true, NULL },
    { extra, job_b, &same, true, NULL }, /* the same bytes in another place */
    { extra, job_a, &other, true, "data.path (other bytes)" },
    { extra, job_b, NULL, true, "data.path \"/a\" -> \"/b\"" }, /* the file cannot be read */
    { extra, job_a, NULL, true, NULL },
    { extra, job_b, &other, false, NULL }, /* checkpoint.data: ignore */
    { NULL, job_a, &other, true, NULL },   /* saved by 0.1.0: no record */
    { NULL, job_b, &other, true, "data.path \"/a\" -> \"/b\"" },
    { extra, "{\"data\":{\"path\":\"/a\"},\"optimizer\":{\"lr\":0.2}}", &other, true,
      "data.path (other bytes), optimizer.lr 0.1 -> 0.2" },
    { extra, "{\"data\":{\"path\":\"/a\"},\"optimizer\":{\"lr\":0.2}}", &other, false,
      "optimizer.lr 0.1 -> 0.2" },
};

Test(job_changes, a_complete_run_stands_for_the_jobs_that_would_give_it)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const struct manifest manifest = saved(job_a, ends[i].extra);
        struct fsdp_err err = { 0 };
        const enum fsdp_status status =
            job_changes_refuse(&manifest, ends[i].job, defaults, ends[i].check, ends[i].bytes, &err);

        cr_expect(eq(int, status, ends[i].refusal == NULL ? FSDP_OK : FSDP_ERR_CONFIG), "case %zu", i);
        cr_expect(eq(str, err.message, (char *)(ends[i].refusal == NULL ? "" : ends[i].refusal)), "case %zu",
                  i);
    }
}

/* The record of the data */

Test(data_record, what_is_written_is_read_back)
{
    const struct data_record record = { .bytes = { UINT64_MAX, { 1, 2 } }, .order = "sequential", .seq = 64 };
    struct data_record again;
    char text[DATA_RECORD_BYTES], words[128];
    struct manifest manifest;
    bool found;

    data_record_text(&record, text);
    manifest = saved(NULL, text);

    cr_assert(eq(int, data_record_read(&manifest, &again, &found, NULL), FSDP_OK));
    cr_assert(found);
    cr_assert(not(data_record_differs(&record, &again, words, sizeof words)));
}

Test(data_record, it_may_be_absent_and_may_not_be_damaged)
{
    static const struct {
        const char *extra;
        enum fsdp_status status;
    } cases[] = {
        { NULL, FSDP_OK },
        { "{}", FSDP_OK },
        { "{\"mine\": {\"data\": 1}}", FSDP_OK },
        { "{\"data\": 1}", FSDP_ERR_FORMAT },
        { "{\"data\": {}}", FSDP_ERR_FORMAT },
        { "{\"data\":{\"size_bytes\":5,\"xxh3_128\":\"07\",\"order\":\"x\",\"seq\":2}}", FSDP_ERR_FORMAT },
        { "{\"data\":{\"size_bytes\":5,\"xxh3_128\":\"0123456789abcdef0123456789abcdeF\",\"order\":\"x\","
          "\"seq\":2}}",
          FSDP_ERR_FORMAT },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct manifest manifest = saved(NULL, cases[i].extra);
        struct data_record record;
        bool found;

        cr_expect(eq(int, data_record_read(&manifest, &record, &found, NULL), cases[i].status), "case %zu",
                  i);
        cr_expect(cases[i].status != FSDP_OK || !found);
    }
}

Test(data_record, the_first_difference_is_named)
{
    const struct data_record was = { .bytes = { 5, { 1, 2 } }, .order = "shuffled", .seq = 4 };
    struct data_record now = was;
    char words[128];

    now.seq = 8;
    cr_assert(data_record_differs(&was, &now, words, sizeof words));
    cr_expect(eq(str, words, "model.seq was 4, and is 8"));
    strcpy(now.order, "sequential");
    cr_assert(data_record_differs(&was, &now, words, sizeof words));
    cr_expect(eq(str, words, "data.order was shuffled, and is sequential"));
    now.bytes.checksum[1] = 3;
    cr_assert(data_record_differs(&was, &now, words, sizeof words));
    cr_expect(eq(str, words, "it has 5 bytes as before, but they differ"));
    now.bytes.size_bytes = 6;
    cr_assert(data_record_differs(&was, &now, words, sizeof words));
    cr_expect(eq(str, words, "it has 6 bytes, and had 5"));
}
