/* "Did you mean": guesses which option or job key is meant by a name that is no option. */
#include <stdio.h>
#include <string.h>

#include "launcher/options.h"
#include "shard_runtime/core/spelling.h"
#include "shard_runtime/job/nearest.h"

/*
 * Returns the option with the most similar spelling, from the table or the caller's own. NULL: none is close.
 */
static const char *spelled_like(const struct options_input *input, const char *name)
{
    const char *found = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < option_table_size; i++)
        if (spelling_is_close(name, option_table[i].name, &best))
            found = option_table[i].name;
    for (size_t i = 0; input->own != NULL && input->own[i] != NULL; i++)
        if (spelling_is_close(name, input->own[i], &best))
            found = input->own[i];
    return found;
}

static const char *called_so(const char *name)
{
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].called != NULL && job_list_index(option_table[i].called, name) >= 0)
            return option_table[i].name;
    return NULL;
}

/*
 * Returns the "section.key" of a job key that the user wrote like an option. `name` may be the key's path,
 * its name, or its name in another program. NULL: there is no such key. Dashes in `name` become underscores.
 */
static const char *key_written_so(char *name, char path[JOB_KEY_PATH_BYTES])
{
    const char *meant;

    for (char *c = name; *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
    if (job_key_find_path(name) != NULL)
        return name;
    meant = job_nearest(NULL, name, path);
    return meant != NULL && strchr(meant, '.') != NULL ? meant : NULL;
}

bool options_meant(const struct options *options, const struct options_input *input, const char *written,
                   size_t length, char out[OPTION_MEANT_BYTES])
{
    char name[JOB_KEY_PATH_BYTES], path[JOB_KEY_PATH_BYTES];
    const char *meant;

    if (length == 0 || length >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)length, written);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    meant = called_so(name);
    if (meant == NULL && length > 1)
        meant = spelled_like(input, name);
    if (meant != NULL) {
        snprintf(out, OPTION_MEANT_BYTES, "--%s", meant);
        return true;
    }
    meant = options->as_torchrun || length == 1 ? NULL : key_written_so(name, path);
    if (meant != NULL)
        snprintf(out, OPTION_MEANT_BYTES, "--set %s=VALUE", meant);
    return meant != NULL;
}
