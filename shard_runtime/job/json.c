/*
 * Reads and writes the job as JSON: sections and keys of the job file with typed values. Launcher, agent and
 * workers exchange this JSON, and RUN/job.json contains it. The writer does not use cJSON, so that counts
 * stay exact and floats read back to the same bits. The reader uses cJSON, which accepts an object with the
 * same key twice; this file refuses such an object.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/core/utf8.h"
#include "shard_runtime/job/check.h"
#include "shard_runtime/job/job.h"
#include "shard_runtime/job/rules.h"
#include "shard_runtime/job/schema.h"
#include "shard_runtime/job/value.h"

/*
 * Appends a key and its value (NULL: null). Also writes the brackets of a section that begins or ends here.
 */
static void add_key(struct json_text *text, const char **section, const struct job_key *key,
                    const struct job_value *value)
{
    if (*section == NULL || strcmp(*section, key->section) != 0)
        json_add(text, "%s\n  \"%s\": {", *section == NULL ? "{" : "},", key->section);
    else
        json_add(text, ",");
    *section = key->section;
    json_add(text, "\n    \"%s\": ", key->name);
    if (value == NULL)
        json_add(text, "null");
    else
        job_value_text(key, value, true, text);
}

/* Writes the keys of `job`, or the default of every key if `job` is NULL. */
static enum fsdp_status write_job(const struct job *job, bool deciding_only, char **out, struct fsdp_err *err)
{
    const char *section = NULL;
    struct json_text text = { 0 };

    *out = NULL;
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];
        struct job_value value;
        bool has_value = true;

        if (deciding_only && !job_key_decides(key))
            continue;
        if (job != NULL)
            job_value_load(key, job, &value);
        else
            has_value = job_value_fallback(key, &value);
        add_key(&text, &section, key, has_value ? &value : NULL);
    }
    json_add(&text, "}\n}\n");
    if (text.failed) {
        json_text_free(&text);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the job as JSON");
    }
    *out = text.bytes;
    return FSDP_OK;
}

enum fsdp_status job_to_json(const struct job *job, char **out, struct fsdp_err *err)
{
    return write_job(job, false, out, err);
}

enum fsdp_status job_defaults_json(bool deciding_only, char **out, struct fsdp_err *err)
{
    return write_job(NULL, deciding_only, out, err);
}

static bool atom_from_json(const cJSON *item, struct job_atom *atom, char text[JOB_VALUE_TEXT_BYTES])
{
    job_atom_text(atom, "");
    if (cJSON_IsNull(item)) {
        job_atom_plain(atom, "null");
    } else if (cJSON_IsBool(item)) {
        job_atom_plain(atom, cJSON_IsTrue(item) ? "true" : "false");
    } else if (cJSON_IsString(item)) {
        job_atom_text(atom, item->valuestring);
    } else if (cJSON_IsNumber(item)) {
        double number = item->valuedouble;

        atom->kind = number == floor(number) && fabs(number) < 0x1p63 ? ATOM_INTEGER : ATOM_NUMBER;
        atom->number = number;
        atom->negative = number < 0;
        atom->count = atom->kind == ATOM_INTEGER ? (uint64_t)fabs(number) : 0;
        if (atom->kind == ATOM_INTEGER)
            snprintf(text, JOB_VALUE_TEXT_BYTES, "%.0f", number);
        atom->text = atom->kind == ATOM_INTEGER ? text : job_number_text(number, text);
    } else {
        return false;
    }
    return true;
}

static void keep_first_problem(void *context, const struct tree_node *at, const char *path, const char *words)
{
    struct fsdp_err *first = context;

    (void)at;
    if (first->status == FSDP_OK)
        fsdp_fail(first, FSDP_ERR_FORMAT, "%s: %s", path, words);
}

/* JSON is also YAML, so a list is read by the same functions as in a job file. */
static enum fsdp_status read_list(struct job *job, const struct job_key *key, const cJSON *item,
                                  struct fsdp_err *err)
{
    char *text = cJSON_PrintUnformatted(item);
    struct fsdp_err first = { 0 };
    struct job_report report;
    struct tree tree = { 0 };
    enum fsdp_status status = FSDP_ERR_NOMEM;
    void *list = NULL;

