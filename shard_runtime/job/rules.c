#include "shard_runtime/job/rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct job_rule, field)

/*
 * The fields of a rule that are not keys of its section. The first one of each list names what the rule
 * applies to.
 */
/* clang-format off */
static const struct job_key own_fields[] = {
    { "parallel.groups", "modules", JOB_NAMES, AT(names), .example = "layers.*",
      .help = "A pattern: each module with a matching name is a group. A list of patterns: all modules that "
              "match are one group." },
    { "parallel.groups", "unshard_in_backward", JOB_BOOL, JOB_NO_FIELD, .fallback = "true",
      .example = "false",
      .help = "false: not gathered for backward, which must not read the weights (an embedding's backward "
              "does not)." },
    { "parallel.groups", "modules_to_forward_prefetch", JOB_NAMES, AT(modules_to_forward_prefetch),
      .zero = "null", .fallback = "null", .example = "[layers.1, layers.2]",
      .help = "Groups that are gathered in forward as soon as this one's weights are there." },
    { "parallel.groups", "modules_to_backward_prefetch", JOB_NAMES, AT(modules_to_backward_prefetch),
      .zero = "null", .fallback = "null", .example = "[layers.0]",
      .help = "The same in backward, in place of the group before it." },
    { "parallel.placement", "parameters", JOB_NAMES, AT(names), .example = "\"*.w2.weight\"",
      .help = "Patterns of parameters; a star matches dots too. The first rule that matches holds." },
    { "parallel.placement", "dim", JOB_COUNT, JOB_NO_FIELD, 0, 3, .example = "1",
      .help = "The dimension that they are cut along. If it is not 0, the ranks that shard must divide it "
              "evenly." },
    { "optimizer.groups", "parameters", JOB_NAMES, AT(names), .example = "\"*.bias\"",
      .help = "Patterns of parameters; a star matches dots too. The first rule that matches holds." },
};
/* clang-format on */

/* The keys of the section that a rule may set. */
static const struct {
    const char *rules, *key;
} shared_fields[] = {
    { "parallel.groups", "reshard_after_forward" },
    { "parallel.groups", "reshard_after_backward" },
    { "parallel.groups", "param_dtype" },
    { "parallel.groups", "reduce_dtype" },
    { "parallel.groups", "output_dtype" },
    { "parallel.groups", "float8_gather" },
    { "parallel.groups", "stochastic_rounding" },
    { "parallel.groups", "cast_forward_inputs" },
    { "parallel.groups", "gradient_sync" },
    { "parallel.groups", "all_reduce" },
    { "parallel.groups", "gradient_divide_factor" },
    { "parallel.groups", "force_sum_reduction" },
    { "parallel.groups", "forward_prefetch" },
    { "parallel.groups", "backward_prefetch" },
    { "parallel.groups", "activation_checkpoint" },
    { "optimizer.groups", "lr" },
    { "optimizer.groups", "weight_decay" },
};

const struct job_key *job_rule_field(const char *rules, size_t index)
{
    const size_t section = strcspn(rules, ".");
    char name[JOB_KEY_PATH_BYTES];

    for (size_t i = 0; i < sizeof own_fields / sizeof *own_fields; i++)
        if (strcmp(own_fields[i].section, rules) == 0 && index-- == 0)
            return &own_fields[i];
    snprintf(name, sizeof name, "%.*s", (int)section, rules);
    for (size_t i = 0; i < sizeof shared_fields / sizeof *shared_fields; i++)
        if (strcmp(shared_fields[i].rules, rules) == 0 && index-- == 0)
            return job_key_find(name, shared_fields[i].key);
    return NULL;
}

const struct job_value *job_rule_value(const struct job_rule *rule, const char *name)
{
    for (size_t i = 0; i < rule->n_set; i++)
        if (strcmp(rule->set[i].key->name, name) == 0)
            return &rule->set[i].value;
    return NULL;
}

void job_rule_apply(const struct job_rule *rule, const struct job *base, struct job *out)
{
    *out = *base;
    for (size_t i = 0; i < rule->n_set; i++)
        /* cannot fail: neither text nor list */
        (void)job_value_store(rule->set[i].key, &rule->set[i].value, out);
}

static size_t list_bytes(const struct job_key *key, const void *list)
{
    const struct job_rules *rules = list;

    return key->type == JOB_NAMES ? sizeof(struct job_names)
                                  : sizeof *rules + rules->n * sizeof(struct job_rule);
}

enum fsdp_status job_list_copy(const struct job_key *key, const void *list, void **out)
{
    const size_t bytes = list == NULL ? 0 : list_bytes(key, list);

    *out = NULL;
    if (list == NULL)
        return FSDP_OK;
    *out = malloc(bytes);
    if (*out == NULL)
        return FSDP_ERR_NOMEM;
    memcpy(*out, list, bytes);
    return FSDP_OK;
}

bool job_module_matches(const char *pattern, const char *name)
{
    char parts[2][4 * JOB_NAME_BYTES];
    const char *texts[] = { pattern, name };

    /*
     * With FNM_PATHNAME a star does not match '/'. Replacing dots by slashes keeps a star within one part of
     * the name.
     */
    for (int t = 0; t < 2; t++) {
        if (snprintf(parts[t], sizeof parts[t], "%s", texts[t]) >= (int)sizeof parts[t])
            return false;
        for (char *c = parts[t]; *c != '\0'; c++)
            *c = *c == '.' ? '/' : *c;
    }
    return fnmatch(parts[0], parts[1], FNM_PATHNAME) == 0;
}

bool job_parameter_matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}

bool job_names_match_parameter(const struct job_names *names, const char *name)
{
    for (size_t i = 0; names != NULL && i < names->n; i++)
        if (job_parameter_matches(names->list[i], name))
            return true;
    return false;
}
