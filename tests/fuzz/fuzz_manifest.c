/*
 * A manifest under libFuzzer: as a head, and sealed with a checksum that holds, so that the strict reader
 * behind the checksum is reached. Refused with words, or every name in it is safe to open.
 */
#include "shard_runtime/shardfile/data_record.h"
#include "shard_runtime/shardfile/job_changes.h"
#include "tests/fuzz/fuzz.h"

/* Job and extra are any objects: they are read or refused with words. */
static void read_what_was_trained(const struct manifest *manifest)
{
    static const char job[] = "{\"a\": {\"b\": 1}}";
    struct fsdp_err err = { 0 };
    struct job_changes changes;
    struct data_record record;
    bool found;

    (void)taken(data_record_read(manifest, &record, &found, &err), &err);
    (void)taken(job_changes_find(&changes, manifest, job, job, NULL, &err), &err);
    never(strlen(changes.words) >= sizeof changes.words);
    (void)job_changes_count(manifest, "a", "b");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct manifest_file file = {
        "shard-00001-model-00001-of-00001.safetensors", 0, 7, { 1, 2 }
    };
    struct fsdp_err err = { 0 };
    struct manifest manifest;
    size_t length;
    char *text;

    (void)taken(manifest_parse_head(&manifest, (const char *)data, size, &err), &err);
    manifest_free(&manifest);
    if (manifest_compose((const char *)data, size, &file, 1, &text, &length, NULL) != FSDP_OK)
        return 0;
    if (manifest_parse(&manifest, text, length, &err) == FSDP_OK) {
        for (size_t i = 0; i < manifest.n_files; i++)
            never(!io_name_is_plain(manifest.files[i].name));
        for (size_t i = 0; i < manifest.n_tensors; i++)
            never(manifest.tensors[i].n_dims > MANIFEST_MAX_DIMS || manifest.tensors[i].name[0] == '\0');
        read_what_was_trained(&manifest);
    }
    manifest_free(&manifest);
    free(text);
    return 0;
}
