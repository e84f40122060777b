/*
 * What the protocol of S3 writes and reads besides objects: queries, and XML. The parser takes the XML that
 * such stores send and nothing more: elements, text and the five entities; no document type, no CDATA. What
 * it reads comes from another host, so it trusts nothing. Pure.
 */
#ifndef OBJECTSTORE_S3_MESSAGE_H
#define OBJECTSTORE_S3_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/core/json.h"

enum { S3_WORD_BYTES = 1024, S3_ETAG_BYTES = 192, S3_UPLOAD_BYTES = 1024 };

/* Queries */

struct s3_parameter {
    /* value: NULL if the parameter of the query has none; a signature writes such a parameter as "NAME=" */
    const char *name, *value;
};

/**
 * Appends the query to `url`, sorted by name and escaped, as a signature needs it: "?a=1&b=2". `parameters`
 * is sorted in place. url->failed: there is no memory.
 */
void s3_add_query(struct json_text *url, struct s3_parameter *parameters, size_t n_parameters);

/* Headers */

/**
 * Takes the value of the header ETag, without the blanks around it. It is sent back as it came: what is in it
 * is the store's affair. Returns false, and stores "", if it is empty, too long, or has a byte that is not
 * printable ASCII.
 */
bool s3_read_etag(const char *value, size_t length, char etag[S3_ETAG_BYTES]);

/* XML */

/**
 * Calls `found` for each element, at the end of the element. `text` is its text; NULL if it has elements
 * inside. `parent` is "" for the outermost element. Returns false if the bytes are no such XML, or if `found`
 * returned false.
 */
bool s3_xml_walk(const char *bytes, size_t length,
                 bool (*found)(void *arg, const char *parent, const char *name, const char *text), void *arg);

/** What the store says in an answer that is an error. */
struct s3_error {
    char code[64], words[256]; /* "": it says none */
};

/** Reads <Error>. Returns false if the bytes are none. */
bool s3_read_error(const char *bytes, size_t length, struct s3_error *out);

/** Returns whether the bytes are whole XML, and the outermost element has this name. */
bool s3_is_result(const char *bytes, size_t length, const char *name);

/** Reads the id of <InitiateMultipartUploadResult>. */
bool s3_read_upload(const char *bytes, size_t length, char id[S3_UPLOAD_BYTES]);

/* One name of a list: an object, the common beginning of several, or an upload that is under way. */
struct s3_entry {
    char *key;
    char *upload; /* its id; NULL: it is none */
    bool is_prefix;
};

struct s3_list {
    struct s3_entry *entries;
    size_t n, room;
    bool more;                         /* the next page begins where `next` says */
    char next[S3_WORD_BYTES];          /* the token, or the key */
    char next_upload[S3_UPLOAD_BYTES]; /* the upload */
};

/**
 * Appends the entries of <ListBucketResult> or <ListMultipartUploadsResult> to the list, and sets `more`.
 *   FSDP_ERR_FORMAT, FSDP_ERR_NOMEM
 */
enum fsdp_status s3_read_list(const char *bytes, size_t length, struct s3_list *list, struct fsdp_err *err);
void s3_list_free(struct s3_list *list);

/** Appends the body that ends an upload: part i + 1 has etags[i]. */
void s3_add_parts(struct json_text *body, const char (*etags)[S3_ETAG_BYTES], size_t n);

#endif
