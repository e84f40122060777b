#include "shard_runtime/state/made_with.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/json_reader.h"

char *made_with_json(const struct made_with *ranks, int W, int threads)
{
    struct json_text text = { 0 };
    bool same = true;

    json_open(&text, NULL, '{');
    json_field_string(&text, "numerics", ranks[0].words);
    json_field(&text, "threads", "%d", threads);
    for (int rank = 1; rank < W; rank++) {
        if (strcmp(ranks[rank].words, ranks[0].words) == 0)
            continue;
        if (same)
            json_open(&text, "others", '[');
        same = false;
        json_open(&text, NULL, '{');
        json_field(&text, "rank", "%d", rank);
        json_field_string(&text, "numerics", ranks[rank].words);
        json_close(&text, '}');
    }
    if (!same)
        json_close(&text, ']');
    json_close(&text, '}');
    if (text.failed)
        json_text_free(&text);
    return text.bytes;
}

enum fsdp_status made_with_gather(const struct fsdp_context *context, char **json, struct fsdp_err *err)
{
    struct made_with *all = alloc_array((size_t)context->W, sizeof *all), *mine = all + context->rank;
    enum fsdp_status status = FSDP_OK;

    *json = NULL;
    if (all == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the words of %d ranks", context->W);
    else
        fsdp_context_describe(context, mine->words, sizeof mine->words);
    status = context_agree(context, status, err);
    if (status == FSDP_OK && context->W > 1)
        status = fsdp_all_gather(context->comm, mine, all, sizeof *mine, FSDP_U8,
                                 context->streams[PLAN_COMPUTE], err);
    if (status == FSDP_OK) {
        *json = made_with_json(all, context->W, context->threads);
        if (*json == NULL)
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the words of %d ranks", context->W);
    }
    free(all);
    return context_agree(context, status, err);
}

/*
 * Reads one object of the list `others`. Returns true if it is about `rank`; *out then has the rank's text.
 */
static bool read_other(struct json_reader *json, int rank, struct made_with *out)
{
    struct made_with found = { "" };
    const char *key, *words;
    uint64_t number = UINT64_MAX;

    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        if (strcmp(key, "rank") == 0)
            json_u64(json, &number);
        else if (strcmp(key, "numerics") == 0 && (words = json_string(json)) != NULL)
            snprintf(found.words, sizeof found.words, "%s", words);
        else
            json_skip(json);
    }
    if (number != (uint64_t)rank)
        return false;
    *out = found;
    return true;
}

static void read_words(struct json_reader *json, int rank, struct made_with *out)
{
    const char *key, *words;
    bool own = false;

    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        if (strcmp(key, "numerics") == 0 && !own) {
            if ((words = json_string(json)) != NULL)
                snprintf(out->words, sizeof out->words, "%s", words);
        } else if (strcmp(key, "others") == 0) {
            json_enter_array(json);
            while (json_next_element(json))
                own = read_other(json, rank, out) || own;
        } else {
            json_skip(json);
        }
    }
}

enum fsdp_status made_with_read(const struct manifest *manifest, int rank, struct made_with *out,
                                struct fsdp_err *err)
{
    struct json_reader json;
    char *text;

    *out = (struct made_with){ "" };
    if (manifest->numerics == NULL)
        return FSDP_OK;
    text = strndup(manifest->numerics, manifest->numerics_length);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "loading step %llu: out of memory",
                         (unsigned long long)manifest->step);
    json_read_init(&json, text, manifest->numerics_length);
    read_words(&json, rank, out);
    free(text);
    return FSDP_OK;
}
