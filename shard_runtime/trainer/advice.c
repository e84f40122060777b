#include "shard_runtime/trainer/advice.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A change of one key that may save memory. `value` NULL: the new number is the present one times `scale`. */
struct change {
    const char *section, *key;
    const char *value; /* new value as JSON */
    double scale;
    enum advice_effect effect;
    const char *cost;
};

/* All changes. Among changes with the same effect, smaller changes come first. */
static const struct change changes[] = {
    { "parallel", "reshard_after_forward", "true", 0, ADVICE_SAME_BITS,
      "parameters are gathered once more in backward" },
    { "parallel", "reshard_after_backward", "true", 0, ADVICE_SAME_BITS,
      "parameters are gathered in every micro-step" },
    { "parallel", "recompute", "\"cheap\"", 0, ADVICE_SAME_BITS,
      "GELU and LayerNorm are computed twice: about 1 % more time" },
    { "parallel", "activation_checkpoint", "\"selective\"", 0, ADVICE_SAME_BITS,
      "what is cheap in forward is computed twice: a few percent more arithmetic" },
    { "parallel", "activation_checkpoint", "\"full\"", 0, ADVICE_SAME_BITS,
      "forward is computed twice: about a third more arithmetic" },
    { "parallel", "offload", "\"nvme\"", 0, ADVICE_SAME_BITS,
      "optimizer state is read from a disk and written back, every step" },
    { "parallel", "gradient_sync", "\"every\"", 0, ADVICE_ROUNDING,
      "gradients are reduced in every micro-step" },
    { "train", "batch", NULL, 0.5, ADVICE_ROUNDING,
      "more micro-steps of a smaller size; the step is the same" },
    { "parallel", "offload", "\"cpu\"", 0, ADVICE_ROUNDING,
      "parameters cross to the device and gradients back, every step" },
    { "launch", "nproc_per_node", NULL, 2, ADVICE_ROUNDING, "more ranks on each node" },
    { "parallel", "param_dtype", "\"bfloat16\"", 0, ADVICE_PRECISION,
      "products in bfloat16; master weights stay float32" },
    { "parallel", "reduce_dtype", "\"bfloat16\"", 0, ADVICE_PRECISION,
      "gradients are summed over ranks in bfloat16" },
    { "launch", "nnodes", NULL, 2, ADVICE_MORE_HARDWARE, "more nodes" },
};
enum { N_CHANGES = sizeof changes / sizeof *changes };
_Static_assert((int)N_CHANGES <= (int)ADVICE_MAX, "each has a place in the list");

static bool scale_number(cJSON *section, const char *key, double scale)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(section, key);
    const double value = cJSON_IsNumber(item) ? item->valuedouble * scale : 0;

    if (value < 1 || value != (double)(uint64_t)value)
        return false; /* the new number would not be whole */
    cJSON_SetNumberValue(item, value);
    return true;
}

