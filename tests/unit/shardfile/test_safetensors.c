#include <criterion/criterion.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/shardfile/safetensors.h"
#include "tests/unit/shardfile/files.h"

static const char *directory;

static void begin(void)
{
    directory = files_begin();
}

TestSuite(safetensors, .init = begin, .fini = files_end, .timeout = 600);

static const float w[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
static const uint16_t b[3] = { 0x3f80, 0x4000, 0x4040 }; /* 1, 2, 3 in bfloat16 */

static void check_golden(struct safetensors_tensor *tensors, size_t n_tensors, uint64_t want_bytes,
                         const char *want_header, const char *want_sha256)
{
    const char *path = files_path(directory, "golden");
    unsigned char digest[SHA256_DIGEST_LENGTH], *bytes;
    struct safetensors_written written;
    char text[2 * SHA256_DIGEST_LENGTH + 1];
    XXH128_hash_t hash;
    size_t size;

    cr_assert(safetensors_write(&io_posix, path, tensors, n_tensors, NULL, 0, 8, false, &written, NULL) ==
              FSDP_OK);

    bytes = files_read(path, &size);
    cr_assert(size == want_bytes && written.size_bytes == want_bytes, "%zu bytes", size);
    cr_assert(memcmp(bytes + 8, want_header, strlen(want_header)) == 0, "%.300s", bytes + 8);
    SHA256(bytes, size, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    cr_assert_str_eq(text, want_sha256);
    hash = XXH3_128bits(bytes, size);
    cr_assert(hash.low64 == written.checksum[0] && hash.high64 == written.checksum[1]);
    free(bytes);
}

/* The three files that PyTorch 2.15 wrote and read back. */
Test(safetensors, shards_and_whole_tensors_are_pytorchs_to_the_byte)
{
    struct safetensors_tensor first[] = {
        { .name = "w", .dtype = FSDP_F32, .n_dims = 2, .shape = { 2, 3 }, .has_offsets = true, .data = w },
        { .name = "b", .dtype = FSDP_BF16, .n_dims = 1, .shape = { 3 }, .has_offsets = true, .data = b },
    };
    struct safetensors_tensor second = first[0];
    struct safetensors_tensor whole[] = {
        { .name = "w", .dtype = FSDP_F32, .n_dims = 2, .shape = { 4, 3 }, .data = w },
        { .name = "b", .dtype = FSDP_BF16, .n_dims = 1, .shape = { 3 }, .data = b },
    };

    second.offsets[0] = 2;
    second.data = w + 6;
    check_golden(first, 2, 294,
                 "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\": {\\\"saved_offsets\\\": [0, 0]}, "
                 "\\\"b\\\": {\\\"saved_offsets\\\": [0]}}\",\"DCP_VERSION\":\"1.0\",\"format\":\"pt\"},"
                 "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]}}",
                 "024e0a2f0088adb70c1acebfbba1d2eeed2253c75fda73a861a95421ea098873");
    check_golden(&second, 1, 200,
                 "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\": {\\\"saved_offsets\\\": [2, 0]}}\","
                 "\"DCP_VERSION\":\"1.0\",\"format\":\"pt\"},"
                 "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}} ",
                 "bcd0a9aa7e931819cb80627b81dc7c87ec83ac49c5e009ad5106d7678ddb5b02");
    check_golden(
        whole, 2, 206,
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[4,3],"
        "\"data_offsets\":[0,48]},\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[48,54]}}",
        "2aa454493b53efb1d16a4c5f19370af6f96a52ea70fc7688b4f5e01d255bb7d0");
}

static const struct safetensors_tensor *find(const struct safetensors_header *header, const char *name)
{
    for (size_t i = 0; i < header->n_tensors; i++)
        if (strcmp(header->tensors[i].name, name) == 0)
            return &header->tensors[i];
    return NULL;
}

Test(safetensors, what_is_written_is_read_back)
{
    static const struct safetensors_metadata metadata[] = { { "fsdp_step", "7" },
                                                            { "odd \"key\"\n", "\t\\ \xc3\xa9" } };
    struct safetensors_tensor tensors[] = {
        { .name = "layers.0.w\"\\",
          .dtype = FSDP_F32,
          .n_dims = 2,
          .shape = { 2, 3 },
          .has_offsets = true,
          .offsets = { 2, 0 },
          .has_global_shape = true,
          .global_shape = { 4, 3 },
          .data = w + 6 },
        { .name = "empty",
          .dtype = FSDP_F64,
          .n_dims = 2,
          .shape = { 0, 3 },
          .has_offsets = true,
          .data = w },
        { .name = "scalar", .dtype = FSDP_BF16, .n_dims = 0, .has_offsets = true, .data = b },
    };
    const char *path = files_path(directory, "a.safetensors");
    const struct safetensors_tensor *found;
    struct safetensors_written written;
    struct safetensors_header header;
    struct fsdp_err err = { 0 };

    cr_assert(safetensors_write(&io_posix, path, tensors, 3, metadata, 2, 4096, false, &written, NULL) ==
              FSDP_OK);
    cr_assert(safetensors_open(&io_posix, path, &header, NULL, &err) == FSDP_OK, "%s", err.message);

    cr_assert(header.n_tensors == 3 && header.data_start == 4096 && header.size_bytes == written.size_bytes);
    found = find(&header, "layers.0.w\"\\");
    cr_assert(found != NULL && found->dtype == FSDP_F32 && found->n_dims == 2 && found->shape[0] == 2);
    cr_assert(found->has_offsets && found->offsets[0] == 2 && found->has_global_shape &&
              found->global_shape[0] == 4);
    found = find(&header, "scalar");
    cr_assert(found != NULL && found->n_dims == 0 && found->end - found->begin == 2);
    found = find(&header, "empty");
    cr_assert(found != NULL && found->begin == found->end && !found->has_global_shape);
    cr_assert_str_eq(safetensors_metadata_get(&header, "odd \"key\"\n"), "\t\\ \xc3\xa9");
    safetensors_free(&header);
}

Test(safetensors, a_file_larger_than_the_ring_is_whole)
{
    const size_t n = (9u << 20) / 4 + 77;
    struct safetensors_tensor tensors[2];
    float *big = malloc(n * sizeof *big);
    struct safetensors_written written;
    struct safetensors_header header;
    unsigned char *bytes;
    XXH128_hash_t hash;
    size_t size;

    for (size_t i = 0; i < n; i++)
        big[i] = (float)i;
    tensors[0] = (struct safetensors_tensor){
        .name = "a", .dtype = FSDP_F32, .n_dims = 1, .shape = { 77 }, .data = big
    };
    tensors[1] = (struct safetensors_tensor){
        .name = "b", .dtype = FSDP_F32, .n_dims = 1, .shape = { n }, .data = big
    };
    cr_assert(safetensors_write(&io_posix, files_path(directory, "big"), tensors, 2, NULL, 0, 4096, false,
                                &written, NULL) == FSDP_OK);

    bytes = files_read(files_path(directory, "big"), &size);
    cr_assert(size == 4096 + 77 * 4 + n * 4 && size == written.size_bytes);
    cr_assert(memcmp(bytes + 4096, big, 77 * 4) == 0 && memcmp(bytes + 4096 + 77 * 4, big, n * 4) == 0);
    hash = XXH3_128bits(bytes, size);
    cr_assert(hash.low64 == written.checksum[0] && hash.high64 == written.checksum[1]);
    cr_assert(safetensors_open(&io_posix, files_path(directory, "big"), &header, NULL, NULL) == FSDP_OK);
    safetensors_free(&header);
    free(bytes);
    free(big);
}

/* JSON cannot hold what is no UTF-8, and another name in its place would never be found again. */
Test(safetensors, sizes_names_and_metadata_that_cannot_be_are_refused_when_writing)
{
    static const struct safetensors_metadata no_utf8 = { "key", "\xff" };
    static const struct {
        struct safetensors_tensor tensor;
        const struct safetensors_metadata *metadata;
    } cases[] = {
        { { .name = "w", .dtype = FSDP_F32, .n_dims = 2, .shape = { 1ull << 40, 1ull << 30 } }, NULL },
        { { .name = "w", .dtype = FSDP_F32, .n_dims = 9 }, NULL },
        { { .name = "", .dtype = FSDP_F32 }, NULL },
        { { .name = "caf\xe9", .dtype = FSDP_F32, .n_dims = 1, .shape = { 1 } }, NULL },
        { { .name = "w", .dtype = FSDP_F32, .n_dims = 1, .shape = { 1 } }, &no_utf8 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors_tensor tensor = cases[i].tensor;
        struct json_text text = { 0 };

        cr_expect(safetensors_build_header(&tensor, 1, cases[i].metadata, cases[i].metadata != NULL, 8, &text,
                                           NULL, NULL) == FSDP_ERR_ARG,
                  "case %zu", i);
        json_text_free(&text);
    }
}

/* Bad headers: each with the words that name its fault */

static enum fsdp_status parse(const char *json, uint64_t data_bytes, struct fsdp_err *err)
{
    struct safetensors_header header;
    const size_t length = strlen(json);
    char *text = malloc(length == 0 ? 1 : length);
    enum fsdp_status status;

    memcpy(text, json, length);
    status = safetensors_parse(&header, text, length, 8 + length + data_bytes, err);
    safetensors_free(&header);
    return status;
}

#define ENTRY(SHAPE, BEGIN, END)                                                                             \
    "{\"dtype\":\"F32\",\"shape\":" SHAPE ",\"data_offsets\":[" #BEGIN "," #END "]}"
#define WITH(INFO) "{" META(INFO) ",\"a\":" ENTRY("[2]", 0, 8) "}"
#define META(INFO) "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"" INFO "\"}"

static const struct bad {
    const char *json;
    uint64_t data_bytes;
    const char *words;
} bad[] = {
    { "", 0, "no JSON object" },
    { " {}", 0, "no JSON object" },
    { "[]", 0, "no JSON object" },
    { "{}\n", 0, "no JSON object" },
    { "{} x", 0, "no JSON object" },
    { "{}}", 0, "text follows the end" },
    { "{", 0, "no JSON object" },
    { "{\"a\"}", 0, "colon" },
    { "{\"a\":1}", 0, "object was expected" },
    { "{\"a\":" ENTRY("[2]", 0, 8) ",}", 8, "string was expected" },
    { "{\"a\":" ENTRY("[2]", 0, 8) " \"b\":" ENTRY("[2]", 8, 16) "}", 16, "comma" },
    { "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}", 8,
      "unknown or doubled key" },
    { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
      "unknown or doubled key" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, "without dtype, shape or data_offsets" },
    { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "without dtype, shape or data_offsets" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, "two numbers" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "two numbers" },
    { "{\"a\":" ENTRY("[3]", 0, 8) "}", 8, "size of the shape" },
    { "{\"a\":" ENTRY("[2]", 8, 0) "}", 8, "size of the shape" },
    { "{\"a\":" ENTRY("[-2]", 0, 8) "}", 8, "whole number" },
    { "{\"a\":" ENTRY("[2.0]", 0, 8) "}", 8, "whole number" },
    { "{\"a\":" ENTRY("[2e0]", 0, 8) "}", 8, "whole number" },
    { "{\"a\":" ENTRY("[02]", 0, 8) "}", 8, "leading zero" },
    { "{\"a\":" ENTRY("[18446744073709551616]", 0, 8) "}", 8, "too large" },
    { "{\"a\":" ENTRY("[4294967296,4294967296,4294967296]", 0, 0) "}", 0, "size of the shape" },
    { "{\"a\":" ENTRY("[4611686018427387904]", 0, 0) "}", 0, "size of the shape" },
    { "{\"a\":" ENTRY("[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "8 dimensions" },
    { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "size of the shape" },
    { "{\"a\":" ENTRY("[2]", 4, 12) "}", 12, "starts at 4, not at 0" },
    { "{\"a\":" ENTRY("[2]", 0, 8) ",\"b\":" ENTRY("[2]", 12, 20) "}", 20, "starts at 12, not at 8" },
    { "{\"a\":" ENTRY("[2]", 0, 8) ",\"b\":" ENTRY("[2]", 4, 12) "}", 12, "starts at 4, not at 8" },
    { "{\"a\":" ENTRY("[2]", 0, 8) "}", 7, "but the file has" },
    { "{\"a\":" ENTRY("[2]", 0, 8) "}", 9, "but the file has" },
    { "{\"a\":" ENTRY("[2]", 0, 8) ",\"a\":" ENTRY("[2]", 8, 16) "}", 16, "there twice" },
    { "{\"a\":" ENTRY("[0]", 0, 0) ",\"a\":" ENTRY("[0]", 0, 0) "}", 0, "there twice" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "string was expected" },
    { "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "the key \"a\" twice" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "there twice" },
    { "{\"\xff\":" ENTRY("[2]", 0, 8) "}", 8, "not UTF-8" },
    { "{\"\xc0\xaf\":" ENTRY("[2]", 0, 8) "}", 8, "not UTF-8" },
    { "{\"\xed\xa0\x80\":" ENTRY("[2]", 0, 8) "}", 8, "not UTF-8" },
    { "{\"\xf4\x90\x80\x80\":" ENTRY("[2]", 0, 8) "}", 8, "not UTF-8" },
    { "{\"a\\u0000\":" ENTRY("[2]", 0, 8) "}", 8, "zero byte" },
    { "{\"\\ud800\":" ENTRY("[2]", 0, 8) "}", 8, "escape" },
    { "{\"\\x\":" ENTRY("[2]", 0, 8) "}", 8, "escape" },
    { "{\"a\nb\":" ENTRY("[2]", 0, 8) "}", 8, "control character" },
    { "{" META("x") "}", 0, "DCP_SHARDING_INFO, byte" },
    { WITH("{}"), 8, "not in DCP_SHARDING_INFO" },
    { WITH("{\\\"b\\\":{\\\"saved_offsets\\\":[0]}}"), 8, "not in the file" },
    { WITH("{\\\"a\\\":{}}"), 8, "without saved_offsets" },
    { WITH("{\\\"a\\\":{\\\"saved_offsets\\\":[0,0]}}"), 8, "other dimensions" },
    { WITH("{\\\"a\\\":{\\\"saved_offsets\\\":[1],\\\"global_shape\\\":[2]}}"), 8, "out of its tensor" },
    { WITH("{\\\"a\\\":{\\\"saved_offsets\\\":[18446744073709551615]}}"), 8, "out of its tensor" },
    { WITH("{\\\"a\\\":{\\\"saved_offsets\\\":[0]},\\\"a\\\":{\\\"saved_offsets\\\":[0]}}"), 8, "twice" },
};

Test(safetensors, every_fault_of_a_header_is_named)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fsdp_err err = { 0 };

        cr_expect(parse(bad[i].json, bad[i].data_bytes, &err) == FSDP_ERR_FORMAT, "%s", bad[i].json);
        cr_expect(strstr(err.message, bad[i].words) != NULL, "%s: %s", bad[i].json, err.message);
    }
}

Test(safetensors, what_the_format_allows_is_taken)
{
    static const struct {
        const char *json;
        uint64_t data_bytes;
    } good[] = {
        { "{}", 0 },
        { "{}   ", 0 },
        { "{ \"a\" : {\"data_offsets\":[0,8], \"shape\" : [2] ,\"dtype\":\"F32\"}\n}  ", 8 },
        { "{\"b\":" ENTRY("[2]", 8, 16) ",\"a\":" ENTRY("[2]", 0, 8) "}", 16 },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2 },
        { "{\"\\ud83d\\ude00\\u00e9\":" ENTRY("[0]", 0, 0) "}", 0 },
        { WITH("{\\\"a\\\":{\\\"saved_offsets\\\":[3],\\\"logical_name\\\":{\\\"x\\\":[1,2.5e-1,null]}}}"),
          8 },
    };

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct fsdp_err err = { 0 };

        cr_expect(parse(good[i].json, good[i].data_bytes, &err) == FSDP_OK, "%s: %s", good[i].json,
                  err.message);
    }
}

/* Trainers of adapters write hundreds of them; in no order. */
Test(safetensors, metadata_may_have_any_number_of_keys)
{
    enum { N_KEYS = 1000 };
    struct json_text json = { 0 };
    struct safetensors_header header;
    struct fsdp_err err = { 0 };

    json_add(&json, "{\"__metadata__\":{");
    for (int i = 0; i < N_KEYS; i++)
        json_add(&json, "%s\"key %d\":\"value %d\"", i == 0 ? "" : ",", i * 7 % N_KEYS, i * 7 % N_KEYS);
    json_add(&json, "}}");

    cr_assert(safetensors_parse(&header, json.bytes, json.length, 8 + json.length, &err) == FSDP_OK, "%s",
              err.message);
    cr_assert_eq(header.n_metadata, N_KEYS);
    cr_assert_str_eq(safetensors_metadata_get(&header, "key 0"), "value 0");
    cr_assert_str_eq(safetensors_metadata_get(&header, "key 999"), "value 999");
    cr_assert_null(safetensors_metadata_get(&header, "key 1000"));
    safetensors_free(&header);
}

/* Opens a file that says that its header has `length` bytes. */
static enum fsdp_status open_bytes(uint64_t length, const void *bytes, size_t n)
{
    const char *path = files_path(directory, "bomb");
    unsigned char *file = malloc(8 + n);
    struct safetensors_header header;

    for (int k = 0; k < 8; k++)
        file[k] = (unsigned char)(length >> 8 * k);
    memcpy(file + 8, bytes, n);
    files_write(path, file, 8 + n);
    free(file);
    return safetensors_open(&io_posix, path, &header, NULL, NULL);
}

Test(safetensors, a_header_of_any_other_length_or_that_nests_without_end_is_refused)
{
    static const uint64_t lengths[] = { 0, 1, 100000001, UINT64_MAX, UINT64_MAX - 7, 1ull << 63 };
    static char deep[200001];

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        cr_expect(open_bytes(lengths[i], "{}", 2) == FSDP_ERR_FORMAT, "%llu", (unsigned long long)lengths[i]);
    snprintf(deep, sizeof deep, "%s", "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"a\\\":{\\\"x\\\":");
    memset(deep + strlen(deep), '[', sizeof deep - 1 - strlen(deep));
    memcpy(deep + sizeof deep - 5, "\"}} ", 4);
    cr_assert(open_bytes(sizeof deep - 1, deep, sizeof deep - 1) == FSDP_ERR_FORMAT);
}

Test(safetensors, links_directories_and_pipes_are_refused)
{
    static const struct {
        const char *name;
        enum fsdp_status status;
    } cases[] = { { "link", FSDP_ERR_FORMAT },
                  { "", FSDP_ERR_FORMAT },
                  { "pipe", FSDP_ERR_FORMAT },
                  { "none", FSDP_ERR_NOT_FOUND } };
    struct safetensors_header header;
    const char *path = files_path(directory, "a");

    files_write(path, "x", 1);
    cr_assert(symlink(path, files_path(directory, "link")) == 0 &&
              mkfifo(files_path(directory, "pipe"), 0600) == 0);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(safetensors_open(&io_posix, files_path(directory, cases[i].name), &header, NULL, NULL),
                     cases[i].status, "%s", cases[i].name);
}
