#include "trace.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns NULL if no trace is wanted, or it cannot be written. */
static FILE *trace(void)
{
    static FILE *file;
    static bool opened;
    const char *path = getenv("FSDP_EMULATED_TRACE"), *rank = getenv("RANK");
    char name[4096];

    if (opened)
        return file;
    opened = true;
    if (path == NULL || path[0] == '\0')
        return NULL;
    snprintf(name, sizeof name, "%s.%s", path, rank != NULL ? rank : "0");
    file = fopen(name, "a");
    if (file != NULL)
        setvbuf(file, NULL, _IOLBF, 0);
    return file;
}

void emulated_trace(const char *format, ...)
{
    FILE *file = trace();
    va_list values;

    va_start(values, format);
    if (file != NULL)
        vfprintf(file, format, values);
    va_end(values);
}
