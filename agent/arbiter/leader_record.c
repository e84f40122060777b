#include "agent/arbiter/leader_record.h"

#include <string.h>
#include <xxhash.h>

#include "agent/wire/little_endian.h"

enum { VERSION = 1, LONGEST_LEASE_MS = 24 * 3600 * 1000 };

static const char magic[8] = "fsdplead";

/* Where each field begins. What is not named is zero. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_STATE = 12,
    AT_RUN = 16,
    AT_TERM = 24,
    AT_SEQUENCE = 32,
    AT_IDENTITY = 40,
    AT_LEASE = 56,
    AT_PORT = 64,
    AT_EXIT_STATUS = 68,
    AT_GENERATION = 72,
    AT_RESTARTS = 76,
    AT_RESTARTS_LEFT = 80,
    AT_STEP = 88,
    AT_GOES_ON = 96,
    AT_HOST = 128,
    AT_CHECKSUM = LEADER_RECORD_BYTES - 8
};
_Static_assert(AT_HOST + LEADER_HOST_BYTES <= AT_CHECKSUM, "the host has its place");

bool leader_record_is_later(const struct leader_record *record, const struct leader_record *than)
{
    return record->term != than->term ? record->term > than->term : record->sequence > than->sequence;
}

void leader_record_encode(const struct leader_record *record, unsigned char out[LEADER_RECORD_BYTES])
{
    memset(out, 0, LEADER_RECORD_BYTES);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    put_le(out + AT_VERSION, VERSION, 4);
    put_le(out + AT_STATE, record->state, 4);
    put_le(out + AT_RUN, record->run, 8);
    put_le(out + AT_TERM, record->term, 8);
    put_le(out + AT_SEQUENCE, record->sequence, 8);
    memcpy(out + AT_IDENTITY, record->identity, sizeof record->identity);
    put_le(out + AT_LEASE, (uint64_t)record->lease_ms, 8);
    put_le(out + AT_PORT, (uint32_t)record->port, 4);
    put_le(out + AT_EXIT_STATUS, (uint32_t)record->exit_status, 4);
    put_le(out + AT_GENERATION, (uint32_t)record->progress.generation, 4);
    put_le(out + AT_RESTARTS, record->progress.n_restarts, 4);
    put_le(out + AT_RESTARTS_LEFT, record->progress.n_restarts_left, 4);
    put_le(out + AT_STEP, (uint64_t)record->progress.step, 8);
    put_le(out + AT_GOES_ON, record->goes_on, 4);
    memcpy(out + AT_HOST, record->host, strnlen(record->host, LEADER_HOST_BYTES - 1));
    put_le(out + AT_CHECKSUM, XXH3_64bits(out, AT_CHECKSUM), 8);
}

static int32_t get_i32(const unsigned char *in)
{
    return (int32_t)(uint32_t)get_le(in, 4);
}

/* Its words reach terminals and logs. */
static bool is_host(const char host[LEADER_HOST_BYTES])
{
    const size_t n = strnlen(host, LEADER_HOST_BYTES);

    for (size_t i = 0; i < n; i++)
        if (host[i] <= ' ' || host[i] > '~')
            return false;
    return n > 0 && n < LEADER_HOST_BYTES;
}

bool leader_record_decode(struct leader_record *out, const void *bytes, size_t n_bytes)
{
    const unsigned char *in = bytes;

    if (n_bytes != LEADER_RECORD_BYTES || memcmp(in + AT_MAGIC, magic, sizeof magic) != 0 ||
        get_le(in + AT_VERSION, 4) != VERSION || get_le(in + AT_CHECKSUM, 8) != XXH3_64bits(in, AT_CHECKSUM))
        return false;
    *out =
        (struct leader_record){ .run = get_le(in + AT_RUN, 8),
                                .term = get_le(in + AT_TERM, 8),
                                .sequence = get_le(in + AT_SEQUENCE, 8),
                                .port = get_i32(in + AT_PORT),
                                .lease_ms = (int64_t)get_le(in + AT_LEASE, 8),
                                .state = (enum leader_state)get_le(in + AT_STATE, 4),
                                .exit_status = get_i32(in + AT_EXIT_STATUS),
                                .goes_on = get_le(in + AT_GOES_ON, 4) != 0,
                                .progress = { .generation = get_i32(in + AT_GENERATION),
                                              .n_restarts = (uint32_t)get_le(in + AT_RESTARTS, 4),
                                              .n_restarts_left = (uint32_t)get_le(in + AT_RESTARTS_LEFT, 4),
                                              .step = (int64_t)get_le(in + AT_STEP, 8) } };
    memcpy(out->identity, in + AT_IDENTITY, sizeof out->identity);
    memcpy(out->host, in + AT_HOST, sizeof out->host);
    return out->term > 0 && out->term < LEADER_TERMS && out->lease_ms > 0 &&
           out->lease_ms <= LONGEST_LEASE_MS && out->port >= 0 && out->port <= 65535 &&
           out->state >= LEADER_LEADS && out->state <= LEADER_LEFT && is_host(out->host);
}
