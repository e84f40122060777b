#include "shard_runtime/job/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/spelling.h"
#include "shard_runtime/core/utf8.h"
#include "shard_runtime/job/check.h"
#include "shard_runtime/job/nearest.h"
#include "shard_runtime/job/preset.h"
#include "shard_runtime/job/rules.h"
#include "shard_runtime/job/tree.h"
#include "shard_runtime/job/value.h"

static const char source_default[] = "default";
static const char source_file_name[] = "default (the job file's name)";

struct resolving {
    struct job *job;
    struct job_origins *origins;
    const struct job_input *input;
    struct job_report *report;
    bool bad[JOB_MAX_KEYS]; /* the key has a problem of its own; checks that depend on it are skipped */
    enum fsdp_status status;
};

/* One value */

static bool is_default(const struct job_place *place)
{
    return place->source == source_default || place->source == source_file_name;
}

static void keep(struct resolving *r, const struct job_key *key, const struct job_value *value,
                 struct job_place place)
{
    if (job_value_store(key, value, r->job) != FSDP_OK)
        r->status = FSDP_ERR_NOMEM;
    r->origins->of[job_key_index(key)] = place;
    r->bad[job_key_index(key)] = false;
}

static void spoil(struct resolving *r, const struct job_key *key, struct job_place place, const char *words)
{
    char path[JOB_KEY_PATH_BYTES];

    job_report_add(r->report, place, job_key_path(key, path), "%s", words);
    r->bad[job_key_index(key)] = true;
    r->origins->of[job_key_index(key)] = place;
}

/*
 * Context while a list is read. A problem in the file is reported at its own node, a problem in a setting at
 * the setting.
 */
struct list_reading {
    struct resolving *r;
    struct job_place place;
};

static void report_in_list(void *context, const struct tree_node *at, const char *path, const char *words)
{
    const struct list_reading *reading = context;
    struct job_place place = reading->place;

    if (place.line > 0) {
        place.line = at->line;
        place.column = at->column;
    }
    job_report_add(reading->r->report, place, path, "%s", words);
}

static void read_list(struct resolving *r, const struct job_key *key, const struct tree_node *node,
                      struct job_place place)
{
    struct list_reading reading = { r, place };
    struct job_value value = { 0 };
    void *list = NULL;

    switch (job_list_read(key, node, report_in_list, &reading, &list)) {
    case FSDP_OK:
        value.list = list;
        keep(r, key, &value, place);
        free(list);
        break;
    case FSDP_ERR_NOMEM:
        r->status = FSDP_ERR_NOMEM;
        break;
    default:
        r->bad[job_key_index(key)] = true;
        r->origins->of[job_key_index(key)] = place;
    }
}

static void read_node(struct resolving *r, const struct job_key *key, const struct tree_node *node,
                      struct job_place place)
{
    struct job_atom atoms[4];
    struct job_value value;
    struct fsdp_err why = { 0 };
    const struct tree_node *child = node->kind == TREE_LIST ? node->children : node;
    size_t n = 0;

    if (node->kind == TREE_BAD) {
        r->bad[job_key_index(key)] = true;
        return;
    }
    if (job_key_is_list(key)) {
        read_list(r, key, node, place);
        return;
    }
    for (; child != NULL && n < 4; child = node->kind == TREE_LIST ? child->next : NULL) {
        if (child->kind == TREE_BAD) {
            r->bad[job_key_index(key)] = true;
            return;
        }
        if (child->kind != TREE_SCALAR) {
            spoil(r, key, place,
                  child->kind == TREE_MAP ? "must be one value, not a map" : "must not be a list of lists");
            return;
        }
        if (child->plain)
            job_atom_plain(&atoms[n++], child->text);
        else
            job_atom_text(&atoms[n++], child->text);
    }
    if (job_value_read(key, atoms, n, node->kind == TREE_LIST, &value, &why) == FSDP_OK)
        keep(r, key, &value, place);
    else
        spoil(r, key, place, why.message);
}

/* The file */

static struct job_place place_of_node(const struct resolving *r, const struct tree_node *node)
{
    return (struct job_place){ r->input->path, node->line, node->column };
}

static void unknown(struct resolving *r, const struct tree_node *key, const char *section)
{
    char known[JOB_KEY_PATH_BYTES], path[JOB_KEY_PATH_BYTES * 2 + 2], hint[SPELLING_HINT_BYTES];
    const char *near = job_nearest(section, key->text, known);

    snprintf(path, sizeof path, "%s%s%.64s", section == NULL ? "" : section, section == NULL ? "" : ".",
             key->text);
    job_report_add(r->report, place_of_node(r, key), path, "is no %s of a job file%s",
                   section == NULL ? "section" : "key", spelling_hint(near, hint));
}

