#include "agent/members/proto_impl.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "agent/wire/fields.h"
#include "shard_runtime/core/require.h"

#define LEASE_MAX_MS (INT64_MAX / 2 / 1000000)
/* clang-format off */
#define JOIN(kind, member) FIELD(struct proto_join, kind, #member, member)
/* The rows for the members of struct restore_steps, which is itself the member `in` of several messages. */
#define STEP(type, kind, name, member, low) FIELD_WITHIN(type, kind, name, member, low, INT64_MAX)
#define STEPS(type, in)                                                                                      \
    STEP(type, LONG, "newest", in(own.held[0].step), -1),                                                    \
        STEP(type, WORD, "newest_generation", in(own.held[0].generation), 0),                                \
        STEP(type, LONG, "older", in(own.held[1].step), -1),                                                 \
        STEP(type, WORD, "older_generation", in(own.held[1].generation), 0),                                 \
        STEP(type, LONG, "newest_copy", in(copies.held[0].step), -1),                                        \
        STEP(type, WORD, "newest_copy_generation", in(copies.held[0].generation), 0),                        \
        STEP(type, LONG, "older_copy", in(copies.held[1].step), -1),                                         \
        STEP(type, WORD, "older_copy_generation", in(copies.held[1].generation), 0),                         \
        STEP(type, INT, "own_first_rank", in(own_first_rank), 0),                                            \
        STEP(type, INT, "copies_first_rank", in(copies_first_rank), -1),                                     \
        STEP(type, INT, "held_of", in(world_size), 0)
#define IN_JOIN(member) held.member
static const struct field join[] = {
    JOIN(TEXT, version),  JOIN(TEXT, host),     JOIN(TEXT, address), JOIN(TEXT, role),
    JOIN(INT, node_rank), JOIN(INT, order),     JOIN(INT, min_nodes), JOIN(INT, n_nodes),
    JOIN(INT, n_workers), JOIN(LONG, what),   JOIN(BYTES, identity), JOIN(BYTES, lost_by),
    FIELD_WITHIN(struct proto_join, INT, "last_generation", last_generation, -1, INT_MAX / 2),
    FIELD_WITHIN(struct proto_join, INT, "last_node_rank", last_node_rank, -1, INT_MAX),
    FIELD_WITHIN(struct proto_join, INT, "n_unkilled", n_unkilled, 0, INT_MAX),
    STEPS(struct proto_join, IN_JOIN),
};
static const struct field welcome[] = {
    FIELD(struct proto_welcome, TEXT, "host", host),
    FIELD(struct proto_welcome, BYTES, "identity", identity),
    FIELD(struct proto_welcome, BYTES, "run", run),
    FIELD_WITHIN(struct proto_welcome, INT, "first_attempt", first_attempt, 0, INT_MAX / 2),
    FIELD_WITHIN(struct proto_welcome, LONG, "term", term, 0, INT64_MAX),
    FIELD_WITHIN(struct proto_welcome, INT, "wait", wait, PROTO_WAIT_FORMING, PROTO_WAIT_UNKILLED),
    FIELD_WITHIN(struct proto_welcome, INT, "seconds", seconds, 0, INT_MAX),
};
static const struct field refused[] = {
    FIELD(struct proto_refused, INT, "status", status),
    FIELD(struct proto_refused, TEXT, "words", words),
};
#define START(kind, member, low) FIELD_WITHIN(struct world_plan, kind, #member, member, low, INT64_MAX)
static const struct field start[] = {
    START(INT, restart_count, 0),   START(INT, first_attempt, 0), START(LONG, resume_step, -1),
    START(LONG, memory_step, -1),   START(TEXT, snapshot, 0),
    START(INT, memory_generation, 0), START(INT, memory_from, -1), START(FLAG, memory_is_peer, 0),
    START(INT, world_size, 1),      START(INT, first_rank, 0),
    START(INT, n_nodes, 1),         START(INT, node_rank, 0),
    START(INT, role_world_size, 1), START(INT, role_rank, 0),
    START(TEXT, master_address, 0), START(INT, master_port, 0),   START(TEXT, node_address, 0),
    START(BYTES, token, 0),         START(FLAG, bears_loss, 0),   START(LONG, term, 0),
    FIELD_WITHIN(struct world_plan, LONG, "lease_ms", lease_ms, LEASE_BEATS, LEASE_MAX_MS),
};
#define DETAIL(type)                                                                                         \
    FIELD(type, TAIL, "stderr", detail.tail), FIELD(type, TEXT, "message", detail.message),                  \
    FIELD(type, TEXT, "traceback", detail.traceback), FIELD(type, TEXT, "error_file", detail.error_file),    \
    FIELD(type, TEXT, "log", detail.log), FIELD(type, FLAG, "shown", detail.shown),                          \
    FIELD(type, LONG, "output_at", detail.output_at), FIELD(type, LONG, "raised_us", detail.raised_us)
