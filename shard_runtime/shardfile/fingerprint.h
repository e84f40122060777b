/*
 * A fingerprint identifies the contents of a file by its length and a hash, so that the same data is
 * recognised later.
 *
 * A file of up to 64 MiB is hashed completely, with XXH3-128. A larger file is sampled. Its hash covers its
 * length (8 bytes, little-endian) and 64 blocks of 1 MiB at equal distances. The first MiB and the last MiB
 * are among them, and the positions depend on the length alone. A change outside these blocks is not
 * detected.
 */
#ifndef SHARDFILE_FINGERPRINT_H
#define SHARDFILE_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

enum { FINGERPRINT_BLOCK = 1 << 20, FINGERPRINT_BLOCKS = 64, CHECKSUM_TEXT_BYTES = 33 };

struct fingerprint {
    uint64_t size_bytes;
    uint64_t checksum[2]; /* low half, high half */
};

/**
 * Computes the fingerprint of the first `size_bytes` bytes of `fd`. Above 64 MiB it reads only the sampled
 * blocks. `path` is used in messages only.
 *   FSDP_ERR_FORMAT  the file is shorter than size_bytes
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status fingerprint_read(struct fsdp_io *io, int fd, uint64_t size_bytes, const char *path,
                                  struct fingerprint *out, struct fsdp_err *err);

/** Returns true if both length and hash are equal. */
bool fingerprint_same(const struct fingerprint *a, const struct fingerprint *b);

/**
 * Writes the checksum as 32 lower-case hexadecimal digits, the high half first, as `xxhsum -H2` prints it.
 */
void checksum_text(const uint64_t checksum[2], char out[CHECKSUM_TEXT_BYTES]);
/** Parses the text that checksum_text() writes. Returns false for any other text. */
bool checksum_parse(const char *text, uint64_t checksum[2]);

#endif
