/* The commands `fsdprun ckpt verify` and `diff`, which read every byte of a checkpoint. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/ckpt_impl.h"
#include "launcher/json_table.h"
#include "launcher/say.h"
#include "shard_runtime/ckpt/damage_find.h"
#include "shard_runtime/ckpt/differ.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/verify.h"

/* verify */

static void add_text(cJSON *object, const char *key, const char *text)
{
    if (text[0] == '\0')
        cJSON_AddNullToObject(object, key);
    else
        cJSON_AddStringToObject(object, key, text);
}

static cJSON *damage_object(const struct damage *damage)
{
    cJSON *object = cJSON_CreateObject();

    add_text(object, "file", damage->file);
    add_text(object, "tensor", damage->tensor);
    if (damage->has_range) {
        cJSON_AddNumberToObject(object, "begin", (double)damage->begin);
        cJSON_AddNumberToObject(object, "end", (double)damage->end);
    } else {
        cJSON_AddNullToObject(object, "begin");
        cJSON_AddNullToObject(object, "end");
    }
    if (damage->tensor[0] != '\0')
        cJSON_AddNumberToObject(object, "in_tensor", (double)damage->in_tensor);
    else
        cJSON_AddNullToObject(object, "in_tensor");
    cJSON_AddStringToObject(object, "reason", damage->reason);
    return object;
}

static cJSON *report_object(const char *path, const struct damage_report *report, double seconds)
{
    cJSON *object = cJSON_CreateObject(), *list = cJSON_CreateArray();

    cJSON_AddStringToObject(object, "path", path);
    cJSON_AddStringToObject(object, "state", report->n == 0 ? "sound" : "damaged");
    if (report->has_manifest) {
        cJSON_AddNumberToObject(object, "step", (double)report->step);
        cJSON_AddNumberToObject(object, "world_size", (double)report->world_size);
    } else {
        cJSON_AddNullToObject(object, "step");
        cJSON_AddNullToObject(object, "world_size");
    }
    cJSON_AddNumberToObject(object, "bytes", (double)report->bytes);
    cJSON_AddNumberToObject(object, "seconds", seconds);
    for (size_t i = 0; i < report->n; i++)
        cJSON_AddItemToArray(list, damage_object(&report->list[i]));
    cJSON_AddItemToObject(object, "damage", list);
    return object;
}

static void print_report(FILE *out, const char *path, const struct damage_report *report, double seconds)
{
    if (report->n == 0)
        say(out, "%s: sound: step %" PRIu64 " of %" PRIu64 " ranks, %.1f MiB in %.2f s", path, report->step,
            report->world_size, (double)report->bytes / 1048576, seconds);
    else
        say(out, "%s: damaged", path);
    for (size_t i = 0; i < report->n; i++) {
        const struct damage *damage = &report->list[i];
        char range[80] = "", place[80] = "";

        if (damage->has_range)
            snprintf(range, sizeof range, "bytes %" PRIu64 " to %" PRIu64 ": ", damage->begin, damage->end);
        if (damage->tensor[0] != '\0')
            snprintf(place, sizeof place,
                     ", from byte %" PRIu64 " of its part in the file: ", damage->in_tensor);
        say(out, "  %s%s%s%s%s%s", damage->file, damage->file[0] != '\0' ? ": " : "", range, damage->tensor,
            place, damage->reason);
    }
}

enum fsdp_status ckpt_verify_one(const char *path, int64_t step, bool *sound, FILE *out, cJSON *list,
                                 struct fsdp_err *err)
{
    const double began_s = clock_now_s();
    struct damage_report report;
    enum fsdp_status status = damage_find(&io_anywhere, path, &report, err);

    if (status == FSDP_OK && report.n == 0 && step >= 0 && report.step != (uint64_t)step) {
        struct damage damage = { .file = MANIFEST_FILE };

        snprintf(damage.reason, sizeof damage.reason, "it is of step %" PRIu64, report.step);
        report.list = calloc(1, sizeof damage); /* the list has no memory yet, as no damage was found */
        if (report.list == NULL)
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a list of damage");
        else
            report.list[report.n++] = damage;
    }
    *sound = status == FSDP_OK && report.n == 0;
    if (status == FSDP_OK && list != NULL)
        cJSON_AddItemToArray(list, report_object(path, &report, clock_now_s() - began_s));
    else if (status == FSDP_OK)
        print_report(out, path, &report, clock_now_s() - began_s);
    damage_report_free(&report);
    return status;
}

