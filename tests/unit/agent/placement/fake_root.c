#include "tests/unit/agent/placement/fake_root.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void fake_root_make(char root[FAKE_ROOT_BYTES])
{
    snprintf(root, FAKE_ROOT_BYTES, "/tmp/fsdp-root.XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

void fake_root_add(const char *root, const char *text, const char *format, ...)
{
    char path[512], *slash;
    FILE *file;
    va_list args;
    int n = snprintf(path, sizeof path, "%s", root);

    va_start(args, format);
    vsnprintf(path + n, sizeof path - (size_t)n, format, args);
    va_end(args);
    for (slash = strchr(path + n + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    return remove(path);
}

void fake_root_remove(const char *root)
{
    cr_assert_eq(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0, "%s", root);
}
