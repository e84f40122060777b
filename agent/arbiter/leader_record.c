#include "agent/arbiter/leader_record.h"

#include <string.h>
#include <xxhash.h>

#include "agent/wire/little_endian.h"

enum { VERSION = 3, LONGEST_LEASE_MS = 24 * 3600 * 1000, SUSPECT_BYTES = 16 };

static const char magic[8] = "fsdplead";

/* Where each field begins in the encoded record. Bytes that belong to no field are zero. */
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
    AT_KIND = 100,
    AT_TIMES = 102,
    AT_CODE = 104,
    AT_PHASE = 108,
    AT_FAILED_STEP = 112,
    AT_LEADER = 120,
    AT_HOST = 128,
    AT_SUSPECTS = 384,
    AT_NODES = 496,
    AT_NODE_RANK = 500,
    AT_DIVERGED_STEP = 504,
    AT_DIVERGED_GENERATION = 512,
    AT_DIVERGED_WORLD = 516,
    AT_DIVERGED_RANK = 520,
    AT_DIVERGED_HOST = 524,
    AT_RESTART_AGES = 592,
    AT_PUBLISHED = 628,
    AT_CHECKSUM = LEADER_RECORD_BYTES - 8
};
_Static_assert(AT_HOST + LEADER_HOST_BYTES <= AT_SUSPECTS, "the host has its place");
_Static_assert(AT_SUSPECTS + LEADER_SUSPECTS * SUSPECT_BYTES <= AT_NODES, "the suspects have theirs");
_Static_assert(AT_DIVERGED_HOST + LEADER_DIVERGED_HOST_BYTES <= AT_RESTART_AGES,
               "so has the host of a divergence");
_Static_assert(AT_RESTART_AGES + 4 * LEADER_RESTARTS <= AT_PUBLISHED && AT_PUBLISHED + 4 <= AT_CHECKSUM,
               "so have the times of restarts");

bool leader_record_is_later(const struct leader_record *record, const struct leader_record *than)
{
    return record->term != than->term ? record->term > than->term : record->sequence > than->sequence;
}

static void put_suspect(const struct leader_suspect *suspect, unsigned char *out)
{
    put_le(out, suspect->name, 8);
    put_le(out + 8, (uint32_t)suspect->slow_rank, 4);
    put_le(out + 12, suspect->aside_s, 2);
    put_le(out + 14, suspect->strikes, 1);
    put_le(out + 15, suspect->stays, 1);
}

static void put_divergence(const struct leader_divergence *diverged, unsigned char *out)
{
    put_le(out + AT_DIVERGED_STEP, (uint64_t)diverged->step, 8);
    put_le(out + AT_DIVERGED_GENERATION, (uint32_t)diverged->generation, 4);
    put_le(out + AT_DIVERGED_WORLD, (uint32_t)diverged->world_size, 4);
    put_le(out + AT_DIVERGED_RANK, (uint32_t)diverged->rank, 4);
    memcpy(out + AT_DIVERGED_HOST, diverged->host, strnlen(diverged->host, LEADER_DIVERGED_HOST_BYTES - 1));
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
    put_le(out + AT_NODES, (uint32_t)record->progress.n_nodes, 4);
    put_le(out + AT_NODE_RANK, (uint32_t)record->progress.node_rank, 4);
    put_le(out + AT_RESTARTS, record->progress.n_restarts, 4);
    put_le(out + AT_RESTARTS_LEFT, record->progress.n_restarts_left, 4);
    put_le(out + AT_STEP, (uint64_t)record->progress.step, 8);
    put_le(out + AT_GOES_ON, (uint32_t)(record->goes_on | record->unlocked << 1), 4);
    put_le(out + AT_KIND, (uint32_t)record->progress.failure.kind, 2);
    put_le(out + AT_TIMES, record->progress.failure.n, 2);
    put_le(out + AT_CODE, (uint32_t)record->progress.failure.code, 4);
    put_le(out + AT_PHASE, (uint32_t)record->progress.failure.phase, 4);
    put_le(out + AT_FAILED_STEP, (uint64_t)record->progress.failure.step, 8);
    put_divergence(&record->progress.diverged, out);
    put_le(out + AT_LEADER, record->progress.leader, 8);
    for (int i = 0; i < LEADER_SUSPECTS; i++)
        put_suspect(&record->progress.suspects[i], out + AT_SUSPECTS + i * SUSPECT_BYTES);
    for (int i = 0; i < LEADER_RESTARTS; i++)
        put_le(out + AT_RESTART_AGES + 4 * i, record->progress.restarts_s[i], 4);
    put_le(out + AT_PUBLISHED, record->progress.published_s, 4);
    memcpy(out + AT_HOST, record->host, strnlen(record->host, LEADER_HOST_BYTES - 1));
    put_le(out + AT_CHECKSUM, XXH3_64bits(out, AT_CHECKSUM), 8);
}

