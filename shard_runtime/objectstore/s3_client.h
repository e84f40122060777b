/*
 * Requests to an object store that speaks S3's protocol, over HTTP by libcurl, signed by the rules of AWS4.
 * Each function is one request, or several for a list. A request that fails in passing (no connection,
 * silence, HTTP 5xx) is sent again, as the patience says. So each must be one that may be done twice.
 *
 * Objects are not part of the signature: the connection protects them, and checksums of checkpoints find what
 * it does not. Addresses have the bucket in their path.
 *
 * The message of an error has the place, the HTTP status and the code of S3. It never has a credential.
 *   FSDP_ERR_NOT_FOUND  there is no such object, bucket or upload
 *   FSDP_ERR_BUSY       the object was to be new, and exists
 *   FSDP_ERR_CONFIG     the store refuses the credentials
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 * Any number of threads may use a client: each request in progress has a connection, which is kept for the
 * next.
 */
#ifndef OBJECTSTORE_S3_CLIENT_H
#define OBJECTSTORE_S3_CLIENT_H

#include "shard_runtime/objectstore/s3_account.h"
#include "shard_runtime/objectstore/s3_location.h"
#include "shard_runtime/objectstore/s3_message.h"
#include "shard_runtime/objectstore/s3_plan.h"

struct s3_client;

/**
 * Opens libcurl and connects to nothing. `patience` is borrowed.
 *   FSDP_ERR_UNSUPPORTED  there is no libcurl that can sign requests
 */
enum fsdp_status s3_client_create(struct s3_client **out, const struct s3_account *account,
                                  const struct s3_patience *patience, struct fsdp_err *err);
void s3_client_destroy(struct s3_client *client); /* no request may be in progress; NULL is a no-op */

enum fsdp_status s3_head(struct s3_client *client, const struct s3_location *at, uint64_t *size_bytes,
                         struct fsdp_err *err);

/** Reads up to `size_bytes` bytes at `offset`; *n_read is less only at the end of the object. */
enum fsdp_status s3_get(struct s3_client *client, const struct s3_location *at, uint64_t offset, void *bytes,
                        size_t size_bytes, size_t *n_read, struct fsdp_err *err);

/**
 * Writes a whole object. `is_new`: the object must not exist yet, else FSDP_ERR_BUSY. If an earlier try got
 * no answer, FSDP_ERR_BUSY may mean that this very call has written the object.
 */
enum fsdp_status s3_put(struct s3_client *client, const struct s3_location *at, const void *bytes,
                        size_t size_bytes, bool is_new, struct fsdp_err *err);

/** Succeeds if there is no such object. */
enum fsdp_status s3_delete(struct s3_client *client, const struct s3_location *at, struct fsdp_err *err);

/**
 * Lists the objects whose key begins with `prefix`, in the bucket of `at`; the caller calls s3_list_free().
 *   in_folder  name only what is directly below: keys with another slash are one entry, which is a prefix
 *   most       entries that are enough; 0: all
 */
enum fsdp_status s3_list(struct s3_client *client, const struct s3_location *at, const char *prefix,
                         bool in_folder, int most, struct s3_list *out, struct fsdp_err *err);

/*
 * Begins an upload in parts. The object appears when s3_upload_end() succeeds. Until then the store keeps the
 * parts, and charges for them.
 */

enum fsdp_status s3_upload_begin(struct s3_client *client, const struct s3_location *at,
                                 char id[S3_UPLOAD_BYTES], struct fsdp_err *err);
/** `number` counts from 1. */
enum fsdp_status s3_upload_part(struct s3_client *client, const struct s3_location *at, const char *id,
                                int number, const void *bytes, size_t size_bytes, char etag[S3_ETAG_BYTES],
                                struct fsdp_err *err);
/**
 * Completes an upload. `size_bytes` is the size of the whole object. If the upload is gone, an object of that
 * size shows that an earlier try has completed it.
 */
enum fsdp_status s3_upload_end(struct s3_client *client, const struct s3_location *at, const char *id,
                               const char (*etags)[S3_ETAG_BYTES], size_t n, uint64_t size_bytes,
                               struct fsdp_err *err);
/** Succeeds if there is no such upload. */
enum fsdp_status s3_upload_abort(struct s3_client *client, const struct s3_location *at, const char *id,
                                 struct fsdp_err *err);
/** Lists the uploads that are under way, of all keys that begin with `prefix`. */
enum fsdp_status s3_list_uploads(struct s3_client *client, const struct s3_location *at, const char *prefix,
                                 struct s3_list *out, struct fsdp_err *err);

#endif