    job_report_init(&report);
    if (text != NULL && tree_read(&tree, "job", text, strlen(text), &report) == FSDP_OK) {
        status = report.n_found > 0 || tree.root == NULL
                     ? fsdp_fail(&first, FSDP_ERR_FORMAT, "%s.%s: must not be such a list", key->section,
                                 key->name)
                     : job_list_read(key, tree.root, keep_first_problem, &first, &list);
        if (status == FSDP_OK)
            status = job_value_store(key, &(struct job_value){ .list = list }, job);
    }
    if (status == FSDP_ERR_NOMEM)
        (void)fsdp_fail(err, status, "no memory for the job");
    else if (status != FSDP_OK)
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s", first.message);
    free(list);
    tree_fini(&tree);
    job_report_fini(&report);
    cJSON_free(text);
    return status;
}

static enum fsdp_status read_item(struct job *job, const struct job_key *key, const cJSON *item,
                                  struct fsdp_err *err)
{
    char path[JOB_KEY_PATH_BYTES], texts[2][JOB_VALUE_TEXT_BYTES];
    struct job_atom atoms[2];
    struct job_value value;
    const cJSON *child;
    size_t n = 0;
    enum fsdp_status status;

    if (job_key_is_list(key))
        return read_list(job, key, item, err);
    job_key_path(key, path);
    for (child = cJSON_IsArray(item) ? item->child : NULL; child != NULL; child = child->next) {
        if (n == 2 || !atom_from_json(child, &atoms[n], texts[n]))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: must not be such a list", path);
        n++;
    }
    if (!cJSON_IsArray(item) && !atom_from_json(item, &atoms[n++], texts[0]))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: must be a value, not an object", path);
    if (job_value_read(key, atoms, n, cJSON_IsArray(item), &value, err) != FSDP_OK) {
        if (err != NULL)
            err->status = FSDP_ERR_FORMAT;
        fsdp_wrap(err, "%s", path);
        return FSDP_ERR_FORMAT;
    }
    status = job_value_store(key, &value, job);
    return status == FSDP_OK ? status : fsdp_fail(err, status, "no memory for the job");
}

static enum fsdp_status read_section(struct job *job, const cJSON *section, bool seen[JOB_MAX_KEYS],
                                     struct fsdp_err *err)
{
    const cJSON *item;

    if (job_section_find(section->string) == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: is no section of a job", section->string);
    if (!cJSON_IsObject(section))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: must be an object", section->string);
    cJSON_ArrayForEach(item, section)
    {
        const struct job_key *key = job_key_find(section->string, item->string);

        if (key == NULL)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%s.%s: is no key of a job", section->string,
                             item->string);
        if (seen[job_key_index(key)])
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%s.%s: is there twice", section->string, item->string);
        seen[job_key_index(key)] = true;
        OK_OR_RETURN(read_item(job, key, item, err));
    }
    return FSDP_OK;
}

/*
 * Gives an absent key its default. The program that wrote the job is older than the key, and it behaved as
 * the default says.
 */
static enum fsdp_status take_default(struct job *job, const struct job_key *key, struct fsdp_err *err)
{
    struct job_value value;

    if (!job_value_fallback(key, &value))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s.%s: is missing", key->section, key->name);
    return job_value_store(key, &value, job) == FSDP_OK
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the job");
}

static void keep_first_misfit(void *context, const char *keys, enum fsdp_status status, const char *words)
{
    struct fsdp_err *first = context;
    char path[JOB_KEY_PATH_BYTES];

    if (first->status == FSDP_OK && job_list_word(keys, 0, path))
        fsdp_fail(first, status, "%s: %s", path, words);
}

enum fsdp_status job_from_json(struct job *job, const char *text, size_t length, struct fsdp_err *err)
{
    bool seen[JOB_MAX_KEYS] = { false };
    struct fsdp_err first = { 0 };
    cJSON *root = json_parse_object(text, length);
    const cJSON *section;
    enum fsdp_status status = FSDP_OK;

    memset(job, 0, sizeof *job);
    if (root == NULL) {
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "the job is not one JSON object");
        goto done;
    }
    /*
     * cJSON accepts any byte. Text that is not UTF-8 is refused here, because job_to_json() could not write
     * it back unchanged.
     */
    if (utf8_prefix(text, length) != length) {
        status =
            fsdp_fail(err, FSDP_ERR_FORMAT, "the job is not UTF-8 at byte %zu", utf8_prefix(text, length));
        goto done;
    }
    cJSON_ArrayForEach(section, root)
    {
        status = read_section(job, section, seen, err);
        if (status != FSDP_OK)
            goto done;
    }
    for (size_t i = 0; i < job_schema_size && status == FSDP_OK; i++)
        if (!seen[i])
            status = take_default(job, &job_schema[i], err);
    if (status == FSDP_OK && job_check(job, keep_first_misfit, &first) != 0)
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s", first.message);
done:
    cJSON_Delete(root);
    if (status != FSDP_OK)
        job_free(job);
    return status;
}
