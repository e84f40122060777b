#include "agent/tcpstore/tcpstore_proto.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/oracles/tcpstore_wire.h"

/* What was parsed, in words, so that two ways to the same requests can be compared. */
static void describe(struct tcpstore_request *request, struct wire *out)
{
    struct tcpstore_text key, value;

    wire_op(out, request->op);
    wire_i64(out, (int64_t)request->key.size);
    wire_raw(out, request->key.bytes, request->key.size);
    wire_i64(out, (int64_t)request->value.size);
    wire_raw(out, request->value.bytes, request->value.size);
    wire_i64(out, (int64_t)request->desired.size);
    wire_raw(out, request->desired.bytes, request->desired.size);
    wire_u32(out, request->number);
    wire_i64(out, request->delta);
    wire_i64(out, (int64_t)request->n_items);
    for (size_t i = 0; i < request->n_items; i++) {
        value = (struct tcpstore_text){ 0 };
        tcpstore_request_item(request, &key, &value);
        wire_i64(out, (int64_t)key.size);
        wire_raw(out, key.bytes, key.size);
        wire_i64(out, (int64_t)value.size);
        wire_raw(out, value.bytes, value.size);
    }
    cr_assert_eq(request->list.size, 0, "%s: bytes are left of the list", tcpstore_op_name(request->op));
}

/* A copy of the piece alone, so that a look past its end is seen by the address sanitizer. Requests seen. */
static int feed_piece(struct tcpstore_parser *to, const unsigned char *piece, size_t n, struct wire *out)
{
    unsigned char *copy = malloc(n > 0 ? n : 1);
    const unsigned char *at = copy;
    struct fsdp_err err = { 0 };
    int n_requests = 0;

    if (n > 0)
        memcpy(copy, piece, n);
    for (;;) {
        struct tcpstore_request request;
        const enum tcpstore_parsed parsed = tcpstore_parser_next(to, &at, &n, &request, &err);

        cr_assert_neq(parsed, TCPSTORE_BAD, "%s", err.message);
        if (parsed == TCPSTORE_MORE)
            break;
        if (out != NULL)
            describe(&request, out);
        n_requests++;
    }
    cr_assert_eq(n, 0);
    free(copy);
    return n_requests;
}

/* The requests of a conversation with every operation; returns how many. */
static int every_op(struct wire *asked)
{
    struct wire answered = { 0 };

    wire_conversation(asked, &answered);
    free(answered.bytes);
    return asked->n_ops;
}

static struct wire wire, whole, words;
static struct tcpstore_parser parser;

static void free_all(void)
{
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
    free(whole.bytes);
    free(words.bytes);
}

TestSuite(tcpstore_proto, .fini = free_all);

/* The same requests in pieces of these sizes; the last size is taken as often as it takes. */
static void check_pieces(int n_want, const size_t *sizes, size_t n_sizes)
{
    size_t at = 0;
    int n = 0;

    words.n = 0;
    for (size_t i = 0; at < wire.n || i < n_sizes; i++) {
        const size_t size = sizes[i < n_sizes ? i : n_sizes - 1], left = wire.n - at;

        n += feed_piece(&parser, wire.bytes + at, size < left ? size : left, &words);
        at += size < left ? size : left;
    }
    cr_assert(n == n_want && words.n == whole.n && memcmp(words.bytes, whole.bytes, whole.n) == 0,
              "pieces of %zu and %zu: %d requests", sizes[0], sizes[n_sizes - 1], n);
}

Test(tcpstore_proto, every_operation_is_the_same_cut_at_every_byte_and_in_pieces_of_every_size)
{
    const int n_ops = every_op(&wire);

    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, &whole), n_ops);
    for (size_t cut = 0; cut <= wire.n; cut++)
        check_pieces(n_ops, (size_t[]){ cut, wire.n }, 2);
    for (size_t size = 1; size < 70; size++)
        check_pieces(n_ops, &size, 1);
}

Test(tcpstore_proto, two_cuts_anywhere_change_nothing)
{
    wire_key(&wire, TCPSTORE_COMPARE_SET, "/k", "old");
    wire_text(&wire, "new");
    wire_list(&wire, TCPSTORE_MULTI_SET, (const char *[]){ "/a", "1", "/b", "22", NULL });
    wire_key(&wire, TCPSTORE_BARRIER, "/b", NULL);
    wire_i64(&wire, 3);
    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, &whole), 3);
    for (size_t first = 0; first <= wire.n; first++)
        for (size_t second = first; second <= wire.n; second++)
            check_pieces(3, (size_t[]){ first, second - first, wire.n }, 3);
}

Test(tcpstore_proto, an_announced_length_costs_nothing)
{
    wire_key(&wire, TCPSTORE_SET, "/k", NULL);
    wire_i64(&wire, TCPSTORE_MAX_VALUE);
    wire_raw(&wire, "x", 1);
    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, NULL), 0);

    cr_assert_leq(parser.capacity, 4096);
}

