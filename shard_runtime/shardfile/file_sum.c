#include "shard_runtime/shardfile/file_sum.h"

#include <assert.h>
#include <stdlib.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/xxh3.h"

enum { BUFFER_BYTES = 1 << 20 };

struct file_sum {
    XXH3_state_t *state;
    uint64_t n_taken;
    unsigned char buffer[BUFFER_BYTES]; /* for bytes that are read only for the checksum */
};

enum fsdp_status file_sum_create(struct file_sum **out, struct fsdp_err *err)
{
    struct file_sum *sum = malloc(sizeof *sum);

    *out = NULL;
    if (sum != NULL)
        sum->state = XXH3_createState();
    if (sum == NULL || sum->state == NULL) {
        free(sum);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes to verify with", sizeof *sum);
    }
    file_sum_begin(sum);
    *out = sum;
    return FSDP_OK;
}

void file_sum_destroy(struct file_sum *sum)
{
    if (sum == NULL)
        return;
    XXH3_freeState(sum->state);
    free(sum);
}

void file_sum_begin(struct file_sum *sum)
{
    XXH3_128bits_reset(sum->state);
    sum->n_taken = 0;
}

void file_sum_take(struct file_sum *sum, const void *bytes, size_t size_bytes, uint64_t offset)
{
    const uint64_t known = sum->n_taken - offset; /* how many of these bytes were taken before */

    assert(offset <= sum->n_taken);
    if (known >= size_bytes)
        return;
    xxh3_128_update(sum->state, (const unsigned char *)bytes + known, size_bytes - (size_t)known);
    sum->n_taken = offset + size_bytes;
}

enum fsdp_status file_sum_read(struct file_sum *sum, struct fsdp_io *io, int fd, uint64_t until,
                               const char *path, struct fsdp_err *err)
{
    while (sum->n_taken < until) {
        const uint64_t left = until - sum->n_taken;
        const size_t n = left < sizeof sum->buffer ? (size_t)left : sizeof sum->buffer;

        OK_OR_RETURN(io_read_all(io, fd, sum->buffer, n, sum->n_taken, path, err));
        file_sum_take(sum, sum->buffer, n, sum->n_taken);
    }
    return FSDP_OK;
}

enum fsdp_status file_sum_check(const struct file_sum *sum, const struct manifest_file *listed,
                                const char *path, struct fsdp_err *err)
{
    const XXH128_hash_t hash = XXH3_128bits_digest(sum->state);

    if (sum->n_taken != listed->size_bytes || hash.low64 != listed->checksum[0] ||
        hash.high64 != listed->checksum[1])
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: the checksum does not hold: the file is damaged", path);
    return FSDP_OK;
}
