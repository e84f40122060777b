/*
 * Two ends of a session, without sockets: `wire` carries what one end writes to the other, until it is cut.
 */
#include "agent/wire/session_core.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/theories.h>
#include <string.h>

enum { MS = 1000000, LEASE_MS = 3000, MESSAGES = 12 };

static const unsigned char identity[SESSION_IDENTITY_BYTES] = "one of its life";
static struct session_core ends[2]; /* 0 dials, 1 accepts */
static struct session_hello hello, answer;
static struct fsdp_err err;
static int n_delivered[2]; /* messages carry 0, 1, 2 ... as their generation */
static int64_t now;

static void set_up(void)
{
    now = INT64_C(5000000000000);
    for (int i = 0; i < 2; i++)
        session_core_init(&ends[i], identity, (int64_t)LEASE_MS * MS, now);
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++)
        session_core_fini(&ends[i]);
}

TestSuite(session_core, .init = set_up, .fini = tear_down);

/* A new connection: HELLO and its answer. */
static void connect_ends(void)
{
    const enum session_verdict want = ends[0].connection == 0 ? SESSION_NEW : SESSION_GO_ON;

    session_core_broken(&ends[1]);
    session_core_dial(&ends[0], &hello);
    cr_assert(eq(int, session_core_accept(&ends[1], &hello, &answer, now), want));
    cr_assert(eq(int, session_core_answered(&ends[0], &answer, now, &err), FSDP_OK), "%s", err.message);
}

static void say(int from, int generation)
{
    cr_assert(eq(int, session_core_send(&ends[from], 7, (uint32_t)generation, "text", 4, &err), FSDP_OK));
}

static enum session_take give(int to, const struct frame *frame)
{
    const enum session_take take = session_core_take(&ends[to], frame, &err);

    if (take == SESSION_DELIVER) {
        cr_assert(eq(u32, frame->generation, (uint32_t)n_delivered[to]), "in order, and once");
        cr_assert(frame->size == 4 && memcmp(frame->payload, "text", 4) == 0);
        n_delivered[to]++;
    }
    return take;
}

/* Carries up to `n` frames in each direction. */
static void carry(int n)
{
    struct frame frame;

    for (int from = 0; from < 2; from++)
        for (int i = 0; i < n && session_core_next(&ends[from], now, &frame); i++)
            cr_assert(ne(int, give(1 - from, &frame), SESSION_WRONG), "%s", err.message);
}

static void acknowledge(int from)
{
    const struct frame ack = session_core_ack(&ends[from], now);

    cr_assert(eq(int, give(1 - from, &ack), SESSION_DROP));
}

TheoryDataPoints(session_core, what_is_cut_off_comes_again_once_and_in_order) = {
    DataPoints(int, 0, 1, 2, 5, 11, 12), /* frames that get through before the cut */
    DataPoints(int, 0, 1, 2, 5, 11, 12), /* frames that get through before a second one */
    DataPoints(bool, false, true),       /* is what got through acknowledged? */
};

Theory((int first, int second, bool told), session_core, what_is_cut_off_comes_again_once_and_in_order,
       .init = set_up, .fini = tear_down)
{
    struct frame frame;

    n_delivered[0] = n_delivered[1] = 0;
    connect_ends();
    for (int i = 0; i < MESSAGES; i++)
        for (int from = 0; from < 2; from++)
            say(from, i);
    carry(first);
    if (told)
        acknowledge(1);
    while (session_core_next(&ends[0], now, &frame)) /* written, and lost */
        ;
    connect_ends();
    carry(second);
    connect_ends();
    carry(MESSAGES);
    acknowledge(0);
    acknowledge(1);

    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, n_delivered[i], MESSAGES));
        cr_assert(eq(sz, ends[i].held_bytes, 0), "all is acknowledged");
    }
}

