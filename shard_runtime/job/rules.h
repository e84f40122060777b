/*
 * Lists in a job file. Names: patterns of modules or parameters. Rules: maps of such names and of what holds for them,
 *
 *     groups:
 *       - {modules: [tok_embeddings, output], reshard_after_forward: false}
 *       - modules: layers.*
 *         param_dtype: bfloat16
 *
 * A rule's own fields stand in a table here; beside them it may set some keys of the section it stands in, which then
 * hold for what it names. A list is one block of memory, so that a job frees it as it frees a text.
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
    struct job_names names; /* what it is about: modules or parameters; one at least */
    struct job_names modules_to_forward_prefetch, modules_to_backward_prefetch;
    struct job_rule_setting {
        const struct job_key *key;
        struct job_value value; /* of keys that are no lists and no texts */
    } set[JOB_RULE_SETTINGS];
    size_t n_set;
};

struct job_rules {
    size_t n;
    struct job_rule list[];
};

/** Field `index` of the rules of a key ("parallel.groups"), those of its own first; NULL past the last. */
const struct job_key *job_rule_field(const char *rules, size_t index);

/* What is wrong at a node: `path` is the key's with indexes, "parallel.groups[2].modules". */
typedef void job_list_problem(void *context, const struct tree_node *at, const char *path, const char *words);

/**
 * Read a node as the list that `key` takes. *out  allocated; NULL for null and for an empty list. Every problem is reported, and then
 * FSDP_ERR_CONFIG returned; a node that is bad already is not reported again. FSDP_ERR_NOMEM.
 */
enum fsdp_status job_list_read(const struct job_key *key, const struct tree_node *node,
                               job_list_problem *report, void *context, void **out);
/** One name as a list of names; NULL: no memory, or it is no name. */
void *job_list_of_name(const char *name);
/** A copy; *out NULL for NULL. FSDP_ERR_NOMEM. */
enum fsdp_status job_list_copy(const struct job_key *key, const void *list, void **out);
/** As it stands in YAML or in JSON, in one line. Allocated; NULL when memory is out. */
char *job_list_text(const struct job_key *key, const void *list, bool json);

/** What the rule sets for this key; NULL: nothing. */
const struct job_value *job_rule_value(const struct job_rule *rule, const char *name);
/** `base` with the rule's settings in place. A shallow copy: lists and texts stay the base's. */
void job_rule_apply(const struct job_rule *rule, const struct job *base, struct job *out);

/** Does `pattern` match the whole of a module's `name`, part by part between dots: "layers.*" is the blocks and not what is
 * in them. */
bool job_module_matches(const char *pattern, const char *name);
/** Does `pattern` match the whole of a parameter's `name`? A star crosses dots: "*.bias". */
bool job_parameter_matches(const char *pattern, const char *name);
/** Does one of `names` (NULL: none)? */
bool job_names_match_parameter(const struct job_names *names, const char *name);

#endif
