#include "shard_runtime/core/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/checked.h"

static _Thread_local unsigned long fail_after;

void alloc_fail_nth(unsigned long nth)
{
    fail_after = nth;
}

static bool refused(void)
{
    return fail_after > 0 && --fail_after == 0;
}

void *alloc_array(size_t n, size_t size)
{
    if (refused())
        return NULL;
    return calloc(n > 0 ? n : 1, size > 0 ? size : 1);
}

char *alloc_printf(const char *format, ...)
{
    va_list arguments;
    char *text;
    int length;

    if (refused())
        return NULL;
    va_start(arguments, format);
    length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}

bool alloc_room(void *list, size_t *capacity, size_t n, size_t size)
{
    size_t room = *capacity, bytes;
    void *old, *moved;

    if (n < room)
        return true;
    while (room <= n)
        if (!checked_add(room, room / 2 + 8, &room))
            return false;
    if (!checked_mul(room, size, &bytes) || refused())
        return false;
    memcpy(&old, list, sizeof old);
    moved = realloc(old, bytes);
    if (moved == NULL)
        return false;
    memset((char *)moved + *capacity * size, 0, bytes - *capacity * size);
    memcpy(list, &moved, sizeof moved);
    *capacity = room;
    return true;
}
