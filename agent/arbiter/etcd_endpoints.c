#include "agent/arbiter/etcd_endpoints.h"

#include <stdio.h>
#include <string.h>

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static const char plain[] = "etcd://", with_tls[] = "etcds://";

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool etcd_endpoints_are_named(const char *text)
{
    return begins_with(text, plain) || begins_with(text, with_tls);
}

/* Length of the host at the beginning of `text`, with the brackets of an IPv6 address. 0: there is none. */
static size_t host_length(const char *text)
{
    size_t n;

    if (*text != '[')
        return strspn(text, LETTERS DIGITS ".-_");
    n = 1 + strspn(text + 1, DIGITS "abcdefABCDEF:.");
    return n > 1 && text[n] == ']' ? n + 1 : 0;
}

/* The number in text[0..length), 1 to 65535; else 0. */
static int port_in(const char *text, size_t length)
{
    int port = 0;

    if (length == 0 || length > 5 || strspn(text, DIGITS) < length)
        return 0;
    for (size_t i = 0; i < length; i++)
        port = port * 10 + (text[i] - '0');
    return port <= 65535 ? port : 0;
}

static enum fsdp_status add(struct etcd_endpoints *out, const char *text, size_t length, struct fsdp_err *err)
{
    const size_t host = host_length(text);
    int port = ETCD_PORT, n;

    if (host == 0 || host > length || (host < length && text[host] != ':'))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "\"%.*s\" is no HOST:PORT of an etcd%s", (int)length, text,
                         memchr(text, '@', length) == NULL ? "" : "; names and passwords are not supported");
    if (host < length)
        port = port_in(text + host + 1, length - host - 1);
    if (port == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the port in \"%.*s\" is no number from 1 to 65535",
                         (int)length, text);
    if (out->n == ETCD_MAX_ENDPOINTS)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "more than %d members of an etcd", ETCD_MAX_ENDPOINTS);
    n = snprintf(out->urls[out->n], ETCD_URL_BYTES, "%s://%.*s:%d", out->tls ? "https" : "http", (int)host,
                 text, port);
    if (n >= ETCD_URL_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the name of a member of an etcd is too long");
    out->n++;
    return FSDP_OK;
}

enum fsdp_status etcd_endpoints_parse(struct etcd_endpoints *out, const char *text, struct fsdp_err *err)
{
    *out = (struct etcd_endpoints){ .tls = begins_with(text, with_tls) };
    if (!etcd_endpoints_are_named(text))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "an etcd is named as %sHOST:PORT,HOST:PORT,...", plain);
    for (text = strstr(text, "//") + 2;; text++) {
        const size_t length = strcspn(text, ",");
        const enum fsdp_status status = add(out, text, length, err);

        text += length;
        if (status != FSDP_OK || *text == '\0')
            return status;
    }
}
