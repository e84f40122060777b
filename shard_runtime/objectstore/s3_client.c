#include "shard_runtime/objectstore/s3_client.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/objectstore/curl_library.h"

enum {
    KEPT_MAX = 16,          /* connections that are kept */
    ANSWER_BYTES = 4 << 20, /* of an XML answer: a page of a list has at most 1,000 keys of 1,024 bytes */
    QUERY_MAX = 8,
};

/* A connection, and what the answer to its current request brings. */
struct lane {
    struct lane *next;
    CURL *easy;
    char words[CURL_ERROR_SIZE];
    char etag[S3_ETAG_BYTES];
    uint64_t length;       /* the header Content-Length */
    unsigned char *wanted; /* where the bytes of the object go; NULL: the request gets XML, not an object */
    /* where the body of the answer that arrives now goes; NULL: into `xml`, as for an error */
    unsigned char *target;
    size_t room, n_body;
    struct json_text xml; /* the body of anything else */
    bool too_long;
};

struct s3_client {
    const struct curl_library *curl;
    const struct s3_patience *patience;
    struct s3_account account;
    char signs[S3_REGION_BYTES + 16]; /* CURLOPT_AWS_SIGV4 */
    pthread_mutex_t mutex;            /* of the two below */
    struct lane *kept;
    int n_kept;
};

struct request {
    const char *method;
    const struct s3_location *at;
    bool on_bucket; /* the request is about the bucket: its address has no key */
    struct s3_parameter query[QUERY_MAX];
    size_t n_query;
    const void *body;
    size_t body_bytes;
    const char *header; /* one more; NULL: none */
    const char *result; /* the outermost element of an answer that is a success; NULL: its status decides */
    unsigned char *target;
    size_t room;
};

struct answer {
    long status;
    bool is_success;
    struct s3_error error;
    /* an earlier try got no answer, or one that does not tell: the store may have done the request already */
    bool may_repeat;
};

static void free_lane(struct s3_client *client, struct lane *lane)
{
    if (lane == NULL)
        return;
    if (lane->easy != NULL)
        client->curl->curl_easy_cleanup(lane->easy);
    json_text_free(&lane->xml);
    free(lane);
}

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
        struct lane *lane = client->kept;

        client->kept = lane->next;
        free_lane(client, lane);
    }
    pthread_mutex_destroy(&client->mutex);
    explicit_bzero(&client->account, sizeof client->account);
    free(client);
}

/* The answer */

static size_t take_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct lane *lane = arg;
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
    struct lane *lane = arg;
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

/* SOCK_CLOEXEC: programs that this one starts do not inherit the connection. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg, (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Lanes */

static bool set_lane(struct s3_client *client, struct lane *lane)
{
    const struct curl_library *const curl = client->curl;
    CURL *const easy = lane->easy;
    const struct s3_account *account = &client->account;
    bool set = true;

    set &= curl->curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, lane->words) == CURLE_OK;
    set &= curl->curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK;
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

static struct lane *take_lane(struct s3_client *client)
{
    struct lane *lane;

    pthread_mutex_lock(&client->mutex);
    lane = client->kept;
    if (lane != NULL) {
        client->kept = lane->next;
        client->n_kept--;
    }
    pthread_mutex_unlock(&client->mutex);
    if (lane != NULL)
        return lane;
    lane = calloc(1, sizeof *lane);
    if (lane != NULL)
        lane->easy = client->curl->curl_easy_init();
    if (lane == NULL || lane->easy == NULL || !set_lane(client, lane)) {
        free_lane(client, lane);
        return NULL;
    }
    return lane;
}

static void give_lane(struct s3_client *client, struct lane *lane)
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

/* One request */

static struct curl_slist *add_header(struct s3_client *client, struct curl_slist *list, bool *failed,
                                     const char *header)
{
    struct curl_slist *longer = *failed ? NULL : client->curl->curl_slist_append(list, header);

    *failed = longer == NULL;
    return longer == NULL ? list : longer;
}

