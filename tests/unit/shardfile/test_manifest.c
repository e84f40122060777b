#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/shardfile/manifest.h"

TestSuite(manifest, .timeout = 300);

static struct manifest_tensor tensors[] = {
    { "layers.0.\"odd\"", FSDP_BF16, 3, { 4, 2, 0 } },
    { "w", FSDP_F32, 1, { 18446744073709551615ull } },
};

static struct manifest sample(void)
{
    return (struct manifest){ .step = 50,
                              .world_size = 3,
                              .generation = 2,
                              .seed = 18446744073709551615ull,
                              .cursor = 9007199254740993ull /* 2^53 + 1: no double holds it */,
                              .optimizer_step = 49,
                              .numerics = "{\"threads\": 1.5e0}",
                              .job = "{\"a\":{\"b\":[null,\"\\u00e9\"]}}",
                              .tensors = tensors,
                              .n_tensors = 2 };
}

static char *head_of(const struct manifest *manifest, size_t *length)
{
    char *head;

    cr_assert(manifest_head_text(manifest, &head, length, NULL) == FSDP_OK);
    return head;
}

Test(manifest, what_is_composed_is_read_back)
{
    static const struct manifest_file files[] = {
        { "shard-00001-model-00001-of-00001.safetensors",
          0,
          4096,
          { 0x0123456789abcdefull, 0xfedcba9876543210ull } },
        { "shard-00003-model-00001-of-00001.safetensors", 2, 1ull << 62, { 0, 1 } },
    };
    const struct manifest wrote = sample();
    struct fsdp_err err = { 0 };
    struct manifest read;
    size_t head_length, length;
    char *head = head_of(&wrote, &head_length), *text;

    cr_assert(manifest_compose(head, head_length, files, 2, &text, &length, NULL) == FSDP_OK);
    cr_assert(manifest_parse(&read, text, length, &err) == FSDP_OK, "%s", err.message);

    cr_assert(read.step == 50 && read.world_size == 3 && read.generation == 2 && read.optimizer_step == 49);
    cr_assert(read.seed == UINT64_MAX && read.cursor == 9007199254740993ull);
    cr_assert(read.numerics_length == strlen(wrote.numerics) &&
              memcmp(read.numerics, wrote.numerics, read.numerics_length) == 0);
    cr_assert(read.job_length == strlen(wrote.job) && memcmp(read.job, wrote.job, read.job_length) == 0);
    cr_assert_null(read.extra);
    cr_assert(read.n_tensors == 2 && read.n_files == 2);
    cr_assert_str_eq(read.tensors[0].name, "layers.0.\"odd\"");
    cr_assert(read.tensors[0].dtype == FSDP_BF16 && read.tensors[0].n_dims == 3 &&
              read.tensors[0].shape[1] == 2);
    cr_assert(read.tensors[1].shape[0] == UINT64_MAX);
    cr_assert_str_eq(read.files[1].name, files[1].name);
    cr_assert(read.files[1].rank == 2 && read.files[1].size_bytes == 1ull << 62);
    cr_assert(memcmp(read.files[0].checksum, files[0].checksum, 16) == 0);
    cr_assert_not_null(strstr(text, "fedcba98765432100123456789abcdef"), "as xxhsum prints it");
    manifest_free(&read);
    free(head);
    free(text);
}

Test(manifest, raw_members_must_be_objects)
{
    static const char *const bad[] = { "", "[]", "1", "{", "{}x", "{\"a\":}", "{},\"step\":7" };

    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
        struct manifest manifest = sample();
        size_t length;
        char *head;

        manifest.job = bad[i];
        cr_expect(manifest_head_text(&manifest, &head, &length, NULL) == FSDP_ERR_ARG, "%s", bad[i]);
        free(head);
    }
}

/* Faults of a head: one piece of a good one replaced */

