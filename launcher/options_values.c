#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config.h"
#include "launcher/options.h"
#include "launcher/rdzv_conf.h"
#include "shard_runtime/core/require.h"

/*
 * Reads decimal digits. *end receives the character after them. Returns false if there are no digits, or if
 * the number is too large.
 */
static bool read_digits(const char *text, const char **end, int64_t *out)
{
    char *stop;

    *out = 0;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *out = strtoll(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

/*
 * Checks of values. Each of these functions writes to `err` what is wrong with `text`. option_check() puts
 * the origin of the value in front of it.
 */

static enum fsdp_status check_count(const struct option *option, const char *text, int64_t *out,
                                    struct fsdp_err *err)
{
    const char *end = text;

    if (!read_digits(text, &end, out) || *end != '\0' || *out < option->low || *out > option->high)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "must be a whole number from %" PRId64 " to %" PRId64 ", not %.60s", option->low,
                         option->high, option_text(text));
    return FSDP_OK;
}

/* Reads N, or MIN:MAX where MIN is at most MAX. */
static enum fsdp_status check_nodes(const struct option *option, const char *text, struct option_value *value,
                                    struct fsdp_err *err)
{
    const char *colon = strchr(text, ':');
    char first[32];

    if (colon == NULL) {
        OK_OR_RETURN(check_count(option, text, &value->number, err));
        value->least = value->number;
        return FSDP_OK;
    }
    snprintf(first, sizeof first, "%.*s", (int)(colon - text < 30 ? colon - text : 30), text);
    OK_OR_RETURN(check_count(option, first, &value->least, err));
    OK_OR_RETURN(check_count(option, colon + 1, &value->number, err));
    if (value->least > value->number)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "in MIN:MAX, MIN must not be more than MAX, as in %s", text);
    return FSDP_OK;
}

/*
 * Reads N, or N/SECONDS. With SECONDS, N has a lower limit: the agent stores the time of each of these
 * restarts.
 */
static enum fsdp_status check_restarts(const struct option *option, const char *text,
                                       struct option_value *value, struct fsdp_err *err)
{
    const char *slash = strchr(text, '/'), *end;
    char first[32];

    if (slash == NULL)
        return check_count(option, text, &value->number, err);
    snprintf(first, sizeof first, "%.*s", (int)(slash - text < 30 ? slash - text : 30), text);
    OK_OR_RETURN(check_count(option, first, &value->number, err));
    if (!read_digits(slash + 1, &end, &value->window_s) || *end != '\0' || value->window_s < 1 ||
        value->window_s > AGENT_RESTART_WINDOW_S)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "in N/SECONDS, SECONDS must be a whole number from 1 to %d, not %.60s",
                         AGENT_RESTART_WINDOW_S, option_text(slash + 1));
    if (value->number > AGENT_RESTARTS_IN_WINDOW)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "in N/SECONDS, N must be at most %d, not %s",
                         AGENT_RESTARTS_IN_WINDOW, first);
    return FSDP_OK;
}

static enum fsdp_status check_procs(const struct option *option, const char *text, int n_cpus,
                                    struct option_value *value, struct fsdp_err *err)
{
    if (strcmp(text, "gpu") == 0 || strcmp(text, "xpu") == 0 || strcmp(text, "auto") == 0)
        return FSDP_OK;
    value->number = n_cpus;
    if (strcmp(text, "cpu") != 0 && check_count(option, text, &value->number, NULL) != FSDP_OK)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "must be a whole number from %" PRId64 " to %" PRId64
                         ", cpu, gpu, xpu or auto, not %.60s",
                         option->low, option->high, option_text(text));
    value->least = value->number;
    return FSDP_OK;
}

static enum fsdp_status check_flag(const char *text, int64_t *out, struct fsdp_err *err)
{
    const char *end = text + (*text == '-'); /* a sign is allowed: torchrun reads it with Python's int() */

    if (!read_digits(end, &end, out) || *end != '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "must be 0 or 1, not %.60s", text);
    *out = *out != 0;
    return FSDP_OK;
}

static enum fsdp_status check_real(const char *text, struct fsdp_err *err)
{
    char *end = NULL;
    double number = isdigit((unsigned char)*text) || *text == '.' ? strtod(text, &end) : -1;

    if (end == NULL || end == text || *end != '\0' || strpbrk(text, "xX") != NULL || !(number < 1e300))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "must be a number of at least 0, not %.60s",
                         option_text(text));
    return FSDP_OK;
}

