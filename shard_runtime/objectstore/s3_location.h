/*
 * The place of an object in a store that speaks S3's protocol: "s3://bucket/key". Pure.
 *
 * Keys use only the characters A-Z a-z 0-9 . _ / -, because every store and every tool accepts those
 * unchanged: no part of a URL or of a signature has to be escaped.
 */
#ifndef OBJECTSTORE_S3_LOCATION_H
#define OBJECTSTORE_S3_LOCATION_H

#include <stdbool.h>

#include <fsdp/status.h>

enum { S3_BUCKET_BYTES = 64, S3_KEY_BYTES = 1025 };

struct s3_location {
    char bucket[S3_BUCKET_BYTES];
    char key[S3_KEY_BYTES]; /* without a slash at either end; "" is the bucket itself */
};

/** Returns whether `path` is meant as a place in an object store: it begins with "s3://". */
bool s3_is_location(const char *path);

/**
 * Parses "s3://bucket/key". Slashes at the end do not count.
 *   FSDP_ERR_CONFIG  it is none; the message says why and quotes it
 */
enum fsdp_status s3_location_parse(struct s3_location *out, const char *path, struct fsdp_err *err);

#endif
