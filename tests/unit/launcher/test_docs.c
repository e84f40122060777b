#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cmd_docs.h"
#include "launcher/cmd_version.h"
#include "shard_runtime/core/version.h"
#include "shard_runtime/job/schema.h"

/* A page of the documents; also "--help-all" and "--version". */
static char *printed(const char *page)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    cr_assert(eq(int,
                 strcmp(page, "--version") == 0    ? cmd_version(out)
                 : strcmp(page, "--help-all") == 0 ? cmd_help_all("fsdprun", out)
                                                   : cmd_docs(page, out),
                 0));
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

/* Of a manual page, the part between its two marks, and the version in its first line. */
static void is_up_to_date(const char *page, const char *path)
{
    char *made = printed(page), *text = stored(path), *kept = text, *end, version[64];

    if (strcmp(page, "config.md") != 0) {
        snprintf(version, sizeof version, "\"fsdprun %s\"", version_number());
        cr_expect_not_null(strstr(text, version), "%s does not name %s", path, version);
        kept = strstr(text, "\n.\\\" BEGIN");
        cr_assert_not_null(kept, "%s has no mark", path);
        kept = strchr(kept + 1, '\n') + 1;
        end = strstr(kept, ".\\\" END\n");
        cr_assert_not_null(end, "%s has no second mark", path);
        *end = '\0';
    }
    cr_assert(strcmp(made, kept) == 0, "%s is not what its table says: make docs", path);
    free(made);
    free(text);
}

Test(docs, pages_are_what_the_tables_say)
{
    is_up_to_date("config.md", "docs/config.md");
    is_up_to_date("fsdprun.1", "docs/man/fsdprun.1");
    is_up_to_date("fsdp.yaml.5", "docs/man/fsdp.yaml.5");
}

Test(docs, help_names_every_key_once)
{
    char *text = printed("--help-all"), path[JOB_KEY_PATH_BYTES], line[JOB_KEY_PATH_BYTES + 4];

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
    char *text = printed("--version");

    cr_assert(eq(int, strncmp(text, "fsdprun ", 8), 0));
    cr_assert(strstr(text, "\ncommit ") != NULL && strstr(text, "\ncompiler ") != NULL &&
                  strstr(text, "\nfeatures ") != NULL,
              "%s", text);
    free(text);
}
