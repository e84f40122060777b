/*
 * A strict YAML reader: maps, lists and scalars with their positions, and nothing else. These are problems:
 * anchors, aliases, tags, merge keys, directives, a second document, repeated keys, deep nesting, keys that
 * are not text, text that is not UTF-8. The reader uses libyaml's events and not its documents, because
 * documents silently keep repeated keys and follow aliases.
 */
#ifndef JOB_TREE_H
#define JOB_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/job/report.h"

enum { TREE_MAX_DEPTH = 16, TREE_MAX_BYTES = 1 << 20 };

enum tree_kind { TREE_BAD /* the problem is already reported */, TREE_SCALAR, TREE_LIST, TREE_MAP };

struct tree_node {
    enum tree_kind kind;
    bool plain; /* a scalar without quotes */
    int line, column;
    const char *text;           /* of scalars; belongs to the tree */
    struct tree_node *key;      /* the key, if this is an entry of a map */
    struct tree_node *children; /* children of a map or list, in order, linked by `next` */
    struct tree_node *next;
};

struct tree {
    struct tree_node *root; /* NULL if nothing could be read */
    struct tree_block *blocks;
};

/**
 * Reads `length` bytes. Adds each problem to `report`, with `source` as the file name. After a problem the
 * tree still contains what could be read, so that one call finds as many problems as possible. The only
 * failure that it returns is FSDP_ERR_NOMEM. The caller calls tree_fini() in every case.
 */
enum fsdp_status tree_read(struct tree *tree, const char *source, const char *text, size_t length,
                           struct job_report *report);
/** Frees all nodes of the tree. */
void tree_fini(struct tree *tree);

#endif
