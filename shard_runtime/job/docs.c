#include "shard_runtime/job/docs.h"

#include <string.h>

#include "shard_runtime/core/text.h"
#include "shard_runtime/job/rules.h"
#include "shard_runtime/job/value.h"

const char *job_key_takes(const struct job_key *key, char *out, size_t size)
{
    char low[JOB_VALUE_TEXT_BYTES], high[JOB_VALUE_TEXT_BYTES], words[256] = "", later[256] = "";

    job_limit_text(key->low, low);
    job_limit_text(key->high, high);
    job_list_spell(key->choices, ", ", words, sizeof words);
    if (key->later != NULL && key->later[0] != '*')
        job_list_spell(key->later, ", ", later, sizeof later);
    switch (key->type) {
    case JOB_BOOL:
        snprintf(out, size, "true or false");
        break;
    case JOB_COUNT:
    case JOB_NUMBER:
        if (key->later != NULL)
            snprintf(out, size, "%s (others not yet)", key->fallback);
        else if (key->type == JOB_NUMBER)
            snprintf(out, size, "number, %s %s %s", low, key->high_open ? "to below" : "to", high);
        else
            snprintf(out, size, "%s%swhole number, %s to %s", key->zero == NULL ? "" : key->zero,
                     key->zero == NULL ? "" : ", or ", low, high);
        break;
    case JOB_PAIR:
        snprintf(out, size, "list of two numbers, %s %s %s", low, key->high_open ? "to below" : "to", high);
        break;
    case JOB_TEXT:
        snprintf(out, size, "%s%s", key->zero == NULL ? "" : "null, or ",
                 key->is_path   ? "file name"
                 : key->is_name ? "directory name"
                                : "text");
        break;
    case JOB_NAMES:
        snprintf(out, size, "%sa name or a list of names", key->zero == NULL ? "" : "null, or ");
        break;
    case JOB_RULES:
        snprintf(out, size, "%slist of maps, below", key->zero == NULL ? "" : "null, or ");
        break;
    default:
        if (key->is_number_too)
            snprintf(words + strlen(words), sizeof words - strlen(words), ", or whole number, %s to %s", low,
                     high);
        snprintf(out, size, "%s%s%s%s", words,
                 key->later == NULL     ? ""
                 : key->later[0] == '*' ? " (others not yet)"
                                        : " (not yet: ",
                 later, later[0] == '\0' ? "" : ")");
    }
    return out;
}

enum { HELP_INDENT = 6 };

void job_docs_help(FILE *out)
{
    char name[JOB_KEY_PATH_BYTES];

    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];

        fprintf(out, "  %-34s %s\n%*s", job_key_path(key, name),
                key->fallback == NULL ? "(needed)" : key->fallback, HELP_INDENT, "");
        text_wrap(out, key->help, HELP_INDENT, HELP_INDENT, TEXT_COLUMNS);
    }
}

/* Writes, for each key that is a list of rules, a table of the fields that its rules may have. */
static void put_rules_markdown(FILE *out)
{
    char path[JOB_KEY_PATH_BYTES], takes[512];

    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i], *field;

        if (key->type != JOB_RULES)
            continue;
        job_key_path(key, path);
        fprintf(out,
                "\n## Rules of `%s`\n\nEach is a map; `%s` must be given. In a job file, or as `--set`, for "
                "example `%s`.\n\n| field | takes | example | what it does |\n|---|---|---|---|\n",
                path, job_rule_field(path, 0)->name, job_key_example(key));
        for (size_t f = 0; (field = job_rule_field(path, f)) != NULL; f++)
            fprintf(out, "| `%s` | %s | `%s` | %s |\n", field->name,
                    job_key_takes(field, takes, sizeof takes), job_key_example(field), field->help);
    }
}

void job_docs_markdown(FILE *out)
{
    const char *begun = "";
    char takes[512];

    fputs("# Job file\n\n"
          "<!-- Made from the table in shard_runtime/job/schema.c by `make docs`; a test holds this file "
          "against it. -->\n\n"
          "`fsdprun train.yaml` reads one YAML file of sections and keys, all of them listed here. A key "
          "that is not\n"
          "listed is an error, and so is a value of a wrong type or out of range. All problems are printed "
          "at once,\n"
          "`FILE:LINE:COLUMN: key.path: what is wrong`, and the status is 78. What is marked *not yet* is "
          "known and\n"
          "refused, never ignored.\n\n"
          "YAML is read strictly: `true` and `false` are the only booleans. Numbers have no `_` and no "
          "leading zero.\n"
          "Anchors, aliases, tags, merge keys, repeated keys and a second document are refused.\n\n"
          "`--set section.key=value` overrides a key, the last one wins. Text keys take the value as it "
          "stands.\n"
          "`--dry-run` prints the resolved job, with where each value came from, and that is a job file "
          "again.\n"
          "For keys of `launch` the command line, `FSDPRUN_*` and `PET_*` win over the file.\n",
          out);
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_section *section = job_section_begun(i);
        const struct job_key *key = &job_schema[i];

        if (section != NULL)
            fprintf(out, "\n## %s: %s\n\n| key | default | takes | what it does |\n|---|---|---|---|\n",
                    section->name, section->help);
        fprintf(out, "| `%s` | %s%s%s | %s | %s |\n", key->name, key->fallback == NULL ? "" : "`",
                key->fallback == NULL ? "must be given" : key->fallback, key->fallback == NULL ? "" : "`",
                job_key_takes(key, takes, sizeof takes), key->help);
    }
    put_rules_markdown(out);
    fputs("\n## Example\n\n```yaml\n", out);
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];

        if (key->later != NULL || strcmp(key->name, "global_batch") == 0 ||
            strcmp(key->name, "momentum") == 0)
            continue; /* not supported yet, or excludes another key */
        if (strcmp(begun, key->section) != 0)
            fprintf(out, "%s:\n", key->section);
        begun = key->section;
        fprintf(out, "  %s: %s\n", key->name, job_key_example(key));
    }
    fputs("```\n", out);
}

/* Writes a key's name, its help and what it takes, without the full stop. */
static void put_key_man(FILE *out, const struct job_key *key)
{
    char takes[512];

    fprintf(out, ".TP\n.B %s\n", key->name);
    text_roff(out, key->help);
    fputs("\nTakes: ", out);
    text_roff(out, job_key_takes(key, takes, sizeof takes));
}

static void put_rules_man(FILE *out, const struct job_key *key)
{
    char path[JOB_KEY_PATH_BYTES];
    const struct job_key *field;

    fputs("Fields of each map:\n.RS\n", out);
    for (size_t f = 0; (field = job_rule_field(job_key_path(key, path), f)) != NULL; f++) {
        put_key_man(out, field);
        fputs(".\n", out);
    }
    fputs(".RE\n", out);
}

void job_docs_man(FILE *out)
{
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_section *section = job_section_begun(i);
        const struct job_key *key = &job_schema[i];

        if (section != NULL) {
            fprintf(out, ".SS %s\n", section->name);
            text_roff(out, section->help);
            fputs(".\n", out);
        }
        put_key_man(out, key);
        fputs(". ", out);
        fputs(key->fallback == NULL ? "Must be given" : "Default: ", out);
        text_roff(out, key->fallback == NULL ? "" : key->fallback);
        fputs(".\n", out);
        if (key->type == JOB_RULES)
            put_rules_man(out, key);
    }
}
