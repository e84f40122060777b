/* A folder of the test's own, and its files as text. */
#ifndef UNIT_AGENT_SCRATCH_H
#define UNIT_AGENT_SCRATCH_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char scratch[64];

static inline void scratch_make(void)
{
    strcpy(scratch, "/tmp/fsdp-unit.XXXXXX");
    cr_assert_not_null(mkdtemp(scratch));
}

static inline void scratch_remove(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", scratch);
    cr_assert_eq(system(command), 0);
}

/** The path of a file in the folder. Kept until the next call. */
__attribute__((format(printf, 1, 2))) static inline const char *scratch_path(const char *format, ...)
{
    static char path[512];
    const int n = snprintf(path, sizeof path, "%s/", scratch);
    va_list args;

    va_start(args, format);
    vsnprintf(path + n, sizeof path - (size_t)n, format, args);
    va_end(args);
    return path;
}

/** The text of a file of at most 1 MiB, empty if it cannot be read. Kept until the next call. */
static inline const char *scratch_read(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");

    text[file == NULL ? 0 : fread(text, 1, sizeof text - 1, file)] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

#endif
