#include "agent/save/save_own.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"

bool save_own_find(struct save_own **list, const char *path, const char *run_directory,
                   const struct save_own **found)
{
    const size_t bytes = strlen(path) + 1;
    struct save_own *own = *list;

    *found = NULL;
    if (path[0] == '\0' || strcmp(path, run_directory) == 0)
        return true;
    while (own != NULL && strcmp(own->path, path) != 0)
        own = own->next;
    if (own == NULL) {
        own = alloc_array(1, sizeof *own + bytes);
        if (own == NULL)
            return false;
        own->next = *list;
        memcpy(own->path, path, bytes);
        *list = own;
    }
    *found = own;
    return true;
}

void save_own_free(struct save_own *list)
{
    while (list != NULL) {
        struct save_own *next = list->next;

        free(list);
        list = next;
    }
}
