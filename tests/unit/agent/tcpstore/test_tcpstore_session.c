#include "agent/tcpstore/tcpstore_session.h"

#include <criterion/criterion.h>

#include "tests/support/oracles/tcpstore_wire.h"

static void on_wake(void *arg, void *owner)
{
    tcpstore_session_woken(owner);
}

static struct tcpstore_keys *keys;
static struct tcpstore_session session, other; /* of two clients */
static struct wire wire;

static enum fsdp_status feed(struct tcpstore_session *to, const void *bytes, size_t n, struct fsdp_err *err)
{
    const unsigned char *at = bytes;

    return tcpstore_session_feed(to, &at, &n, err);
}

/* Feed what the wire holds, and empty the wire. */
static enum fsdp_status ask(struct tcpstore_session *to, struct fsdp_err *err)
{
    const size_t n = wire.n;

    wire.n = 0;
    return feed(to, wire.bytes, n, err);
}

static void init_session(void)
{
    tcpstore_session_init(&session, keys, &session);
}

static void open_sessions(void)
{
    keys = tcpstore_keys_create(64 << 20, on_wake, NULL);
    init_session();
    tcpstore_session_init(&other, keys, &other);
    wire_validate(&wire);
    cr_assert_eq(ask(&session, NULL), FSDP_OK);
    wire_validate(&wire);
    cr_assert_eq(ask(&other, NULL), FSDP_OK);
}

static void close_sessions(void)
{
    tcpstore_session_fini(&session);
    tcpstore_session_fini(&other);
    tcpstore_keys_destroy(keys);
    free(wire.bytes);
}

TestSuite(tcpstore_session, .init = open_sessions, .fini = close_sessions);

/* Begin again, with a client that has said nothing yet. */
static void renew(void)
{
    tcpstore_session_fini(&session);
    init_session();
}

/* The bytes that wait to be sent are these, and are taken away. */
static void expect_answer(const void *want, size_t n_want, const char *when)
{
    size_t n;
    unsigned char *got = tcpstore_session_take(&session, &n);

    cr_assert(n == n_want && (n == 0 || memcmp(got, want, n) == 0), "%s: %zu bytes are answered, want %zu",
              when, n, n_want);
    free(got);
}

Test(tcpstore_session, a_conversation_is_the_same_cut_at_every_byte_and_byte_by_byte)
{
    struct wire asked = { 0 }, answered = { 0 };

    wire_conversation(&asked, &answered);
    for (size_t cut = 0; cut <= asked.n + 1; cut++) {
        close_sessions();
        wire = (struct wire){ 0 };
        open_sessions();
        renew();
        if (cut <= asked.n) {
            cr_assert_eq(feed(&session, asked.bytes, cut, NULL), FSDP_OK);
            cr_assert_eq(feed(&session, asked.bytes + cut, asked.n - cut, NULL), FSDP_OK);
        } else {
            for (size_t i = 0; i < asked.n; i++)
                cr_assert_eq(feed(&session, asked.bytes + i, 1, NULL), FSDP_OK);
        }
        expect_answer(answered.bytes, answered.n, "cut");
        cr_assert_eq(tcpstore_keys_n_waits(keys), 0);
    }
    free(asked.bytes);
    free(answered.bytes);
}

Test(tcpstore_session, a_wait_is_answered_when_another_client_sets_the_key)
{
    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ "/a", "/b", NULL });
    ask(&session, NULL);
    wire_key(&wire, TCPSTORE_SET, "/a", "1");
    ask(&other, NULL);
    expect_answer(NULL, 0, "half of it is there");
    wire_list(&wire, TCPSTORE_MULTI_SET, (const char *[]){ "/c", "1", "/b", "2", NULL });
    ask(&other, NULL);
    expect_answer("", 1, "all of it is there");
}

Test(tcpstore_session, a_raced_cancel_reads_both_answers)
{
    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ "/a", NULL });
    ask(&session, NULL);
    wire_key(&wire, TCPSTORE_SET, "/a", "1");
    ask(&other, NULL);
    wire_op(&wire, TCPSTORE_CANCEL_WAIT);
    ask(&session, NULL);
    expect_answer("\0\1", 2, "raced");
}

