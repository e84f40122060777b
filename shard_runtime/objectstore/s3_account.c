#include "shard_runtime/objectstore/s3_account.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"

struct variables {
    const char *(*get)(void *arg, const char *name);
    void *arg;
};

/* Copies the first of two variables that is set, without white space. *used is its name; NULL: none is. */
static enum fsdp_status take(const struct variables *from, const char *first, const char *second, char *out,
                             size_t size, const char **used, struct fsdp_err *err)
{
    const char *const names[] = { first, second };

    out[0] = '\0';
    *used = NULL;
    for (size_t i = 0; i < 2 && *used == NULL && names[i] != NULL; i++) {
        const char *text = from->get(from->arg, names[i]);

        if (text == NULL || text[0] == '\0')
            continue;
        *used = names[i];
        for (const char *at = text; *at != '\0'; at++)
            if (!isgraph((unsigned char)*at))
                return fsdp_fail(err, FSDP_ERR_CONFIG, "%s has a space, or a byte that is no ASCII",
                                 names[i]);
        if ((size_t)snprintf(out, size, "%s", text) >= size)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is longer than %zu bytes", names[i], size - 1);
    }
    return FSDP_OK;
}

/*
 * Checks that the address has a scheme and a host, perhaps a port, and nothing more: requests append bucket
 * and key to it.
 */
static enum fsdp_status check_endpoint(char *endpoint, const char *name, struct fsdp_err *err)
{
    size_t length = strlen(endpoint), head = strncmp(endpoint, "https://", 8) == 0 ? 8 : 7;

    while (length > head && endpoint[length - 1] == '/')
        endpoint[--length] = '\0';
    if ((head == 7 && strncmp(endpoint, "http://", 7) != 0) || length == head ||
        strcspn(endpoint + head, "/?#@\\\"'") != length - head)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s must be http://HOST:PORT or https://HOST:PORT", name);
    return FSDP_OK;
}

enum fsdp_status s3_account_read(struct s3_account *out, const char *(*get)(void *arg, const char *name),
                                 void *arg, struct fsdp_err *err)
{
    const struct variables from = { get, arg };
    const char *used;

    *out = (struct s3_account){ .endpoint = "" };
    OK_OR_RETURN(take(&from, "AWS_ACCESS_KEY_ID", NULL, out->key_id, sizeof out->key_id, &used, err));
    if (used != NULL)
        OK_OR_RETURN(take(&from, "AWS_SECRET_ACCESS_KEY", NULL, out->secret, sizeof out->secret, &used, err));
    if (used == NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "an object store needs AWS_ACCESS_KEY_ID and "
                         "AWS_SECRET_ACCESS_KEY in the environment");
    OK_OR_RETURN(take(&from, "AWS_SESSION_TOKEN", NULL, out->token, sizeof out->token, &used, err));
    OK_OR_RETURN(take(&from, "AWS_CA_BUNDLE", NULL, out->ca_bundle, sizeof out->ca_bundle, &used, err));
    OK_OR_RETURN(
        take(&from, "AWS_REGION", "AWS_DEFAULT_REGION", out->region, sizeof out->region, &used, err));
    if (used == NULL)
        snprintf(out->region, sizeof out->region, "us-east-1");
    if (strspn(out->region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(out->region))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is no name of a region", used);
    OK_OR_RETURN(take(&from, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", out->endpoint, sizeof out->endpoint,
                      &used, err));
    if (used != NULL)
        return check_endpoint(out->endpoint, used, err);
    snprintf(out->endpoint, sizeof out->endpoint, "https://s3.%s.amazonaws.com", out->region);
    return FSDP_OK;
}