static const struct fault {
    const char *from, *to, *words;
    enum fsdp_status status;
} head_faults[] = {
    { "\"fsdp-checkpoint\"", "\"other\"", "format is not", FSDP_ERR_FORMAT },
    { "\"format_version\":1", "\"format_version\":2", "format version 2", FSDP_ERR_UNSUPPORTED },
    { "\"step\":50", "\"step\":50,\"step\":50", "\"step\" is there twice", FSDP_ERR_FORMAT },
    { "\"step\":50", "\"steps\":50", "\"steps\" is unknown", FSDP_ERR_FORMAT },
    { "\"step\":50", "\"step\":-1", "whole number", FSDP_ERR_FORMAT },
    { "\"step\":50", "\"step\":5e1", "whole number", FSDP_ERR_FORMAT },
    { "\"step\":50", "\"step\":\"50\"", "whole number", FSDP_ERR_FORMAT },
    { "\"step\":50", "\"step\":9223372036854775808", "out of range", FSDP_ERR_FORMAT },
    { ",\n\"step\":50", "", "\"step\" is missing", FSDP_ERR_FORMAT },
    { "\"world_size\":3", "\"world_size\":0", "world of 0", FSDP_ERR_FORMAT },
    { "\"world_size\":3", "\"world_size\":100000", "world of 100000", FSDP_ERR_FORMAT },
    { "\"generation\":2", "\"generation\":4294967296", "out of range", FSDP_ERR_FORMAT },
    { "{\"threads\": 1.5e0}", "[]", "object was expected", FSDP_ERR_FORMAT },
    { "\"dtype\":\"BF16\"", "\"dtype\":\"bfloat16\"", "unknown dtype", FSDP_ERR_FORMAT },
    { "\"dtype\":\"BF16\"", "\"dtype\":\"F8_E5M2\"", "unknown dtype", FSDP_ERR_FORMAT },
    { "\"dtype\":\"BF16\",", "", "without name, dtype or shape", FSDP_ERR_FORMAT },
    { "[4,2,0]", "[4,2,0,1,1,1,1,1,1]", "too many dimensions", FSDP_ERR_FORMAT },
    { "\"name\":\"w\"", "\"name\":\"\"", "without a name", FSDP_ERR_FORMAT },
    { "\"name\":\"w\"", "\"name\":\"layers.0.\\\"odd\\\"\"", "listed twice", FSDP_ERR_FORMAT },
    { "\"name\":\"w\"", "\"name\":\"w\",\"more\":1", "unknown or doubled", FSDP_ERR_FORMAT },
    { "\"tensors\":[", "\"files\":[],\"tensors\":[", "\"files\" is unknown", FSDP_ERR_FORMAT },
};

/* `text` with the first `from` in it replaced. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *found = strstr(text, from);
    char *out = calloc(1, strlen(text) + strlen(to) + 1);

    cr_assert_not_null(found, "%s", from);
    memcpy(out, text, (size_t)(found - text));
    strcat(out, to);
    strcat(out, found + strlen(from));
    return out;
}

Test(manifest, every_fault_of_a_head_is_named)
{
    const struct manifest good = sample();
    size_t length;
    char *head = head_of(&good, &length);

    for (size_t i = 0; i < sizeof head_faults / sizeof *head_faults; i++) {
        char *text = replaced(head, head_faults[i].from, head_faults[i].to);
        struct fsdp_err err = { 0 };
        struct manifest read;

        cr_expect(manifest_parse_head(&read, text, strlen(text), &err) == head_faults[i].status, "%s: %s",
                  head_faults[i].to, err.message);
        cr_expect(strstr(err.message, head_faults[i].words) != NULL, "%s: %s", head_faults[i].to,
                  err.message);
        manifest_free(&read);
        free(text);
    }
    free(head);
}

/* Faults of the list of files, under a checksum that holds */

Test(manifest, every_fault_of_the_files_is_named)
{
    static const char one[] = "shard-00001-model-00001-of-00001.safetensors";
    static const struct {
        struct manifest_file files[2];
        const char *words;
    } bad[] = {
        { { { "../x", 0, 1, { 0, 0 } } }, "no plain file name" },
        { { { "a/b", 0, 1, { 0, 0 } } }, "no plain file name" },
        { { { "..", 0, 1, { 0, 0 } } }, "no plain file name" },
        { { { "", 0, 1, { 0, 0 } } }, "no plain file name" },
        { { { "other.safetensors", 0, 1, { 0, 0 } } }, "is called" },
        { { { one, 1, 1, { 0, 0 } } }, "is called" },
        { { { "shard-00004-model-00001-of-00001.safetensors", 3, 1, { 0, 0 } } }, "of no rank" },
        { { { one, 0, 1, { 0, 0 } }, { one, 0, 1, { 0, 0 } } }, "out of order" },
        { { { "shard-100000-model-00001-of-00001.safetensors", 99999, 1, { 0, 0 } } }, "out of range" },
    };
    const struct manifest good = sample();
    size_t head_length;
    char *head = head_of(&good, &head_length);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fsdp_err err = { 0 };
        struct manifest read;
        size_t length;
        char *text;

        cr_assert(manifest_compose(head, head_length, bad[i].files, bad[i].files[1].name != NULL ? 2 : 1,
                                   &text, &length, NULL) == FSDP_OK);
        cr_expect(manifest_parse(&read, text, length, &err) == FSDP_ERR_FORMAT, "%s", bad[i].words);
        cr_expect(strstr(err.message, bad[i].words) != NULL, "%s: %s", bad[i].words, err.message);
        free(text);
    }
    free(head);
}
