#include "agent/watch/timers.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_SIGNAL = 64 };

static bool read_whole(const cJSON *object, const char *key, double low, double high, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) || item->valuedouble < low ||
        item->valuedouble > high)
        return false;
    *out = item->valuedouble;
    return true;
}

static const char *read_request(struct timer_request *request, const cJSON *object)
{
    const cJSON *scope = cJSON_GetObjectItemCaseSensitive(object, "scope_id"),
                *expires = cJSON_GetObjectItemCaseSensitive(object, "expiration_time");
    double number;

    if (cJSON_GetObjectItemCaseSensitive(object, "version") != NULL &&
        !read_whole(object, "version", 1, 1, &number))
        return "version";
    if (!read_whole(object, "pid", 1, INT_MAX, &number))
        return "pid";
    request->pid = (pid_t)number;
    if (!cJSON_IsString(scope))
        return "scope_id";
    snprintf(request->scope, sizeof request->scope, "%s", cJSON_GetStringValue(scope));
    if (!cJSON_IsNumber(expires) || !(expires->valuedouble < 9e12))
        return "expiration_time";
    request->expires_us = expires->valuedouble < 0 ? -1 : (int64_t)llround(expires->valuedouble * 1e6);
    if (!read_whole(object, "signal", INT_MIN, LAST_SIGNAL, &number))
        return "signal";
    request->signal = number > 0 ? (int)number : 0;
    return NULL;
}

enum fsdp_status timers_parse(struct timer_request *request, const char *line, size_t length,
                              struct fsdp_err *err)
{
    cJSON *object = cJSON_ParseWithLength(line, length);
    const char *unfit = NULL;
    const bool whole = cJSON_IsObject(object);

    *request = (struct timer_request){ 0 };
    if (whole)
        unfit = read_request(request, object);
    cJSON_Delete(object);
    if (!whole)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "no JSON object");
    return unfit == NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_FORMAT, "its %s is missing or unfit", unfit);
}

void timers_fini(struct timers *timers)
{
    free(timers->items);
    *timers = (struct timers){ 0 };
}

static void take_out(struct timers *timers, size_t i)
{
    timers->items[i] = timers->items[--timers->n];
}

static size_t find(const struct timers *timers, pid_t pid, const char *scope)
{
    size_t i = 0;

    while (i < timers->n && (timers->items[i].pid != pid || strcmp(timers->items[i].scope, scope) != 0))
        i++;
    return i;
}

enum fsdp_status timers_take(struct timers *timers, const struct timer_request *request, struct fsdp_err *err)
{
    const size_t at = find(timers, request->pid, request->scope);

    if (request->expires_us < 0) {
        if (at < timers->n)
            take_out(timers, at);
        return FSDP_OK;
    }
    if (at == timers->n) {
        if (timers->n == TIMERS_MAX)
            return fsdp_fail(err, FSDP_ERR_BUSY, "%d timers are set already", TIMERS_MAX);
        if (timers->n == timers->capacity) {
            const size_t capacity = timers->capacity == 0 ? 16 : timers->capacity * 2;
            struct timer_request *items = realloc(timers->items, capacity * sizeof *items);

            if (items == NULL)
                return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a timer");
            timers->items = items;
            timers->capacity = capacity;
        }
        timers->n++;
    }
    timers->items[at] = *request;
    return FSDP_OK;
}

/*
 * Returns the timer that expires first. All timers are looked at, which costs less than sorting the few that
 * there are.
 */
static size_t first(const struct timers *timers)
{
    size_t best = 0;

    for (size_t i = 1; i < timers->n; i++)
        if (timers->items[i].expires_us < timers->items[best].expires_us)
            best = i;
    return best;
}

int64_t timers_next_us(const struct timers *timers)
{
    return timers->n == 0 ? -1 : timers->items[first(timers)].expires_us;
}

bool timers_pop(struct timers *timers, int64_t now_us, struct timer_request *expired)
{
    const size_t at = first(timers);

    if (timers->n == 0 || timers->items[at].expires_us > now_us)
        return false;
    *expired = timers->items[at];
    take_out(timers, at);
    return true;
}

bool timers_ended(int sent, int by, int64_t after_ns)
{
    return by == sent || after_ns < (int64_t)TIMERS_BLAMED_MS * 1000000;
}

void timers_drop(struct timers *timers, pid_t pid)
{
    for (size_t i = timers->n; i-- > 0;)
        if (timers->items[i].pid == pid)
            take_out(timers, i);
}

void timers_sieve(struct timers *timers, bool (*keep)(void *arg, pid_t pid), void *arg)
{
    for (size_t i = timers->n; i-- > 0;)
        if (!keep(arg, timers->items[i].pid))
            take_out(timers, i);
}

void timers_shift(struct timers *timers, int64_t us)
{
    for (size_t i = 0; i < timers->n; i++)
        timers->items[i].expires_us += us;
}
