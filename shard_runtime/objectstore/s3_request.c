/* One request: how it is written, how often it is sent, and what its answer means. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/objectstore/s3_client_impl.h"

/* Writing it */

static struct curl_slist *add_header(struct s3_client *client, struct curl_slist *list, bool *failed,
                                     const char *header)
{
    struct curl_slist *longer = *failed ? NULL : client->curl->curl_slist_append(list, header);

    *failed = longer == NULL;
    return longer == NULL ? list : longer;
}

static struct curl_slist *make_headers(struct s3_client *client, const struct s3_request *request)
{
    char token[S3_TOKEN_BYTES + 32];
    struct curl_slist *list = NULL;
    bool failed = false;

    /*
     * This replaces libcurl's Content-Type, which is that of a form. libcurl's "Expect:" is not switched off
     * here: to do that, curl 7.88 would sign the empty header and not send it.
     */
    list = add_header(client, list, &failed, "Content-Type: application/octet-stream");
    list = add_header(client, list, &failed, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    if (request->header != NULL)
        list = add_header(client, list, &failed, request->header);
    if (client->account.token[0] != '\0') {
        snprintf(token, sizeof token, "x-amz-security-token: %s", client->account.token);
        list = add_header(client, list, &failed, token);
        explicit_bzero(token, sizeof token);
    }
    if (!failed)
        return list;
    client->curl->curl_slist_free_all(list);
    return NULL;
}

static void make_url(struct s3_client *client, const struct s3_request *request, struct json_text *url)
{
    struct s3_parameter query[S3_QUERY_MAX];

    memcpy(query, request->query, sizeof query);
    json_add(url, "%s/%s", client->account.endpoint, request->at->bucket);
    if (!request->on_bucket)
        json_add(url, "/%s", request->at->key);
    s3_add_query(url, query, request->n_query);
}

/* Sending it */

/* Sends the request once. *status is 0 if no whole answer came; lane->words then says why. */
static enum fsdp_status send_once(struct s3_client *client, struct s3_lane *lane,
                                  const struct s3_request *request, struct s3_answer *answer,
                                  struct fsdp_err *err)
{
    const struct curl_library *const curl = client->curl;
    struct curl_slist *headers = make_headers(client, request);
    struct json_text url = { 0 };
    bool is_head = strcmp(request->method, "HEAD") == 0, set = headers != NULL;
    CURLcode code = CURLE_OUT_OF_MEMORY;

