/*
 * The connections of a client. Each one takes what the answer to its current request brings, and is kept for
 * the next request.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/objectstore/s3_client_impl.h"

enum {
    KEPT_MAX = 16,          /* connections that are kept */
    ANSWER_BYTES = 4 << 20, /* of an XML answer: a page of a list has at most 1,000 keys of 1,024 bytes */
};

/* The answer */

static size_t take_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct s3_lane *lane = arg;
    const size_t length = size * n, room = lane->target != NULL ? lane->room : ANSWER_BYTES;

    if (length > room - lane->n_body) {
        lane->too_long = true;
        return 0; /* curl ends the request: CURLE_WRITE_ERROR */
    }
    if (lane->target != NULL)
        memcpy(lane->target + lane->n_body, bytes, length);
    else
        json_add_bytes(&lane->xml, bytes, length);
    lane->n_body += length;
    return length;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *arg)
{
    static const char etag[] = "ETag:";
    struct s3_lane *lane = arg;
    const size_t length = size * n;

    /*
     * Several answers may arrive for one request (status 100, or a proxy's): the last one counts. If the
     * status is not success, the body is XML that describes the error.
     */
    if (length > 9 && strncmp(bytes, "HTTP/", 5) == 0) {
        const char *space = memchr(bytes, ' ', length);
        const bool is_success = space != NULL && space + 1 < bytes + length && space[1] == '2';

        lane->target = is_success ? lane->wanted : NULL;
        lane->etag[0] = '\0';
        lane->n_body = 0;
        json_text_free(&lane->xml);
        return length;
    }
    if (length >= sizeof etag && strncasecmp(bytes, etag, sizeof etag - 1) == 0)
        (void)s3_read_etag(bytes + sizeof etag - 1, length - (sizeof etag - 1), lane->etag);
    return length;
}

/* Making a connection */

static bool set_lane(struct s3_client *client, struct s3_lane *lane)
{
    const struct curl_library *const curl = client->curl;
    CURL *const easy = lane->easy;
    const struct s3_account *account = &client->account;
    bool set = curl_library_set_up(curl, easy, lane->words);

    set &= curl->curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_WRITEDATA, lane) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_HEADERDATA, lane) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)client->patience->connect_ms) ==
           CURLE_OK;
    set &=
        curl->curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L) == CURLE_OK; /* do not wait for 100 */
    /* less than a byte a second counts as silence */
    set &= curl->curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                                  (long)((client->patience->silent_ms + 999) / 1000)) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, client->signs) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_USERNAME, account->key_id) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_PASSWORD, account->secret) == CURLE_OK;
    if (account->ca_bundle[0] != '\0')
        set &= curl->curl_easy_setopt(easy, CURLOPT_CAINFO, account->ca_bundle) == CURLE_OK;
    return set;
}

/* Lanes */

static void free_lane(struct s3_client *client, struct s3_lane *lane)
{
    if (lane == NULL)
        return;
    if (lane->easy != NULL)
        client->curl->curl_easy_cleanup(lane->easy);
    json_text_free(&lane->xml);
    free(lane);
}

enum fsdp_status s3_lane_take(struct s3_lane **out, struct s3_client *client, struct fsdp_err *err)
{
    struct s3_lane *lane;

    pthread_mutex_lock(&client->mutex);
    lane = client->kept;
    if (lane != NULL) {
        client->kept = lane->next;
        client->n_kept--;
    }
    pthread_mutex_unlock(&client->mutex);
    *out = lane;
    if (lane != NULL)
        return FSDP_OK;
    lane = calloc(1, sizeof *lane);
    if (lane != NULL)
        lane->easy = client->curl->curl_easy_init();
    if (lane == NULL || lane->easy == NULL || !set_lane(client, lane)) {
        free_lane(client, lane);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a connection to an object store");
    }
    *out = lane;
    return FSDP_OK;
}

void s3_lane_give(struct s3_client *client, struct s3_lane *lane)
{
    lane->wanted = lane->target = NULL;
    json_text_free(&lane->xml);
    pthread_mutex_lock(&client->mutex);
    if (client->n_kept < KEPT_MAX) {
        lane->next = client->kept;
        client->kept = lane;
        client->n_kept++;
        lane = NULL;
    }
    pthread_mutex_unlock(&client->mutex);
    free_lane(client, lane);
}

/* The client */

enum fsdp_status s3_client_create(struct s3_client **out, const struct s3_account *account,
                                  const struct s3_patience *patience, struct fsdp_err *err)
{
    struct s3_client *client;
    const struct curl_library *curl;
    CURL *easy;
    bool can_sign;

    *out = NULL;
    OK_OR_RETURN(curl_library_open("an object store", &curl, err));
    client = calloc(1, sizeof *client);
    if (client == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a client of an object store");
    client->curl = curl;
    client->patience = patience;
    client->account = *account;
    snprintf(client->signs, sizeof client->signs, "aws:amz:%s:s3", account->region);
    pthread_mutex_init(&client->mutex, NULL);
    easy = curl->curl_easy_init();
    can_sign = easy != NULL && curl->curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, client->signs) == CURLE_OK;
    if (easy != NULL)
        curl->curl_easy_cleanup(easy);
    if (!can_sign) {
        s3_client_destroy(client);
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "this libcurl cannot sign requests to an object store");
    }
    *out = client;
    return FSDP_OK;
}

void s3_client_destroy(struct s3_client *client)
{
    if (client == NULL)
        return;
    while (client->kept != NULL) {
        struct s3_lane *lane = client->kept;

        client->kept = lane->next;
        free_lane(client, lane);
    }
    pthread_mutex_destroy(&client->mutex);
    explicit_bzero(&client->account, sizeof client->account);
    free(client);
}
