#include "agent/tcpstore/tcpstore_proto.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>

#include "tests/support/tcpstore_wire.h"

/* What was parsed, in words, so that two ways to the same requests can be compared. */
static void describe(struct tcpstore_request *request, struct wire *words)
{
    struct tcpstore_text key, value;

    wire_op(words, request->op);
    wire_i64(words, (int64_t)request->key.size);
    wire_raw(words, request->key.bytes, request->key.size);
    wire_i64(words, (int64_t)request->value.size);
    wire_raw(words, request->value.bytes, request->value.size);
    wire_i64(words, (int64_t)request->desired.size);
    wire_raw(words, request->desired.bytes, request->desired.size);
    wire_u32(words, request->number);
    wire_i64(words, request->delta);
    wire_i64(words, (int64_t)request->n_items);
    for (size_t i = 0; i < request->n_items; i++) {
        value = (struct tcpstore_text){ 0 };
        tcpstore_request_item(request, &key, &value);
        wire_i64(words, (int64_t)key.size);
        wire_raw(words, key.bytes, key.size);
        wire_i64(words, (int64_t)value.size);
        wire_raw(words, value.bytes, value.size);
    }
    cr_assert_eq(request->list.size, 0, "%s: bytes are left of the list", tcpstore_op_name(request->op));
}

/* A copy of the piece alone, so that a look past its end is seen by the address sanitizer. Requests seen. */
static int feed_piece(struct tcpstore_parser *parser, const unsigned char *piece, size_t n,
                      struct wire *words)
{
    unsigned char *copy = malloc(n > 0 ? n : 1);
    const unsigned char *at = copy;
    struct fsdp_err err = { 0 };
    int n_requests = 0;

    if (n > 0)
        memcpy(copy, piece, n);
    for (;;) {
        struct tcpstore_request request;
        const enum tcpstore_parsed parsed = tcpstore_parser_next(parser, &at, &n, &request, &err);

        cr_assert_neq(parsed, TCPSTORE_BAD, "%s", err.message);
        if (parsed == TCPSTORE_MORE)
            break;
        if (words != NULL)
            describe(&request, words);
        n_requests++;
    }
    cr_assert_eq(n, 0);
    free(copy);
    return n_requests;
}

Test(tcpstore_proto, every_operation_is_the_same_cut_at_every_byte)
{
    struct wire wire = { 0 }, whole = { 0 };
    struct tcpstore_parser parser = { 0 };
    const int n_ops = wire_every_op(&wire);

    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, &whole), n_ops);
    for (size_t cut = 0; cut <= wire.n; cut++) {
        struct wire words = { 0 };
        int n = feed_piece(&parser, wire.bytes, cut, &words);

        n += feed_piece(&parser, wire.bytes + cut, wire.n - cut, &words);

        cr_assert(n == n_ops && words.n == whole.n && memcmp(words.bytes, whole.bytes, whole.n) == 0,
                  "cut at %zu of %zu: %d requests", cut, wire.n, n);
        free(words.bytes);
    }
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
    free(whole.bytes);
}

Test(tcpstore_proto, every_operation_is_the_same_in_pieces_of_every_size)
{
    struct wire wire = { 0 }, whole = { 0 };
    struct tcpstore_parser parser = { 0 };
    const int n_ops = wire_every_op(&wire);

    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, &whole), n_ops);
    for (size_t size = 1; size < 70; size++) {
        struct wire words = { 0 };
        int n = 0;

        for (size_t at = 0; at < wire.n; at += size)
            n += feed_piece(&parser, wire.bytes + at, wire.n - at < size ? wire.n - at : size, &words);

        cr_assert(n == n_ops && words.n == whole.n && memcmp(words.bytes, whole.bytes, whole.n) == 0,
                  "pieces of %zu: %d requests", size, n);
        free(words.bytes);
    }
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
    free(whole.bytes);
}