    answer->status = 0;
    make_url(client, request, &url);
    lane->words[0] = lane->etag[0] = '\0';
    lane->wanted = lane->target = request->target;
    lane->room = request->room;
    lane->n_body = 0;
    lane->too_long = false;
    json_text_free(&lane->xml);
    set = set && !url.failed && curl->curl_easy_setopt(lane->easy, CURLOPT_URL, url.bytes) == CURLE_OK;
    set = set && curl->curl_easy_setopt(lane->easy, CURLOPT_HTTPHEADER, headers) == CURLE_OK;
    set = set && curl->curl_easy_setopt(lane->easy, CURLOPT_NOBODY, (long)is_head) == CURLE_OK;
    if (set && request->body != NULL) {
        set &= curl->curl_easy_setopt(lane->easy, CURLOPT_POSTFIELDS, request->body) == CURLE_OK;
        set &= curl->curl_easy_setopt(lane->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                      (curl_off_t)request->body_bytes) == CURLE_OK;
    } else if (set && !is_head) {
        set &= curl->curl_easy_setopt(lane->easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    }
    set = set && curl->curl_easy_setopt(lane->easy, CURLOPT_CUSTOMREQUEST,
                                        is_head ? NULL : request->method) == CURLE_OK;
    if (set)
        code = curl->curl_easy_perform(lane->easy);
    curl->curl_slist_free_all(headers);
    json_text_free(&url);
    if (!set || code == CURLE_OUT_OF_MEMORY || lane->xml.failed)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a request to an object store");
    if (code == CURLE_OK)
        (void)curl->curl_easy_getinfo(lane->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    else if (lane->words[0] == '\0')
        snprintf(lane->words, sizeof lane->words, "%s", curl->curl_easy_strerror(code));
    if (lane->too_long)
        snprintf(lane->words, sizeof lane->words, "the answer is longer than what was asked for");
    if (answer->status == 0)
        answer->may_repeat = true;
    answer->error = (struct s3_error){ .code = "" };
    if (lane->xml.length > 0)
        (void)s3_read_error(lane->xml.bytes, lane->xml.length, &answer->error);
    /* S3 begins to answer before it has put an upload together: with status 200, whatever comes then. */
    answer->is_success =
        answer->status >= 200 && answer->status < 300 && answer->error.code[0] == '\0' &&
        (request->result == NULL ||
         (lane->xml.length > 0 && s3_is_result(lane->xml.bytes, lane->xml.length, request->result)));
    if (answer->status == 200 && !answer->is_success && answer->error.code[0] == '\0')
        snprintf(answer->error.words, sizeof answer->error.words, "the answer is no %s", request->result);
    return FSDP_OK;
}

static void pause_before(const struct s3_client *client, int try)
{
    uint32_t random = 0;
    int64_t ms;
    struct timespec left;

    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    ms = s3_pause_ms(client->patience, try, random);
    left = (struct timespec){ ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&left, &left) < 0)
        ;
}

static bool may_try_again(const struct s3_answer *answer)
{
    return (answer->status >= 200 && answer->status < 300) || s3_is_passing(answer->status);
}

static enum fsdp_status say_failure(const struct s3_request *request, const struct s3_lane *lane,
                                    const struct s3_answer *answer, int n_tries, struct fsdp_err *err)
{
    const enum fsdp_status status = answer->status == 404                            ? FSDP_ERR_NOT_FOUND
                                    : answer->status == 412                          ? FSDP_ERR_BUSY
                                    : answer->status == 401 || answer->status == 403 ? FSDP_ERR_CONFIG
                                                                                     : FSDP_ERR_IO;
    const bool has_key = !request->on_bucket && request->at->key[0] != '\0';
    char tried[48] = "";

    if (n_tries > 1)
        snprintf(tried, sizeof tried, " (tried %d times)", n_tries);
    if (answer->status == 0)
        return fsdp_fail(err, status, "%s s3://%s%s%s: %.160s%s", request->method, request->at->bucket,
                         has_key ? "/" : "", has_key ? request->at->key : "", lane->words, tried);
    return fsdp_fail(err, status, "%s s3://%s%s%s: HTTP status %ld%s%s%s%.160s%s", request->method,
                     request->at->bucket, has_key ? "/" : "", has_key ? request->at->key : "", answer->status,
                     answer->error.code[0] != '\0' ? ", " : "", answer->error.code,
                     answer->error.words[0] != '\0' ? ": " : "", answer->error.words, tried);
}

enum fsdp_status s3_request_send(struct s3_client *client, struct s3_lane *lane,
                                 const struct s3_request *request, struct s3_answer *answer,
                                 struct fsdp_err *err)
{
    int try = 1;

    *answer = (struct s3_answer){ .status = 0 };
    for (;; try++) {
        pause_before(client, try);
        OK_OR_RETURN(send_once(client, lane, request, answer, err));
        if (answer->is_success)
            return FSDP_OK;
        if (!may_try_again(answer) || try >= client->patience->tries)
            return say_failure(request, lane, answer, try, err);
        if (answer->status >= 500 || answer->status < 300)
            answer->may_repeat = true;
    }
}

enum fsdp_status s3_request_send_alone(struct s3_client *client, const struct s3_request *request,
                                       struct s3_answer *answer, struct fsdp_err *err)
{
    struct s3_lane *lane;
    enum fsdp_status status;

    OK_OR_RETURN(s3_lane_take(&lane, client, err));
    status = s3_request_send(client, lane, request, answer, err);
    s3_lane_give(client, lane);
    return status;
}
