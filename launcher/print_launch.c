#include "launcher/print_launch.h"

#include <fsdp/link.h>
#include <inttypes.h>
#include <string.h>

#include "launcher/json_table.h"
#include "shard_runtime/core/json.h"

static void add_bool(struct json_text *text, bool yes)
{
    json_add(text, yes ? "true" : "false");
}

static void add_texts(struct json_text *text, char *const *texts)
{
    json_open(text, NULL, '[');
    for (; texts != NULL && *texts != NULL; texts++) {
        json_next(text);
        json_add_string(text, *texts);
    }
    json_close(text, ']');
}

static void add_signals(struct json_text *text, uint64_t signals)
{
    json_open(text, NULL, '[');
    for (int s = 1; s < 64; s++)
        if ((signals >> s & 1) != 0) {
            json_next(text);
            json_add(text, "\"SIG%s\"", sigabbrev_np(s));
        }
    json_close(text, ']');
}

static void add_streams(struct json_text *text, const unsigned char *streams, int n_workers)
{
    json_open(text, NULL, '[');
    for (int r = 0; r < n_workers; r++) {
        json_next(text);
        json_add(text, "%d", streams == NULL ? 0 : streams[r]);
    }
    json_close(text, ']');
}

static void add_ranks(struct json_text *text, const unsigned char *ranks, int n_workers)
{
    json_open(text, NULL, '[');
    for (int r = 0; r < n_workers; r++)
        if (ranks == NULL || ranks[r] != 0) {
            json_next(text);
            json_add(text, "%d", r);
        }
    json_close(text, ']');
}

static void add_given(struct json_text *text, const struct option *option, const struct options *options)
{
    const char *given = options->of[option->id].text;

    if (option->kind == OPTION_FLAG)
        add_bool(text, options_has(options, option->id));
    else
        json_add_string(text, given != NULL ? given : option->fallback);
}

static void add_field(struct json_text *text, const struct agent_config *config,
                      const struct option_field *field)
{
    static const char *const hosting[] = { "auto", "yes", "no" };
    const char *at = (const char *)config + field->offset;

    switch (field->kind) {
    case FIELD_INT:
        if (*(const int *)at < 0)
            json_add(text, "null");
        else
            json_add(text, "%d", *(const int *)at);
        break;
    case FIELD_BYTES:
        json_add(text, "%" PRIu64, *(const uint64_t *)at);
        break;
    case FIELD_SECONDS:
        json_add(text, "%" PRId64, *(const int64_t *)at / 1000);
        break;
    case FIELD_BOOL:
        add_bool(text, *(const bool *)at);
        break;
    case FIELD_IS_SET:
        add_bool(text, *(const char *const *)at != NULL);
        break;
    case FIELD_TEXT:
        json_add_string(text, *(const char *const *)at);
        break;
    case FIELD_TEXTS:
        add_texts(text, *(char *const *const *)at);
        break;
    case FIELD_SIGNALS:
        add_signals(text, *(const uint64_t *)at);
        break;
    case FIELD_STREAMS:
        add_streams(text, *(const unsigned char *const *)at, config->n_workers);
        break;
    case FIELD_RANKS:
        add_ranks(text, *(const unsigned char *const *)at, config->n_workers);
        break;
    case FIELD_HOSTING:
        json_add_string(text, hosting[*(const enum agent_hosting *)at]);
        break;
    case FIELD_NONE:
    case FIELD_GIVEN:
        break;
    }
}

/* Collects all lines in memory and writes them at the end. So nothing is written if there is no memory. */
int print_launch(const struct launch *launch, const struct options *options, FILE *out)
{
    struct json_text text = { 0 };
    bool whole;

    json_add(&text, "# Nothing was run: this is how it would be launched, and where each value came from.\n"
                    "command: ");
    add_texts(&text, launch->config.argv);
    json_add(&text, "\n");
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];
        const char *origin = options->of[option->id].origin;

        for (const struct option_field *field = option->fields; field->kind != FIELD_NONE; field++) {
            json_add(&text, "%s: ", field->key);
            if (field->kind == FIELD_GIVEN)
                add_given(&text, option, options);
            else
                add_field(&text, &launch->config, field);
            json_add(&text, " # %s\n", origin[0] == '\0' ? "default" : origin);
        }
    }
    whole = !text.failed;
    if (whole)
        fputs(text.bytes, out);
    json_text_free(&text);
    return whole ? json_written(out) : FSDP_EXIT_IO;
}

void print_launch_defaults(const struct options *options, FILE *out)
{
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option *option = &option_table[i];
        const struct option_value *value = &options->of[option->id];

        if (value->is_weak && option->id != OPT_NNODES && option->id != OPT_NPROC_PER_NODE)
            fprintf(out, "# --%s%s%s # %s\n", option->name, option->kind == OPTION_FLAG ? "" : " ",
                    option->kind == OPTION_FLAG ? "" : value->text, value->origin);
    }
}
