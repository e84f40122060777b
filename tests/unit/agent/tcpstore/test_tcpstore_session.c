#include "agent/tcpstore/tcpstore_session.h"

#include <criterion/criterion.h>

#include "tests/support/tcpstore_wire.h"

static void on_wake(void *arg, void *owner)
{
    (void)arg;
    tcpstore_session_woken(owner);
}

static struct tcpstore_keys *new_keys(void)
{
    return tcpstore_keys_create(64 << 20, on_wake, NULL);
}

static enum fsdp_status feed(struct tcpstore_session *session, const void *bytes, size_t n,
                             struct fsdp_err *err)
{
    const unsigned char *at = bytes;

    return tcpstore_session_feed(session, &at, &n, err);
}

static void open_session(struct tcpstore_session *session, struct tcpstore_keys *keys)
{
    struct wire wire = { 0 };

    tcpstore_session_init(session, keys, session);
    wire_validate(&wire);
    cr_assert_eq(feed(session, wire.bytes, wire.n, NULL), FSDP_OK);
    free(wire.bytes);
}

/* The bytes that wait to be sent are these, and are taken away. */
static void expect_answer(struct tcpstore_session *session, const struct wire *want, const char *when)
{
    size_t n;
    unsigned char *got = tcpstore_session_take(session, &n);

    cr_assert(n == want->n && (n == 0 || memcmp(got, want->bytes, n) == 0),
              "%s: %zu bytes are answered, want %zu", when, n, want->n);
    free(got);
}

Test(tcpstore_session, a_conversation_is_the_same_cut_at_every_byte)
{
    struct wire asked = { 0 }, answered = { 0 };

    wire_conversation(&asked, &answered);
    for (size_t cut = 0; cut <= asked.n; cut++) {
        struct tcpstore_keys *keys = new_keys();
        struct tcpstore_session session;

        tcpstore_session_init(&session, keys, &session);
        cr_assert_eq(feed(&session, asked.bytes, cut, NULL), FSDP_OK);
        cr_assert_eq(feed(&session, asked.bytes + cut, asked.n - cut, NULL), FSDP_OK);
        expect_answer(&session, &answered, "cut");
        cr_assert_eq(tcpstore_keys_n_waits(keys), 0);
        tcpstore_session_fini(&session);
        tcpstore_keys_destroy(keys);
    }
    free(asked.bytes);
    free(answered.bytes);
}

Test(tcpstore_session, a_conversation_is_the_same_byte_by_byte)
{
    struct wire asked = { 0 }, answered = { 0 };
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session session;

    wire_conversation(&asked, &answered);
    tcpstore_session_init(&session, keys, &session);
    for (size_t i = 0; i < asked.n; i++)
        cr_assert_eq(feed(&session, asked.bytes + i, 1, NULL), FSDP_OK);
    expect_answer(&session, &answered, "byte by byte");
    tcpstore_session_fini(&session);
    tcpstore_keys_destroy(keys);
    free(asked.bytes);
    free(answered.bytes);
}

Test(tcpstore_session, a_wait_is_answered_when_another_client_sets_the_key)
{
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session waits, sets;
    struct wire wire = { 0 };

    open_session(&waits, keys);
    open_session(&sets, keys);
    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ "/a", "/b", NULL });
    feed(&waits, wire.bytes, wire.n, NULL);
    wire.n = 0;
    wire_key(&wire, TCPSTORE_SET, "/a", "1");
    feed(&sets, wire.bytes, wire.n, NULL);
    expect_answer(&waits, &(struct wire){ 0 }, "half of it is there");
    wire.n = 0;
    wire_list(&wire, TCPSTORE_MULTI_SET, (const char *[]){ "/c", "1", "/b", "2", NULL });
    feed(&sets, wire.bytes, wire.n, NULL);
    wire.n = 0;
    wire_byte(&wire, 0);
    expect_answer(&waits, &wire, "all of it is there");
    tcpstore_session_fini(&waits);
    tcpstore_session_fini(&sets);
    tcpstore_keys_destroy(keys);
    free(wire.bytes);
}

Test(tcpstore_session, a_raced_cancel_reads_both_answers)
{
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session waits, sets;
    struct wire wire = { 0 };

    open_session(&waits, keys);
    open_session(&sets, keys);
    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ "/a", NULL });
    feed(&waits, wire.bytes, wire.n, NULL);
    wire.n = 0;
    wire_key(&wire, TCPSTORE_SET, "/a", "1");
    feed(&sets, wire.bytes, wire.n, NULL);
    wire.n = 0;
    wire_op(&wire, TCPSTORE_CANCEL_WAIT);
    feed(&waits, wire.bytes, wire.n, NULL);
    expect_answer(&waits, &(struct wire){ .bytes = (unsigned char[]){ 0, 1 }, .n = 2 }, "raced");
    tcpstore_session_fini(&waits);
    tcpstore_session_fini(&sets);
    tcpstore_keys_destroy(keys);
    free(wire.bytes);
}

Test(tcpstore_session, a_client_that_dies_while_it_waits_leaves_nothing)
{
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session dies, lives;
    struct wire wire = { 0 };

    open_session(&dies, keys);
    open_session(&lives, keys);
    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ "/a", "/b", NULL });
    wire_key(&wire, TCPSTORE_BARRIER, "/c", NULL);
    wire_i64(&wire, 2);
    wire_raw(&wire, "\1", 1); /* and in the middle of a SET */
    feed(&dies, wire.bytes, wire.n, NULL);
    cr_assert_eq(tcpstore_keys_n_waits(keys), 2);
    tcpstore_session_fini(&dies);
    cr_assert_eq(tcpstore_keys_n_waits(keys), 0);
    wire.n = 0;
    wire_list(&wire, TCPSTORE_MULTI_SET, (const char *[]){ "/a", "1", "/b", "2", "/c", "3", NULL });
    cr_assert_eq(feed(&lives, wire.bytes, wire.n, NULL), FSDP_OK);
    tcpstore_session_fini(&lives);
    tcpstore_keys_destroy(keys);
    free(wire.bytes);
}