Test(session_core, a_duplicate_is_dropped_and_a_gap_is_wrong)
{
    struct frame frames[3];

    connect_ends();
    for (int i = 0; i < 3; i++) {
        say(0, i);
        session_core_next(&ends[0], now, &frames[i]);
    }

    cr_assert(eq(int, give(1, &frames[0]), SESSION_DELIVER));
    cr_assert(eq(int, give(1, &frames[0]), SESSION_DROP));
    cr_assert(eq(int, give(1, &frames[2]), SESSION_WRONG));
    cr_assert(eq(str, err.message, "message 3 came after message 1"));
    cr_assert(eq(int, give(1, &frames[1]), SESSION_DELIVER));
}

Test(session_core, an_acknowledgement_of_what_was_never_sent_is_wrong)
{
    connect_ends();
    say(0, 0);

    cr_assert(eq(int, give(0, &(struct frame){ .ack = 2 }), SESSION_WRONG));
    cr_assert(eq(int, give(0, &(struct frame){ .type = 9 }), SESSION_WRONG), "a message needs a number");
}

/* Both ends have sent 5 and received 3 of the other's, and each knows of 2 that they arrived. */
static const struct verdict_row {
    const char *name;
    uint32_t connection;
    uint64_t received, sent;
    enum session_verdict verdict;
} verdict_rows[] = {
    { "the numbers as they are", 2, 3, 5, SESSION_GO_ON },
    { "it has received more than was known", 2, 5, 5, SESSION_GO_ON },
    { "connections that never arrived lie between", 9, 3, 5, SESSION_GO_ON },
    { "an earlier connection", 1, 3, 5, SESSION_STALE },
    { "it has sent less than was received", 2, 3, 2, SESSION_BACKWARDS },
    { "it has received less than it acknowledged", 2, 1, 5, SESSION_BACKWARDS },
    { "it has received more than was sent", 2, 6, 5, SESSION_BACKWARDS },
};

Test(session_core, a_hello_is_judged_by_its_numbers)
{
    for (size_t i = 0; i < sizeof verdict_rows / sizeof *verdict_rows; i++) {
        const struct verdict_row *row = &verdict_rows[i];

        n_delivered[0] = n_delivered[1] = 0;
        tear_down();
        set_up();
        connect_ends();
        for (int n = 0; n < 5; n++) {
            say(0, n);
            say(1, n);
        }
        carry(2);
        acknowledge(0);
        acknowledge(1);
        carry(1);
        session_core_dial(&ends[0], &hello);
        hello.connection = row->connection;
        hello.received = row->received;
        hello.sent = row->sent;

        cr_expect(eq(int, session_core_accept(&ends[1], &hello, &answer, now), row->verdict), "%s",
                  row->name);
    }
}

Test(session_core, a_session_that_the_other_end_does_not_know_is_gone_and_a_restored_one_is_refused)
{
    connect_ends();
    session_core_dial(&ends[0], &hello);
    answer = hello;
    answer.verdict = SESSION_GONE;
    cr_assert(eq(int, session_core_answered(&ends[0], &answer, now, &err), FSDP_ERR_PEER));
    answer.verdict = SESSION_BACKWARDS;
    cr_assert(eq(int, session_core_answered(&ends[0], &answer, now, &err), FSDP_ERR_MISMATCH));
    answer.verdict = SESSION_GO_ON;
    answer.received = 1; /* of none */
    cr_assert(eq(int, session_core_answered(&ends[0], &answer, now, &err), FSDP_ERR_MISMATCH));
    answer.connection = 1;
    cr_assert(eq(int, session_core_answered(&ends[0], &answer, now, &err), FSDP_ERR_FORMAT));
}

