/*
 * The encoding of PROTO_RANK: lines of JSON. The first line is about the rank, and each further line about
 * one of its groups.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/members/proto_impl.h"
#include "agent/wire/fields.h"
#include "shard_runtime/core/require.h"

/* clang-format off */
#define RANK(kind, member) FIELD(struct proto_rank, kind, #member, rank.member)
#define RANK_WITHIN(kind, member, low, high)                                                                 \
    FIELD_WITHIN(struct proto_rank, kind, #member, rank.member, low, high)
static const struct field rank_fields[] = {
    FIELD(struct proto_rank, LONG, "question", question),
    RANK_WITHIN(INT, rank, 0, INT32_MAX),       RANK_WITHIN(INT, local_rank, 0, INT32_MAX),
    RANK(INT, pid),                             RANK(FLAG, live),
    RANK_WITHIN(INT, state, 0, 127),            RANK(FLAG, still),
    RANK_WITHIN(LONG, silent_ns, 0, INT64_MAX),
    RANK_WITHIN(LONG, bound_ns, 0, INT64_MAX),  RANK(INT, pass),
    RANK(FLAG, program),                        RANK(FLAG, hearts),
    RANK(FLAG, python),
    RANK_WITHIN(LONG, shown_ns, 0, INT64_MAX),
    RANK_WITHIN(LONG, step, -1, INT64_MAX),
    RANK(FLAG, waits),                          RANK(TEXT, layer),
    RANK_WITHIN(INT, group, -1, FSDP_GROUPS),   RANK(LONG, sequence),
    RANK(LONG, size_bytes),                     RANK(TEXT, kind),
    RANK(FLAG, queued),                         RANK_WITHIN(INT, peer, -1, INT32_MAX),
    RANK_WITHIN(INT, n_missing, 0, INT32_MAX),  RANK_WITHIN(INT, n_groups, 0, FSDP_GROUPS),
};
#define GROUP(kind, member) FIELD(struct hang_group, kind, #member, member)
static const struct field group_fields[] = {
    GROUP(TEXT, name), GROUP(INT, first), GROUP(INT, stride), GROUP(INT, size), GROUP(LONG, begun),
    GROUP(LONG, ended),
};
/* clang-format on */
enum {
    N_RANK_FIELDS = sizeof rank_fields / sizeof *rank_fields,
    N_GROUP_FIELDS = sizeof group_fields / sizeof *group_fields
};

/* Appends a line to *text, and a zero. Frees *text if there is no memory. */
static bool add_line(char **text, size_t *size_bytes, char *line)
{
    const size_t length = line != NULL ? strlen(line) : 0;
    char *longer = line != NULL ? realloc(*text, *size_bytes + length + 2) : NULL;

    if (longer == NULL) {
        free(*text);
        free(line);
        *text = NULL;
        *size_bytes = 0;
        return false;
    }
    memcpy(longer + *size_bytes, line, length);
    memcpy(longer + *size_bytes + length, "\n", 2);
    *text = longer;
    *size_bytes += length + 1;
    free(line);
    return true;
}

char *proto_encode_rank(const struct proto_rank *message, size_t *size_bytes)
{
    char *text = NULL;

    *size_bytes = 0;
    if (!add_line(&text, size_bytes, fields_encode(rank_fields, N_RANK_FIELDS, message)))
        return NULL;
    for (int g = 0; g < message->rank.n_groups; g++)
        if (!add_line(&text, size_bytes,
                      fields_encode(group_fields, N_GROUP_FIELDS, &message->rank.groups[g])))
            return NULL;
    return text;
}

static enum fsdp_status decode_line(const struct field *fields, size_t n_fields, void *base,
                                    const char **payload, size_t *n_bytes, struct fsdp_err *err)
{
    const char *end = memchr(*payload, '\n', *n_bytes);
    const char *line = *payload;

    if (end == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a rank without the lines of its groups");
    *n_bytes -= (size_t)(end + 1 - line);
    *payload = end + 1;
    return fields_decode(fields, n_fields, base, line, (size_t)(end - line), err);
}

enum fsdp_status proto_decode_rank(struct proto_rank *message, const char *payload, size_t n_bytes,
                                   struct fsdp_err *err)
{
    struct hang_rank *rank = &message->rank;

    memset(message, 0, sizeof *message);
    OK_OR_RETURN(decode_line(rank_fields, N_RANK_FIELDS, message, &payload, &n_bytes, err));
    for (int g = 0; g < rank->n_groups; g++)
        OK_OR_RETURN(decode_line(group_fields, N_GROUP_FIELDS, &rank->groups[g], &payload, &n_bytes, err));
    if (n_bytes != 0 || rank->group >= rank->n_groups)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a rank in a group that it does not list");
    rank->answered = true;
    return FSDP_OK;
}