static int64_t step_of_path(const char *path)
{
    char copy[IO_PATH_BYTES];
    size_t length = strlen(path);
    const char *slash;

    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= sizeof copy)
        return -1;
    memcpy(copy, path, length);
    copy[length] = '\0';
    slash = strrchr(copy, '/');
    return commit_parse_step(slash == NULL ? copy : slash + 1);
}

/* Verifies all checkpoints of a run, the oldest first. */
static enum fsdp_status verify_run(const char *path, bool *sound, FILE *out, cJSON *list,
                                   struct fsdp_err *err)
{
    char directory[IO_PATH_BYTES], step_path[IO_PATH_BYTES];
    enum fsdp_status status = FSDP_OK;
    int64_t *steps;
    size_t n;

    OK_OR_RETURN(ckpt_find_directory(path, directory, err));
    OK_OR_RETURN(verify_list_steps(&io_anywhere, directory, &steps, &n, err));
    if (n == 0)
        status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there are no checkpoints in %s", directory);
    for (size_t i = n; i-- > 0 && status == FSDP_OK;) {
        bool one = false;

        status = commit_step_path(directory, steps[i], step_path, err);
        if (status == FSDP_OK)
            status = ckpt_verify_one(step_path, steps[i], &one, out, list, err);
        *sound = *sound && one;
    }
    free(steps);
    return status;
}

static int verify_once(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    const char *path = words->paths[0];
    cJSON *list = ckpt_words_value(words, "json") != NULL ? cJSON_CreateArray() : NULL;
    const int64_t step = step_of_path(path);
    bool sound = true;
    enum fsdp_status status = step >= 0 || ckpt_has_manifest(path)
                                  ? ckpt_verify_one(path, step, &sound, out, list, err)
                                  : verify_run(path, &sound, out, list, err);
    int ended = ckpt_exit_status(status);

    if (status == FSDP_OK) {
        ended = list != NULL ? json_print(list, out) : json_written(out);
        if (ended == 0 && !sound)
            ended = CKPT_EXIT_FOUND;
    }
    cJSON_Delete(list);
    return ended;
}

int ckpt_verify(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    return ckpt_words_value(words, "watch") != NULL ? ckpt_watch(words, out, err)
                                                    : verify_once(words, out, err);
}

/* diff */

static void add_real(cJSON *object, const char *key, double value)
{
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key); /* JSON has no infinity */
}

static cJSON *side_object(const struct manifest_tensor *tensor)
{
    cJSON *object, *shape;

    if (tensor == NULL)
        return cJSON_CreateNull();
    object = cJSON_CreateObject();
    shape = cJSON_CreateArray();
    cJSON_AddStringToObject(object, "dtype", fsdp_dtype_safetensors_name(tensor->dtype));
    for (size_t d = 0; d < tensor->n_dims; d++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[d]));
    cJSON_AddItemToObject(object, "shape", shape);
    return object;
}

static cJSON *difference_object(const struct difference *of)
{
    const bool is_counted = of->kind == DIFFER_VALUES || of->kind == DIFFER_DTYPE;
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "name", of->a != NULL ? of->a->name : of->b->name);
    cJSON_AddStringToObject(object, "differs", differ_word(of->kind));
    if (is_counted) {
        cJSON_AddNumberToObject(object, "elements", (double)of->n_elems);
        cJSON_AddNumberToObject(object, "differing", (double)of->n_differ);
    } else {
        cJSON_AddNullToObject(object, "elements");
        cJSON_AddNullToObject(object, "differing");
    }
    add_real(object, "max_abs", is_counted ? of->max_abs : NAN);
    add_real(object, "max_rel", is_counted ? of->max_rel : NAN);
    if (of->n_differ > 0)
        cJSON_AddNumberToObject(object, "first", (double)of->first);
    else
        cJSON_AddNullToObject(object, "first");
    cJSON_AddItemToObject(object, "a", side_object(of->a));
    cJSON_AddItemToObject(object, "b", side_object(of->b));
    return object;
}

/*
 * Lists the numbers of the training state that differ. World size and generation are not compared: they say
 * nothing about what was trained.
 */
