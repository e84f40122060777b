#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options.h"

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

static enum fsdp_status check_nodes(const struct option *option, const char *origin, const char *text,
                                    int64_t *out, struct fsdp_err *err)
{
    const char *colon = strchr(text, ':');
    int64_t most;
    enum fsdp_status status;
    char first[32];

    if (colon == NULL)
        return check_count(option, origin, text, out, err);
    snprintf(first, sizeof first, "%.*s", (int)(colon - text < 30 ? colon - text : 30), text);
    status = check_count(option, origin, first, out, err);
    if (status == FSDP_OK)
        status = check_count(option, origin, colon + 1, &most, err);
    if (status == FSDP_OK && *out > most)
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "%s: in MIN:MAX, MIN must not be more than MAX, as in %s",
                           origin, text);
    if (status == FSDP_OK && *out < most)
        status = fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                           "%s: a number of nodes that may change (%s) is not supported yet", origin, text);
    return status;
}

enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              int64_t *number, struct fsdp_err *err)
{
    unsigned char streams[1];

    *number = 0;
    switch (option->kind) {
    case OPTION_FLAG:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: must be 0 or 1, not %.60s", origin, text);
        return FSDP_OK;
    case OPTION_COUNT:
        return check_count(option, origin, text, number, err);
    case OPTION_NODES:
        return check_nodes(option, origin, text, number, err);
    case OPTION_PROCS:
        if (strcmp(text, "auto") == 0 || strcmp(text, "gpu") == 0 || strcmp(text, "xpu") == 0)
            return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s: %s is not supported yet; use a number or cpu",
                             origin, text);
        if (strcmp(text, "cpu") != 0)
            return check_count(option, origin, text, number, err);
        *number = n_cpus;
        return FSDP_OK;
    case OPTION_STREAMS:
        if (options_streams(text, 0, streams, err) == FSDP_OK)
            return FSDP_OK;
        fsdp_wrap(err, "%s", origin);
        return FSDP_ERR_CONFIG;
    default:
        if (*text == '\0')
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: must not be empty", origin);
        return FSDP_OK;
    }
}

enum fsdp_status options_streams(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err)
{
    const char *at = text, *end = text;
    int64_t rank, streams;

    memset(out, 0, (size_t)n_ranks);
    if (read_digits(text, &end, &streams) && *end == '\0' && streams <= 3) {
        memset(out, (int)streams, (size_t)n_ranks);
        return FSDP_OK;
    }
    for (;;) {
        if (!read_digits(at, &end, &rank) || *end != ':' || !read_digits(end + 1, &end, &streams) ||
            streams > 3 || (*end != ',' && *end != '\0'))
            return fsdp_fail(err, FSDP_ERR_CONFIG, "must be 0, 1, 2, 3 or RANK:N,RANK:N,..., not %.60s",
                             *text == '\0' ? "nothing" : text);
        if (n_ranks > 0 && rank >= n_ranks)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "names local rank %" PRId64 " of %d (the first is 0)",
                             rank, n_ranks);
        if (n_ranks > 0)
            out[rank] = (unsigned char)streams;
        if (*end == '\0')
            return FSDP_OK;
        at = end + 1;
    }
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