static struct curl_slist *make_headers(struct s3_client *client, const struct request *request)
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

static void make_url(struct s3_client *client, const struct request *request, struct json_text *url)
{
    struct s3_parameter query[QUERY_MAX];

    memcpy(query, request->query, sizeof query);
    json_add(url, "%s/%s", client->account.endpoint, request->at->bucket);
    if (!request->on_bucket)
        json_add(url, "/%s", request->at->key);
    s3_add_query(url, query, request->n_query);
}

/* Sends the request once. *status is 0 if no whole answer came; lane->words then says why. */
static enum fsdp_status send_once(struct s3_client *client, struct lane *lane, const struct request *request,
                                  struct answer *answer, struct fsdp_err *err)
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

static bool may_try_again(const struct answer *answer)
{
    return (answer->status >= 200 && answer->status < 300) || s3_is_passing(answer->status);
}

static enum fsdp_status say_failure(const struct request *request, const struct lane *lane,
                                    const struct answer *answer, int n_tries, struct fsdp_err *err)
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

/*
 * Sends the request again and again until it succeeds, or until client->patience allows no more tries. The
 * answer is then in the lane.
 */
static enum fsdp_status send_request(struct s3_client *client, struct lane *lane,
                                     const struct request *request, struct answer *answer,
                                     struct fsdp_err *err)
{
    int try = 1;

    *answer = (struct answer){ .status = 0 };
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

static enum fsdp_status no_lane(struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a connection to an object store");
}

/* Sends a request if only the status of its answer is needed. */
static enum fsdp_status send_alone(struct s3_client *client, const struct request *request,
                                   struct answer *answer, struct fsdp_err *err)
{
    struct lane *lane = take_lane(client);
    enum fsdp_status status;

    if (lane == NULL)
        return no_lane(err);
    status = send_request(client, lane, request, answer, err);
    give_lane(client, lane);
    return status;
}

/* Objects */

enum fsdp_status s3_head(struct s3_client *client, const struct s3_location *at, uint64_t *size_bytes,
                         struct fsdp_err *err)
{
    const struct request request = { .method = "HEAD", .at = at };
    struct lane *lane = take_lane(client);
    curl_off_t length = -1;
    struct answer answer;
    enum fsdp_status status;

    *size_bytes = 0;
    if (lane == NULL)
        return no_lane(err);
    status = send_request(client, lane, &request, &answer, err);
    if (status == FSDP_OK)
        (void)client->curl->curl_easy_getinfo(lane->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    give_lane(client, lane);
    if (status == FSDP_OK && length < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "HEAD s3://%s/%s: the answer has no length", at->bucket, at->key);
    *size_bytes = (uint64_t)(status == FSDP_OK ? length : 0);
    return status;
}

enum fsdp_status s3_get(struct s3_client *client, const struct s3_location *at, uint64_t offset, void *bytes,
                        size_t size_bytes, size_t *n_read, struct fsdp_err *err)
{
    struct request request = { .method = "GET", .at = at, .target = bytes, .room = size_bytes };
    char range[64];
    struct answer answer;
    struct lane *lane;
    enum fsdp_status status;

    *n_read = 0;
    if (size_bytes == 0)
        return FSDP_OK;
    lane = take_lane(client);
    if (lane == NULL)
        return no_lane(err);
    request.header = range;
    snprintf(range, sizeof range, "Range: bytes=%" PRIu64 "-%" PRIu64, offset, offset + size_bytes - 1);
    status = send_request(client, lane, &request, &answer, err);
    /* A store that ignores the Range header sends the object from its beginning. */
    if (status == FSDP_OK && answer.status != 206 && offset > 0)
        status = fsdp_fail(err, FSDP_ERR_IO, "GET s3://%s/%s: HTTP status %ld for a part of it", at->bucket,
                           at->key, answer.status);
    if (status == FSDP_OK)
        *n_read = lane->n_body;
    give_lane(client, lane);
    if (status == FSDP_ERR_IO && answer.status == 416) { /* it ends before the offset */
        fsdp_err_clear(err);
        return FSDP_OK;
    }
    return status;
}

enum fsdp_status s3_put(struct s3_client *client, const struct s3_location *at, const void *bytes,
                        size_t size_bytes, bool is_new, struct fsdp_err *err)
{
    const struct request request = { .method = "PUT",
                                     .at = at,
                                     .body = size_bytes > 0 ? bytes : "",
                                     .body_bytes = size_bytes,
                                     .header = is_new ? "If-None-Match: *" : NULL };
    struct answer answer;

    return send_alone(client, &request, &answer, err);
}

static enum fsdp_status delete (struct s3_client *client, const struct request *request,
                                struct fsdp_err *err) {
    struct answer answer; struct fsdp_err why = { 0 };
    const enum fsdp_status status = send_alone(client, request, &answer, &why);