static int32_t get_i32(const unsigned char *in)
{
    return (int32_t)(uint32_t)get_le(in, 4);
}

static struct leader_suspect get_suspect(const unsigned char *in)
{
    return (struct leader_suspect){ .name = get_le(in, 8),
                                    .slow_rank = get_i32(in + 8),
                                    .aside_s = (uint16_t)get_le(in + 12, 2),
                                    .strikes = in[14],
                                    .stays = in[15] != 0 };
}

static struct leader_divergence get_divergence(const unsigned char *in)
{
    struct leader_divergence diverged = { .step = (int64_t)get_le(in + AT_DIVERGED_STEP, 8),
                                          .generation = get_i32(in + AT_DIVERGED_GENERATION),
                                          .world_size = get_i32(in + AT_DIVERGED_WORLD),
                                          .rank = get_i32(in + AT_DIVERGED_RANK) };

    memcpy(diverged.host, in + AT_DIVERGED_HOST, sizeof diverged.host);
    return diverged;
}

/* Checks a host's name, which will be shown on terminals and in logs. It may be empty. */
static bool is_name(const char *host, size_t size)
{
    const size_t n = strnlen(host, size);

    for (size_t i = 0; i < n; i++)
        if (host[i] <= ' ' || host[i] > '~')
            return false;
    return n < size;
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
                                .goes_on = (get_le(in + AT_GOES_ON, 4) & 1) != 0,
                                .unlocked = (get_le(in + AT_GOES_ON, 4) & 2) != 0,
                                .progress = { .generation = get_i32(in + AT_GENERATION),
                                              .n_nodes = get_i32(in + AT_NODES),
                                              .node_rank = get_i32(in + AT_NODE_RANK),
                                              .n_restarts = (uint32_t)get_le(in + AT_RESTARTS, 4),
                                              .n_restarts_left = (uint32_t)get_le(in + AT_RESTARTS_LEFT, 4),
                                              .step = (int64_t)get_le(in + AT_STEP, 8),
                                              .failure = { .kind = (int32_t)get_le(in + AT_KIND, 2),
                                                           .n = (uint32_t)get_le(in + AT_TIMES, 2),
                                                           .code = get_i32(in + AT_CODE),
                                                           .phase = get_i32(in + AT_PHASE),
                                                           .step = (int64_t)get_le(in + AT_FAILED_STEP, 8) },
                                              .leader = get_le(in + AT_LEADER, 8) } };
    out->progress.diverged = get_divergence(in);
    for (int i = 0; i < LEADER_SUSPECTS; i++)
        out->progress.suspects[i] = get_suspect(in + AT_SUSPECTS + i * SUSPECT_BYTES);
    for (int i = 0; i < LEADER_RESTARTS; i++)
        out->progress.restarts_s[i] = (uint32_t)get_le(in + AT_RESTART_AGES + 4 * i, 4);
    out->progress.published_s = (uint32_t)get_le(in + AT_PUBLISHED, 4);
    memcpy(out->identity, in + AT_IDENTITY, sizeof out->identity);
    memcpy(out->host, in + AT_HOST, sizeof out->host);
    return out->term > 0 && out->term < LEADER_TERMS && out->lease_ms > 0 &&
           out->lease_ms <= LONGEST_LEASE_MS && out->port >= 0 && out->port <= 65535 &&
           out->state >= LEADER_LEADS && out->state <= LEADER_SWEPT && out->host[0] != '\0' &&
           is_name(out->host, sizeof out->host) &&
           is_name(out->progress.diverged.host, sizeof out->progress.diverged.host);
}
