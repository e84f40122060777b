/* What the manifest says of the machine of every rank, written and read again. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/state/made_with.h"

enum { W = 4 };
static struct made_with ranks[W];

static void begin(void)
{
    for (int rank = 0; rank < W; rank++)
        strcpy(ranks[rank].words, "cpu A, plain, 1 thread");
}

TestSuite(made_with, .init = begin);

/* The words of `rank` in a manifest with this member. */
static const char *read_back(const char *json, int rank)
{
    static struct made_with out;
    const struct manifest manifest = { .numerics = json, .numerics_length = strlen(json) };

    cr_assert_eq(made_with_read(&manifest, rank, &out, NULL), FSDP_OK);
    return out.words;
}

Test(made_with, ranks_that_are_alike_are_written_once)
{
    char *json = made_with_json(ranks, W, 1);

    cr_expect_str_eq(json, "{\"numerics\": \"cpu A, plain, 1 thread\", \"threads\": 1}");
    for (int rank = 0; rank < W + 2; rank++)
        cr_expect_str_eq(read_back(json, rank), "cpu A, plain, 1 thread");
    free(json);
}

Test(made_with, each_rank_reads_its_own_words)
{
    char *json;

    strcpy(ranks[1].words, "cpu \"B\", plain, 1 thread");
    strcpy(ranks[3].words, "cpu A, plain, 2 threads");
    json = made_with_json(ranks, W, 1);
    for (int rank = 0; rank < W; rank++)
        cr_expect_str_eq(read_back(json, rank), ranks[rank].words, "rank %d", rank);
    cr_expect_str_eq(read_back(json, W), ranks[0].words, "one that did not save");
    free(json);
}

Test(made_with, a_manifest_of_one_rank_or_none_is_read_as_before)
{
    static const struct manifest none = { 0 };
    struct made_with out = ranks[0];

    cr_expect_str_eq(read_back("{\"threads\": 3, \"more\": [1], \"numerics\": \"x\"}", 2), "x");
    cr_expect_str_eq(read_back("{}", 0), "");
    cr_expect(made_with_read(&none, 0, &out, NULL) == FSDP_OK && out.words[0] == '\0');
}

Test(made_with, without_memory_there_is_no_text)
{
    int n = 0;
    char *json;

    strcpy(ranks[2].words, "cpu B");
    do {
        alloc_fail_nth((unsigned long)++n);
        json = made_with_json(ranks, W, 1);
        alloc_fail_nth(0);
    } while (json == NULL && n < 100);
    cr_expect_not_null(json);
    free(json);
}
