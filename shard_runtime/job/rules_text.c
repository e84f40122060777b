/*
 * Writes lists of names and of rules as one line of text: JSON if the caller asks for it, otherwise YAML.
 */
#include <string.h>

#include "shard_runtime/job/rules.h"

/* Writes names, always in quotes: a pattern may begin with a star, which YAML would read as an alias. */
static void put_names(struct json_text *out, const struct job_names *names, bool always_list)
{
    const bool brackets = always_list || names->n != 1;

    if (brackets)
        json_open(out, NULL, '[');
    for (size_t i = 0; i < names->n; i++) {
        json_next(out);
        json_add_string(out, names->list[i]);
    }
    if (brackets)
        json_close(out, ']');
}

static void put_rule(struct json_text *out, const char *rules, const struct job_rule *rule, bool json)
{
    const struct job_key *field;

    json_open(out, NULL, '{');
    for (size_t i = 0; (field = job_rule_field(rules, i)) != NULL; i++) {
        const struct job_names *names = (const void *)((const char *)rule + field->field);
        const struct job_value *value = job_rule_value(rule, field->name);

        if (field->type == JOB_NAMES ? names->n == 0 : value == NULL)
            continue;
        json_next(out);
        json_add(out, json ? "\"%s\": " : "%s: ", field->name);
        if (field->type == JOB_NAMES)
            put_names(out, names, false);
        else
            job_value_text(field, value, json, out);
    }
    json_close(out, '}');
}

void job_list_text(const struct job_key *key, const void *list, bool json, struct json_text *out)
{
    const struct job_rules *rules = list;
    char path[JOB_KEY_PATH_BYTES];

    if (list == NULL) {
        json_add(out, "null");
    } else if (key->type == JOB_NAMES) {
        put_names(out, list, true);
    } else {
        json_open(out, NULL, '[');
        for (size_t i = 0; i < rules->n; i++)
            put_rule(out, job_key_path(key, path), &rules->list[i], json);
        json_close(out, ']');
    }
}
