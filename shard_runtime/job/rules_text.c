/*
 * Lists of names and of rules as text, in one line that is YAML, and JSON where it is asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/rules.h"

/* Quoted in both languages: a pattern may begin with a star, which YAML takes for an alias. Names need no escapes. */
static void put_names(FILE *out, const struct job_names *names, bool always_list)
{
    const bool brackets = always_list || names->n != 1;

    fputs(brackets ? "[" : "", out);
    for (size_t i = 0; i < names->n; i++)
        fprintf(out, "%s\"%s\"", i == 0 ? "" : ", ", names->list[i]);
    fputs(brackets ? "]" : "", out);
}

static bool put_rule(FILE *out, const char *rules, const struct job_rule *rule, bool json)
{
    const char *quote = json ? "\"" : "", *between = "";
    const struct job_key *field;

    fputs("{", out);
    for (size_t i = 0; (field = job_rule_field(rules, i)) != NULL; i++) {
        const struct job_names *names = (const void *)((const char *)rule + field->field);
        const struct job_value *value = job_rule_value(rule, field->name);
        char *text;

        if (field->type == JOB_NAMES ? names->n == 0 : value == NULL)
            continue;
        fprintf(out, "%s%s%s%s: ", between, quote, field->name, quote);
        between = ", ";
        if (field->type == JOB_NAMES) {
            put_names(out, names, false);
            continue;
        }
        text = job_value_text(field, value, json);
        if (text == NULL)
            return false;
        fputs(text, out);
        free(text);
    }
    fputs("}", out);
    return true;
}

char *job_list_text(const struct job_key *key, const void *list, bool json)
{
    const struct job_rules *rules = list;
    char path[JOB_KEY_PATH_BYTES], *text = NULL;
    size_t size = 0;
    bool good = true;
    FILE *out;

    if (list == NULL)
        return strdup("null");
    out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    if (key->type == JOB_NAMES) {
        put_names(out, list, true);
    } else {
        fputs("[", out);
        for (size_t i = 0; i < rules->n && good; i++) {
            fputs(i == 0 ? "" : ", ", out);
            good = put_rule(out, job_key_path(key, path), &rules->list[i], json);
        }
        fputs("]", out);
    }
    good = !ferror(out) && good;
    if (fclose(out) != 0 || !good) {
        free(text);
        return NULL;
    }
    return text;
}
