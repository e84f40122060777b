#include "shard_runtime/ckpt/import_name.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* States of an optimizer, by their names in PyTorch, which are ours. */
static const char *const states[] = { "exp_avg", "exp_avg_sq", "momentum_buffer" };
enum { N_STATES = sizeof states / sizeof *states };

static bool take(const char **at, const char *prefix)
{
    const size_t length = strlen(prefix);

    if (length == 0 || strncmp(*at, prefix, length) != 0)
        return false;
    *at += length;
    return true;
}

static const char *without_prefixes(const struct import_names *names, const char *name)
{
    for (size_t i = 0; i < sizeof names->prefixes / sizeof *names->prefixes; i++)
        if (names->prefixes[i] != NULL)
            (void)take(&name, names->prefixes[i]);
    return name;
}

static bool is_passed_over(const struct import_names *names, const char *name)
{
    for (size_t i = 0; i < names->n_passed_over; i++)
        if (fnmatch(names->passed_over[i], name, 0) == 0)
            return true;
    return *name == '\0';
}

/*
 * Writes the name of a tensor of optimizer state, "optimizer.STATE.PARAMETER", from the name of the
 * parameter, which has `length` bytes.
 */
static enum import_kind state_of(const struct import_names *names, const char *state, const char *parameter,
                                 size_t length, char out[IMPORT_NAME_BYTES])
{
    char name[IMPORT_NAME_BYTES];
    int n;

    if (length >= sizeof name)
        return IMPORT_OTHER;
    snprintf(name, sizeof name, "%.*s", (int)length, parameter);
    parameter = without_prefixes(names, name);
    if (is_passed_over(names, parameter))
        return IMPORT_OTHER;
    n = snprintf(out, IMPORT_NAME_BYTES, "optimizer.%s.%s", state, parameter);
    return n < IMPORT_NAME_BYTES ? IMPORT_STATE : IMPORT_OTHER;
}

/* The state at the end of "P.exp_avg". */
static enum import_kind state_at_end(const struct import_names *names, const char *name,
                                     char out[IMPORT_NAME_BYTES])
{
    const char *dot = strrchr(name, '.');

    if (dot == NULL)
        return IMPORT_OTHER;
    if (strcmp(dot + 1, "step") == 0)
        return IMPORT_STEP;
    for (int i = 0; i < N_STATES; i++)
        if (strcmp(dot + 1, states[i]) == 0)
            return state_of(names, states[i], name, (size_t)(dot - name), out);
    return IMPORT_OTHER;
}

enum import_kind import_name(const struct import_names *names, const char *name, char out[IMPORT_NAME_BYTES])
{
    const char *at = name;

    out[0] = '\0';
    if (take(&at, "optim.state.") || take(&at, "optimizer.state.") || take(&at, "state."))
        return state_at_end(names, at, out);
    if (take(&at, "optim.param_groups.") || take(&at, "optimizer.param_groups.") ||
        take(&at, "param_groups."))
        return IMPORT_OTHER;
    if (take(&at, "optimizer.")) {
        for (int i = 0; i < N_STATES; i++) {
            const size_t length = strlen(states[i]);

            if (strncmp(at, states[i], length) == 0 && at[length] == '.')
                return state_of(names, states[i], at + length + 1, strlen(at + length + 1), out);
        }
        return IMPORT_OTHER;
    }
    at = without_prefixes(names, name);
    if (is_passed_over(names, at) || snprintf(out, IMPORT_NAME_BYTES, "%s", at) >= IMPORT_NAME_BYTES)
        return IMPORT_OTHER;
    return IMPORT_WEIGHT;
}
