#include "agent/tcpstore/tcpstore_proto.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, FIRST_CAPACITY = 256 };

/*
 * The name of each operation, and its fields. k is a key, v a value, u an integer of 4 bytes, i one of 8
 * bytes. A list is the last field: K is a list of keys, P one of pairs of key and value.
 */
static const struct {
    const char *name, *fields;
} operations[TCPSTORE_OP_COUNT] = {
    { "VALIDATE", "u" },   { "SET", "kv" },     { "COMPARE_SET", "kvv" }, { "GET", "k" },
    { "ADD", "ki" },       { "CHECK", "K" },    { "WAIT", "K" },          { "GETNUMKEYS", "" },
    { "DELETE_KEY", "k" }, { "APPEND", "kv" },  { "MULTI_GET", "K" },     { "MULTI_SET", "P" },
    { "CANCEL_WAIT", "" }, { "PING", "u" },     { "QUEUE_PUSH", "kv" },   { "QUEUE_POP", "k" },
    { "QUEUE_LEN", "k" },  { "LIST_KEYS", "" }, { "BARRIER", "ki" },
};

const char *tcpstore_op_name(unsigned op)
{
    return op < TCPSTORE_OP_COUNT ? operations[op].name : "?";
}

static uint64_t read_u64(const unsigned char *bytes)
{
    uint64_t number;

    memcpy(&number, bytes, sizeof number);
    return number;
}

static struct tcpstore_text read_text(const unsigned char *bytes)
{
    return (struct tcpstore_text){ .bytes = bytes + LENGTH_BYTES, .size = (size_t)read_u64(bytes) };
}

/* Finding the end of a request */

enum scanned { SCAN_MORE, SCAN_DONE, SCAN_BAD };

/* State of a pass over the bytes at hand, from the next field to the last complete one. */
struct scan {
    const unsigned char *bytes;
    size_t n;
    /* with SCAN_MORE: how many bytes of the request, from its first one, must be there for the next pass */
    size_t need;
};

static enum scanned scan_number(struct tcpstore_parser *parser, struct scan *scan, size_t size)
{
    if (scan->n - parser->at < size) {
        scan->need = parser->at + size;
        return SCAN_MORE;
    }
    parser->at += size;
    return SCAN_DONE;
}

static enum scanned scan_text(struct tcpstore_parser *parser, struct scan *scan, bool key,
                              struct fsdp_err *err)
{
    const uint64_t limit = key ? TCPSTORE_MAX_KEY : TCPSTORE_MAX_VALUE;
    uint64_t size;

    if (scan->n - parser->at < LENGTH_BYTES) {
        scan->need = parser->at + LENGTH_BYTES;
        return SCAN_MORE;
    }
    size = read_u64(scan->bytes + parser->at);
    if (size > limit) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "%s: a %s of %llu bytes is longer than %llu",
                  tcpstore_op_name(parser->op), key ? "key" : "value", (unsigned long long)size,
                  (unsigned long long)limit);
        return SCAN_BAD;
    }
    scan->need = parser->at + LENGTH_BYTES + (size_t)size;
    if (scan->need > TCPSTORE_MAX_REQUEST) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "%s: a request of more than %d bytes", tcpstore_op_name(parser->op),
                  TCPSTORE_MAX_REQUEST);
        return SCAN_BAD;
    }
    if (scan->n < scan->need)
        return SCAN_MORE;
    parser->at = scan->need;
    return SCAN_DONE;
}

static enum scanned scan_list(struct tcpstore_parser *parser, struct scan *scan, bool pairs,
                              struct fsdp_err *err)
{
    if (parser->list_at == 0) {
        uint64_t n_keys;

        if (scan_number(parser, scan, LENGTH_BYTES) == SCAN_MORE)
            return SCAN_MORE;
        n_keys = read_u64(scan->bytes + parser->at - LENGTH_BYTES);
        if (n_keys > TCPSTORE_MAX_KEYS) {
            fsdp_fail(err, FSDP_ERR_FORMAT, "%s: %llu keys are more than %d", tcpstore_op_name(parser->op),
                      (unsigned long long)n_keys, TCPSTORE_MAX_KEYS);
            return SCAN_BAD;
        }
        parser->list_at = parser->at;
        parser->n_items = (size_t)n_keys;
        /* If the request is not complete, sets how many bytes, from its first one, the next pass needs. */
        parser->n_items_left = (size_t)n_keys * (pairs ? 2 : 1);
    }
    while (parser->n_items_left > 0) {
        const bool key = !pairs || parser->n_items_left % 2 == 0;
        const enum scanned scanned = scan_text(parser, scan, key, err);

        if (scanned != SCAN_DONE)
            return scanned;
        parser->n_items_left--;
    }
    return SCAN_DONE;
}

