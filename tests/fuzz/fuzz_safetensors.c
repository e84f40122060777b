/*
 * The header of a safetensors file under libFuzzer. It is refused with words, or all of its tensors are in
 * the file, one after the other, and each metadata key is found by its name. The first byte scales how much
 * data the file is said to hold after the header.
 */
#include "shard_runtime/shardfile/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors_header header;
    struct fsdp_err err = { 0 };
    uint64_t at = 0;
    char *text;

    if (size == 0)
        return 0;
    text = malloc(size); /* the parser's from here on */
    memcpy(text, data + 1, size - 1);
    if (!taken(safetensors_parse(&header, text, size - 1, 8 + (size - 1) + data[0], &err), &err)) {
        never(header.text != NULL);
        return 0;
    }
    for (size_t i = 0; i < header.n_tensors; i++) {
        never(header.tensors[i].begin != at || header.tensors[i].n_dims > SAFETENSORS_MAX_DIMS);
        at = header.tensors[i].end;
    }
    never(at != data[0]);
    for (size_t i = 0; i < header.n_metadata; i++)
        never(safetensors_metadata_get(&header, header.metadata[i].key) != header.metadata[i].value);
    safetensors_free(&header);
    return 0;
}
