/*
 * The part of core/json.h that needs cJSON. The CUDA plug-in contains core/ without this file, so it does not
 * link cJSON.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "shard_runtime/core/json.h"

struct cJSON *json_parse_object(const char *text, size_t length)
{
    const char *end = NULL;
    cJSON *object = cJSON_ParseWithLengthOpts(text, length, &end, false);

    while (object != NULL && end < text + length && strchr(" \t\r\n", *end) != NULL)
        end++; /* strchr() also matches a zero byte */
    if (cJSON_IsObject(object) && end == text + length)
        return object;
    cJSON_Delete(object);
    return NULL;
}