static void read_section(struct resolving *r, const char *section, const struct tree_node *map)
{
    if (map->kind == TREE_BAD || (map->kind == TREE_SCALAR && map->plain && map->text[0] == '\0'))
        /* the problem was reported already, or the section is empty ("run:" with every key commented out) */
        return;
    if (map->kind != TREE_MAP) {
        job_report_add(r->report, place_of_node(r, map), section, "must be a map of keys and values");
        return;
    }
    for (const struct tree_node *entry = map->children; entry != NULL; entry = entry->next) {
        const struct job_key *key;

        if (entry->key->kind != TREE_SCALAR)
            continue;
        key = job_key_find(section, entry->key->text);
        if (key == NULL)
            unknown(r, entry->key, section);
        else
            read_node(r, key, entry, place_of_node(r, entry));
    }
}

static void read_root(struct resolving *r, const struct tree_node *root)
{
    struct job_place start = { r->input->path, 1, 1 };

    if (root == NULL || (root->kind == TREE_SCALAR && root->plain && root->text[0] == '\0')) {
        if (r->report->n_found == 0)
            job_report_add(r->report, start, NULL, "the job file is empty");
        return;
    }
    if (root->kind != TREE_MAP) {
        if (root->kind != TREE_BAD)
            job_report_add(r->report, place_of_node(r, root), NULL, "a job file is a map of sections");
        return;
    }
    for (const struct tree_node *entry = root->children; entry != NULL; entry = entry->next) {
        if (entry->key->kind != TREE_SCALAR)
            continue;
        if (job_section_find(entry->key->text) != NULL)
            read_section(r, entry->key->text, entry);
        else
            unknown(r, entry->key, NULL);
    }
}

/*
 * Returns the place at which to report a missing key: the key's section, or the start of the file if the
 * section is missing too.
 */
static struct job_place place_of_section(const struct resolving *r, const struct tree_node *root,
                                         const char *section)
{
    if (root != NULL && root->kind == TREE_MAP)
        for (const struct tree_node *entry = root->children; entry != NULL; entry = entry->next)
            if (entry->key->kind == TREE_SCALAR && strcmp(entry->key->text, section) == 0)
                return place_of_node(r, entry->key);
    return (struct job_place){ r->input->path, 1, 1 };
}

/*
 * Reads the job file. Returns NULL if the file cannot be read, which is then in the report, or if memory runs
 * out.
 */
