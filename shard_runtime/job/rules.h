/*
 * Rules by name pattern, as parallel.groups and optimizer.groups have them, in one text:
 *
 *     tok_embeddings + output: reshard_after_forward=false; layers.*: param_dtype=bfloat16 reduce_dtype=float32; norm
 *
 * Rules are parted by ';'. Each names one pattern, or several with '+' between, and what is set for them: keys of the
 * section that the text stands in. A pattern of modules matches part by part between dots: "layers.*" is the blocks and
 * not what is in them. A pattern of parameters is the optimizer's affair. Pure.
 */
#ifndef JOB_RULES_H
#define JOB_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/job/job.h"

enum { JOB_RULE_PATTERNS = 8, JOB_RULE_PATTERN_BYTES = 128, JOB_RULE_SETTINGS = 16 };

struct job_rule {
    char patterns[JOB_RULE_PATTERNS][JOB_RULE_PATTERN_BYTES];
    size_t n_patterns;
    const char *set[JOB_RULE_SETTINGS]; /* keys that it sets */
    size_t n_set;
    struct job job; /* the whole job with the rule's settings in place; its texts are the job's own */
};

/**
 * Read the rule at *at of a text that stands in `section` of `job`, and move *at behind it; *there is false at the end.
 * FSDP_ERR_CONFIG: what is wrong with it, naming no key path.
 */
enum fsdp_status job_rule_next(const struct job *job, const char *section, const char **at,
                               struct job_rule *rule, bool *there, struct fsdp_err *err);

/** Does the rule set this key? */
bool job_rule_sets(const struct job_rule *rule, const char *name);

/** Does `pattern` match the whole of a module's `name`? */
bool job_rule_matches(const char *pattern, const char *name);

#endif