/* What is refused, and exactly from where on */

/* Shape: k and v are a text of `size` bytes at the last of them, of 1 byte before; n is a count of `size`. */
static const struct limit {
    unsigned char op;
    const char *shape;
    uint64_t size;
    bool good;
    const char *words;
} limits[] = {
    { TCPSTORE_SET, "k", TCPSTORE_MAX_KEY, true, "" },
    { TCPSTORE_SET, "k", TCPSTORE_MAX_KEY + 1, false, "key" },
    { TCPSTORE_SET, "k", UINT64_MAX, false, "key" },
    { TCPSTORE_SET, "kv", TCPSTORE_MAX_VALUE, true, "" },
    { TCPSTORE_SET, "kv", TCPSTORE_MAX_VALUE + 1, false, "value" },
    { TCPSTORE_SET, "kv", UINT64_MAX - 7, false, "value" },
    { TCPSTORE_COMPARE_SET, "kvv", TCPSTORE_MAX_VALUE + 1, false, "value" },
    { TCPSTORE_APPEND, "kv", TCPSTORE_MAX_VALUE + 1, false, "value" },
    { TCPSTORE_QUEUE_PUSH, "kv", TCPSTORE_MAX_VALUE + 1, false, "value" },
    { TCPSTORE_GET, "k", TCPSTORE_MAX_KEY + 1, false, "key" },
    { TCPSTORE_BARRIER, "k", TCPSTORE_MAX_KEY + 1, false, "key" },
    { TCPSTORE_WAIT, "n", TCPSTORE_MAX_KEYS, true, "" },
    { TCPSTORE_WAIT, "n", TCPSTORE_MAX_KEYS + 1, false, "keys are more" },
    { TCPSTORE_CHECK, "n", UINT64_MAX, false, "keys are more" },
    { TCPSTORE_MULTI_GET, "n", TCPSTORE_MAX_KEYS + 1, false, "keys are more" },
    { TCPSTORE_MULTI_SET, "n", TCPSTORE_MAX_KEYS + 1, false, "keys are more" },
    { TCPSTORE_OP_COUNT, "", 0, false, "no operation" },
    { 255, "", 0, false, "no operation" },
};

/* The parser is asked once, for what the wire holds; that is taken away. */
static enum tcpstore_parsed parse_wire(struct fsdp_err *err)
{
    struct tcpstore_request request;
    const unsigned char *at = wire.bytes;
    size_t n = wire.n;

    wire.n = 0;
    return tcpstore_parser_next(&parser, &at, &n, &request, err);
}

Test(tcpstore_proto, limits_are_exact)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *limit = &limits[i];
        struct fsdp_err err = { 0 };

        tcpstore_parser_fini(&parser);
        parser = (struct tcpstore_parser){ 0 };
        wire_raw(&wire, &limit->op, 1);
        for (const char *field = limit->shape; *field != '\0'; field++)
            if (field[1] != '\0')
                wire_text(&wire, "x");
            else
                wire_i64(&wire, (int64_t)limit->size);

        cr_assert_eq(parse_wire(&err), limit->good ? TCPSTORE_MORE : TCPSTORE_BAD, "limit %zu", i);
        cr_assert_not_null(strstr(err.message, limit->words), "limit %zu: %s", i, err.message);
    }
}

Test(tcpstore_proto, a_request_of_many_values_has_a_limit_too)
{
    unsigned char *bytes = calloc(1, TCPSTORE_MAX_VALUE);
    struct fsdp_err err = { 0 };
    enum tcpstore_parsed parsed = TCPSTORE_MORE;
    size_t fed = 0;

    wire_op(&wire, TCPSTORE_MULTI_SET);
    wire_i64(&wire, 100);
    for (int i = 0; i < 200 && parsed == TCPSTORE_MORE; i++) {
        if (i % 2 == 0) {
            wire_text(&wire, "/k");
            wire_i64(&wire, TCPSTORE_MAX_VALUE);
        } else {
            wire_raw(&wire, bytes, TCPSTORE_MAX_VALUE);
        }
        fed += wire.n;
        parsed = parse_wire(&err);
    }

    cr_assert_eq(parsed, TCPSTORE_BAD);
    cr_assert_leq(fed, (size_t)TCPSTORE_MAX_REQUEST);
    cr_assert_not_null(strstr(err.message, "request of more"), "%s", err.message);
    free(bytes);
}

Test(tcpstore_proto, no_memory_is_kept_between_requests)
{
    every_op(&wire);
    for (size_t i = 0; i < wire.n; i++)
        feed_piece(&parser, wire.bytes + i, 1, NULL);
    cr_assert_null(parser.bytes);
}