Test(tcpstore_proto, two_cuts_anywhere_change_nothing)
{
    struct wire wire = { 0 }, whole = { 0 };
    struct tcpstore_parser parser = { 0 };

    wire_key(&wire, TCPSTORE_COMPARE_SET, "/k", "old");
    wire_text(&wire, "new");
    wire_list(&wire, TCPSTORE_MULTI_SET, (const char *[]){ "/a", "1", "/b", "22", NULL });
    wire_key(&wire, TCPSTORE_BARRIER, "/b", NULL);
    wire_i64(&wire, 3);
    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, &whole), 3);
    for (size_t first = 0; first <= wire.n; first++)
        for (size_t second = first; second <= wire.n; second++) {
            struct wire words = { 0 };
            int n = feed_piece(&parser, wire.bytes, first, &words);

            n += feed_piece(&parser, wire.bytes + first, second - first, &words);
            n += feed_piece(&parser, wire.bytes + second, wire.n - second, &words);

            cr_assert(n == 3 && words.n == whole.n && memcmp(words.bytes, whole.bytes, whole.n) == 0,
                      "cut at %zu and %zu", first, second);
            free(words.bytes);
        }
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
    free(whole.bytes);
}

Test(tcpstore_proto, an_announced_length_costs_nothing)
{
    struct wire wire = { 0 };
    struct tcpstore_parser parser = { 0 };

    wire_key(&wire, TCPSTORE_SET, "/k", NULL);
    wire_i64(&wire, TCPSTORE_MAX_VALUE);
    wire_raw(&wire, "x", 1);
    cr_assert_eq(feed_piece(&parser, wire.bytes, wire.n, NULL), 0);

    cr_assert_leq(parser.capacity, 4096);
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
}

/* --- what is refused, and exactly from where on ------------------------------------------------------------------- */

struct limit {
    unsigned char op;
    char shape
        [4]; /* k and v: a text of `size` bytes at the last of them, of 1 byte before; n: a count of `size` */
    uint64_t size;
    bool good;
    char words[24];
};

static struct limit limits[] = {
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

ParameterizedTestParameters(tcpstore_proto, limit)
{
    return cr_make_param_array(struct limit, limits, sizeof limits / sizeof *limits);
}

ParameterizedTest(struct limit *limit, tcpstore_proto, limit)
{
    struct wire wire = { 0 };
    struct tcpstore_parser parser = { 0 };
    struct tcpstore_request request;
    struct fsdp_err err = { 0 };
    const unsigned char *at;
    enum tcpstore_parsed parsed;
    size_t n;

    wire_raw(&wire, &limit->op, 1);
    for (const char *field = limit->shape; *field != '\0'; field++)
        if (field[1] != '\0')
            wire_text(&wire, "x");
        else
            wire_i64(&wire, (int64_t)limit->size);
    at = wire.bytes;
    n = wire.n;
    parsed = tcpstore_parser_next(&parser, &at, &n, &request, &err);

    cr_assert_eq(parsed, limit->good ? TCPSTORE_MORE : TCPSTORE_BAD);
    cr_assert_not_null(strstr(err.message, limit->words), "%s", err.message);
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
}

Test(tcpstore_proto, a_request_of_many_values_has_a_limit_too)
{
    const size_t value = TCPSTORE_MAX_VALUE;
    unsigned char *bytes = calloc(1, value);
    struct tcpstore_parser parser = { 0 };
    struct fsdp_err err = { 0 };
    enum tcpstore_parsed parsed = TCPSTORE_MORE;
    struct wire head = { 0 };
    size_t fed = 0;

    wire_op(&head, TCPSTORE_MULTI_SET);
    wire_i64(&head, 100);
    for (int i = 0; i < 100 && parsed == TCPSTORE_MORE; i++) {
        struct tcpstore_request request;
        const unsigned char *at;
        size_t n;

        wire_text(&head, "/k");
        wire_i64(&head, (int64_t)value);
        at = head.bytes;
        n = head.n;
        fed += n;
        parsed = tcpstore_parser_next(&parser, &at, &n, &request, &err);
        head.n = 0;
        if (parsed != TCPSTORE_MORE)
            break;
        at = bytes;
        n = value;
        fed += n;
        parsed = tcpstore_parser_next(&parser, &at, &n, &request, &err);
    }

    cr_assert_eq(parsed, TCPSTORE_BAD);
    cr_assert_leq(fed, (size_t)TCPSTORE_MAX_REQUEST);
    cr_assert_not_null(strstr(err.message, "request of more"), "%s", err.message);
    tcpstore_parser_fini(&parser);
    free(head.bytes);
    free(bytes);
}

Test(tcpstore_proto, no_memory_is_kept_between_requests)
{
    struct tcpstore_parser parser = { 0 };
    struct wire wire = { 0 };

    wire_every_op(&wire);
    for (size_t i = 0; i < wire.n; i++)
        feed_piece(&parser, wire.bytes + i, 1, NULL);
    cr_assert_null(parser.bytes);
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
}
