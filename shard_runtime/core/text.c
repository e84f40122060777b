#include "shard_runtime/core/text.h"

#include <stdbool.h>
#include <stdlib.h>

char *text_of(void (*print)(FILE *out, const void *subject), const void *subject)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool failed;

    if (out == NULL)
        return NULL;
    print(out, subject);
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