static cJSON *compare_state(const struct manifest *a, const struct manifest *b)
{
    const struct {
        const char *name;
        uint64_t a, b;
    } numbers[] = { { "step", a->step, b->step },
                    { "seed", a->seed, b->seed },
                    { "cursor", a->cursor, b->cursor },
                    { "optimizer_step", a->optimizer_step, b->optimizer_step } };
    cJSON *list = cJSON_CreateArray();

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char digits[2][24];
        cJSON *object;

        if (numbers[i].a == numbers[i].b)
            continue;
        snprintf(digits[0], sizeof digits[0], "%" PRIu64, numbers[i].a);
        snprintf(digits[1], sizeof digits[1], "%" PRIu64, numbers[i].b);
        object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", numbers[i].name);
        cJSON_AddRawToObject(object, "a", digits[0]);
        cJSON_AddRawToObject(object, "b", digits[1]);
        cJSON_AddItemToArray(list, object);
    }
    return list;
}

static void print_differences(FILE *out, const cJSON *state, const cJSON *tensors, size_t n_equal)
{
    static const struct json_column columns[] = {
        { "NAME", "name", JSON_PATH },          { "DIFFERS", "differs", JSON_TEXT },
        { "ELEMENTS", "elements", JSON_COUNT }, { "DIFFERING", "differing", JSON_COUNT },
        { "MAX ABS", "max_abs", JSON_NUMBER },  { "MAX REL", "max_rel", JSON_NUMBER },
    };
    const int n = cJSON_GetArraySize(tensors);
    const cJSON *number;

    cJSON_ArrayForEach(number, state)
    {
        say(out, "%s: %s in A, %s in B", cJSON_GetObjectItemCaseSensitive(number, "name")->valuestring,
            cJSON_GetObjectItemCaseSensitive(number, "a")->valuestring,
            cJSON_GetObjectItemCaseSensitive(number, "b")->valuestring);
    }
    if (n > 0)
        json_table_print(columns, sizeof columns / sizeof *columns, tensors, out);
    fprintf(out, "%zu tensors are equal, %d differ\n", n_equal, n);
}

static int print_diff(const struct ckpt_words *words, const struct contents *a, const struct contents *b,
                      const struct difference *list, size_t n, FILE *out)
{
    const bool has_state = !a->follows_links && !b->follows_links;
    cJSON *all = cJSON_CreateObject(), *tensors = cJSON_CreateArray(),
          *state = has_state ? compare_state(&a->manifest, &b->manifest) : cJSON_CreateArray();
    size_t n_equal = 0;
    int ended;
    bool equal;

    for (size_t i = 0; i < n; i++)
        if (list[i].kind == DIFFER_EQUAL)
            n_equal++;
        else
            cJSON_AddItemToArray(tensors, difference_object(&list[i]));
    equal = n_equal == n && cJSON_GetArraySize(state) == 0;
    cJSON_AddBoolToObject(all, "equal", equal);
    cJSON_AddNumberToObject(all, "n_equal", (double)n_equal);
    cJSON_AddItemToObject(all, "state", state);
    cJSON_AddItemToObject(all, "tensors", tensors);
    if (ckpt_words_value(words, "json") != NULL) {
        ended = json_print(all, out);
    } else {
        print_differences(out, state, tensors, n_equal);
        ended = json_written(out);
    }
    cJSON_Delete(all);
    return ended != 0 ? ended : equal ? 0 : CKPT_EXIT_FOUND;
}

int ckpt_diff(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    char directory_a[IO_PATH_BYTES], directory_b[IO_PATH_BYTES];
    struct contents a = { 0 }, b = { 0 };
    struct difference *list = NULL;
    size_t n;
    enum fsdp_status status = ckpt_list(words->paths[0], &a, directory_a, err);
    int ended;

    if (status == FSDP_OK)
        status = ckpt_list(words->paths[1], &b, directory_b, err);
    if (status == FSDP_OK)
        status = differ_all(&io_anywhere, &(struct differ_side){ &a, directory_a },
                            &(struct differ_side){ &b, directory_b }, &list, &n, err);
    ended = status == FSDP_OK ? print_diff(words, &a, &b, list, n, out) : ckpt_exit_status(status);
    free(list);
    contents_free(&a);
    contents_free(&b);
    return ended;
}
