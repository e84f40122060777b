#include "shard_runtime/trainer/advice.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A change that may save memory. `value` NULL: a number made from the present one, by `scale`. */
struct change {
    const char *section, *key;
    const char *value; /* JSON */
    double scale;
    const char *also; /* another key of the section, scaled the other way round */
    const char *cost;
};

static const struct change changes[] = {
    { "parallel", "reshard_after_forward", "true", 0, NULL, "parameters are gathered once more in backward" },
    { "parallel", "reshard_after_backward", "true", 0, NULL, "parameters are gathered in every micro-step" },
    { "parallel", "gradient_sync", "\"every\"", 0, NULL, "gradients are reduced in every micro-step" },
    { "train", "batch", NULL, 0.5, "grad_accumulation", "twice as many micro-steps of half the size" },
    { "parallel", "recompute", "\"cheap\"", 0, NULL,
      "GELU and LayerNorm are computed twice: about 1 % more time" },
    { "parallel", "activation_checkpoint", "\"selective\"", 0, NULL,
      "what is cheap in forward is computed twice: a few percent more arithmetic" },
    { "parallel", "activation_checkpoint", "\"full\"", 0, NULL,
      "forward is computed twice: about a third more arithmetic" },
    { "parallel", "param_dtype", "\"bfloat16\"", 0, NULL,
      "products in bfloat16; master weights stay float32" },
    { "parallel", "reduce_dtype", "\"bfloat16\"", 0, NULL, "gradients are summed over ranks in bfloat16" },
    { "parallel", "offload", "\"cpu\"", 0, NULL,
      "parameters cross to the device and gradients back, every step" },
    { "parallel", "offload", "\"nvme\"", 0, NULL,
      "optimizer state is read from a disk and written back, every step" },
    { "launch", "nnodes", NULL, 2, NULL, "twice the nodes" },
};
enum { N_CHANGES = sizeof changes / sizeof *changes };
_Static_assert((int)N_CHANGES <= (int)ADVICE_MAX, "each has a place in the list");

static bool scale_number(cJSON *section, const char *key, double scale)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(section, key);
    const double value = cJSON_IsNumber(item) ? item->valuedouble * scale : 0;

    if (value < 1 || value != (double)(uint64_t)value)
        return false; /* half a sequence */
    cJSON_SetNumberValue(item, value);
    return true;
}

/* Apply it to the job; false when it would change nothing, or cannot be. */
static bool apply(cJSON *job, const struct change *change, char setting[ADVICE_WORDS_BYTES])
{
    cJSON *section = cJSON_GetObjectItemCaseSensitive(job, change->section);
    const cJSON *now;
    cJSON *value;
    bool same;

    if (section == NULL)
        return false;
    if (change->value == NULL) {
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(section, "global_batch");
        const bool fixed = cJSON_IsNumber(total) && total->valuedouble > 0;

        if (!scale_number(section, change->key, change->scale) ||
            (change->also != NULL && !fixed && !scale_number(section, change->also, 1 / change->scale)))
            return false;
        now = cJSON_GetObjectItemCaseSensitive(section, change->key);
        snprintf(setting, ADVICE_WORDS_BYTES, "%s.%s=%.0f", change->section, change->key, now->valuedouble);
        if (change->also != NULL && !fixed)
            snprintf(setting + strlen(setting), ADVICE_WORDS_BYTES - strlen(setting), " %s.%s=%.0f",
                     change->section, change->also,
                     cJSON_GetObjectItemCaseSensitive(section, change->also)->valuedouble);
        return true;
    }
    value = cJSON_Parse(change->value);
    if (value == NULL)
        return false;
    now = cJSON_GetObjectItemCaseSensitive(section, change->key);
    same = now != NULL && cJSON_Compare(now, value, true);
    if (same)
        cJSON_Delete(value);
    else if (now != NULL)
        cJSON_ReplaceItemInObjectCaseSensitive(section, change->key, value);
    else
        cJSON_AddItemToObject(section, change->key, value);
    snprintf(setting, ADVICE_WORDS_BYTES, "%s.%s=%.*s", change->section, change->key,
             (int)(strlen(change->value) - (change->value[0] == '"' ? 2 : 0)),
             change->value + (change->value[0] == '"'));
    return !same;
}

/*
 * A plan takes a time that grows with the square of the model's blocks. So many plans of one block may be made, which
 * take under two seconds of a core: 48 plans of 50 blocks, 12 of 100, 1 of 256.
 */