enum fsdp_status options_size(const char *text, int64_t low, int64_t *out, struct fsdp_err *err)
{
    static const char units[] = "KMGT";
    const char *end = text, *unit;
    bool good = read_digits(text, &end, out) && *out >= low;
    int shift = 0;

    if (good && *end != '\0') {
        unit = strchr(units, toupper((unsigned char)*end));
        shift = unit == NULL ? 0 : 10 * (int)(unit - units + 1);
        good = unit != NULL && end[1] == '\0' && *out <= INT64_MAX >> shift;
    }
    if (!good)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "must be a number of bytes, or a number followed by K, M, G or T, not %.60s",
                         option_text(text));
    *out <<= shift;
    return FSDP_OK;
}

static enum fsdp_status check_choice(const struct option *option, const char *text, struct fsdp_err *err)
{
    char words[200] = "";
    size_t n = 0, used = 0;

    for (; option->choices[n] != NULL; n++)
        if (strcmp(option->choices[n], text) == 0)
            return FSDP_OK;
    if (option->instead != NULL && *text != '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%.60s %s", text, option->instead);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", option->choices[i],
                                 i + 2 < n    ? ", "
                                 : i + 2 == n ? " or "
                                              : "");
    return fsdp_fail(err, FSDP_ERR_CONFIG, "must be %s, not %.60s", n == 0 ? "left out" : words,
                     option_text(text));
}

static enum fsdp_status check(const struct option *option, const char *text, int n_cpus,
                              struct option_value *value, struct fsdp_err *err)
{
    unsigned char ranks[1];
    struct rdzv_conf conf;
    uint64_t signals;

    switch (option->kind) {
    case OPTION_FLAG:
        return check_flag(text, &value->number, err);
    case OPTION_COUNT:
        return check_count(option, text, &value->number, err);
    case OPTION_NODES:
        return check_nodes(option, text, value, err);
    case OPTION_RESTARTS:
        return check_restarts(option, text, value, err);
    case OPTION_PROCS:
        return check_procs(option, text, n_cpus, value, err);
    case OPTION_REAL:
        return check_real(text, err);
    case OPTION_SIZE:
        return options_size(text, option->low, &value->number, err);
    case OPTION_CHOICE:
        return check_choice(option, text, err);
    case OPTION_RANKS: /* an empty list means all ranks, as under torchrun */
        return *text == '\0' ? FSDP_OK : options_ranks(text, 0, ranks, err);
    case OPTION_STREAMS:
        return options_streams(text, 0, ranks, err);
    case OPTION_PATTERNS:
        return options_patterns(text, NULL, err);
    case OPTION_SIGNALS:
        return options_signals(text, &signals, err);
    case OPTION_CONF:
        return rdzv_conf_read(&conf, text, err);
    case OPTION_BLANK:
        return FSDP_OK;
    case OPTION_TEXT:
    case OPTION_SETTING:
        break;
    }
    return *text != '\0' ? FSDP_OK : fsdp_fail(err, FSDP_ERR_CONFIG, "must not be empty");
}

enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              struct option_value *value, struct fsdp_err *err)
{
    enum fsdp_status status;

    value->number = value->least = value->window_s = 0;
    status = check(option, text, n_cpus, value, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "%s", origin);
    return status;
}

enum fsdp_status options_endpoint(const char *text, char *host, size_t size, int fallback, int *port,
                                  struct fsdp_err *err)
{
    bool bracket = text[0] == '[';
    const char *begin = text + bracket;
    const char *stop = bracket ? strchr(text, ']') : begin + strcspn(begin, ":");
    const char *rest = stop == NULL ? NULL : stop + bracket, *end = rest;
    int64_t number = fallback;

    if (!bracket && strchr(text, ':') != strrchr(text, ':'))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "an IPv6 address stands in brackets, as [%.40s]:29400", text);
    if (rest == NULL || stop == begin || (size_t)(stop - begin) >= size || (*rest != '\0' && *rest != ':'))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "must be HOST, HOST:PORT or [IPV6]:PORT, not %.60s", text);
    if (*rest == ':' && (!read_digits(rest + 1, &end, &number) || *end != '\0' || number > 65535))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "must have a port from 0 to 65535, not %.60s", rest + 1);
    memcpy(host, begin, (size_t)(stop - begin));
    host[stop - begin] = '\0';
    *port = (int)number;
    return FSDP_OK;
}