/* This end has sent 5, of which 3 were acknowledged, and received 4. */
static const struct fit_row {
    const char *name;
    uint64_t received, sent;
    enum session_fit fit;
} fit_rows[] = {
    { "as it was", 3, 4, SESSION_FITS },
    { "more than is known here", 5, 9, SESSION_FITS },
    { "it forgot what it received", 2, 4, SESSION_THEY_WENT_BACK },
    { "it forgot what it sent", 5, 3, SESSION_THEY_WENT_BACK },
    { "this end forgot what it sent", 6, 4, SESSION_WE_WENT_BACK },
};

Test(session_core, the_numbers_tell_which_end_was_restored)
{
    static const struct session_reach ours = { .sent = 5, .acked = 3, .received = 4 };

    for (size_t i = 0; i < sizeof fit_rows / sizeof *fit_rows; i++) {
        const struct session_hello theirs = { .received = fit_rows[i].received, .sent = fit_rows[i].sent };

        cr_expect(eq(int, session_fit(&ours, &theirs), fit_rows[i].fit), "%s", fit_rows[i].name);
    }
    session_fit_fail(SESSION_THEY_WENT_BACK, &err);
    cr_expect(eq(str, err.message, "it was restored from an earlier state, and is refused for good"));
    session_fit_fail(SESSION_WE_WENT_BACK, &err);
    cr_expect(eq(str, err.message, "this node was restored from an earlier state, and is refused for good"));
}

Test(session_core, what_waits_for_the_other_end_has_a_limit)
{
    static const unsigned char block[FRAME_MAX_BYTES];
    int n = 0;

    while (session_core_send(&ends[0], 7, 0, block, sizeof block, &err) == FSDP_OK)
        n++;

    cr_assert(eq(int, err.status, FSDP_ERR_BUSY));
    cr_assert(eq(int, n, SESSION_HELD_MAX_BYTES / FRAME_MAX_BYTES - 1), "with the heads");
    cr_assert(eq(int, session_core_send(&ends[0], 7, 0, block, sizeof block + 1, &err), FSDP_ERR_NOMEM));
}

Test(session_core, much_that_came_is_acknowledged_at_once_and_the_rest_with_the_next_beat)
{
    struct frame frame;

    connect_ends();
    for (int i = 0; i < SESSION_ACK_FRAMES; i++) {
        cr_assert(not(session_core_ack_is_due(&ends[1], now)), "after %d", i);
        say(0, i);
        session_core_next(&ends[0], now, &frame);
        give(1, &frame);
    }
    cr_assert(session_core_ack_is_due(&ends[1], now));
    acknowledge(1);
    cr_assert(not(session_core_ack_is_due(&ends[1], now + LEASE_MS / SESSION_BEATS * (int64_t)MS - 1)));
    cr_assert(session_core_ack_is_due(&ends[1], now + LEASE_MS / SESSION_BEATS * (int64_t)MS));
    ends[1].lease_ns *= 10;
    cr_assert(session_core_ack_is_due(&ends[1], now + SESSION_BEAT_MS * (int64_t)MS), "a long lease, too");
}

/* Two agents that talk to each other need no acknowledgements in addition. */
Test(session_core, a_frame_that_is_written_is_a_sign_of_life_and_acknowledges)
{
    const int64_t beat_ns = LEASE_MS / SESSION_BEATS * (int64_t)MS;
    struct frame frame;

    connect_ends();
    say(0, 0);
    carry(1);
    now += beat_ns;
    cr_assert(session_core_ack_is_due(&ends[1], now));

    say(1, 0);
    cr_assert(session_core_ack_is_due(&ends[1], now), "nothing is written yet");
    session_core_next(&ends[1], now, &frame);

    cr_assert(eq(u64, frame.ack, 1));
    cr_assert(not(session_core_ack_is_due(&ends[1], now + beat_ns - 1)));
    cr_assert(session_core_ack_is_due(&ends[1], now + beat_ns));
}

/* Looks every `pace_ms` until the session has expired. Returns after how long it had. */
static int64_t expires_after(int pace_ms)
{
    const int64_t began = now;

    while (session_core_look(&ends[1], now) != SESSION_EXPIRED)
        now += (int64_t)pace_ms * MS;
    return (now - began) / MS;
}