enum { MOST_WORK = 120000 };

/* What is tried, and what it is held against. */
struct search {
    const cJSON *job;
    size_t total, baseline, limit;
    uint64_t evaluation;
    uint64_t work;       /* of one plan */
    uint64_t *work_left; /* of all that may be made yet */
    bool *left_out;      /* set when a plan was not made for that */
};

/* False: such a job is refused. That is no error: it is not advised. The process's own size is taken as it was. */
static bool forecast_of(const cJSON *job, const struct search *search, struct forecast *forecast)
{
    struct fsdp_err err = { 0 };
    char *text = cJSON_PrintUnformatted(job);
    struct job read = { 0 };
    bool good = text != NULL && job_from_json(&read, text, strlen(text), &err) == FSDP_OK;

    good = good && forecast_job(forecast, &read, search->evaluation, &err) == FSDP_OK;
    job_free(&read);
    cJSON_free(text);
    if (good)
        forecast->total += search->baseline - forecast->baseline;
    return good;
}

static bool may_plan(const struct search *search)
{
    if (*search->work_left < search->work) {
        *search->left_out = true;
        return false;
    }
    *search->work_left -= search->work;
    return true;
}

/* Try one change on a copy of the job. When it saves memory *out is filled in and the changed job returned. */
static cJSON *try_change(const struct search *search, const struct change *change, struct advice *out)
{
    cJSON *job = cJSON_Duplicate(search->job, true);
    struct forecast forecast;

    if (job == NULL || !apply(job, change, out->setting) || !may_plan(search) ||
        !forecast_of(job, search, &forecast) || forecast.total >= search->total) {
        cJSON_Delete(job);
        return NULL;
    }
    out->cost = change->cost;
    out->total = forecast.total;
    out->sent_bytes = forecast_sent_bytes(&forecast);
    out->fits = forecast.total <= search->limit;
    return job;
}

static int smaller_first(const void *left, const void *right)
{
    const struct advice *a = left, *b = right;

    return a->total < b->total ? -1 : a->total > b->total;
}

static void find_alone(struct advice_list *list, const struct search *search)
{
    for (int i = 0; i < N_CHANGES; i++) {
        cJSON *changed = try_change(search, &changes[i], &list->alone[list->n_alone]);

        if (changed != NULL)
            list->n_alone++;
        cJSON_Delete(changed);
    }
    qsort(list->alone, (size_t)list->n_alone, sizeof *list->alone, smaller_first);
}

/* Cheapest first, as the table has them, each kept that saves something; then what can be done again (half of a batch, twice
 * the nodes), until it fits or nothing helps. */
static void find_together(struct advice_list *list, const struct search *search)
{
    cJSON *job = cJSON_Duplicate(search->job, true);
    struct search now = *search;
    bool helped = true;

    for (int pass = 0; job != NULL && helped; pass++) {
        helped = false;
        for (int i = 0; i < N_CHANGES && now.total > now.limit && list->n_together < ADVICE_MAX; i++) {
            cJSON *changed = NULL;

            now.job = job;
            if (pass == 0 || changes[i].value == NULL)
                changed = try_change(&now, &changes[i], &list->together[list->n_together]);
            if (changed == NULL)
                continue;
            cJSON_Delete(job);
            job = changed;
            now.total = list->together[list->n_together++].total;
            helped = true;
        }
    }
    cJSON_Delete(job);
}

enum fsdp_status advice_find(struct advice_list *list, const char *job_json, const struct forecast *now,
                             size_t limit, struct fsdp_err *err)
{
    cJSON *job = cJSON_Parse(job_json);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(job, "model");
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(model, "layers");
    const uint64_t n_blocks = cJSON_IsNumber(layers) ? (uint64_t)layers->valuedouble : 0;
    uint64_t work_left = MOST_WORK;
    const struct search search = {
        .job = job,
        .total = now->total,
        .baseline = now->baseline,
        .limit = limit,
        .evaluation = now->evaluation,
        .work = n_blocks * n_blocks,
        .work_left = &work_left,
        .left_out = &list->left_out,
    };
    bool one_fits = false;

    *list = (struct advice_list){ 0 };
    if (job == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the job");
    find_alone(list, &search);
    for (int i = 0; i < list->n_alone; i++)
        one_fits = one_fits || list->alone[i].fits;
    if (!one_fits)
        find_together(list, &search);
    cJSON_Delete(job);
    return FSDP_OK;
}