static enum scanned scan_request(struct tcpstore_parser *parser, struct scan *scan, struct fsdp_err *err)
{
    if (!parser->begun) {
        if (scan->n == 0) {
            scan->need = 1;
            return SCAN_MORE;
        }
        if (scan->bytes[0] >= TCPSTORE_OP_COUNT) {
            fsdp_fail(err, FSDP_ERR_FORMAT, "%d is no operation", scan->bytes[0]);
            return SCAN_BAD;
        }
        parser->begun = true;
        parser->op = scan->bytes[0];
        parser->at = 1;
        parser->field = 0;
        parser->list_at = parser->n_items = parser->n_items_left = 0;
    }
    for (;; parser->field++) {
        const char field = operations[parser->op].fields[parser->field];
        enum scanned scanned;

        if (field == '\0')
            return SCAN_DONE;
        if (field == 'k' || field == 'v')
            scanned = scan_text(parser, scan, field == 'k', err);
        else if (field == 'K' || field == 'P')
            scanned = scan_list(parser, scan, field == 'P', err);
        else
            scanned = scan_number(parser, scan, field == 'u' ? sizeof(uint32_t) : sizeof(int64_t));
        if (scanned != SCAN_DONE)
            return scanned;
    }
}

/* A complete request */

static void read_request(const struct tcpstore_parser *parser, const unsigned char *bytes,
                         struct tcpstore_request *request)
{
    size_t at = 1;

    *request = (struct tcpstore_request){ .op = parser->op };
    for (const char *field = operations[parser->op].fields; *field != '\0'; field++) {
        switch (*field) {
        case 'k':
            request->key = read_text(bytes + at);
            at += LENGTH_BYTES + request->key.size;
            break;
        case 'v':
            *(request->value.bytes == NULL ? &request->value : &request->desired) = read_text(bytes + at);
            at += LENGTH_BYTES + read_text(bytes + at).size;
            break;
        case 'u':
            memcpy(&request->number, bytes + at, sizeof request->number);
            at += sizeof request->number;
            break;
        case 'i':
            memcpy(&request->delta, bytes + at, sizeof request->delta);
            at += sizeof request->delta;
            break;
        default:
            request->n_items = parser->n_items;
            request->list = (struct tcpstore_text){ bytes + parser->list_at, parser->at - parser->list_at };
        }
    }
}

static struct tcpstore_text take_text(struct tcpstore_text *list)
{
    const struct tcpstore_text text = read_text(list->bytes);

    list->bytes += LENGTH_BYTES + text.size;
    list->size -= LENGTH_BYTES + text.size;
    return text;
}

void tcpstore_request_item(struct tcpstore_request *request, struct tcpstore_text *key,
                           struct tcpstore_text *value)
{
    *key = take_text(&request->list);
    if (request->op == TCPSTORE_MULTI_SET)
        *value = take_text(&request->list);
}

/* The stream */

void tcpstore_parser_fini(struct tcpstore_parser *parser)
{
    free(parser->bytes);
    memset(parser, 0, sizeof *parser);
}

/*
 * Keep the bytes of an unfinished request. Memory grows with the bytes that have arrived, not with the
 * lengths that the request announces.
 */
static bool keep(struct tcpstore_parser *parser, const unsigned char **data, size_t *n, size_t size,
                 struct fsdp_err *err)
{
    if (parser->used + size > parser->capacity) {
        size_t capacity = parser->capacity == 0 ? FIRST_CAPACITY : parser->capacity * 2;
        unsigned char *bytes;

        while (capacity < parser->used + size)
            capacity *= 2;
        bytes = realloc(parser->bytes, capacity);
        if (bytes == NULL) {
            fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
            return false;
        }
        parser->bytes = bytes;
        parser->capacity = capacity;
    }
    memcpy(parser->bytes + parser->used, *data, size);
    parser->used += size;
    *data += size;
    *n -= size;
    return true;
}

enum tcpstore_parsed tcpstore_parser_next(struct tcpstore_parser *parser, const unsigned char **data,
                                          size_t *n, struct tcpstore_request *request, struct fsdp_err *err)
{
    if (parser->done)
        tcpstore_parser_fini(parser);
    for (;;) {
        const bool kept = parser->used > 0;
        struct scan scan = { .bytes = kept ? parser->bytes : *data, .n = kept ? parser->used : *n };
        const enum scanned scanned = scan_request(parser, &scan, err);
        size_t missing;

        if (scanned == SCAN_BAD)
            return TCPSTORE_BAD;
        if (scanned == SCAN_DONE) {
            read_request(parser, scan.bytes, request);
            parser->done = true;
            if (!kept) { /* the whole request came in one piece, so it is read where it is */
                *data += parser->at;
                *n -= parser->at;
            }
            return TCPSTORE_REQUEST;
        }
        if (*n == 0)
            return TCPSTORE_MORE;
        missing = scan.need - parser->used; /* never beyond the end of this request */
        if (!keep(parser, data, n, missing < *n ? missing : *n, err))
            return TCPSTORE_BAD;
    }
}
