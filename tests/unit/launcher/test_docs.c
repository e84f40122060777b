#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cmd_docs.h"
#include "launcher/cmd_version.h"
#include "shard_runtime/job/schema.h"

/* NULL: the page of --help-all. */
static char *printed(const char *page)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    cr_assert(eq(int, page == NULL ? cmd_help_all("fsdprun", out) : cmd_docs(page, out), 0));
    fclose(out);
    return text;
}

static char *stored(const char *path)
{
    char full[4096], *text = calloc(1, 1 << 18);
    FILE *file;

    snprintf(full, sizeof full, "%s/%s", SOURCE_DIR, path);
    file = fopen(full, "r");
    cr_assert_not_null(file, "%s", full);
    cr_assert(gt(sz, fread(text, 1, (1 << 18) - 1, file), 0));
    fclose(file);
    return text;
}

static void is_up_to_date(const char *page, const char *path)
{
    char *made = printed(page), *kept = stored(path);

    cr_assert(strcmp(made, kept) == 0, "%s is not what its table says: make docs", path);
    free(made);
    free(kept);
}

Test(docs, config_md_is_what_the_table_says)
{
    is_up_to_date("config.md", "docs/config.md");
}

Test(docs, manual_pages_are_what_the_tables_say)
{
    is_up_to_date("fsdprun.1", "docs/man/fsdprun.1");
    is_up_to_date("fsdp.yaml.5", "docs/man/fsdp.yaml.5");
}

Test(docs, help_names_every_key_once)
{
    char *text = printed(NULL), path[JOB_KEY_PATH_BYTES], line[JOB_KEY_PATH_BYTES + 4];

    for (size_t i = 0; i < job_schema_size; i++) {
        const char *at;

        snprintf(line, sizeof line, "\n  %s ", job_key_path(&job_schema[i], path));
        at = strstr(text, line);
        cr_expect_not_null(at, "%s", path);
        cr_expect(at == NULL || strstr(at + 1, line) == NULL, "%s is there twice", path);
    }
    free(text);
}

Test(docs, an_unknown_page_is_bad_usage)
{
    cr_assert(eq(int, cmd_docs("zebra", stdout), 2));
}

Test(docs, version_names_version_commit_compiler_and_features)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    cr_assert(eq(int, cmd_version(out), 0));
    fclose(out);

    cr_assert(eq(int, strncmp(text, "fsdprun ", 8), 0));
    cr_assert_not_null(strstr(text, "\ncommit "));
    cr_assert_not_null(strstr(text, "\ncompiler "));
    cr_assert_not_null(strstr(text, "\nfeatures "));
    free(text);
}
