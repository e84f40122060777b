#define _GNU_SOURCE
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

/* NULL: nobody wants one, or it cannot be written. */
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

void emulated_trace_copy(int stream, enum cudaMemcpyKind kind, size_t size_bytes, bool locked)
{
    FILE *file = trace();

    if (file != NULL)
        fprintf(file, "copy %s %d %zu %s\n",
                kind == cudaMemcpyHostToDevice   ? "in"
                : kind == cudaMemcpyDeviceToHost ? "out"
                                                 : "within",
                stream, size_bytes, locked ? "locked" : "paged");
}

void emulated_trace_work(int stream)
{
    FILE *file = trace();

    if (file != NULL)
        fprintf(file, "work %d\n", stream);
}

void emulated_trace_memory(const char *what, size_t size_bytes)
{
    FILE *file = trace();

    if (file != NULL)
        fprintf(file, "%s %zu\n", what, size_bytes);
}

void emulated_trace_wait(int stream)
{
    FILE *file = trace();

    if (file != NULL)
        fprintf(file, "wait %d\n", stream);
}
