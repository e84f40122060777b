#include "launcher/rdzv_conf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum kind { SECONDS, BOOLEAN, STORE, ANYTHING };

static const struct key {
    const char *name;
    enum kind kind;
    ptrdiff_t at; /* offset of its field in struct rdzv_conf; -1: the key has no effect */
} keys[] = {
    { "timeout", SECONDS, offsetof(struct rdzv_conf, timeout_s) },
    { "join_timeout", SECONDS, offsetof(struct rdzv_conf, join_timeout_s) },
    { "last_call_timeout", SECONDS, offsetof(struct rdzv_conf, last_call_timeout_s) },
    { "lease", SECONDS, offsetof(struct rdzv_conf, lease_s) },
    { "is_host", BOOLEAN, offsetof(struct rdzv_conf, is_host) },
    { "close_timeout", SECONDS, -1 },
    { "heartbeat_timeout", SECONDS, -1 },
    { "keep_alive_interval", SECONDS, -1 },
    { "keep_alive_max_attempt", SECONDS, -1 },
    { "read_timeout", SECONDS, -1 },
    { "use_libuv", BOOLEAN, -1 },
    { "store_type", STORE, -1 },
    { "rank", ANYTHING, -1 },
    { "protocol", ANYTHING, -1 },
    { "ssl_cert", ANYTHING, -1 },
    { "ssl_cert_key", ANYTHING, -1 },
    { "ca_cert", ANYTHING, -1 },
    { "cacert", ANYTHING, -1 },
};

struct piece {
    const char *at;
    int length;
};

static bool is(struct piece piece, const char *word)
{
    return strlen(word) == (size_t)piece.length && strncasecmp(piece.at, word, (size_t)piece.length) == 0;
}

static struct piece trim(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return (struct piece){ from, (int)(to - from) };
}

/*
 * Removes a pair of quotes around the text. They are still there if no shell has read the text. Examples: a
 * YAML file with args: ['--rdzv-conf="timeout=900"'], or a variable that a script expands.
 */
static struct piece unquote(struct piece piece)
{
    const int n = piece.length;

    if (n < 2 || (piece.at[0] != '"' && piece.at[0] != '\'') || piece.at[n - 1] != piece.at[0] ||
        memchr(piece.at + 1, piece.at[0], (size_t)n - 2) != NULL)
        return piece;
    return trim(piece.at + 1, piece.at + n - 1);
}

static bool read_seconds(struct piece value, int64_t *out)
{
    *out = 0;
    for (int i = 0; i < value.length; i++) {
        if (value.at[i] < '0' || value.at[i] > '9' || value.length > 9)
            return false;
        *out = *out * 10 + (value.at[i] - '0');
    }
    return *out > 0;
}

static int read_boolean(struct piece value)
{
    static const char *const words[2][5] = { { "0", "false", "f", "no", "n" },
                                             { "1", "true", "t", "yes", "y" } };

    for (int i = 0; i < 5; i++)
        for (int yes = 0; yes < 2; yes++)
            if (is(value, words[yes][i]))
                return yes;
    return -1;
}

static enum fsdp_status refuse(const struct key *key, struct piece value, const char *must,
                               struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s must be %s, not %.*s", key->name, must,
                     value.length < 60 ? value.length : 60, value.at);
}

static enum fsdp_status take(struct rdzv_conf *conf, const struct key *key, struct piece value,
                             struct fsdp_err *err)
{
    void *field = key->at < 0 ? NULL : (char *)conf + key->at;
    int64_t seconds;
    int boolean;

    switch (key->kind) {
    case SECONDS:
        if (!read_seconds(value, &seconds))
            return refuse(key, value, "a whole number of at least 1", err);
        if (field != NULL)
            *(int64_t *)field = seconds;
        return FSDP_OK;
    case BOOLEAN:
        boolean = read_boolean(value);
        if (boolean < 0)
            return refuse(key, value, "1, 0, true or false", err);
        if (field != NULL)
            *(int *)field = boolean;
        return FSDP_OK;
    case STORE:
        if (!is(value, "tcp"))
            return refuse(key, value, "tcp (the nodes meet over a network, not in a file)", err);
        return FSDP_OK;
    case ANYTHING:
        break;
    }
    return FSDP_OK;
}

static void note_unknown(struct rdzv_conf *conf, struct piece key)
{
    size_t used = strlen(conf->unknown);

    snprintf(conf->unknown + used, sizeof conf->unknown - used, "%s%.*s", used == 0 ? "" : ", ", key.length,
             key.at);
}

/* Returns how an error names a wrong pair: "k=", or "the place next to a comma" if it is empty. */
static const char *shown(struct piece pair, char words[64])
{
    snprintf(words, 64, "%.*s", pair.length < 60 ? pair.length : 60, pair.at);
    return pair.length == 0 ? "the place next to a comma" : words;
}

static enum fsdp_status take_pair(struct rdzv_conf *conf, struct piece pair, struct fsdp_err *err)
{
    const char *to = pair.at + pair.length, *equals = memchr(pair.at, '=', (size_t)pair.length);
    struct piece key = trim(pair.at, equals == NULL ? to : equals);
    struct piece value = equals == NULL ? (struct piece){ to, 0 } : unquote(trim(equals + 1, to));
    char words[64];

    if (key.length == 0 || value.length == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "must be KEY=VALUE,KEY=VALUE,..., and %s has no %s",
                         shown(pair, words), key.length == 0 ? "key" : "value");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if ((size_t)key.length == strlen(keys[i].name) &&
            strncmp(key.at, keys[i].name, (size_t)key.length) == 0)
            return take(conf, &keys[i], value, err);
    note_unknown(conf, key);
    return FSDP_OK;
}

enum fsdp_status rdzv_conf_read(struct rdzv_conf *conf, const char *text, struct fsdp_err *err)
{
    const struct piece all = unquote(trim(text, text + strlen(text)));
    const char *const to = all.at + all.length;

    *conf = (struct rdzv_conf){ .is_host = -1 };
    if (all.length == 0)
        return FSDP_OK;
    for (const char *at = all.at;; at++) {
        const char *comma = memchr(at, ',', (size_t)(to - at)), *end = comma == NULL ? to : comma;
        enum fsdp_status status = take_pair(conf, unquote(trim(at, end)), err);

        if (status != FSDP_OK || comma == NULL)
            return status;
        at = comma;
    }
}
