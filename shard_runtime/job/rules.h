/*
 * Lists in a job file. There are two kinds: names (patterns of modules or parameters), and rules. A rule is a
 * map of such names and of the settings for them:
 *
 *     groups:
 *       - {modules: [tok_embeddings, output], reshard_after_forward: false}
 *       - modules: layers.*
 *         param_dtype: bfloat16
 *
 * A rule may have fields of its own, which are in a table in rules.c. It may also set some keys of the
 * section that contains it; these settings apply to the modules or parameters that it names. Each list is one
 * block of memory, so a job frees it as it frees a text.
 */
#ifndef JOB_RULES_H
#define JOB_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/job/tree.h"
#include "shard_runtime/job/value.h"

enum { JOB_NAMES_MAX = 32, JOB_NAME_BYTES = 128, JOB_RULES_MAX = 64, JOB_RULE_SETTINGS = 24 };

struct job_names {
    size_t n;
    char list[JOB_NAMES_MAX][JOB_NAME_BYTES];
};

struct job_rule {
    struct job_names names; /* modules or parameters to which the rule applies; at least one */
    struct job_names modules_to_forward_prefetch, modules_to_backward_prefetch;
    struct job_rule_setting {
        const struct job_key *key;
        struct job_value value; /* the value of a key that is neither a list nor a text */
    } set[JOB_RULE_SETTINGS];
    size_t n_set;
};

struct job_rules {
    size_t n;
    struct job_rule list[];
};

/**
 * Returns field number `index` of the rules in the key `rules` ("parallel.groups"), or NULL after the last
 * one. The rules' own fields come first.
 */
const struct job_key *job_rule_field(const char *rules, size_t index);

/* Receives one problem. `at` is the node, and `path` the key with indexes: "parallel.groups[2].modules". */
typedef void job_list_problem(void *context, const struct tree_node *at, const char *path, const char *words);

/**
 * Reads a node as the list that `key` accepts. *out receives an allocated list, or NULL for null and for an
 * empty list. Reports every problem and then returns FSDP_ERR_CONFIG. A node that is already TREE_BAD is not
 * reported again. FSDP_ERR_NOMEM: out of memory.
 */
enum fsdp_status job_list_read(const struct job_key *key, const struct tree_node *node,
                               job_list_problem *report, void *context, void **out);
/** Copies a list. *out is NULL if `list` is NULL. The only error is FSDP_ERR_NOMEM. */
enum fsdp_status job_list_copy(const struct job_key *key, const void *list, void **out);
/** Appends `list` to `out` as one line of JSON (`json` true) or YAML. NULL is written as null. */
void job_list_text(const struct job_key *key, const void *list, bool json, struct json_text *out);

/** Returns the value that the rule sets for the key `name`, or NULL if it sets none. */
const struct job_value *job_rule_value(const struct job_rule *rule, const char *name);
/**
 * Stores in *out a copy of `base` with the rule's settings applied. The copy is shallow: its lists and texts
 * still belong to `base`.
 */
void job_rule_apply(const struct job_rule *rule, const struct job *base, struct job *out);

/**
 * Returns true if `pattern` matches the whole `name` of a module. Each part between dots is matched
 * separately: "layers.*" matches the blocks, but not the modules in them.
 */
bool job_module_matches(const char *pattern, const char *name);
/** Returns true if `pattern` matches the whole `name` of a parameter. A star also matches dots: "*.bias". */
bool job_parameter_matches(const char *pattern, const char *name);
/**
 * Returns true if one of `names` matches the parameter `name`. `names` may be NULL, which matches nothing.
 */
bool job_names_match_parameter(const struct job_names *names, const char *name);

#endif
