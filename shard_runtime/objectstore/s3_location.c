#include "shard_runtime/objectstore/s3_location.h"

#include <string.h>

static const char scheme[] = "s3://";
static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789";
static const char bucket_bytes[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
static const char part_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool s3_is_location(const char *path)
{
    return strncmp(path, scheme, sizeof scheme - 1) == 0;
}

/* https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html */
static bool is_bucket(const char *name, size_t length)
{
    return length >= 3 && length < S3_BUCKET_BYTES && strspn(name, bucket_bytes) >= length &&
           strchr(lower, name[0]) != NULL && strchr(lower, name[length - 1]) != NULL;
}

/* Also refuses "." and "..", which a URL may not have: libraries and proxies resolve them. */
static const char *wrong_with_key(const char *key, size_t length)
{
    size_t at = 0;

    if (length >= S3_KEY_BYTES)
        return "the key is longer than 1,024 bytes";
    while (at < length) {
        const size_t n = strspn(key + at, part_bytes), left = length - at;
        const size_t part = n < left ? n : left;

        if (part < left && key[at + part] != '/')
            return "a key has only the characters A-Z a-z 0-9 . _ / -";
        if (part == 0 || (part == 1 && key[at] == '.') || (part == 2 && key[at] == '.' && key[at + 1] == '.'))
            return "a part of the key is empty, \".\" or \"..\"";
        at += part + 1;
    }
    return NULL;
}

enum fsdp_status s3_location_parse(struct s3_location *out, const char *path, struct fsdp_err *err)
{
    const char *bucket = path + sizeof scheme - 1, *key, *wrong = NULL;
    size_t n_bucket, n_key;

    *out = (struct s3_location){ .bucket = "" };
    if (!s3_is_location(path))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%.200s does not begin with s3://", path);
    n_bucket = strcspn(bucket, "/");
    key = bucket[n_bucket] == '/' ? bucket + n_bucket + 1 : bucket + n_bucket;
    n_key = strlen(key);
    while (n_key > 0 && key[n_key - 1] == '/')
        n_key--;
    if (!is_bucket(bucket, n_bucket))
        wrong = "a bucket's name has 3 to 63 of the characters a-z 0-9 . -, a letter or digit at both ends";
    else
        wrong = wrong_with_key(key, n_key);
    if (wrong != NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%.200s: %s", path, wrong);
    memcpy(out->bucket, bucket, n_bucket);
    memcpy(out->key, key, n_key);
    return FSDP_OK;
}
