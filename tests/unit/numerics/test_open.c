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

ROWS_TEST(numerics_open, describes_itself_on_one_line)
{
    struct numerics numerics;
    char line[200], small[5];

    row_open(&numerics, row);

    numerics_describe(&numerics, line, sizeof line);
    cr_assert(strncmp(line, row->name, strlen(row->name)) == 0, "%s", line);
    cr_assert(strchr(line, '\n') == NULL && strstr(line, "thread") != NULL, "%s", line);
    numerics_describe(&numerics, small, sizeof small);
    cr_assert(eq(sz, strlen(small), 4));
    numerics_close(&numerics);
}
