#include "agent/output/line_prefix.h"

#include <stdio.h>
#include <string.h>

static bool name_value(const char *name, size_t length, const struct line_names *names, char value[300])
{
    const struct {
        const char *name;
        const char *text;
        int number;
    } known[] = {
        { "rank", NULL, names->rank },
        { "local_rank", NULL, names->local_rank },
        { "generation", NULL, names->generation },
        { "role_name", names->role_name != NULL ? names->role_name : "default", 0 },
        { "host", names->host != NULL ? names->host : "", 0 },
        { "hostname", names->host != NULL ? names->host : "", 0 },
        { "stream", names->stream == RUNDIR_STDOUT ? "stdout" : "stderr", 0 },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != length || strncmp(known[i].name, name, length) != 0)
            continue;
        if (known[i].text != NULL)
            snprintf(value, 300, "%s", known[i].text);
        else
            snprintf(value, 300, "%d", known[i].number);
        return true;
    }
    return false;
}

/*
 * Returns the name in "$name" or "${name}", and in *taken the length of all of that. NULL: there is no name.
 */
static const char *name_at(const char *at, size_t *length, size_t *taken)
{
    const bool braced = at[1] == '{';
    const char *name = at + 1 + braced, *end = name;

    while (*end == '_' || (*end >= 'a' && *end <= 'z') || (*end >= 'A' && *end <= 'Z') ||
           (end > name && *end >= '0' && *end <= '9'))
        end++;
    *length = (size_t)(end - name);
    *taken = (size_t)(end - at) + braced;
    return *length > 0 && (!braced || *end == '}') ? name : NULL;
}

const char *line_prefix(char *out, size_t size, const char *template, const struct line_names *names)
{
    const char *at = template != NULL ? template : "[rank ${rank}]: ";
    size_t end = 0;

    while (*at != '\0' && end + 1 < size) {
        size_t length, taken;
        const char *name = *at == '$' ? name_at(at, &length, &taken) : NULL;
        char value[300];

        if (name != NULL && name_value(name, length, names, value)) {
            for (const char *v = value; *v != '\0' && end + 1 < size; v++)
                out[end++] = *v;
            at += taken;
        } else {
            out[end++] = *at;
            at += at[0] == '$' && at[1] == '$' ? 2 : 1;
        }
    }
    if (size > 0)
        out[end] = '\0';
    return out;
}
