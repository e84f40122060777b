#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options.h"
#include "launcher/rdzv_conf.h"

/* Decimal digits only, as far as they go; false when there are none or they are too many. */
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

static enum fsdp_status check_count(const struct option *option, const char *origin, const char *text,
                                    int64_t *out, struct fsdp_err *err)
{
    const char *end = text;

    if (!read_digits(text, &end, out) || *end != '\0' || *out < option->low || *out > option->high)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "%s: must be a whole number from %" PRId64 " to %" PRId64 ", not %.60s", origin,
                         option->low, option->high, *text == '\0' ? "nothing" : text);
    return FSDP_OK;
}

/* N, or MIN:MAX. */
static enum fsdp_status check_nodes(const struct option *option, const char *origin, const char *text,
                                    struct option_value *value, struct fsdp_err *err)
{
    const char *colon = strchr(text, ':');
    enum fsdp_status status;
    char first[32];

    if (colon == NULL) {
        status = check_count(option, origin, text, &value->number, err);
        value->least = value->number;
        return status;
    }
    snprintf(first, sizeof first, "%.*s", (int)(colon - text < 30 ? colon - text : 30), text);
    status = check_count(option, origin, first, &value->least, err);
    if (status == FSDP_OK)
        status = check_count(option, origin, colon + 1, &value->number, err);
    if (status == FSDP_OK && value->least > value->number)
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "%s: in MIN:MAX, MIN must not be more than MAX, as in %s",
                           origin, text);
    return status;
}

static enum fsdp_status check_procs(const struct option *option, const char *origin, const char *text,
                                    int n_cpus, struct option_value *value, struct fsdp_err *err)
{
    if (strcmp(text, "gpu") == 0 || strcmp(text, "xpu") == 0 || strcmp(text, "auto") == 0)
        return FSDP_OK;
    value->number = n_cpus;
    if (strcmp(text, "cpu") != 0 && check_count(option, origin, text, &value->number, NULL) != FSDP_OK)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "%s: must be a whole number from %" PRId64 " to %" PRId64
                         ", cpu, gpu, xpu or auto, not %.60s",
                         origin, option->low, option->high, *text == '\0' ? "nothing" : text);
    return FSDP_OK;
}

static enum fsdp_status check_flag(const char *origin, const char *text, int64_t *out, struct fsdp_err *err)
{
    const char *end = text + (*text == '-'); /* Python's int() is what torchrun reads it with */

    if (!read_digits(end, &end, out) || *end != '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: must be 0 or 1, not %.60s", origin, text);
    *out = *out != 0;
    return FSDP_OK;
}

static enum fsdp_status check_real(const char *origin, const char *text, struct fsdp_err *err)
{
    char *end = NULL;
    double number = isdigit((unsigned char)*text) || *text == '.' ? strtod(text, &end) : -1;

    if (end == NULL || end == text || *end != '\0' || strpbrk(text, "xX") != NULL || !(number < 1e300))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: must be a number of at least 0, not %.60s", origin,
                         *text == '\0' ? "nothing" : text);
    return FSDP_OK;
}

static enum fsdp_status check_size(const char *origin, const char *text, int64_t *out, struct fsdp_err *err)
{
    static const char units[] = "KMGT";
    const char *end = text, *unit;
    bool good = read_digits(text, &end, out) && *out > 0;
    int shift = 0;

    if (good && *end != '\0') {
        unit = strchr(units, toupper((unsigned char)*end));
        shift = unit == NULL ? 0 : 10 * (int)(unit - units + 1);
        good = unit != NULL && end[1] == '\0' && *out <= INT64_MAX >> shift;
    }
    if (!good)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "%s: must be a number of bytes, or with K, M, G or T behind it, not %.60s", origin,
                         *text == '\0' ? "nothing" : text);
    *out <<= shift;
    return FSDP_OK;
}

static enum fsdp_status check_choice(const struct option *option, const char *origin, const char *text,
                                     struct fsdp_err *err)
{
    char words[200] = "";
    size_t n = 0, used = 0;

    for (; option->choices[n] != NULL; n++)
        if (strcmp(option->choices[n], text) == 0)
            return FSDP_OK;
    if (option->instead != NULL && *text != '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: %.60s %s", origin, text, option->instead);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", option->choices[i],
                                 i + 2 < n    ? ", "
                                 : i + 2 == n ? " or "
                                              : "");
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: must be %s, not %.60s", origin, n == 0 ? "left out" : words,
                     *text == '\0' ? "nothing" : text);
}

/* The lists say what is wrong; the option is put in front. */
static enum fsdp_status check_list(enum option_kind kind, const char *origin, const char *text,
                                   struct fsdp_err *err)
{
    unsigned char streams[1];
    struct rdzv_conf conf;
    uint64_t signals;
    bool ranks[1];
    enum fsdp_status status = kind == OPTION_STREAMS    ? options_streams(text, 0, streams, err)
                              : kind == OPTION_RANKS    ? options_ranks(text, 0, ranks, err)
                              : kind == OPTION_PATTERNS ? options_patterns(text, NULL, err)
                              : kind == OPTION_SIGNALS  ? options_signals(text, &signals, err)
                                                        : rdzv_conf_read(&conf, text, err);

    if (status != FSDP_OK)
        fsdp_wrap(err, "%s", origin);
    return status;
}

enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              struct option_value *value, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    value->number = value->least = 0;
    switch (option->kind) {
    case OPTION_FLAG:
        return check_flag(origin, text, &value->number, err);
    case OPTION_COUNT:
        return check_count(option, origin, text, &value->number, err);
    case OPTION_NODES:
        return check_nodes(option, origin, text, value, err);
    case OPTION_PROCS:
        status = check_procs(option, origin, text, n_cpus, value, err);
        value->least = value->number;
        return status;
    case OPTION_REAL:
        return check_real(origin, text, err);
    case OPTION_SIZE:
        return check_size(origin, text, &value->number, err);
    case OPTION_CHOICE:
        return check_choice(option, origin, text, err);
    case OPTION_RANKS:
        if (*text == '\0') /* all of them, as under torchrun */
            return FSDP_OK;
        return check_list(option->kind, origin, text, err);
    case OPTION_STREAMS:
    case OPTION_PATTERNS:
    case OPTION_SIGNALS:
    case OPTION_CONF:
        return check_list(option->kind, origin, text, err);
    case OPTION_BLANK:
        return FSDP_OK;
    case OPTION_TEXT:
    case OPTION_SETTING:
        break;
    }
    if (*text == '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: must not be empty", origin);
    return FSDP_OK;
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
