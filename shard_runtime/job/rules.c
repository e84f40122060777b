#include "shard_runtime/job/rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/job/value.h"

/* What may be set for some modules or parameters alone. */
static const char *const settable[][2] = {
    { "parallel", "reshard_after_forward" },
    { "parallel", "reshard_after_backward" },
    { "parallel", "param_dtype" },
    { "parallel", "reduce_dtype" },
    { "parallel", "output_dtype" },
    { "parallel", "cast_forward_inputs" },
    { "parallel", "gradient_sync" },
    { "parallel", "all_reduce" },
    { "optimizer", "lr" },
    { "optimizer", "weight_decay" },
};

bool job_rule_sets(const struct job_rule *rule, const char *name)
{
    for (size_t i = 0; i < rule->n_set; i++)
        if (strcmp(rule->set[i], name) == 0)
            return true;
    return false;
}

/* The next piece up to one of `ends`, without the blanks around it; *at is left on the end. */
static bool take(const char **at, const char *ends, char *out, size_t size)
{
    const char *from = *at + strspn(*at, " ");
    size_t n = strcspn(from, ends);

    *at = from + n;
    while (n > 0 && from[n - 1] == ' ')
        n--;
    if (n == 0 || n >= size)
        return false;
    memcpy(out, from, n);
    out[n] = '\0';
    return true;
}

static enum fsdp_status set(struct job_rule *rule, const char *section, const char *name, const char *text,
                            struct fsdp_err *err)
{
    const struct job_key *key = NULL;
    struct fsdp_err why = { 0 };
    struct job_value value;
    struct job_atom atom;

    for (size_t i = 0; i < sizeof settable / sizeof *settable; i++)
        if (strcmp(settable[i][0], section) == 0 && strcmp(settable[i][1], name) == 0)
            key = job_key_find(section, name);
    if (key == NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%.64s cannot be set for %.64s alone", name,
                         rule->patterns[0]);
    job_atom_plain(&atom, text);
    if (job_value_read(key, &atom, 1, false, &value, &why) != FSDP_OK)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%.64s of %.64s %.200s", name, rule->patterns[0], why.message);
    if (job_rule_sets(rule, name) || rule->n_set == JOB_RULE_SETTINGS)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%.64s of %.64s is set twice", name, rule->patterns[0]);
    rule->set[rule->n_set++] = key->name;
    return job_value_store(key, &value, &rule->job); /* none of the settable keys is a text */
}

static enum fsdp_status read_settings(struct job_rule *rule, const char *section, const char **at,
                                      struct fsdp_err *err)
{
    while (**at != '\0' && **at != ';') {
        char name[JOB_KEY_PATH_BYTES], text[JOB_KEY_PATH_BYTES];
        enum fsdp_status status;

        if (!take(at, "= ;", name, sizeof name) || **at != '=')
            return fsdp_fail(err, FSDP_ERR_CONFIG, "behind %.64s: something like key=value is missing",
                             rule->patterns[0]);
        ++*at;
        if (!take(at, " ;", text, sizeof text))
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%.64s of %.64s has no value", name, rule->patterns[0]);
        status = set(rule, section, name, text, err);
        if (status != FSDP_OK)
            return status;
        *at += strspn(*at, " ");
    }
    return FSDP_OK;
}

enum fsdp_status job_rule_next(const struct job *job, const char *section, const char **at,
                               struct job_rule *rule, bool *there, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    rule->n_patterns = rule->n_set = 0;
    rule->job = *job;
    *at += strspn(*at, " ;");
    *there = **at != '\0';
    if (!*there)
        return FSDP_OK;
    do {
        if (**at == '+')
            ++*at;
        if (rule->n_patterns == JOB_RULE_PATTERNS ||
            !take(at, "+:;", rule->patterns[rule->n_patterns], JOB_RULE_PATTERN_BYTES) ||
            strpbrk(rule->patterns[rule->n_patterns], " =") != NULL)
            return fsdp_fail(err, FSDP_ERR_CONFIG,
                             "rule %.40s: a name is missing, or has a blank or = in it, or is the %dth", *at,
                             JOB_RULE_PATTERNS + 1);
        rule->n_patterns++;
    } while (**at == '+');
    if (**at == ':') {
        ++*at;
        *at += strspn(*at, " ");
        status = read_settings(rule, section, at, err);
    }
    return status;
}

bool job_rule_matches(const char *pattern, const char *name)
{
    char parts[2][4 * JOB_RULE_PATTERN_BYTES];
    const char *texts[] = { pattern, name };

    /* fnmatch keeps '*' within a path component: dots become slashes for it. */
    for (int t = 0; t < 2; t++) {
        if (snprintf(parts[t], sizeof parts[t], "%s", texts[t]) >= (int)sizeof parts[t])
            return false;
        for (char *c = parts[t]; *c != '\0'; c++)
            *c = *c == '.' ? '/' : *c;
    }
    return fnmatch(parts[0], parts[1], FNM_PATHNAME) == 0;
}