#define DEATH(kind, member) FIELD(struct proto_exited, kind, #member, death.member)
static const struct field exited[] = {
    FIELD_WITHIN(struct proto_exited, INT, "kind", death.kind, DEATH_NONE, DEATH_STUCK),
    DEATH(INT, rank),        DEATH(INT, local_rank), DEATH(INT, pid),   DEATH(INT, code),
    DEATH(INT, sent_signal), DEATH(FLAG, killed),    DEATH(LONG, step), DEATH(INT, phase),
    DEATH(FLAG, oom_kill),   DEATH(TEXT, host),      DEATH(TEXT, words),
    FIELD_WITHIN(struct proto_exited, LONG, "age_ns", death.age_ns, 0, INT64_MAX),
    FIELD_WITHIN(struct proto_exited, LONG, "silent_ns", death.silent_ns, 0, INT64_MAX),
    DETAIL(struct proto_exited),
};
#define SAVED(kind, member) FIELD(struct proto_saved, kind, #member, saved.member)
static const struct field saved[] = {
    FIELD(struct proto_saved, INT, "rank", rank),
    SAVED(LONG, step),       SAVED(WORD, status),       SAVED(WORD, keep),       SAVED(LONG, size_bytes),
    FIELD(struct proto_saved, LONG, "checksum_low", saved.checksum[0]),
    FIELD(struct proto_saved, LONG, "checksum_high", saved.checksum[1]),
    SAVED(LONG, loaded_step), SAVED(TEXT, directory), SAVED(TEXT, temporary), SAVED(TEXT, file),
    SAVED(TEXT, words),
    SAVED(LONG, stalled_ns),
};
#define IN_HELD(member) member
static const struct field held[] = { STEPS(struct restore_steps, IN_HELD) };
static const struct field entry_head[] = {
    FIELD(struct snapshot_entry, TEXT, "name", name),
    FIELD_WITHIN(struct snapshot_entry, INT, "number", number, 1, INT32_MAX),
    FIELD_WITHIN(struct snapshot_entry, INT, "first_rank", first_rank, 0, INT32_MAX),
    FIELD_WITHIN(struct snapshot_entry, INT, "world_size", world_size, 1, INT32_MAX),
    FIELD(struct snapshot_entry, FLAG, "complete", complete),
    FIELD(struct snapshot_entry, FLAG, "more", more),
};
static const struct field published[] = {
    FIELD(struct fsdp_link_published, LONG, "step", step),
    FIELD(struct fsdp_link_published, WORD, "status", status),
    FIELD(struct fsdp_link_published, TEXT, "words", words),
};
static const struct field stop[] = {
    FIELD_WITHIN(struct proto_stop, INT, "signal", signal, 0, NSIG - 1),
    FIELD(struct proto_stop, FLAG, "now", now),
    FIELD(struct proto_stop, FLAG, "lost", lost),
};
static const struct field forward[] = {
    FIELD_WITHIN(struct proto_stop, INT, "signal", signal, 1, NSIG - 1),
};
static const struct field look[] = {
    FIELD(struct proto_look, LONG, "question", question),
    FIELD_WITHIN(struct proto_look, LONG, "shown_ns", shown_ns, 0, INT64_MAX),
};
static const struct field hung[] = {
    FIELD_WITHIN(struct proto_hung, INT, "rank", rank, 0, INT32_MAX),
    FIELD(struct proto_hung, TEXT, "words", words),
};
#define PACE(kind, member, low) FIELD_WITHIN(struct pace, kind, #member, member, low, INT64_MAX)
static const struct field pace[] = {
    PACE(INT, rank, 0),      PACE(LONG, step, 1),    PACE(LONG, n_steps, 1),  PACE(LONG, total_ns, 0),
    PACE(LONG, own_ns, 0),   PACE(LONG, data_ns, 0), PACE(LONG, delay_ns, 0), PACE(LONG, idle_ns, 0),
};
static const struct field notice[] = {
    FIELD(struct fsdp_link_notice, LONG, "stop_after_step", stop_after_step),
};
static const struct field ask[] = {
    FIELD_WITHIN(struct proto_ask, INT, "signal", signal, 1, NSIG - 1),
    FIELD_WITHIN(struct proto_ask, INT, "how", how, 0, REPORTER_ASK_COUNT - 1),
};
static const struct field beat[] = {
    FIELD_WITHIN(struct proto_beat, LONG, "sent_ns", sent_ns, 1, INT64_MAX / 2),
    FIELD_WITHIN(struct proto_beat, LONG, "lease_ms", lease_ms, LEASE_BEATS, LEASE_MAX_MS),
    FIELD_WITHIN(struct proto_beat, LONG, "answered_ns", answered_ns, 0, INT64_MAX / 2),
};
static const struct field fenced[] = {
    FIELD_WITHIN(struct proto_fenced, LONG, "ago_ms", ago_ms, 0, INT64_MAX / 2 / 1000000),
};
static const struct field unkilled[] = {
    FIELD_WITHIN(struct proto_unkilled, INT, "n", n, 0, INT_MAX),
};
#define OPEN(kind, member) FIELD(struct proto_open, kind, #member, member)
static const struct field open_order[] = {
    OPEN(LONG, question), OPEN(TEXT, named), OPEN(TEXT, address), OPEN(FLAG, must), OPEN(FLAG, alone),
    FIELD_WITHIN(struct proto_open, INT, "port", port, 0, 65535),
    FIELD_WITHIN(struct proto_open, INT, "self", self, 0, PROTO_GUEST_MAX),
};
#define STORE(kind, member, high) FIELD_WITHIN(struct reporter_store, kind, #member, member, 0, high)
static const struct field store[] = {
    FIELD(struct reporter_store, LONG, "question", question),
    FIELD_WITHIN(struct reporter_store, INT, "kind", kind, REPORTER_STORE_OPEN, REPORTER_STORE_KINDS - 1),
    STORE(INT, port, 65535), STORE(INT, node, PROTO_GUEST_MAX), STORE(INT, pid, INT_MAX),
    STORE(LONG, ago_ns, INT64_MAX), STORE(TEXT, words, 0),
};
static const struct field finish[] = {
    FIELD(struct coordinator_end, INT, "status", status),
    FIELD(struct coordinator_end, TEXT, "line", line),
    FIELD(struct coordinator_end, INT, "node", node),
    FIELD(struct coordinator_end, INT, "code", code),
    DETAIL(struct coordinator_end),
};

