#include "shard_runtime/shardfile/job_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/data_record.h"
#include "shard_runtime/shardfile/json_reader.h"

enum { MEMBERS_MAX = 256, VALUE_SHOWN_BYTES = 32, REST_BYTES = 32 };

struct member {
    const char *section, *name;
    const char *value; /* not zero-terminated */
    size_t length;
};

/* The keys of a job in the order of its text. The members point into `text`, which is a copy. */
struct members {
    char *text;
    size_t n;
    struct member list[MEMBERS_MAX];
};

/* Moves the reader to the next value, or to the end of the text. */
static void skip_space(struct json_reader *json)
{
    while (json->at < json->length && memchr(" \t\r\n", json->text[json->at], 4) != NULL)
        json->at++;
}

static void read_section(struct json_reader *json, const char *section, struct members *out)
{
    const char *name;

    skip_space(json);
    if (json->at < json->length && json->text[json->at] != '{') {
        (void)json_skip(json); /* job of another program: its members can be any values */
        return;
    }
    json_enter_object(json);
    while ((name = json_next_member(json)) != NULL) {
        size_t begin;

        skip_space(json);
        begin = json->at;
        if (!json_skip(json))
            return;
        if (out->n == MEMBERS_MAX) {
            (void)json_refuse(json, "too many keys");
            return;
        }
        out->list[out->n++] = (struct member){ section, name, json->text + begin, json->at - begin };
    }
}

static enum fsdp_status read_members(struct members *out, const char *text, size_t length,
                                     struct fsdp_err *err)
{
    struct json_reader json;
    const char *section;

    out->n = 0;
    out->text = strndup(text, length);
    if (out->text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to compare two jobs");
    json_read_init(&json, out->text, strlen(out->text));
    json_enter_object(&json);
    while ((section = json_next_member(&json)) != NULL)
        read_section(&json, section, out);
    return json_end(&json) ? FSDP_OK : fsdp_fail(err, FSDP_ERR_FORMAT, "a job as JSON: %s", json.problem);
}

static const struct member *find(const struct members *members, const char *section, const char *name)
{
    for (size_t i = 0; i < members->n; i++)
        if (strcmp(members->list[i].section, section) == 0 &&
            (name == NULL || strcmp(members->list[i].name, name) == 0))
            return &members->list[i];
    return NULL;
}

/* Appends one change to changes->words, if there is room. Always leaves room for "and N more". */
static void add_change(struct job_changes *changes, const struct member *was, const struct member *is)
{
    const size_t at = strlen(changes->words), room = sizeof changes->words - REST_BYTES;
    const bool shown = was->length <= VALUE_SHOWN_BYTES && is->length <= VALUE_SHOWN_BYTES;
    char words[256];

    changes->n++;
    if (shown)
        snprintf(words, sizeof words, "%s%s.%s %.*s -> %.*s", at > 0 ? ", " : "", is->section, is->name,
                 (int)was->length, was->value, (int)is->length, is->value);
    else
        snprintf(words, sizeof words, "%s%s.%s", at > 0 ? ", " : "", is->section, is->name);
    if (at + strlen(words) < room)
        memcpy(changes->words + at, words, strlen(words) + 1);
}

/*
 * Appends "and N more" to changes->words if some changes had no room there. `n_written` is the number of
 * changes that had room.
 */
static void count_rest(struct job_changes *changes, size_t n_written)
{
    const size_t at = strlen(changes->words);

    if (n_written < changes->n)
        snprintf(changes->words + at, sizeof changes->words - at, " and %zu more", changes->n - n_written);
}

static void compare(struct job_changes *changes, const struct members *was, const struct members *is,
                    const struct members *defaults, const char *skip)
{
    size_t n_written = 0;

    for (size_t i = 0; i < defaults->n; i++) {
        const struct member *key = &defaults->list[i], *old = find(was, key->section, key->name),
                            *new = find(is, key->section, key->name);
        const size_t length = strlen(changes->words);
        char path[128];

        snprintf(path, sizeof path, "%s.%s", key->section, key->name);
        if ((skip != NULL && strncmp(path, skip, strlen(skip)) == 0) || find(was, key->section, NULL) == NULL)
            continue;
        old = old == NULL ? key : old;
        new = new == NULL ? key : new;
        if (old->length == new->length && memcmp(old->value, new->value, old->length) == 0)
            continue;
        add_change(changes, old, new);
        n_written += strlen(changes->words) > length;
    }
    count_rest(changes, n_written);
}

enum fsdp_status job_changes_find(struct job_changes *out, const struct manifest *manifest, const char *job,
                                  const char *defaults, const char *skip, struct fsdp_err *err)
{
    struct members *all = calloc(3, sizeof *all);
    enum fsdp_status status = FSDP_OK;

    *out = (struct job_changes){ 0 };
    if (all == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to compare two jobs");
    if (manifest->job == NULL)
        goto done;
    status = read_members(&all[0], manifest->job, manifest->job_length, err);
    if (status == FSDP_OK)
        status = read_members(&all[1], job, strlen(job), err);
    if (status == FSDP_OK)
        status = read_members(&all[2], defaults, strlen(defaults), err);
    if (status == FSDP_OK)
        compare(out, &all[0], &all[1], &all[2], skip);
done:
    for (size_t i = 0; i < 3; i++)
        free(all[i].text);
    free(all);
    return status;
}

uint64_t job_changes_count(const struct manifest *manifest, const char *section, const char *name)
{
    struct members *members = calloc(1, sizeof *members);
    const struct member *found = NULL;
    struct json_reader json;
    uint64_t count = 0;

    if (members != NULL && manifest->job != NULL &&
        read_members(members, manifest->job, manifest->job_length, NULL) == FSDP_OK)
        found = find(members, section, name);
    if (found != NULL) {
        /* json_u64() does not modify the text */
        json_read_init(&json, (char *)(uintptr_t)found->value, found->length);
        if (!json_u64(&json, &count) || !json_end(&json))
            count = 0;
    }
    if (members != NULL)
        free(members->text);
    free(members);
    return count;
}

enum fsdp_status job_changes_refuse(const struct manifest *manifest, const char *job, const char *defaults,
                                    bool check, const struct fingerprint *bytes, struct fsdp_err *err)
{
    struct job_changes changes = { 0 };
    struct data_record record;
    enum fsdp_status status;
    bool known, others;

    OK_OR_RETURN(data_record_read(manifest, &record, &known, err));
    known = known && bytes != NULL;
    others = check && known && !fingerprint_same(&record.bytes, bytes);
    status = job_changes_find(&changes, manifest, job, defaults,
                              !check  ? "data."
                              : known ? "data.path"
                                      : NULL,
                              err);
    if (status != FSDP_OK || (changes.n == 0 && !others))
        return status;
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s%s%s", others ? "data.path (other bytes)" : "",
                     others && changes.n > 0 ? ", " : "", changes.words);
}
