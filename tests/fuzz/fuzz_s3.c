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

struct read_back {
    const char *etag;
    bool same;
};

static bool find_etag(void *arg, const char *parent, const char *name, const char *text)
{
    struct read_back *back = arg;

    (void)parent;
    if (strcmp(name, "ETag") == 0)
        back->same = text != NULL && strcmp(text, back->etag) == 0;
    return true;
}

/* An ETag comes back to the store as it came from there. */
static void check_parts(const char *etag)
{
    struct read_back back = { .etag = etag };
    char etags[1][S3_ETAG_BYTES];
    struct json_text body = { 0 };

    strcpy(etags[0], etag);
    s3_add_parts(&body, (const char(*)[S3_ETAG_BYTES])etags, 1);
    never(body.failed || !s3_xml_walk(body.bytes, body.length, find_etag, &back) || !back.same);
    json_text_free(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), id[S3_UPLOAD_BYTES], etag[S3_ETAG_BYTES];
    struct s3_error error;

    memcpy(text, data, size);
    text[size] = '\0';
    check_place(text);
    check_list(text, size);
    never(s3_read_error(text, size, &error) != (error.code[0] != '\0'));
    if (s3_read_upload(text, size, id))
        never(id[0] == '\0');
    if (s3_is_result(text, size, "CompleteMultipartUploadResult"))
        never(s3_read_error(text, size, &error));
    never(s3_read_etag(text, size, etag) != (etag[0] != '\0'));
    check_parts(etag);
    free(text);
    return 0;
}