/* Each table of fields has the name of its struct in union proto_message. */
#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows), sizeof(((union proto_message *)0)->rows)
static const struct message {
    const char *name;
    const struct field *fields; /* NULL: the message is not JSON */
    size_t n_fields, size_bytes;
} messages[PROTO_COUNT] = {
    [PROTO_JOIN] = { "join", ROWS(join) },
    [PROTO_REFUSED] = { "refused", ROWS(refused) },
    [PROTO_START] = { "start", ROWS(start) },
    [PROTO_PUT] = { .name = "put" },
    [PROTO_EXITED] = { "exited", ROWS(exited) },
    [PROTO_STOP] = { "stop", ROWS(stop) },
    [PROTO_STOPPED] = { .name = "stopped" },
    [PROTO_EVENT] = { .name = "event" },
    [PROTO_SAVED] = { "saved", ROWS(saved) },
    [PROTO_PUBLISHED] = { "published", ROWS(published) },
    [PROTO_NOTICE] = { "notice", ROWS(notice) },
    [PROTO_ASK] = { "ask", ROWS(ask) },
    [PROTO_FINISH] = { "finish", ROWS(finish) },
    [PROTO_WELCOME] = { "welcome", ROWS(welcome) },
    [PROTO_SUSPECT] = { .name = "suspect" },
    [PROTO_LOOK] = { "look", ROWS(look) },
    [PROTO_RANK] = { .name = "rank" },
    [PROTO_HUNG] = { "hung", ROWS(hung) },
    [PROTO_PACE] = { "pace", ROWS(pace) },
    [PROTO_FORWARD] = { "forward", forward, 1, sizeof(struct proto_stop) },
    [PROTO_EXPLAINED] = { .name = "explained" },
    [PROTO_WANT] = { .name = "want" },
    [PROTO_BEAT] = { "beat", ROWS(beat) },
    [PROTO_FENCED] = { "fenced", ROWS(fenced) },
    [PROTO_UNKILLED] = { "unkilled", ROWS(unkilled) },
    [PROTO_SWEPT] = { .name = "swept" },
    [PROTO_CAN_LEAD] = { .name = "can_lead" },
    [PROTO_SHOW] = { .name = "show" },
    [PROTO_OPEN] = { "open", open_order, sizeof open_order / sizeof *open_order, sizeof(struct proto_open) },
    [PROTO_CLOSE] = { .name = "close" },
    [PROTO_STORE] = { "store", ROWS(store) },
    [PROTO_ENDED] = { .name = "ended" },
    [PROTO_HELD] = { "held", ROWS(held) },
    [PROTO_ENTRY] = { "entry", entry_head, sizeof entry_head / sizeof *entry_head,
                      sizeof(struct snapshot_entry) },
};
/* clang-format on */