Test(tcpstore_session, a_client_that_dies_while_it_waits_leaves_nothing)
{
    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ "/a", "/b", NULL });
    wire_key(&wire, TCPSTORE_BARRIER, "/c", NULL);
    wire_i64(&wire, 2);
    wire_raw(&wire, "\1", 1); /* and in the middle of a SET */
    ask(&session, NULL);
    cr_assert_eq(tcpstore_keys_n_waits(keys), 2);
    renew();
    cr_assert_eq(tcpstore_keys_n_waits(keys), 0);
    wire_list(&wire, TCPSTORE_MULTI_SET, (const char *[]){ "/a", "1", "/b", "2", "/c", "3", NULL });
    cr_assert_eq(ask(&other, NULL), FSDP_OK);
}

/* SET /k to so many bytes. */
static void set_long(size_t n)
{
    char *value = calloc(1, n + 1);

    memset(value, 'v', n);
    wire_key(&wire, TCPSTORE_SET, "/k", value);
    ask(&session, NULL);
    free(value);
}

Test(tcpstore_session, a_client_that_does_not_read_is_not_heard)
{
    enum { VALUE = 100000, ASKED = 1000 };
    const unsigned char *at;
    size_t n, n_answered = 0;

    set_long(VALUE);
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
}

Test(tcpstore_session, an_answer_without_end_is_refused)
{
    struct fsdp_err err = { 0 };

    set_long(TCPSTORE_MAX_VALUE);
    wire_op(&wire, TCPSTORE_MULTI_GET);
    wire_i64(&wire, 1000);
    for (int i = 0; i < 1000; i++)
        wire_text(&wire, "/k");

    cr_assert_eq(ask(&session, &err), FSDP_ERR_NOMEM);
    cr_assert_str_eq(err.message, "MULTI_GET: no room for the answer");
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
    wire_key(&wire, TCPSTORE_SET, "k", "no number");
    cr_assert_eq(ask(&other, NULL), FSDP_OK);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct fsdp_err err = { 0 };

        renew();
        if (ends[i].valid) {
            wire_validate(&wire);
            cr_assert_eq(ask(&session, NULL), FSDP_OK);
        }
        cr_assert_eq(feed(&session, ends[i].bytes, ends[i].n, &err), FSDP_ERR_FORMAT, "end %zu", i);
        cr_assert_not_null(strstr(err.message, ends[i].words), "end %zu: %s", i, err.message);
        cr_assert_eq(tcpstore_keys_count(keys), 1);
    }
}

Test(tcpstore_session, an_element_whose_answer_cannot_be_kept_stays_in_its_queue)
{
    const struct tcpstore_text key = { .bytes = (const unsigned char *)"/q", .size = 2 };

    wire_key(&wire, TCPSTORE_QUEUE_PUSH, "/q", "an element");
    cr_assert_eq(ask(&session, NULL), FSDP_OK);
    session.out_of_memory = true;

    wire_key(&wire, TCPSTORE_QUEUE_POP, "/q", NULL);
    cr_assert_eq(ask(&session, NULL), FSDP_ERR_NOMEM);
    cr_assert_eq(tcpstore_keys_queue_length(keys, key), 1);
}

/* Sends what is on the wire. Returns whether it changed a key. */
static bool changes(void)
{
    session.changed = false;
    cr_assert_eq(ask(&session, NULL), FSDP_OK);
    return session.changed;
}

static void compare_set(const char *expected, const char *desired)
{
    wire_key(&wire, TCPSTORE_COMPARE_SET, "k", expected);
    wire_text(&wire, desired);
}

Test(tcpstore_session, only_requests_that_change_a_key_are_changes)
{
    wire_key(&wire, TCPSTORE_SET, "k", "1");
    cr_expect(changes());
    wire_key(&wire, TCPSTORE_GET, "k", NULL);
    cr_expect_not(changes());
    wire_list(&wire, TCPSTORE_CHECK, (const char *const[]){ "k", NULL });
    cr_expect_not(changes());
    wire_key(&wire, TCPSTORE_ADD, "k", NULL);
    wire_i64(&wire, 0);
    cr_expect_not(changes());
    wire_key(&wire, TCPSTORE_ADD, "k", NULL);
    wire_i64(&wire, 1);
    cr_expect(changes());
    compare_set("9", "3");
    cr_expect_not(changes());
    compare_set("2", "3");
    cr_expect(changes());
    wire_key(&wire, TCPSTORE_QUEUE_POP, "q", NULL);
    cr_expect_not(changes());
}
