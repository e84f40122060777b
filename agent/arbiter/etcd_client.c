#include "agent/arbiter/etcd_client.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/etcd_message.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/objectstore/curl_library.h"

enum {
    MS = 1000 * 1000,
    /*
     * How many members are asked within the time of one request. A member may take a request and never
     * answer, for example a follower that was about to pass it on when etcd's leader died.
     */
    TRIES = 3,
    PAUSE_MS = 50, /* after all members refused at once */
    ANSWER_BYTES = 16 * 1024,
    PATH_BYTES = 32
};

struct etcd_client {
    const struct curl_library *curl;
    CURL *easy;
    struct curl_slist *headers;
    struct etcd_endpoints endpoints;
    int at;           /* the member to ask */
    uint64_t cluster; /* the id of the etcd that answered first; 0: none has answered yet */
    int64_t request_ns;
    char answer[ANSWER_BYTES], words[CURL_ERROR_SIZE];
    size_t n_answer;
};

static size_t take_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct etcd_client *client = arg;

    if (n * size > sizeof client->answer - client->n_answer)
        return 0; /* curl ends the request: CURLE_WRITE_ERROR */
    memcpy(client->answer + client->n_answer, bytes, n * size);
    client->n_answer += n * size;
    return n * size;
}

static bool set_files(struct etcd_client *client)
{
    static const struct {
        const char *variable;
        CURLoption option;
    } files[] = { { "ETCDCTL_CACERT", CURLOPT_CAINFO },
                  { "ETCDCTL_CERT", CURLOPT_SSLCERT },
                  { "ETCDCTL_KEY", CURLOPT_SSLKEY } };
    bool set = true;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *const path = getenv(files[i].variable);

        if (path != NULL && *path != '\0')
            set &= client->curl->curl_easy_setopt(client->easy, files[i].option, path) == CURLE_OK;
    }
    return set;
}

static bool set_up(struct etcd_client *client)
{
    const struct curl_library *const curl = client->curl;
    CURL *const easy = client->easy;
    bool set = easy != NULL && client->headers != NULL;

    if (!set)
        return false;
    set &= curl->curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers) == CURLE_OK;
    set &= curl_library_set_up(curl, easy, client->words);
    set &= curl->curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_WRITEDATA, client) == CURLE_OK;
    /*
     * A name server that does not answer must not hold the request beyond its time. Older versions of libcurl
     * ignore this option.
     */
    (void)curl->curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    return set && (!client->endpoints.tls || set_files(client));
}

enum fsdp_status etcd_client_create(struct etcd_client **out, const struct etcd_endpoints *endpoints,
                                    int64_t request_ms, struct fsdp_err *err)
{
    struct etcd_client *client;
    const struct curl_library *curl;
    enum fsdp_status status = curl_library_open("etcd", &curl, err);

    *out = NULL;
    if (status != FSDP_OK)
        return status;
    client = calloc(1, sizeof *client);
    if (client == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a client of etcd");
    client->curl = curl;
    client->endpoints = *endpoints;
    client->request_ns = request_ms * MS;
    client->easy = curl->curl_easy_init();
    client->headers = curl->curl_slist_append(NULL, "Content-Type: application/json");
    if (!set_up(client)) {
        etcd_client_destroy(client);
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "libcurl cannot be set up for etcd: %s",
                         endpoints->tls ? "no memory, or no TLS" : "no memory");
    }
    *out = client;
    return FSDP_OK;
}

void etcd_client_destroy(struct etcd_client *client)
{
    if (client == NULL)
        return;
    if (client->easy != NULL)
        client->curl->curl_easy_cleanup(client->easy);
    client->curl->curl_slist_free_all(client->headers);
    free(client);
}

int64_t etcd_client_deadline(const struct etcd_client *client)
{
    return clock_boot_ns() + client->request_ns;
}