const char *proto_name(unsigned type)
{
    return type > 0 && type < PROTO_COUNT ? messages[type].name : "unknown";
}

/* Returns the two parts, one after the other, in memory that the caller frees. */
static char *join_parts(const void *head, size_t head_bytes, const void *rest, size_t rest_bytes,
                        size_t *size_bytes)
{
    char *payload = malloc(head_bytes + rest_bytes);

    if (payload == NULL)
        return NULL;
    memcpy(payload, head, head_bytes);
    if (rest_bytes > 0)
        memcpy(payload + head_bytes, rest, rest_bytes);
    *size_bytes = head_bytes + rest_bytes;
    return payload;
}

char *proto_encode(enum proto_type type, const void *message, size_t *size_bytes)
{
    const struct proto_put *put = message;
    const struct proto_want *want = message;
    const struct proto_event *event = message;
    const struct proto_explained *explained = message;
    const struct proto_open *open = message;
    const struct proto_ended *ended = message;
    const struct snapshot_entry *entry = message;
    char head[16], *text, *whole;

    if (type == PROTO_PUT)
        return join_parts(put->key, strlen(put->key) + 1, put->value, put->value_bytes, size_bytes);
    if (type == PROTO_WANT)
        return join_parts(want->key, strlen(want->key) + 1, NULL, 0, size_bytes);
    if (type == PROTO_EVENT)
        return join_parts(head, (size_t)snprintf(head, sizeof head, "%d ", event->rank), event->json,
                          event->length, size_bytes);
    if (type == PROTO_EXPLAINED)
        return join_parts(explained->json, explained->length, NULL, 0, size_bytes);
    if (type == PROTO_RANK)
        return proto_encode_rank(message, size_bytes);
    if (type == PROTO_ENDED)
        return join_parts(ended->identities, ended->n * PROTO_IDENTITY_BYTES, NULL, 0, size_bytes);
    text = fields_encode(messages[type].fields, messages[type].n_fields, message);
    *size_bytes = text == NULL ? 0 : strlen(text);
    if (text == NULL || (type != PROTO_OPEN && type != PROTO_ENTRY))
        return text;
    whole = type == PROTO_OPEN
                ? join_parts(text, *size_bytes + 1, open->guests, open->guests_bytes, size_bytes)
                : join_parts(text, *size_bytes + 1, entry->files, entry->files_bytes, size_bytes);
    free(text);
    return whole;
}

/*
 * Returns the address of the zero that ends the key at the beginning of the payload; NULL: there is no such
 * zero.
 */
static const char *end_of_key(const char *payload, size_t n_bytes)
{
    const char *end = memchr(payload, '\0', n_bytes < FSDP_LINK_KEY_BYTES ? n_bytes : FSDP_LINK_KEY_BYTES);

    return end == payload ? NULL : end;
}

static enum fsdp_status decode_want(struct proto_want *want, const char *payload, size_t n_bytes,
                                    struct fsdp_err *err)
{
    const char *end = end_of_key(payload, n_bytes);

    if (end == NULL || end + 1 != payload + n_bytes)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a want without a key");
    *want = (struct proto_want){ payload };
    return FSDP_OK;
}

