/*
 * Reads nodes of a job file as lists of names and of rules. Reports each problem with its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/spelling.h"
#include "shard_runtime/job/nearest.h"
#include "shard_runtime/job/rules.h"

enum { PATH_BYTES = 3 * JOB_KEY_PATH_BYTES };

struct reading {
    job_list_problem *report;
    void *context;
    bool bad;
};

static void problem(struct reading *reading, const struct tree_node *at, const char *path, const char *words)
{
    reading->bad = true;
    if (at->kind != TREE_BAD) /* a bad node was reported when it was read */
        reading->report(reading->context, at, path, words);
}

static void atom_of(const struct tree_node *node, struct job_atom *atom)
{
    if (node->plain)
        job_atom_plain(atom, node->text);
    else
        job_atom_text(atom, node->text);
}

static bool is_null(const struct tree_node *node)
{
    struct job_atom atom;

    if (node->kind != TREE_SCALAR)
        return false;
    atom_of(node, &atom);
    return atom.kind == ATOM_NULL;
}

/*
 * Returns true if the text has only letters, digits and characters of patterns. So names contain no blank,
 * and nothing that a terminal would interpret.
 */
static bool is_name(const char *text)
{
    const size_t n = strlen(text);

    return n > 0 && n < JOB_NAME_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-*?[]!") == n;
}

static void read_name(struct reading *reading, const struct tree_node *node, const char *path,
                      struct job_names *out)
{
    if (node->kind != TREE_SCALAR || !is_name(node->text) || is_null(node))
        problem(reading, node, path, "must be a name or a pattern, like layers.* or \"*.bias\"");
    else if (out->n == JOB_NAMES_MAX)
        problem(reading, node, path, "is one name too many: 32 at most");
    else
        snprintf(out->list[out->n++], JOB_NAME_BYTES, "%s", node->text);
}

/* Reads one name, or a list of names. */
static void read_names(struct reading *reading, const struct tree_node *node, const char *path,
                       struct job_names *out)
{
    size_t i = 0;

    if (node->kind != TREE_LIST) {
        read_name(reading, node, path, out);
        return;
    }
    for (const struct tree_node *child = node->children; child != NULL; child = child->next) {
        char item[PATH_BYTES + 24];

        snprintf(item, sizeof item, "%s[%zu]", path, i++);
        read_name(reading, child, item, out);
    }
}

static void read_setting(struct reading *reading, const struct job_key *key, const struct tree_node *node,
                         const char *path, struct job_rule *rule)
{
    struct job_rule_setting *setting = &rule->set[rule->n_set];
    struct fsdp_err why = { 0 };
    struct job_atom atom;

    if (node->kind != TREE_SCALAR) {
        problem(reading, node, path, "must be one value");
        return;
    }
    atom_of(node, &atom);
    if (job_value_read(key, &atom, 1, false, &setting->value, &why) != FSDP_OK) {
        problem(reading, node, path, why.message);
    } else if (rule->n_set < JOB_RULE_SETTINGS - 1) { /* always true: a rule has fewer fields than places */
        setting->key = key;
        rule->n_set++;
    }
}

/*
 * Returns the field called `name`. Returns NULL if there is none; *near is then the name that is probably
 * meant, or NULL.
 */
static const struct job_key *find_field(const char *rules, const char *name, const char **near)
{
    const struct job_key *field;
    size_t best = (size_t)-1;

    *near = NULL;
    for (size_t i = 0; (field = job_rule_field(rules, i)) != NULL; i++) {
        if (strcmp(field->name, name) == 0)
            return field;
        if (job_key_is_called(field, name)) {
            best = 0;
            *near = field->name;
        } else if (spelling_is_close(name, field->name, &best)) {
            *near = field->name;
        }
    }
    return NULL;
}

static void read_rule(struct reading *reading, const char *rules, const struct tree_node *map,
                      const char *path, struct job_rule *rule)
{
    const struct job_key *first = job_rule_field(rules, 0);
    char words[3 * JOB_KEY_PATH_BYTES], at[PATH_BYTES], hint[SPELLING_HINT_BYTES];
    bool is_named = false;

    for (const struct tree_node *entry = map->children; entry != NULL; entry = entry->next) {
        const struct job_key *field;
        const char *near;

        if (entry->key->kind != TREE_SCALAR) {
            reading->bad = true;
            continue;
        }
        snprintf(at, sizeof at, "%s.%.64s", path, entry->key->text);
        field = find_field(rules, entry->key->text, &near);
        if (field == NULL) {
            snprintf(words, sizeof words, "is nothing that a rule can set%s", spelling_hint(near, hint));
            problem(reading, entry->key, at, words);
        } else if (field->type != JOB_NAMES) {
            read_setting(reading, field, entry, at, rule);
        } else if (field->zero == NULL || !is_null(entry)) {
            is_named = is_named || field == first;
            read_names(reading, entry, at, (struct job_names *)(void *)((char *)rule + field->field));
        }
    }
    if (!is_named || (rule->names.n == 0 && !reading->bad)) {
        snprintf(words, sizeof words, "%s must be given, like {%s: %s}", first->name, first->name,
                 first->example);
        problem(reading, map, path, words);
    }
}

static void read_rules(struct reading *reading, const char *rules, const struct tree_node *list,
                       struct job_rules *out)
{
    for (const struct tree_node *item = list->children; item != NULL; item = item->next) {
        char path[PATH_BYTES / 2], words[3 * JOB_KEY_PATH_BYTES];

        snprintf(path, sizeof path, "%s[%zu]", rules, out->n);
        if (item->kind != TREE_MAP) {
            snprintf(words, sizeof words, "must be a map, like {%s: %s}", job_rule_field(rules, 0)->name,
                     job_rule_field(rules, 0)->example);
            problem(reading, item, path, words);
        } else {
            read_rule(reading, rules, item, path, &out->list[out->n]);
        }
        out->n++;
    }
}

enum fsdp_status job_list_read(const struct job_key *key, const struct tree_node *node,
                               job_list_problem *report, void *context, void **out)
{
    struct reading reading = { .report = report, .context = context };
    char path[JOB_KEY_PATH_BYTES], words[512];
    size_t n = 0;
    void *list;

    *out = NULL;
    job_key_path(key, path);
    if (is_null(node))
        return FSDP_OK;
    for (const struct tree_node *item = node->children; node->kind == TREE_LIST && item != NULL;
         item = item->next)
        n++;
    if (key->type == JOB_RULES && (node->kind != TREE_LIST || n > JOB_RULES_MAX)) {
        snprintf(words, sizeof words, "must be a list of at most %d maps, like %s", (int)JOB_RULES_MAX,
                 job_key_example(key));
        problem(&reading, node, path, words);
        return FSDP_ERR_CONFIG;
    }
    if (node->kind == TREE_LIST && n == 0)
        return FSDP_OK; /* an empty list means none, like null */
    list = calloc(1, key->type == JOB_NAMES ? sizeof(struct job_names)
                                            : sizeof(struct job_rules) + n * sizeof(struct job_rule));
    if (list == NULL)
        return FSDP_ERR_NOMEM;
    if (key->type == JOB_NAMES)
        read_names(&reading, node, path, list);
    else
        read_rules(&reading, path, node, list);
    if (reading.bad) {
        free(list);
        return FSDP_ERR_CONFIG;
    }
    *out = list;
    return FSDP_OK;
}
