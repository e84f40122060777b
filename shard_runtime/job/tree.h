/*
 * A strict reading of YAML: maps, lists and scalars with their places, and nothing else. Anchors, aliases,
 * tags, merge keys, directives, more than one document, repeated keys, keys that are not text, deep nesting
 * and text that is not UTF-8 are problems, not features. Built on libyaml's events, because its documents
 * keep repeated keys silently and follow aliases.
 */
#ifndef JOB_TREE_H
#define JOB_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/job/report.h"

enum { TREE_MAX_DEPTH = 16, TREE_MAX_BYTES = 1 << 20 };

enum tree_kind { TREE_BAD /* reported already */, TREE_SCALAR, TREE_LIST, TREE_MAP };

struct tree_node {
    enum tree_kind kind;
    bool plain; /* a scalar without quotes */
    int line, column;
    const char *text;           /* scalars; owned by the tree */
    struct tree_node *key;      /* of an entry of a map */
    struct tree_node *children; /* of maps and lists, in order, linked by `next` */
    struct tree_node *next;
};

struct tree {
    struct tree_node *root; /* NULL when nothing could be built */
    struct tree_block *blocks;
};

/**
 * Read `length` bytes. What is wrong goes to `report`, under the name `source`; the tree holds what could be
 * read all the same, so that all problems are found at once. FSDP_ERR_NOMEM alone is returned as a failure.
 */
enum fsdp_status tree_read(struct tree *tree, const char *source, const char *text, size_t length,
                           struct job_report *report);
void tree_fini(struct tree *tree);

#endif