static char *read_job_file(struct resolving *r, size_t *length)
{
    const struct job_place place = { r->input->path, 0, 0 };
    const int fd = open(r->input->path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    /* One byte more than allowed: tree_read() then refuses a file that is too large. */
    const enum fsdp_status status = fd < 0 ? FSDP_ERR_IO : file_read(fd, TREE_MAX_BYTES + 1, &text, length);

    if (status == FSDP_ERR_IO)
        job_report_add(r->report, place, NULL, "cannot read the job file: %s", strerror(errno));
    else if (status != FSDP_OK)
        r->status = status;
    if (fd >= 0)
        close(fd);
    return text;
}

/* Settings from elsewhere */

static void refuse_setting(struct resolving *r, const struct job_setting *setting, const char *words)
{
    struct job_place place = { setting->origin, 0, 0 };

    job_report_add(r->report, place, NULL, "%s", words);
}

static void unknown_setting(struct resolving *r, const struct job_setting *setting, const char *path)
{
    char section[JOB_KEY_PATH_BYTES], known[JOB_KEY_PATH_BYTES], words[JOB_KEY_PATH_BYTES * 6];
    char hint[SPELLING_HINT_BYTES];
    const char *dot = strchr(path, '.'), *near;

    snprintf(section, sizeof section, "%.*s", (int)strcspn(path, "."), path);
    near = dot != NULL && job_section_find(section) != NULL ? job_nearest(section, dot + 1, known)
                                                            : job_nearest(NULL, section, known);
    snprintf(words, sizeof words, "%s%s%s", path,
             dot == NULL ? " is not section.key" : ": is no key of a job file", spelling_hint(near, hint));
    refuse_setting(r, setting, words);
}

/*
 * Reads `value` as the value of `key`. Text is taken literally, except for the key's word for "none". All
 * other types go through the YAML reader.
 */
static void read_setting_value(struct resolving *r, const struct job_key *key,
                               const struct job_setting *setting, const char *value)
{
    struct job_place place = { setting->origin, 0, 0 };
    struct tree_node as_it_is = { .kind = TREE_SCALAR, .text = value };
    struct job_report ignored;
    struct tree tree;

    /* A single name is taken literally too, including stars. */
    if (key->type == JOB_TEXT || (key->type == JOB_NAMES && value[0] != '[' && strcmp(value, "null") != 0)) {
        /* as in a file: none */
        as_it_is.plain = key->zero != NULL && strcmp(value, key->zero) == 0;
        if (utf8_is_valid(value))
            read_node(r, key, &as_it_is, place);
        else
            spoil(r, key, place, "is not UTF-8 text");
        return;
    }
    job_report_init(&ignored);
    if (tree_read(&tree, setting->origin, value, strlen(value), &ignored) != FSDP_OK) {
        r->status = FSDP_ERR_NOMEM;
    } else if (ignored.n_found > 0) {
        /* The line reads "--set 1:1:5: PROBLEM". Only PROBLEM is reported, at the place of the setting. */
        const char *words = strstr(ignored.problems[0].line, ": ");

        spoil(r, key, place, words == NULL ? "cannot be read" : words + 2);
    } else if (tree.root == NULL) {
        as_it_is.plain = true;
        as_it_is.text = "";
        read_node(r, key, &as_it_is, place);
    } else {
        read_node(r, key, tree.root, place);
    }
    job_report_fini(&ignored);
    tree_fini(&tree);
}

static void read_setting(struct resolving *r, const struct job_setting *setting)
{
    const char *equals = strchr(setting->text, '=');
    char path[JOB_KEY_PATH_BYTES];
    const struct job_key *key;

    if (equals == NULL || equals == setting->text) {
        refuse_setting(r, setting, "must be section.key=value");
        return;
    }
    snprintf(path, sizeof path, "%.*s", (int)(equals - setting->text < 60 ? equals - setting->text : 60),
             setting->text);
    if (!utf8_is_valid(path)) {
        refuse_setting(r, setting, "is not UTF-8 text");
        return;
    }
    key = job_key_find_path(path);
    if (key == NULL)
        unknown_setting(r, setting, path);
    else
        read_setting_value(r, key, setting, equals + 1);
}

/* Steps that need all values: presets, checks and paths */

static void fill_defaults(struct resolving *r)
{
    for (size_t i = 0; i < job_schema_size; i++) {
        struct job_value value;

        r->origins->of[i] = (struct job_place){ source_default, 0, 0 };
        if (job_value_fallback(&job_schema[i], &value))
            keep(r, &job_schema[i], &value, r->origins->of[i]);
    }
}

/*
 * Names the run after the job file, so that two job files in one directory do not share a run directory by
 * accident.
 */
static void name_after_file(struct resolving *r)
{
    const struct job_key *key = job_key_find("run", "name");
    const char *base = strrchr(r->input->path, '/'), *dot;
    struct job_value value;
    struct job_atom atom;
    char stem[256];

    base = base == NULL ? r->input->path : base + 1;
    dot = strrchr(base, '.');
    if (!is_default(&r->origins->of[job_key_index(key)]) || strlen(base) >= sizeof stem)
        return;
    snprintf(stem, sizeof stem, "%.*s", (int)(dot == NULL ? strlen(base) : (size_t)(dot - base)), base);
    job_atom_text(&atom, stem);
    if (utf8_is_valid(stem) && job_value_read(key, &atom, 1, false, &value, NULL) == FSDP_OK)
        keep(r, key, &value, (struct job_place){ source_file_name, 0, 0 });
}

/*
 * Makes a path absolute: "dir/x.yaml" and "../data" give "/cwd/dir/../data". Keeps "..", because the system
 * must resolve it: a directory on the way may be a link.
 */
static void make_path_absolute(struct resolving *r, const struct job_key *key)
{
    char **field = (char **)(void *)((char *)r->job + key->field);
    const struct job_place *place = &r->origins->of[job_key_index(key)];
    const char *slash = place->line > 0 ? strrchr(r->input->path, '/') : NULL;
    int folder = slash == NULL ? 0 : (int)(slash - r->input->path) + 1;
    char *cwd = NULL, *absolute = NULL;

    if (*field == NULL || (*field)[0] == '/' || (*field)[0] == '\0')
        return;
    if (key->is_place && strncmp(*field, "s3://", 5) == 0)
        return;
    if (folder == 0 || r->input->path[0] != '/') {
        cwd = getcwd(NULL, 0);
        if (cwd == NULL) {
            spoil(r, key, *place, "is relative, and the working directory is gone");
            return;
        }
    }
    if (asprintf(&absolute, "%s%s%.*s%s", cwd == NULL ? "" : cwd,
                 cwd == NULL || strcmp(cwd, "/") == 0 ? "" : "/", folder, folder == 0 ? "" : r->input->path,
                 *field) < 0) {
        r->status = FSDP_ERR_NOMEM;
    } else if (!utf8_is_valid(absolute)) {
        spoil(r, key, *place, "stands in a folder whose name is not UTF-8");
        free(absolute);
    } else {
        free(*field);
        *field = absolute;
    }
    free(cwd);
}

/*
 * Reports a misfit. The place is that of the first of its keys that the user set. If one of the keys has a
 * problem of its own, the misfit is not reported.
 */
static void blame(void *context, const char *keys, enum fsdp_status status, const char *words)
{
    struct resolving *r = context;
    char path[JOB_KEY_PATH_BYTES], first[JOB_KEY_PATH_BYTES];
    struct job_place place = { r->input->path, 1, 1 };
    bool found = false;

    (void)status;
    for (int i = 0; job_list_word(keys, i, path); i++) {
        size_t at = job_key_index(job_key_find_path(path));

        if (r->bad[at])
            return;
        if (!found && !is_default(&r->origins->of[at])) {
            place = r->origins->of[at];
            found = true;
        }
    }
    job_list_word(keys, 0, first);
    job_report_add(r->report, place, first, "%s", words);
}

/*
 * Applies the values of preset and kind to keys that the user did not set. Does nothing if kind or preset
 * could not be read.
 */
static void apply_presets(struct resolving *r)
{
    struct job_preset_key preset;
    const char *source;

    if (r->bad[job_key_index(job_key_find("model", "kind"))] ||
        r->bad[job_key_index(job_key_find("model", "preset"))])
        return;
    for (size_t i = 0; job_preset_at(r->job, i, &preset, &source); i++) {
        const struct job_key *key = job_key_find_path(preset.path);
        struct job_value value;
        struct job_atom atom;

        job_atom_plain(&atom, preset.value);
        if (is_default(&r->origins->of[job_key_index(key)]) && !r->bad[job_key_index(key)] &&
            job_value_read(key, &atom, 1, false, &value, NULL) == FSDP_OK)
            keep(r, key, &value, (struct job_place){ source, 0, 0 });
    }
}

static void require_keys(struct resolving *r, const struct tree_node *root)
{
    for (size_t i = 0; i < job_schema_size; i++)
        if (job_schema[i].fallback == NULL && is_default(&r->origins->of[i]) && !r->bad[i])
            spoil(r, &job_schema[i], place_of_section(r, root, job_schema[i].section), "must be given");
}

static void resolve_tree(struct resolving *r, const char *text, size_t length)
{
    struct tree tree;
    size_t n_syntax;

    if (tree_read(&tree, r->input->path, text, length, r->report) != FSDP_OK)
        r->status = FSDP_ERR_NOMEM;
    n_syntax = r->report->n_found;
    read_root(r, tree.root);
    for (size_t i = 0; i < r->input->n_settings; i++)
        read_setting(r, &r->input->settings[i]);
    apply_presets(r);
    /* After a syntax error the tree is incomplete, so a missing key may be one that was not read. */
    if (n_syntax == 0 && tree.root != NULL && tree.root->kind == TREE_MAP) {
        require_keys(r, tree.root);
        job_check(r->job, blame, r);
    }
    name_after_file(r);
    for (size_t i = 0; i < job_schema_size; i++)
        if (job_schema[i].is_path)
            make_path_absolute(r, &job_schema[i]);
    tree_fini(&tree);
}

enum fsdp_status job_resolve(struct job *job, struct job_origins *origins, const struct job_input *input,
                             struct job_report *report)
{
    struct resolving r = { .job = job, .origins = origins, .input = input, .report = report };
    const char *text = input->text;
    size_t length = input->length;
    char *owned = NULL;

    memset(job, 0, sizeof *job);
    fill_defaults(&r);
    for (size_t i = 0; i < input->n_defaults; i++)
        read_setting(&r, &input->defaults[i]);
    if (text == NULL)
        text = owned = read_job_file(&r, &length);
    if (text != NULL)
        resolve_tree(&r, text, length);
    free(owned);
    if (r.status == FSDP_OK && report->no_memory)
        r.status = FSDP_ERR_NOMEM;
    if (r.status == FSDP_OK && report->n_found > 0)
        r.status = FSDP_ERR_CONFIG;
    if (r.status != FSDP_OK)
        job_free(job);
    return r.status;
}