Test(tcpstore_session, a_client_that_does_not_read_is_not_heard)
{
    enum { VALUE = 100000, ASKED = 1000 };
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session session;
    struct wire wire = { 0 };
    char *value = calloc(1, VALUE + 1);
    const unsigned char *at;
    size_t n, n_answered = 0;

    memset(value, 'v', VALUE);
    open_session(&session, keys);
    wire_key(&wire, TCPSTORE_SET, "/k", value);
    feed(&session, wire.bytes, wire.n, NULL);
    wire.n = 0;
    for (int i = 0; i < ASKED; i++)
        wire_key(&wire, TCPSTORE_GET, "/k", NULL);
    at = wire.bytes;
    n = wire.n;
    while (n > 0) {
        size_t n_out;

        cr_assert_eq(tcpstore_session_feed(&session, &at, &n, NULL), FSDP_OK);
        cr_assert_lt(tcpstore_session_held_bytes(&session), 4 * TCPSTORE_SESSION_HIGH);
        free(tcpstore_session_take(&session, &n_out));
        n_answered += n_out;
    }
    cr_assert_eq(n_answered, (size_t)ASKED * (VALUE + 8));
    cr_assert_eq(tcpstore_session_held_bytes(&session), 0, "an idle client holds nothing");
    tcpstore_session_fini(&session);
    tcpstore_keys_destroy(keys);
    free(value);
    free(wire.bytes);
}

Test(tcpstore_session, an_answer_without_end_is_refused)
{
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session session;
    struct wire wire = { 0 };
    struct fsdp_err err = { 0 };
    char *value = calloc(1, TCPSTORE_MAX_VALUE + 1);

    memset(value, 'v', TCPSTORE_MAX_VALUE);
    open_session(&session, keys);
    wire_key(&wire, TCPSTORE_SET, "/k", value);
    feed(&session, wire.bytes, wire.n, NULL);
    wire.n = 0;
    wire_op(&wire, TCPSTORE_MULTI_GET);
    wire_i64(&wire, 1000);
    for (int i = 0; i < 1000; i++)
        wire_text(&wire, "/k");

    cr_assert_eq(feed(&session, wire.bytes, wire.n, &err), FSDP_ERR_NOMEM);
    cr_assert_str_eq(err.message, "MULTI_GET: no room for the answer");
    tcpstore_session_fini(&session);
    tcpstore_keys_destroy(keys);
    free(value);
    free(wire.bytes);
}

/* What ends a conversation: bytes after VALIDATE where `valid`, else instead of it. */
static const struct end {
    bool valid;
    const char *bytes;
    size_t n;
    const char *words;
} ends[] = {
    { false, "\0\1\2\3\4", 5, "magic" },
    { false, "\7", 1, "GETNUMKEYS before VALIDATE" },
    { false, "GET / HTTP/1.1\r\n", 16, "before VALIDATE" },
    { true, "\0\xce\xf7\x85\x3c", 5, "again" },
    { true, "\x13", 1, "no operation" },
    { true, "\xff", 1, "no operation" },
    { true, "\1\1\x20\0\0\0\0\0\0", 9, "a key of 8193" },
    { true, "\4\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0", 18, "no number" },
};

Test(tcpstore_session, what_is_not_the_protocol_ends_it)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct tcpstore_keys *keys = new_keys();
        struct tcpstore_session session, other;
        struct fsdp_err err = { 0 };
        struct wire wire = { 0 };

        open_session(&other, keys);
        wire_key(&wire, TCPSTORE_SET, "k", "no number");
        cr_assert_eq(feed(&other, wire.bytes, wire.n, NULL), FSDP_OK);
        if (ends[i].valid)
            open_session(&session, keys);
        else
            tcpstore_session_init(&session, keys, &session);

        cr_assert_eq(feed(&session, ends[i].bytes, ends[i].n, &err), FSDP_ERR_FORMAT, "end %zu", i);
        cr_assert_not_null(strstr(err.message, ends[i].words), "end %zu: %s", i, err.message);
        cr_assert_eq(tcpstore_keys_count(keys), 1);
        tcpstore_session_fini(&session);
        tcpstore_session_fini(&other);
        tcpstore_keys_destroy(keys);
        free(wire.bytes);
    }
}

Test(tcpstore_session, an_element_whose_answer_cannot_be_kept_stays_in_its_queue)
{
    struct tcpstore_keys *keys = new_keys();
    struct tcpstore_session session;
    struct wire push = { 0 }, pop = { 0 };
    const struct tcpstore_text key = { .bytes = (const unsigned char *)"/q", .size = 2 };

    open_session(&session, keys);
    wire_key(&push, TCPSTORE_QUEUE_PUSH, "/q", "an element");
    wire_key(&pop, TCPSTORE_QUEUE_POP, "/q", NULL);
    cr_assert(feed(&session, push.bytes, push.n, NULL) == FSDP_OK);
    session.out_of_memory = true;

    cr_assert(feed(&session, pop.bytes, pop.n, NULL) == FSDP_ERR_NOMEM);
    cr_assert(tcpstore_keys_queue_length(keys, key) == 1);
    free(push.bytes);
    free(pop.bytes);
    tcpstore_session_fini(&session);
    tcpstore_keys_destroy(keys);
}
