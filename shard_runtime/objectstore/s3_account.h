/*
 * With which credentials, and where, an object store is asked. They come from the environment, by the names
 * that other tools for S3 use:
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY   required
 *   AWS_SESSION_TOKEN                          of temporary credentials
 *   AWS_REGION, AWS_DEFAULT_REGION             the first one that is set; us-east-1 if none is
 *   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL      the first one that is set; Amazon's of the region if none is
 *   AWS_CA_BUNDLE                              a file of certificates
 * Pure.
 */
#ifndef OBJECTSTORE_S3_ACCOUNT_H
#define OBJECTSTORE_S3_ACCOUNT_H

#include <fsdp/status.h>

enum { S3_ENDPOINT_BYTES = 512, S3_REGION_BYTES = 64, S3_SECRET_BYTES = 256, S3_TOKEN_BYTES = 8192 };

struct s3_account {
    char endpoint[S3_ENDPOINT_BYTES]; /* "https://host:port", without a slash at its end */
    char region[S3_REGION_BYTES];
    char key_id[S3_SECRET_BYTES], secret[S3_SECRET_BYTES];
    char token[S3_TOKEN_BYTES];        /* "": none */
    char ca_bundle[S3_ENDPOINT_BYTES]; /* "": the system's certificates */
};

/**
 * Reads the variables through `get`, as getenv(3). An empty one counts as not set.
 *   FSDP_ERR_CONFIG  one is missing or cannot be; the message names it, and never a secret's text
 */
enum fsdp_status s3_account_read(struct s3_account *out, const char *(*get)(void *arg, const char *name),
                                 void *arg, struct fsdp_err *err);

#endif