Test(session_core, silence_of_a_lease_ends_it)
{
    connect_ends();
    cr_assert(eq(i64, expires_after(100), LEASE_MS));
    session_core_heard(&ends[1], now);
    cr_assert(eq(int, session_core_look(&ends[1], now + 700 * (int64_t)MS), SESSION_WELL), "500 count");
}

Test(session_core, its_own_absence_does_not_count_as_silence)
{
    connect_ends();
    now += INT64_C(3600) * 1000 * MS; /* a process that was stopped, a machine that was suspended */
    cr_assert(eq(int, session_core_look(&ends[1], now), SESSION_WELL));
    cr_assert(eq(i64, expires_after(100), LEASE_MS - LEASE_MS / SESSION_STALL));
}

Test(session_core, a_connection_that_was_closed_in_order_has_one_beat_to_come_back)
{
    connect_ends();
    session_core_closed(&ends[1], now);
    cr_assert(eq(i64, expires_after(50), LEASE_MS / SESSION_BEATS));
    connect_ends();
    cr_assert(eq(i64, expires_after(100), LEASE_MS), "and came back");
}

Test(session_core, pulses_keep_it_for_ten_leases)
{
    const int64_t began = now;

    connect_ends();
    do {
        session_core_pulse(&ends[1], 0, now);
        now += 100 * (int64_t)MS;
    } while (session_core_look(&ends[1], now) != SESSION_EXPIRED &&
             now - began < INT64_C(60) * LEASE_MS * MS);
    cr_assert(eq(i64, now - began, (int64_t)SESSION_PULSE_LEASES * LEASE_MS * MS));
}

/* Looks every 100 ms until the connection counts as silent. Returns after how long it did. */
static int64_t silent_after(bool pulses)
{
    const int64_t began = now;

    do {
        if (pulses)
            session_core_pulse(&ends[1], 0, now);
        now += 100 * (int64_t)MS;
    } while (session_core_look(&ends[1], now) == SESSION_WELL);
    return (now - began) / MS;
}

Test(session_core, of_many_sessions_a_connection_beside_pulses_counts_as_silent_later)
{
    ends[1].is_one_of_many = true;
    connect_ends();
    cr_assert(eq(i64, silent_after(false), 800), "the look after a quarter of the lease");
    ends[1].is_one_of_many = false;
    connect_ends();
    cr_assert(eq(i64, silent_after(true), 800), "of few");
    ends[1].is_one_of_many = true;
    connect_ends();
    cr_assert(eq(i64, silent_after(true), 2300), "and after three of them");
    cr_assert(eq(i64, silent_after(false), 100), "it stays silent, however long pulses come");
    connect_ends();
    session_core_pulse(&ends[1], 0, now);
    cr_assert(eq(i64, silent_after(false), 1000), "no pulse has come for a third");
    connect_ends();
    ends[1].lease_ns *= 2; /* pulses come less often than signs of life */
    session_core_heard(&ends[1], now);
    cr_assert(eq(i64, silent_after(true), LEASE_MS / 2));
}

Test(session_core, of_many_sessions_one_beside_pulses_needs_few_signs_of_life_unless_it_has_to_acknowledge)
{
    const int64_t beat_ns = LEASE_MS / SESSION_BEATS * (int64_t)MS;
    struct frame frame;

    connect_ends();
    session_core_pulse(&ends[1], 0, now);
    cr_assert(session_core_ack_is_due(&ends[1], now + beat_ns), "there are few sessions");
    ends[1].is_one_of_many = true;
    cr_assert(not(session_core_ack_is_due(&ends[1], now + LEASE_MS / SESSION_QUIET * (int64_t)MS - 1)));
    cr_assert(session_core_ack_is_due(&ends[1], now + LEASE_MS / SESSION_QUIET * (int64_t)MS));
    say(0, 0);
    session_core_next(&ends[0], now, &frame);
    give(1, &frame);
    cr_assert(session_core_ack_is_due(&ends[1], now + beat_ns));
    acknowledge(1);
    cr_assert(not(session_core_ack_is_due(&ends[1], now + beat_ns)));
    session_core_pulse(&ends[1], 0, now);
    (void)silent_after(false);
    cr_assert(session_core_ack_is_due(&ends[1], now), "the pulses have ended");
}

