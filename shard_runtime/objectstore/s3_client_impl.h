/*
 * Shared by the files of the client of an object store:
 *   s3_client.c    the operations of s3_client.h: objects, lists, uploads
 *   s3_request.c   one request: how it is written, how often it is sent, what its answer means
 *   s3_lane.c      owns the client and its connections, and takes what an answer brings
 */
#ifndef OBJECTSTORE_S3_CLIENT_IMPL_H
#define OBJECTSTORE_S3_CLIENT_IMPL_H

#include <pthread.h>

#include "shard_runtime/objectstore/curl_library.h"
#include "shard_runtime/objectstore/s3_client.h"

enum { S3_QUERY_MAX = 8 };

/* A connection, and what the answer to its current request brings. */
struct s3_lane {
    struct s3_lane *next;
    CURL *easy;
    char words[CURL_ERROR_SIZE];
    char etag[S3_ETAG_BYTES];
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
    struct s3_lane *kept;
    int n_kept;
};

struct s3_request {
    const char *method;
    const struct s3_location *at;
    bool on_bucket; /* the request is about the bucket: its address has no key */
    struct s3_parameter query[S3_QUERY_MAX];
    size_t n_query;
    const void *body;
    size_t body_bytes;
    const char *header; /* one more; NULL: none */
    const char *result; /* the outermost element of an answer that is a success; NULL: its status decides */
    unsigned char *target;
    size_t room;
};

struct s3_answer {
    long status;
    bool is_success;
    struct s3_error error;
    /* an earlier try got no answer, or one that does not tell: the store may have done the request already */
    bool may_repeat;
};

/* In s3_request.c */

/**
 * Sends the request again and again until it succeeds, or until client->patience allows no more tries. The
 * answer is then in the lane.
 */
enum fsdp_status s3_request_send(struct s3_client *client, struct s3_lane *lane,
                                 const struct s3_request *request, struct s3_answer *answer,
                                 struct fsdp_err *err);
/** Sends a request if only the status of its answer is needed. */
enum fsdp_status s3_request_send_alone(struct s3_client *client, const struct s3_request *request,
                                       struct s3_answer *answer, struct fsdp_err *err);

/* In s3_lane.c */

/** Takes a connection that is kept, or makes one. FSDP_ERR_NOMEM */
enum fsdp_status s3_lane_take(struct s3_lane **out, struct s3_client *client, struct fsdp_err *err);
/** Gives the connection back. What the answer brought is gone. */
void s3_lane_give(struct s3_client *client, struct s3_lane *lane);

#endif