static double number_of(const cJSON *section, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(section, key);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static void add_words(char setting[ADVICE_WORDS_BYTES], const cJSON *before, const cJSON *after,
                      const char *name, const char *key)
{
    const size_t length = strlen(setting);
    const double was = number_of(cJSON_GetObjectItemCaseSensitive(before, name), key);
    const double is = number_of(cJSON_GetObjectItemCaseSensitive(after, name), key);

    if (is != was)
        snprintf(setting + length, ADVICE_WORDS_BYTES - length, "%s%s.%s=%.0f", length > 0 ? " " : "", name,
                 key, is);
}

/*
 * Writes to `setting` the --set arguments that turn the job `before` into the job `after`, for a change that
 * scales.
 */
static void describe_scaled(char setting[ADVICE_WORDS_BYTES], const cJSON *before, const cJSON *after,
                            const struct change *change)
{
    setting[0] = '\0';
    if (strcmp(change->section, "train") != 0)
        add_words(setting, before, after, change->section, change->key);
    add_words(setting, before, after, "train", "batch");
    add_words(setting, before, after, "train", "grad_accumulation");
}

/*
 * Scales a number of the job by 1/2 or 2, and keeps the sequences per step the same:
 *   - If train.global_batch is set, the number of sequences per step stays by itself.
 *   - A smaller batch gets more micro-steps.
 *   - More ranks get fewer micro-steps, or else a smaller batch.
 * If more ranks can reduce neither, the step grows, and *effect becomes ADVICE_LARGER_STEP. Returns false if
 * the number cannot be scaled.
 */
static bool apply_scaled(cJSON *job, const struct change *change, enum advice_effect *effect)
{
    cJSON *section = cJSON_GetObjectItemCaseSensitive(job, change->section);
    cJSON *train = cJSON_GetObjectItemCaseSensitive(job, "train");
    const bool more_ranks = change->scale > 1, fixed = number_of(train, "global_batch") > 0;

    if (!scale_number(section, change->key, change->scale))
        return false;
    if (fixed || scale_number(train, "grad_accumulation", 1 / change->scale) ||
        (more_ranks && scale_number(train, "batch", 1 / change->scale)))
        return true;
    *effect = ADVICE_LARGER_STEP;
    return more_ranks;
}

/* Applies the change to the job. Returns false if the change would alter nothing, or is impossible. */
static bool apply(cJSON *job, const struct change *change, char setting[ADVICE_WORDS_BYTES],
                  enum advice_effect *effect)
{
    cJSON *section = cJSON_GetObjectItemCaseSensitive(job, change->section);
    const cJSON *now;
    cJSON *value;
    bool same;

    *effect = change->effect;
    if (section == NULL)
        return false;
    if (change->value == NULL)
        return apply_scaled(job, change, effect);
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
 * A limit on the work of all plans together. The time of one plan grows with the square of the model's
 * blocks, so a plan of n blocks counts as n * n. This limit takes under two seconds on one core. It allows 48
 * plans of 50 blocks, 12 of 100, or 1 of 256.
 */
enum { MOST_WORK = 120000 };

/* The job that changes are tried on, and the values that the results are compared with. */
struct search {
    const cJSON *job;
    const cJSON
        /*
         * the job that --set arguments start from: the original one, or one that earlier changes have altered
         */
        *before;
    size_t baseline, limit;
    double share; /* the memory to compare the result with, in the unit of share_of() */
    int ranks_per_host;
    uint64_t node_ranks, evaluation;
    uint64_t work;       /* work of one plan */
    uint64_t *work_left; /* work that is left for all further plans */
    bool *left_out;      /* set if a plan was left out because too little work was left */
};

/*
 * Forecasts the changed job. Returns false if such a job is refused; that is not an error, and the change is
 * not advised. The size of the process itself counts as in the original forecast.
 */
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

/*
 * Returns the forecast's bytes, scaled to the memory that one rank of the original job has. On the cpu, ranks
 * share the memory of their node, so more ranks on a node leave less for each.
 */
static double share_of(const struct search *search, const struct forecast *forecast)
{
    const double ranks = forecast->on_device ? 1 : (double)forecast->ranks_per_host / search->ranks_per_host;

    return (double)forecast->total * ranks;
}

static bool node_has(const cJSON *job, const struct search *search)
{
    const double ranks = number_of(cJSON_GetObjectItemCaseSensitive(job, "launch"), "nproc_per_node");

    return ranks <= search->ranks_per_host || ranks <= (double)search->node_ranks;
}

/*
 * Tries one change on a copy of the job. If the change saves memory, fills in *out and returns the changed
 * job, which the caller deletes. Otherwise returns NULL.
 */
static cJSON *try_change(const struct search *search, const struct change *change, struct advice *out)
{
    cJSON *job = cJSON_Duplicate(search->job, true);
    struct forecast forecast;
    double share;

    if (job == NULL || !apply(job, change, out->setting, &out->effect) || !node_has(job, search) ||
        !may_plan(search) || !forecast_of(job, search, &forecast) ||
        (share = share_of(search, &forecast)) >= search->share) {
        cJSON_Delete(job);
        return NULL;
    }
    if (change->value == NULL)
        describe_scaled(out->setting, search->before, job, change);
    out->place = (int)(change - changes);
    out->cost = change->cost;
    out->total = forecast.total;
    out->ranks_per_host = forecast.ranks_per_host;
    out->sent_bytes = forecast_sent_bytes(&forecast);
    out->fits = share <= (double)search->limit;
    out->share = share;
    return job;
}

int advice_compare(const void *left, const void *right)
{
    const struct advice *a = left, *b = right;

    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (!a->fits)
        return a->share < b->share ? -1 : a->share > b->share;
    if (a->effect != b->effect)
        return a->effect < b->effect ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

const char *advice_effect_words(enum advice_effect effect)
{
    static const char *const words[] = {
        [ADVICE_SAME_BITS] = "changes no number",
        [ADVICE_ROUNDING] = "changes rounding",
        [ADVICE_PRECISION] = "changes numerics",
        [ADVICE_MORE_HARDWARE] = "changes rounding",
        [ADVICE_LARGER_STEP] = "changes training: larger steps",
    };

    return words[effect];
}

enum { MOST_TIMES = 4 };

/*
 * Tries a change. A change that scales a number is repeated, at most MOST_TIMES times, until the job fits. If
 * even that does not make it fit, *out describes the change made once. Returns false if the change saves
 * nothing.
 */
static bool try_until_fits(const struct search *search, const struct change *change, struct advice *out)
{
    struct search now = *search;
    cJSON *job = try_change(&now, change, out);
    const bool helps = job != NULL;
    struct advice next = *out;

    for (int times = 1; job != NULL && change->value == NULL && !next.fits && times < MOST_TIMES; times++) {
        const enum advice_effect so_far = next.effect;
        cJSON *further;

        now.job = job;
        now.share = next.share;
        further = try_change(&now, change, &next);
        if (next.effect < so_far)
            next.effect = so_far;
        cJSON_Delete(job);
        job = further;
    }
    if (job != NULL && next.fits)
        *out = next;
    cJSON_Delete(job);
    return helps;
}

static void find_alone(struct advice_list *list, const struct search *search)
{
    for (int i = 0; i < N_CHANGES; i++)
        list->n_alone += try_until_fits(search, &changes[i], &list->alone[list->n_alone]);
    qsort(list->alone, (size_t)list->n_alone, sizeof *list->alone, advice_compare);
}

/*
 * Applies the marked changes in the order of the table until the job fits. Then applies the marked changes
 * that scale a number again, as long as one of them saves memory.
 */
static void apply_marked(struct advice_list *list, const struct search *search, const bool marked[N_CHANGES])
{
    cJSON *job = cJSON_Duplicate(search->job, true);
    struct search now = *search;
    bool helped = true;

    list->n_together = 0;
    for (int pass = 0; job != NULL && helped; pass++) {
        helped = false;
        for (int i = 0; i < N_CHANGES && now.share > (double)now.limit && list->n_together < ADVICE_MAX;
             i++) {
            cJSON *changed = NULL;

            now.job = now.before = job;
            if (marked[i] && (pass == 0 || changes[i].value == NULL))
                changed = try_change(&now, &changes[i], &list->together[list->n_together]);
            if (changed == NULL)
                continue;
            cJSON_Delete(job);
            job = changed;
            now.share = list->together[list->n_together++].share;
            helped = true;
        }
    }
    cJSON_Delete(job);
}

static bool together_fits(const struct advice_list *list)
{
    return list->n_together > 0 && list->together[list->n_together - 1].fits;
}

/*
 * Finds a combination of changes that makes the job fit:
 *   1. Apply all changes in the table's order until the job fits.
 *   2. Beginning with the changes that alter most, try to leave out each change that was used.
 *   3. A change stays out if the job fits without it. A change of less effect than ADVICE_PRECISION stays out
 *      only if the combination also gets shorter.
 */
static void find_together(struct advice_list *list, const struct search *search)
{
    struct advice_list fewer = *list;
    bool marked[N_CHANGES];

    memset(marked, true, sizeof marked);
    apply_marked(list, search, marked);
    for (int i = N_CHANGES - 1; i >= 0 && together_fits(list); i--) {
        bool used = false;

        for (int j = 0; j < list->n_together; j++)
            used = used || list->together[j].place == i;
        marked[i] = false;
        if (!used)
            continue;
        apply_marked(&fewer, search, marked);
        if (together_fits(&fewer) &&
            (changes[i].effect >= ADVICE_PRECISION || fewer.n_together < list->n_together)) {
            memcpy(list->together, fewer.together, sizeof list->together);
            list->n_together = fewer.n_together;
        } else {
            marked[i] = true;
        }
    }
}

enum fsdp_status advice_find(struct advice_list *list, const char *job_json, const struct forecast *now,
                             size_t limit, uint64_t node_ranks, struct fsdp_err *err)
{
    cJSON *job = cJSON_Parse(job_json);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(job, "model");
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(model, "layers");
    const uint64_t n_blocks = cJSON_IsNumber(layers) ? (uint64_t)layers->valuedouble : 0;
    uint64_t work_left = MOST_WORK;
    const struct search search = {
        .job = job,
        .before = job,
        .share = (double)now->total,
        .ranks_per_host = now->ranks_per_host,
        .node_ranks = node_ranks,
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
