/*
 * What an object store may answer, and what a person may name as a place in one, under libFuzzer. The bytes
 * are taken as an answer to each request.
 */
#include "shard_runtime/objectstore/s3_location.h"
#include "shard_runtime/objectstore/s3_message.h"
#include "tests/fuzz/fuzz.h"

static void check_list(const char *text, size_t size)
{
    struct s3_list list = { .n = 0 };
    struct fsdp_err err = { 0 };

    if (taken(s3_read_list(text, size, &list, &err), &err)) {
        never(list.more && list.next[0] == '\0');
        for (size_t i = 0; i < list.n; i++)
            never(list.entries[i].key[0] == '\0');
    }
    s3_list_free(&list);
}

static void check_place(const char *text)
{
    struct s3_location at;
    struct fsdp_err err = { 0 };

    if (!taken(s3_location_parse(&at, text, &err), &err))
        return;
    never(strlen(at.bucket) < 3 || strchr(at.bucket, '/') != NULL);
    never(strspn(at.key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") !=
          strlen(at.key));
    never(strstr(at.key, "//") != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), id[S3_UPLOAD_BYTES];
    struct s3_error error;

    memcpy(text, data, size);
    text[size] = '\0';
    check_place(text);
    check_list(text, size);
    never(s3_read_error(text, size, &error) != (error.code[0] != '\0'));
    if (s3_read_upload(text, size, id))
        never(id[0] == '\0');
    free(text);
    return 0;
}
