#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/numerics/rows.h"

static enum fsdp_status open_named(struct numerics *numerics, const char *name, int threads,
                                   struct fsdp_err *err)
{
    const struct numerics_config config = { .threads = threads, .name = name };

    return numerics_open(numerics, &config, err);
}

Test(numerics_open, environment_overrides_auto_only)
{
    struct numerics numerics;

    setenv("FSDP_NUMERICS", "ref", 1);
    cr_assert(eq(int, open_named(&numerics, "auto", 1, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)numerics.ops->name, "ref"));
    numerics_close(&numerics);

    setenv("FSDP_NUMERICS", "no-such-row", 1);
    cr_assert(eq(int, open_named(&numerics, "ref", 1, NULL), FSDP_OK));
    numerics_close(&numerics);
    numerics_close(&numerics); /* twice does no harm */
}

Test(numerics_open, unknown_names_and_no_threads_are_refused)
{
    struct numerics numerics;
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, open_named(&numerics, "mkl", 1, &err), FSDP_ERR_CONFIG));
    cr_assert_not_null(strstr(err.message, "mkl"), "%s", err.message);
    setenv("FSDP_NUMERICS", "blas", 1);
    cr_assert(eq(int, open_named(&numerics, "auto", 1, &err), FSDP_ERR_CONFIG));
    cr_assert_not_null(strstr(err.message, "FSDP_NUMERICS"), "%s", err.message);
    cr_assert(eq(int, open_named(&numerics, "ref", 0, &err), FSDP_ERR_ARG));
    numerics_close(&numerics);
}

Test(numerics_open, of_the_instruction_sets_the_widest_is_taken_and_an_unknown_one_refused)
{
    static const char *const sets[] = { "avx512", "avx2", "base" };
    struct numerics widest, named = { 0 };
    struct fsdp_err err = { 0 };
    char line[200], same[200];

    setenv("FSDP_ISA", "mmx", 1);
    cr_assert(eq(int, open_named(&widest, "plain", 1, &err), FSDP_ERR_CONFIG));
    cr_assert_not_null(strstr(err.message, "FSDP_ISA=mmx"), "%s", err.message);
    unsetenv("FSDP_ISA");
    cr_assert(eq(int, open_named(&widest, "plain", 1, NULL), FSDP_OK));
    for (int i = 0; i < 3 && named.ops == NULL; i++) {
        setenv("FSDP_ISA", sets[i], 1);
        if (open_named(&named, "plain", 1, NULL) != FSDP_OK)
            named.ops = NULL;
    }
    numerics_describe(&widest, line, sizeof line);
    cr_assert(eq(str, line, (char *)numerics_describe(&named, same, sizeof same)));
    numerics_close(&named);
    numerics_close(&widest);
}

/* FSDP_TEST_DESCRIBED: what the script that limits oneDNN's instruction set expects (test_numerics.sh). */
ROWS_TEST(numerics_open, describes_itself_on_one_line)
{
    const char *expected = getenv("FSDP_TEST_DESCRIBED");
    char line[200], small[5];

    numerics_describe(numerics, line, sizeof line);
    snprintf(small, sizeof small, ", %d", row->threads);
    cr_assert(strstr(line, small) != NULL && strstr(line, row->isa) != NULL, "%s", line);
    if (expected != NULL && strcmp(row->name, "onednn") == 0)
        cr_assert_not_null(strstr(line, expected), "%s", line);
    cr_assert(strncmp(line, row->name, strlen(row->name)) == 0, "%s", line);
    cr_assert(strchr(line, '\n') == NULL && strstr(line, "thread") != NULL, "%s", line);
    numerics_describe(numerics, small, sizeof small);
    cr_assert(eq(sz, strlen(small), 4));
}