    if (status == FSDP_OK ||
        (status == FSDP_ERR_NOT_FOUND && strcmp(answer.error.code, "NoSuchBucket") != 0)) return FSDP_OK;
    return fsdp_fail(err, status, "%s", why.message);
}

enum fsdp_status s3_delete(struct s3_client *client, const struct s3_location *at, struct fsdp_err *err)
{
    const struct request request = { .method = "DELETE", .at = at };

    return delete (client, &request, err);
}

/* Lists */

static enum fsdp_status read_page(struct s3_client *client, const struct request *request,
                                  struct s3_list *out, struct fsdp_err *err)
{
    struct lane *lane = take_lane(client);
    struct answer answer;
    enum fsdp_status status;

    if (lane == NULL)
        return no_lane(err);
    status = send_request(client, lane, request, &answer, err);
    if (status == FSDP_OK) {
        status = s3_read_list(lane->xml.bytes != NULL ? lane->xml.bytes : "", lane->xml.length, out, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "GET s3://%s", request->at->bucket);
    }
    give_lane(client, lane);
    return status;
}

static void add_parameter(struct request *request, const char *name, const char *value)
{
    request->query[request->n_query++] = (struct s3_parameter){ name, value };
}

enum fsdp_status s3_list(struct s3_client *client, const struct s3_location *at, const char *prefix,
                         bool in_folder, int most, struct s3_list *out, struct fsdp_err *err)
{
    char keys[16], token[S3_WORD_BYTES] = "";
    enum fsdp_status status;

    *out = (struct s3_list){ .n = 0 };
    do {
        struct request request = { .method = "GET", .at = at, .on_bucket = true };

        add_parameter(&request, "list-type", "2");
        add_parameter(&request, "prefix", prefix);
        if (in_folder)
            add_parameter(&request, "delimiter", "/");
        if (most > 0) {
            snprintf(keys, sizeof keys, "%d", most);
            add_parameter(&request, "max-keys", keys);
        }
        if (out->more) {
            memcpy(token, out->next, sizeof token);
            add_parameter(&request, "continuation-token", token);
        }
        status = read_page(client, &request, out, err);
        if (status == FSDP_OK && out->more && strcmp(token, out->next) == 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "a list that comes to no end");
    } while (status == FSDP_OK && out->more && !(most > 0 && out->n >= (size_t)most));
    if (status != FSDP_OK)
        s3_list_free(out);
    return status;
}

enum fsdp_status s3_list_uploads(struct s3_client *client, const struct s3_location *at, const char *prefix,
                                 struct s3_list *out, struct fsdp_err *err)
{
    char key[S3_WORD_BYTES] = "", upload[S3_UPLOAD_BYTES] = "";
    enum fsdp_status status;

