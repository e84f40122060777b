#include "shard_runtime/shardfile/fingerprint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/core/require.h"

struct reading {
    struct fsdp_io *io;
    int fd;
    const char *path;
    unsigned char *block;
    XXH3_state_t *hash;
};

/* Adds the bytes from `offset` on to the hash: `size_bytes` of them, but at most one block. */
static enum fsdp_status add_block(const struct reading *reading, uint64_t offset, uint64_t size_bytes,
                                  struct fsdp_err *err)
{
    const size_t n = size_bytes < FINGERPRINT_BLOCK ? (size_t)size_bytes : FINGERPRINT_BLOCK;

    OK_OR_RETURN(io_read_all(reading->io, reading->fd, reading->block, n, offset, reading->path, err));
    (void)XXH3_128bits_update(reading->hash, reading->block, n);
    return FSDP_OK;
}

static enum fsdp_status add_whole(const struct reading *reading, uint64_t size_bytes, struct fsdp_err *err)
{
    for (uint64_t at = 0; at < size_bytes; at += FINGERPRINT_BLOCK)
        OK_OR_RETURN(add_block(reading, at, size_bytes - at, err));
    return FSDP_OK;
}

static enum fsdp_status add_samples(const struct reading *reading, uint64_t size_bytes, struct fsdp_err *err)
{
    const uint64_t last = size_bytes - FINGERPRINT_BLOCK, n_gaps = FINGERPRINT_BLOCKS - 1;
    unsigned char length[8];

    for (size_t i = 0; i < sizeof length; i++)
        length[i] = (unsigned char)(size_bytes >> 8 * i);
    (void)XXH3_128bits_update(reading->hash, length, sizeof length);
    /*
     * Block i starts at i * last / n_gaps, computed here without overflow. The file is longer than 64 MiB, so
     * no two blocks overlap.
     */
    for (uint64_t i = 0; i <= n_gaps; i++)
        OK_OR_RETURN(
            add_block(reading, last / n_gaps * i + last % n_gaps * i / n_gaps, FINGERPRINT_BLOCK, err));
    return FSDP_OK;
}

enum fsdp_status fingerprint_read(struct fsdp_io *io, int fd, uint64_t size_bytes, const char *path,
                                  struct fingerprint *out, struct fsdp_err *err)
{
    const struct reading reading = { io, fd, path, malloc(FINGERPRINT_BLOCK), XXH3_createState() };
    enum fsdp_status status;

    *out = (struct fingerprint){ 0 };
    if (reading.hash == NULL || reading.block == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to read %s", path);
        goto done;
    }
    (void)XXH3_128bits_reset(reading.hash);
    status = size_bytes <= (uint64_t)FINGERPRINT_BLOCKS * FINGERPRINT_BLOCK
                 ? add_whole(&reading, size_bytes, err)
                 : add_samples(&reading, size_bytes, err);
    if (status == FSDP_OK) {
        const XXH128_hash_t digest = XXH3_128bits_digest(reading.hash);

        *out = (struct fingerprint){ .size_bytes = size_bytes, .checksum = { digest.low64, digest.high64 } };
    }
done:
    (void)XXH3_freeState(reading.hash);
    free(reading.block);
    return status;
}

bool fingerprint_same(const struct fingerprint *a, const struct fingerprint *b)
{
    return a->size_bytes == b->size_bytes && a->checksum[0] == b->checksum[0] &&
           a->checksum[1] == b->checksum[1];
}

void checksum_text(const uint64_t checksum[2], char out[CHECKSUM_TEXT_BYTES])
{
    snprintf(out, CHECKSUM_TEXT_BYTES, "%016llx%016llx", (unsigned long long)checksum[1],
             (unsigned long long)checksum[0]);
}

bool checksum_parse(const char *text, uint64_t checksum[2])
{
    if (strlen(text) != CHECKSUM_TEXT_BYTES - 1)
        return false;
    checksum[0] = checksum[1] = 0;
    for (size_t i = 0; i < CHECKSUM_TEXT_BYTES - 1; i++) {
        const char c = text[i];
        uint64_t *half = &checksum[i < (CHECKSUM_TEXT_BYTES - 1) / 2];

        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *half = *half << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}