static enum fsdp_status decode_put(struct proto_put *put, const char *payload, size_t n_bytes,
                                   struct fsdp_err *err)
{
    const char *end = end_of_key(payload, n_bytes);

    if (end == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a put without a key");
    *put = (struct proto_put){ payload, end + 1, n_bytes - (size_t)(end + 1 - payload) };
    return put->value_bytes <= FSDP_LINK_VALUE_BYTES
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_FORMAT, "a put of %zu bytes", put->value_bytes);
}

static enum fsdp_status decode_event(struct proto_event *event, const char *payload, size_t n_bytes,
                                     struct fsdp_err *err)
{
    char digits[13] = { 0 }, *end;
    const char *space = memchr(payload, ' ', n_bytes < sizeof digits ? n_bytes : sizeof digits - 1);

    if (space == NULL || space == payload)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an event without its rank");
    memcpy(digits, payload, (size_t)(space - payload));
    *event = (struct proto_event){ (int)strtol(digits, &end, 10), space + 1,
                                   n_bytes - (size_t)(space + 1 - payload) };
    return *end == '\0' && event->rank >= -1
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_FORMAT, "an event of the rank %s", digits);
}

/*
 * Decodes the text before the first zero. *rest and *rest_bytes receive what follows the zero; they may point
 * into `into`.
 */
static enum fsdp_status decode_head(unsigned type, void *into, const char *payload, size_t n_bytes,
                                    const char **rest, size_t *rest_bytes, struct fsdp_err *err)
{
    const struct message *message = &messages[type];
    const char *end = memchr(payload, '\0', n_bytes);

    if (end == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a message of type %s that is cut off", message->name);
    memset(into, 0, message->size_bytes);
    *rest = end + 1;
    *rest_bytes = n_bytes - (size_t)(end + 1 - payload);
    return fields_decode(message->fields, message->n_fields, into, payload, (size_t)(end - payload), err);
}

static enum fsdp_status decode_open(struct proto_open *open, const char *payload, size_t n_bytes,
                                    struct fsdp_err *err)
{
    OK_OR_RETURN(decode_head(PROTO_OPEN, open, payload, n_bytes, &open->guests, &open->guests_bytes, err));
    return proto_guests_are_whole(open)
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_FORMAT, "an open with a guest that is none");
}

static enum fsdp_status decode_entry(struct snapshot_entry *entry, const char *payload, size_t n_bytes,
                                     struct fsdp_err *err)
{
    OK_OR_RETURN(decode_head(PROTO_ENTRY, entry, payload, n_bytes, &entry->files, &entry->files_bytes, err));
    return entry_name_is_valid(entry->name)
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_FORMAT, "an entry with a name that is none");
}

enum fsdp_status proto_decode(unsigned type, union proto_message *message, const void *payload,
                              size_t n_bytes, struct fsdp_err *err)
{
    if (type == PROTO_PUT)
        return decode_put(&message->put, payload, n_bytes, err);
    if (type == PROTO_WANT)
        return decode_want(&message->want, payload, n_bytes, err);
    if (type == PROTO_EVENT)
        return decode_event(&message->event, payload, n_bytes, err);
    if (type == PROTO_EXPLAINED) {
        message->explained = (struct proto_explained){ payload, n_bytes };
        return FSDP_OK;
    }
    if (type == PROTO_RANK)
        return proto_decode_rank(&message->rank, payload, n_bytes, err);
    if (type == PROTO_ENDED) {
        message->ended = (struct proto_ended){ payload, n_bytes / PROTO_IDENTITY_BYTES };
        return n_bytes % PROTO_IDENTITY_BYTES == 0 && n_bytes > 0 && message->ended.n <= PROTO_ENDED_MAX
                   ? FSDP_OK
                   : fsdp_fail(err, FSDP_ERR_FORMAT, "a list of ended agents of %zu bytes", n_bytes);
    }
    if (type == PROTO_OPEN)
        return decode_open(&message->open, payload, n_bytes, err);
    if (type == PROTO_ENTRY)
        return decode_entry(&message->entry, payload, n_bytes, err);
    if (type >= PROTO_COUNT || messages[type].fields == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a message of type %u (%s)", type, proto_name(type));
    memset(message, 0, messages[type].size_bytes);
    return fields_decode(messages[type].fields, messages[type].n_fields, message, payload, n_bytes, err);
}
