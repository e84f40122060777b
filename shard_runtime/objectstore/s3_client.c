#include "shard_runtime/objectstore/s3_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/objectstore/s3_client_impl.h"

/* Objects */

enum fsdp_status s3_head(struct s3_client *client, const struct s3_location *at, uint64_t *size_bytes,
                         struct fsdp_err *err)
{
    const struct s3_request request = { .method = "HEAD", .at = at };
    struct s3_lane *lane;
    curl_off_t length = -1;
    struct s3_answer answer;
    enum fsdp_status status;

    *size_bytes = 0;
    OK_OR_RETURN(s3_lane_take(&lane, client, err));
    status = s3_request_send(client, lane, &request, &answer, err);
    if (status == FSDP_OK)
        (void)client->curl->curl_easy_getinfo(lane->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    s3_lane_give(client, lane);
    if (status == FSDP_OK && length < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "HEAD s3://%s/%s: the answer has no length", at->bucket, at->key);
    *size_bytes = (uint64_t)(status == FSDP_OK ? length : 0);
    return status;
}

enum fsdp_status s3_get(struct s3_client *client, const struct s3_location *at, uint64_t offset, void *bytes,
                        size_t size_bytes, size_t *n_read, struct fsdp_err *err)
{
    struct s3_request request = { .method = "GET", .at = at, .target = bytes, .room = size_bytes };
    char range[64];
    struct s3_answer answer;
    struct s3_lane *lane;
    enum fsdp_status status;

    *n_read = 0;
    if (size_bytes == 0)
        return FSDP_OK;
    OK_OR_RETURN(s3_lane_take(&lane, client, err));
    request.header = range;
    snprintf(range, sizeof range, "Range: bytes=%" PRIu64 "-%" PRIu64, offset, offset + size_bytes - 1);
    status = s3_request_send(client, lane, &request, &answer, err);
    /* A store that ignores the Range header sends the object from its beginning. */
    if (status == FSDP_OK && answer.status != 206 && offset > 0)
        status = fsdp_fail(err, FSDP_ERR_IO, "GET s3://%s/%s: HTTP status %ld for a part of it", at->bucket,
                           at->key, answer.status);
    if (status == FSDP_OK)
        *n_read = lane->n_body;
    s3_lane_give(client, lane);
    if (status == FSDP_ERR_IO && answer.status == 416) { /* it ends before the offset */
        fsdp_err_clear(err);
        return FSDP_OK;
    }
    return status;
}

enum fsdp_status s3_put(struct s3_client *client, const struct s3_location *at, const void *bytes,
                        size_t size_bytes, bool is_new, struct fsdp_err *err)
{
    const struct s3_request request = { .method = "PUT",
                                        .at = at,
                                        .body = size_bytes > 0 ? bytes : "",
                                        .body_bytes = size_bytes,
                                        .header = is_new ? "If-None-Match: *" : NULL };
    struct s3_answer answer;

    return s3_request_send_alone(client, &request, &answer, err);
}

static enum fsdp_status send_delete(struct s3_client *client, const struct s3_request *request,
                                    struct fsdp_err *err)
{
    struct s3_answer answer;
    struct fsdp_err why = { 0 };
    const enum fsdp_status status = s3_request_send_alone(client, request, &answer, &why);

    if (status == FSDP_OK || (status == FSDP_ERR_NOT_FOUND && strcmp(answer.error.code, "NoSuchBucket") != 0))
        return FSDP_OK;
    return fsdp_fail(err, status, "%s", why.message);
}

enum fsdp_status s3_delete(struct s3_client *client, const struct s3_location *at, struct fsdp_err *err)
{
    const struct s3_request request = { .method = "DELETE", .at = at };

    return send_delete(client, &request, err);
}

/* Lists */

static enum fsdp_status read_page(struct s3_client *client, const struct s3_request *request,
                                  struct s3_list *out, struct fsdp_err *err)
{
    struct s3_lane *lane;
    struct s3_answer answer;
    enum fsdp_status status;

    OK_OR_RETURN(s3_lane_take(&lane, client, err));
    status = s3_request_send(client, lane, request, &answer, err);
    if (status == FSDP_OK) {
        status = s3_read_list(lane->xml.bytes != NULL ? lane->xml.bytes : "", lane->xml.length, out, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "GET s3://%s", request->at->bucket);
    }
    s3_lane_give(client, lane);
    return status;
}

static void add_parameter(struct s3_request *request, const char *name, const char *value)
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
        struct s3_request request = { .method = "GET", .at = at, .on_bucket = true };

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
        struct s3_request request = { .method = "GET", .at = at, .on_bucket = true };

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
    const struct s3_request request = {
        .method = "POST", .at = at, .query = { { "uploads", NULL } }, .n_query = 1, .body = ""
    };
    struct s3_lane *lane;
    struct s3_answer answer;
    enum fsdp_status status;

    id[0] = '\0';
    OK_OR_RETURN(s3_lane_take(&lane, client, err));
    status = s3_request_send(client, lane, &request, &answer, err);
    if (status == FSDP_OK &&
        !s3_read_upload(lane->xml.bytes != NULL ? lane->xml.bytes : "", lane->xml.length, id))
        status =
            fsdp_fail(err, FSDP_ERR_IO, "POST s3://%s/%s: the answer names no upload", at->bucket, at->key);
    s3_lane_give(client, lane);
    return status;
}

enum fsdp_status s3_upload_part(struct s3_client *client, const struct s3_location *at, const char *id,
                                int number, const void *bytes, size_t size_bytes, char etag[S3_ETAG_BYTES],
                                struct fsdp_err *err)
{
    char part[16];
    const struct s3_request request = { .method = "PUT",
                                        .at = at,
                                        .query = { { "partNumber", part }, { "uploadId", id } },
                                        .n_query = 2,
                                        .body = bytes,
                                        .body_bytes = size_bytes };
    struct s3_lane *lane;
    struct s3_answer answer;
    enum fsdp_status status;

    etag[0] = '\0';
    OK_OR_RETURN(s3_lane_take(&lane, client, err));
    snprintf(part, sizeof part, "%d", number);
    status = s3_request_send(client, lane, &request, &answer, err);
    if (status == FSDP_OK && lane->etag[0] == '\0')
        status = fsdp_fail(err, FSDP_ERR_IO, "PUT s3://%s/%s: the answer has no ETag that can be sent back",
                           at->bucket, at->key);
    memcpy(etag, lane->etag, S3_ETAG_BYTES);
    s3_lane_give(client, lane);
    return status;
}

enum fsdp_status s3_upload_end(struct s3_client *client, const struct s3_location *at, const char *id,
                               const char (*etags)[S3_ETAG_BYTES], size_t n, uint64_t size_bytes,
                               struct fsdp_err *err)
{
    struct json_text body = { 0 };
    struct s3_request request = { .method = "POST",
                                  .at = at,
                                  .query = { { "uploadId", id } },
                                  .n_query = 1,
                                  .result = "CompleteMultipartUploadResult" };
    struct s3_answer answer = { .status = 0 };
    uint64_t found = 0;
    enum fsdp_status status;

    s3_add_parts(&body, etags, n);
    request.body = body.bytes;
    request.body_bytes = body.length;
    status = body.failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the parts of an object")
                         : s3_request_send_alone(client, &request, &answer, err);
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
    const struct s3_request request = {
        .method = "DELETE", .at = at, .query = { { "uploadId", id } }, .n_query = 1
    };

    return send_delete(client, &request, err);
}
