#include "launcher/plot.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/json.h"

static const double MOST_STEPS = 9e15;

void plot_fini(struct plot *plot)
{
    free(plot->points);
    free(plot->restarts);
    *plot = (struct plot){ 0 };
}

/* Returns the number that `object` has as `key`, or NaN if it has none. */
static double number(const cJSON *object, const char *key)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(member) && isfinite(member->valuedouble) ? member->valuedouble : (double)NAN;
}

/* Makes room for one more element of `size` bytes. Returns the array, or NULL if there is no memory. */
static void *grow(void *array, size_t n, size_t *capacity, size_t size)
{
    const size_t more = *capacity == 0 ? 256 : *capacity * 2;

    if (n < *capacity)
        return array;
    array = realloc(array, more * size);
    if (array != NULL)
        *capacity = more;
    return array;
}

static void add_point(struct plot *plot, const struct plot_point *point)
{
    struct plot_point *points;

    while (plot->n > 0 && plot->points[plot->n - 1].step >= point->step)
        plot->n--;
    points = grow(plot->points, plot->n, &plot->capacity, sizeof *points);
    if (points == NULL) {
        plot->failed = true;
        return;
    }
    plot->points = points;
    plot->points[plot->n++] = *point;
}

/*
 * Returns whether a line counts. It does not if it has a lower term and an earlier time than the last one
 * that counted, whose place it takes. A later run in the directory has a lower term, but a later time.
 */
static bool counts(const cJSON *line, struct plot_origin *last)
{
    const double term = number(line, "term"), time = number(line, "time");
    const struct plot_origin origin = { isnan(term) ? 0 : term, isnan(time) ? 0 : time };

    if (origin.term < last->term && origin.time < last->time)
        return false;
    *last = origin;
    return true;
}

void plot_take_metrics(struct plot *plot, const char *line, size_t length)
{
    cJSON *object = json_parse_object(line, length);
    const struct plot_point point = { .step = number(object, "step"),
                                      .loss = number(object, "loss"),
                                      .tokens_per_s = number(object, "tokens_per_s") };
    const bool is_point = point.step >= 0 && point.step <= MOST_STEPS && counts(object, &plot->metrics);

    cJSON_Delete(object);
    if (is_point)
        add_point(plot, &point);
}

void plot_take_event(struct plot *plot, const char *line, size_t length)
{
    cJSON *object = json_parse_object(line, length);
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "event"));
    const double step = number(object, "step");
    const bool restarts = name != NULL && strcmp(name, "resume") == 0 && number(object, "generation") > 0 &&
                          step >= 0 && step <= MOST_STEPS && counts(object, &plot->events);
    double *all;

    cJSON_Delete(object);
    if (!restarts)
        return;
    all = grow(plot->restarts, plot->n_restarts, &plot->restarts_capacity, sizeof *all);
    if (all == NULL) {
        plot->failed = true;
        return;
    }
    plot->restarts = all;
    plot->restarts[plot->n_restarts++] = step;
}

int plot_column_of(const struct plot *plot, double step, int n_columns)
{
    const double first = plot->points[0].step, last = plot->points[plot->n - 1].step;
    const double at = last > first ? (step - first) / (last - first) * (n_columns - 1) : 0;

    return at <= 0 ? 0 : at >= n_columns - 1 ? n_columns - 1 : (int)(at + 0.5);
}

bool plot_columns(const struct plot *plot, enum plot_series series, struct plot_band *bands, int n_columns)
{
    bool any = false;

    for (int i = 0; i < n_columns; i++)
        bands[i] = (struct plot_band){ .low = (double)NAN, .high = (double)NAN };
    for (size_t i = 0; i < plot->n; i++) {
        const struct plot_point *point = &plot->points[i];
        const double value = series == PLOT_LOSS ? point->loss : point->tokens_per_s;
        struct plot_band *band = &bands[plot_column_of(plot, point->step, n_columns)];

        if (isnan(value))
            continue;
        any = true;
        band->low = fmin(band->low, value); /* fmin() of a NaN and a number is the number */
        band->high = fmax(band->high, value);
    }
    return any;
}