    *out = (struct s3_list){ .n = 0 };
    do {
        struct request request = { .method = "GET", .at = at, .on_bucket = true };

        add_parameter(&request, "uploads", NULL);
        add_parameter(&request, "prefix", prefix);
        if (out->more) {
            memcpy(key, out->next, sizeof key);
            memcpy(upload, out->next_upload, sizeof upload);
            add_parameter(&request, "key-marker", key);
            add_parameter(&request, "upload-id-marker", upload);
        }
        status = read_page(client, &request, out, err);
        if (status == FSDP_OK && out->more && strcmp(key, out->next) == 0 &&
            strcmp(upload, out->next_upload) == 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "a list that comes to no end");
    } while (status == FSDP_OK && out->more);
    if (status != FSDP_OK)
        s3_list_free(out);
    return status;
}

/* Uploads */

enum fsdp_status s3_upload_begin(struct s3_client *client, const struct s3_location *at,
                                 char id[S3_UPLOAD_BYTES], struct fsdp_err *err)
{
    const struct request request = {
        .method = "POST", .at = at, .query = { { "uploads", NULL } }, .n_query = 1, .body = ""
    };
    struct lane *lane = take_lane(client);
    struct answer answer;
    enum fsdp_status status;

    id[0] = '\0';
    if (lane == NULL)
        return no_lane(err);
    status = send_request(client, lane, &request, &answer, err);
    if (status == FSDP_OK &&
        !s3_read_upload(lane->xml.bytes != NULL ? lane->xml.bytes : "", lane->xml.length, id))
        status =
            fsdp_fail(err, FSDP_ERR_IO, "POST s3://%s/%s: the answer names no upload", at->bucket, at->key);
    give_lane(client, lane);
    return status;
}

enum fsdp_status s3_upload_part(struct s3_client *client, const struct s3_location *at, const char *id,
                                int number, const void *bytes, size_t size_bytes, char etag[S3_ETAG_BYTES],
                                struct fsdp_err *err)
{
    char part[16];
    const struct request request = { .method = "PUT",
                                     .at = at,
                                     .query = { { "partNumber", part }, { "uploadId", id } },
                                     .n_query = 2,
                                     .body = bytes,
                                     .body_bytes = size_bytes };
    struct lane *lane = take_lane(client);
    struct answer answer;
    enum fsdp_status status;

    etag[0] = '\0';
    if (lane == NULL)
        return no_lane(err);
    snprintf(part, sizeof part, "%d", number);
    status = send_request(client, lane, &request, &answer, err);
    if (status == FSDP_OK && lane->etag[0] == '\0')
        status = fsdp_fail(err, FSDP_ERR_IO, "PUT s3://%s/%s: the answer has no ETag that can be sent back",
                           at->bucket, at->key);
    memcpy(etag, lane->etag, S3_ETAG_BYTES);
    give_lane(client, lane);
    return status;
}

enum fsdp_status s3_upload_end(struct s3_client *client, const struct s3_location *at, const char *id,
                               const char (*etags)[S3_ETAG_BYTES], size_t n, uint64_t size_bytes,
                               struct fsdp_err *err)
{
    struct json_text body = { 0 };
    struct request request = { .method = "POST",
                               .at = at,
                               .query = { { "uploadId", id } },
                               .n_query = 1,
                               .result = "CompleteMultipartUploadResult" };
    struct answer answer = { .status = 0 };
    uint64_t found = 0;
    enum fsdp_status status;

    s3_add_parts(&body, etags, n);
    request.body = body.bytes;
    request.body_bytes = body.length;
    status = body.failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the parts of an object")
                         : send_alone(client, &request, &answer, err);
    json_text_free(&body);
    /*
     * An earlier try got no answer and now the upload is gone. If the object is there with the right size,
     * that try has completed the upload.
     */
    if (status == FSDP_ERR_NOT_FOUND && answer.may_repeat && s3_head(client, at, &found, NULL) == FSDP_OK &&
        found == size_bytes) {
        fsdp_err_clear(err);
        return FSDP_OK;
    }
    return status;
}

enum fsdp_status s3_upload_abort(struct s3_client *client, const struct s3_location *at, const char *id,
                                 struct fsdp_err *err)
{
    const struct request request = {
        .method = "DELETE", .at = at, .query = { { "uploadId", id } }, .n_query = 1
    };

    return delete (client, &request, err);
}