Test(session_core, it_is_silent_since_the_last_pulse_unless_pulses_still_come)
{
    int64_t heard, pulsed;

    connect_ends();
    heard = now;
    (void)silent_after(true);
    pulsed = now - 100 * (int64_t)MS;
    cr_assert(eq(i64, session_core_silent_since_ns(&ends[1]), heard), "the connection is");
    (void)expires_after(100);
    cr_assert(eq(i64, session_core_silent_since_ns(&ends[1]), pulsed), "the other end is");
    connect_ends();
    cr_assert(eq(i64, session_core_silent_since_ns(&ends[1]), now));
}

/* The caller passes on the pulses just before it looks. */
Test(session_core, the_time_before_a_pulse_is_not_taken_from_the_lease_that_it_brings)
{
    int64_t began;

    connect_ends();
    for (int i = 0; i < 40; i++) {
        now += 100 * (int64_t)MS;
        session_core_pulse(&ends[1], 0, now);
        (void)session_core_look(&ends[1], now);
    }
    began = now;
    (void)expires_after(100);
    cr_assert(eq(i64, (now - began) / MS, LEASE_MS));
}

Test(session_core, a_session_without_pulses_expires_a_lease_after_the_last_one)
{
    connect_ends();
    for (int i = 0; i < 20; i++)
        (void)session_core_look(&ends[1], now += 100 * (int64_t)MS);
    session_core_pulse(&ends[1], 0, now);
    cr_assert(eq(i64, expires_after(100), LEASE_MS));
}

Test(session_core, a_pulse_that_comes_after_the_end_of_a_process_does_not_keep_it)
{
    connect_ends();
    session_core_closed(&ends[1], now);
    session_core_pulse(&ends[1], 0, now);
    cr_assert(eq(i64, expires_after(50), LEASE_MS / SESSION_BEATS));
    connect_ends();
    session_core_pulse(&ends[1], 0, now);
    session_core_closed(&ends[1], now);
    cr_assert(eq(i64, expires_after(50), LEASE_MS / SESSION_BEATS));
}

Test(session_core, a_hello_is_read_as_it_was_written)
{
    unsigned char bytes[SESSION_HELLO_BYTES + 1] = { 0 };
    const struct session_hello written = { .identity = "sixteen bytes..",
                                           .connection = 0x01020304,
                                           .verdict = SESSION_BACKWARDS,
                                           .received = 0x1122334455667788,
                                           .sent = 0x8877665544332211,
                                           .lease_ms = 3000 };
    struct session_hello read;

    memset(&read, 0, sizeof read);
    session_hello_write(bytes, &written);
    cr_assert(eq(int, session_hello_read(&read, bytes, SESSION_HELLO_BYTES, &err), FSDP_OK));
    cr_assert(memcmp(read.identity, written.identity, sizeof read.identity) == 0 &&
              read.connection == written.connection && read.verdict == written.verdict &&
              read.received == written.received && read.sent == written.sent &&
              read.lease_ms == written.lease_ms);
    cr_assert(eq(int, session_hello_read(&read, bytes, SESSION_HELLO_BYTES + 1, &err), FSDP_ERR_FORMAT));
    bytes[20] = SESSION_VERDICTS;
    cr_assert(eq(int, session_hello_read(&read, bytes, SESSION_HELLO_BYTES, &err), FSDP_ERR_FORMAT));
}
