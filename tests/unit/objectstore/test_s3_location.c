#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/objectstore/s3_location.h"

Test(s3_location, bucket_and_key_are_taken_apart)
{
    struct s3_location at;

    cr_assert(eq(int, s3_location_parse(&at, "s3://my.bucket-1/runs/Big_one/step.1//", NULL), FSDP_OK));
    cr_assert(eq(str, at.bucket, "my.bucket-1"));
    cr_assert(eq(str, at.key, "runs/Big_one/step.1"));
    cr_assert(eq(int, s3_location_parse(&at, "s3://bucket", NULL), FSDP_OK));
    cr_assert(eq(str, at.key, ""));
}

Test(s3_location, what_a_url_or_a_signature_would_have_to_escape_is_refused)
{
    static const char *const wrong[] = { "s3:/bucket/a",
                                         "bucket/a",
                                         "s3://",
                                         "s3://ab/a",
                                         "s3://Bucket/a",
                                         "s3://-bucket/a",
                                         "s3://bucket-/a",
                                         "s3://buc_ket/a",
                                         "s3://bucket/a b",
                                         "s3://bucket/a%20b",
                                         "s3://bucket/a?b",
                                         "s3://bucket/a#b",
                                         "s3://bucket/\xc3\xa4",
                                         "s3://bucket//a",
                                         "s3://bucket/a//b",
                                         "s3://bucket/./a",
                                         "s3://bucket/a/..",
                                         "s3://user:pw@bucket/a" };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct s3_location at;
        struct fsdp_err err = { 0 };

        cr_assert(eq(int, s3_location_parse(&at, wrong[i], &err), FSDP_ERR_CONFIG), "%s", wrong[i]);
        cr_assert_not_null(strstr(err.message, wrong[i]));
    }
}

Test(s3_location, a_key_has_1024_bytes_at_most)
{
    char path[2048] = "s3://bucket/";
    const size_t head = strlen(path);
    struct s3_location at;

    memset(path + head, 'k', S3_KEY_BYTES - 1);
    cr_assert(eq(int, s3_location_parse(&at, path, NULL), FSDP_OK));
    path[head + S3_KEY_BYTES - 1] = 'k';
    cr_assert(eq(int, s3_location_parse(&at, path, NULL), FSDP_ERR_CONFIG));
}