/* Parses the member's answer. It counts only if it is from the same etcd as all answers before. */
static enum fsdp_status read_answer(struct etcd_client *client, long code, cJSON **answer,
                                    struct fsdp_err *err)
{
    char words[160];
    uint64_t cluster;
    const int error = etcd_message_error(client->answer, client->n_answer, words, sizeof words);

    if (error != 0)
        return fsdp_fail(err, error == ETCD_NO_LEASE ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s", words);
    if (code != 200)
        return fsdp_fail(err, FSDP_ERR_IO, "HTTP status %ld", code);
    *answer = etcd_message_parse(client->answer, client->n_answer, &cluster);
    if (*answer == NULL)
        return fsdp_fail(err, FSDP_ERR_IO, "the answer is none of an etcd");
    if (client->cluster == 0)
        client->cluster = cluster;
    if (client->cluster == cluster)
        return FSDP_OK;
    /* Two different etcds would each give the same term to an agent. */
    cJSON_Delete(*answer);
    *answer = NULL;
    return fsdp_fail(err, FSDP_ERR_IO,
                     "this member belongs to another etcd than the one that answered first");
}

static enum fsdp_status ask_once(struct etcd_client *client, const char *path, const char *body,
                                 int64_t timeout_ms, cJSON **answer, struct fsdp_err *err)
{
    const struct curl_library *const curl = client->curl;
    const char *const member = client->endpoints.urls[client->at];
    char url[ETCD_URL_BYTES + PATH_BYTES];
    enum fsdp_status status;
    CURLcode code;
    long http = 0;

    snprintf(url, sizeof url, "%s%s", member, path);
    client->n_answer = 0;
    client->words[0] = '\0';
    code = curl->curl_easy_setopt(client->easy, CURLOPT_URL, url);
    if (code == CURLE_OK)
        code = curl->curl_easy_setopt(client->easy, CURLOPT_POSTFIELDS, body);
    if (code == CURLE_OK)
        code = curl->curl_easy_setopt(client->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    if (code == CURLE_OK)
        code = curl->curl_easy_perform(client->easy);
    if (code == CURLE_OK)
        code = curl->curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http);
    if (code == CURLE_OK)
        status = read_answer(client, http, answer, err);
    else if (code == CURLE_WRITE_ERROR)
        status = fsdp_fail(err, FSDP_ERR_IO, "the answer is longer than any of an etcd");
    else
        status = fsdp_fail(err, FSDP_ERR_IO, "%.200s",
                           client->words[0] != '\0' ? client->words : curl->curl_easy_strerror(code));
    if (status != FSDP_OK)
        fsdp_wrap(err, "etcd at %s", member);
    return status;
}

static int64_t ms_until(int64_t deadline_ns)
{
    return (deadline_ns - clock_boot_ns() + MS - 1) / MS;
}

enum fsdp_status etcd_client_ask(struct etcd_client *client, const char *path, const char *body,
                                 int64_t deadline_ns, struct cJSON **answer, struct fsdp_err *err)
{
    /*
     * A try with less time than this would only fail for lack of time, and its message would hide that of the
     * try before.
     */
    const int64_t most_ms = client->request_ns / MS / TRIES + 1, least_ms = most_ms / 2;
    int n_asked = 0;

    *answer = NULL;
    if (body == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a request to etcd");
    for (;;) {
        const int64_t left_ms = ms_until(deadline_ns);
        enum fsdp_status status;

        if (n_asked > 0 && left_ms < least_ms)
            return FSDP_ERR_IO;
        if (left_ms <= 0)
            return fsdp_fail(err, FSDP_ERR_IO, "etcd took too long for the requests before");
        status = ask_once(client, path, body, left_ms < most_ms ? left_ms : most_ms, answer, err);
        if (status != FSDP_ERR_IO)
            return status;
        client->at = (client->at + 1) % client->endpoints.n;
        if (++n_asked % client->endpoints.n == 0 && ms_until(deadline_ns) >= least_ms)
            (void)poll(NULL, 0, PAUSE_MS);
    }
}
