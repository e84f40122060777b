/* Sessions over loopback, both ends on one loop. */
#include "agent/wire/session.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/wire/session_impl.h"
#include "agent/wire/swept.h"
#include "agent/wire/tls.h"

enum { JOB = 4711, MESSAGE = 1, LEASE_MS = 3000 };

/* End 0 dials and end 1 accepts. Messages carry 0, 1, 2 ... as their generation. */
static struct end {
    struct session_pool *pool;
    struct session *session; /* NULL: it has ended */
    int n_opened, n_received, n_ended, n_notes, n_dropped, n_swept, n_refused;
    struct fsdp_err why;
    char note[600];
} ends[2];
static uv_loop_t loop;
static uv_timer_t deadline;
static struct session_config config;
static unsigned char key[TLS_KEY_BYTES];
static const unsigned char agent[SESSION_IDENTITY_BYTES] = "who dials them..";
static bool admit, stay, timed_out;
static int64_t own_lease_ms[2];
static void (*on_message)(struct end *end);

static void close_pool(struct end *end)
{
    session_pool_close(end->pool);
    end->pool = NULL;
}

static void close_all(void)
{
    for (int i = 0; i < 2; i++)
        close_pool(&ends[i]);
    if (!uv_is_closing((uv_handle_t *)&deadline))
        uv_close((uv_handle_t *)&deadline, NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    timed_out = true;
    uv_stop(timer->loop);
}

static void opened(void *arg, struct session *session)
{
    struct end *end = arg;

    end->session = session;
    end->n_opened++;
    if (admit)
        session_admit(session);
}

static void frame(void *arg, struct session *session, const struct frame *frame)
{
    struct end *end = arg;

    (void)session;
    cr_assert(eq(u32, frame->generation, (uint32_t)end->n_received), "once and in order");
    end->n_received++;
    if (on_message != NULL)
        on_message(end);
}

static void ended(void *arg, struct session *session, const struct fsdp_err *why)
{
    struct end *end = arg;

    (void)session;
    end->session = NULL;
    end->n_ended++;
    end->why = *why;
    if (!stay)
        close_all();
}

static void note(void *arg, const char *words)
{
    struct end *end = arg;

    end->n_notes++;
    end->n_dropped += strstr(words, "was dropped") != NULL;
    snprintf(end->note, sizeof end->note, "%s", words);
}

static void swept(void *arg, const unsigned char of[SESSION_IDENTITY_BYTES])
{
    struct end *end = arg;

    cr_assert_arr_eq(of, agent, SESSION_IDENTITY_BYTES);
    end->n_swept++;
}

static void refused(void *arg, const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    struct end *end = arg;

    cr_assert(memcmp(identity, agent, sizeof agent) == 0);
    end->n_refused++;
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in an agent */
    memset(ends, 0, sizeof ends);
    admit = true;
    stay = false;
    on_message = NULL;
    own_lease_ms[0] = own_lease_ms[1] = LEASE_MS;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, on_deadline, 200000, 0);
    tls_derive_key(key, "a secret", 8, "job", NULL);
    config = (struct session_config){ .key = key,
                                      .job = JOB,
                                      .lease_ms = LEASE_MS,
                                      .handlers = { opened, frame, ended, note, swept, refused } };
}

TestSuite(session, .init = set_up, .timeout = 600);

static struct endpoint_addresses begin_pools(void)
{
    struct endpoint_addresses at = { .n = 1 };

    for (int i = 0; i < 2; i++) {
        config.arg = &ends[i];
        config.lease_ms = own_lease_ms[i];
        cr_assert(eq(int, session_pool_create(&ends[i].pool, &loop, i == 1, &config, NULL), FSDP_OK));
    }
    uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)&at.of[0]);
    cr_assert(eq(int, session_pool_listen(ends[1].pool, (struct sockaddr *)&at.of[0], NULL), FSDP_OK));
    uv_ip4_addr("127.0.0.1", session_pool_port(ends[1].pool), (struct sockaddr_in *)&at.of[0]);
    return at;
}

static void run(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(not(timed_out), "nothing happened for 200 s");
    cr_assert(eq(int, uv_loop_close(&loop), 0));
}

/* A session that both ends have opened. */
static void meet(void)
{
    const struct endpoint_addresses at = begin_pools();
    struct session *session;

    cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
    while (ends[0].n_opened == 0 && ends[0].n_ended == 0 && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
}

static void say(int from, int from_number, int n)
{
    static const unsigned char payload[1000];

    for (int i = 0; i < n; i++)
        session_send(ends[from].session, MESSAGE, (uint32_t)(from_number + i), payload, sizeof payload);
}

static bool got(int to, int n)
{
    return ends[to].n_received >= n || timed_out || ends[to].n_ended > 0;
}

enum { MANY = 1000, RESETS = 7 };

/* Every so many messages the connection is reset at the end that receives. */
static void reset_now_and_then(struct end *end)
{
    if (end->n_received % (MANY / RESETS) == 0 && end->session->peer != NULL)
        peer_reset(end->session->peer);
}

Test(session, resets_on_the_way_lose_and_repeat_nothing)
{
    for (int with_key = 0; with_key < 2; with_key++) {
        if (with_key == 1)
            set_up();
        config.key = with_key == 1 ? key : NULL;
        on_message = reset_now_and_then;
        meet();
        for (int from = 0; from < 2; from++)
            say(from, 0, MANY);
        while (!got(0, MANY) || !got(1, MANY))
            uv_run(&loop, UV_RUN_ONCE);

        cr_assert(ends[0].n_received == MANY && ends[1].n_received == MANY);
        cr_assert(ends[0].n_opened == 1 && ends[1].n_opened == 1, "one session");
        cr_assert(gt(int, ends[1].n_notes, RESETS - 1), "each is reported");
        close_all();
        run();
    }
}

/* The end that dials looked at its own lease's pace, and would have missed a silence of the shorter one. */
Test(session, who_dials_looks_as_often_as_the_lease_of_the_other_end_needs)
{
    own_lease_ms[0] = 1000 * LEASE_MS;
    meet();

    cr_assert(eq(i64, ends[0].session->core.lease_ns, INT64_C(1000000) * LEASE_MS));
    for (int turn = 0; turn < 10; turn++) {
        cr_assert(le(u64, uv_timer_get_due_in(&ends[0].pool->timer), LEASE_MS / 30), "turn %d", turn);
        uv_run(&loop, UV_RUN_ONCE);
    }
    close_all();
    run();
}

Test(session, who_leaves_says_all_before_and_the_other_end_learns_it)
{
    meet();
    say(0, 0, 3);
    session_leave(ends[0].session);
    run();

    cr_assert(ends[1].n_received == 3 && ends[1].n_ended == 1 && ends[0].n_ended == 0);
    cr_assert(ends[1].why.status == FSDP_OK && strcmp(ends[1].why.message, "has left") == 0);
}

/* Who leaves while its connection is reset comes back for that, though its owner has closed everything. */
Test(session, the_last_messages_arrive_after_a_reset_too)
{
    meet();
    say(1, 0, 3);
    session_leave(ends[1].session);
    close_pool(&ends[1]);
    peer_reset(ends[0].session->peer); /* none of it was read */
    run();

    cr_assert(ends[0].n_received == 3 && ends[0].why.status == FSDP_OK);
}

Test(session, who_is_dropped_is_told_that_the_session_is_gone)
{
    meet();
    session_drop(ends[1].session);
    run();

    cr_assert(eq(int, ends[0].why.status, FSDP_ERR_PEER));
    cr_assert(eq(str, ends[0].why.message, "it has ended the session with this node"));
}

/* Its kernel resets the connection of a process that dies with messages unread, and refuses the next ones. */
Test(session, a_process_that_is_gone_is_told_from_one_that_is_cut_off)
{
    meet();
    peer_reset(ends[1].session->peer);
    close_pool(&ends[1]);
    run();

    cr_assert(eq(int, ends[0].why.status, FSDP_ERR_NOT_FOUND), "%s", ends[0].why.message);
    cr_assert_not_null(strstr(ends[0].why.message, "connection reset by peer; no sign of life for "), "%s",
                       ends[0].why.message);
}

Test(session, who_was_not_admitted_ends_with_its_connection)
{
    admit = false;
    meet();
    peer_reset(ends[0].session->peer);
    run();

    cr_assert(ends[0].n_ended + ends[1].n_ended > 0);
}

Test(session, who_does_not_take_what_is_sent_is_dropped)
{
    static const unsigned char block[FRAME_MAX_BYTES];

    meet();
    for (int i = 0; i < 20; i++) /* in one turn of the loop, in which the other end reads nothing */
        session_send(ends[1].session, MESSAGE, 0, block, sizeof block);
    on_message = NULL;
    while (ends[1].n_ended == 0 && !timed_out) {
        ends[0].n_received = 0;
        uv_run(&loop, UV_RUN_ONCE);
    }
    run();

    cr_assert(eq(str, ends[1].why.message, "does not take what is sent to it"));
}

static const struct refused_row {
    const char *name, *message;
    uint64_t job;
    bool other_key;
} refused_rows[] = {
    { "another job", "belongs to another job (is --rdzv-id the same on every node?)", JOB + 1, false },
    { "another secret", NULL, JOB, true },
};

Test(session, another_job_or_another_secret_opens_nothing)
{
    for (size_t i = 0; i < sizeof refused_rows / sizeof *refused_rows; i++) {
        const struct refused_row *row = &refused_rows[i];
        struct endpoint_addresses at;
        struct session *session;

        if (i > 0)
            set_up();
        at = begin_pools();
        close_pool(&ends[0]);
        if (row->other_key)
            tls_derive_key(key, "another", 7, "job", NULL);
        config.job = row->job;
        config.arg = &ends[0];
        session_pool_create(&ends[0].pool, &loop, false, &config, NULL);
        cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
        run();

        cr_assert(eq(int, ends[0].why.status, FSDP_ERR_MISMATCH), "%s", row->name);
        cr_assert(row->message == NULL || strcmp(ends[0].why.message, row->message) == 0, "%s",
                  ends[0].why.message);
        cr_assert(eq(int, ends[1].n_opened, 0));
    }
}

/* Further connections of a session */

static bool old_is_there;

static void say_old_hello(void *arg, struct peer *peer)
{
    struct session_hello hello = { .connection = 1 };

    memcpy(hello.identity, ends[0].session->core.identity, sizeof hello.identity);
    session_write_hello(peer, SESSION_HELLO, &hello);
}

static void old_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    old_is_there = false;
}

static bool only_one_is_left(void)
{
    return (ends[0].pool->n_peers == 1 && ends[1].pool->n_peers == 1 && !old_is_there) || timed_out;
}

/*
 * A node dials several times, uses the connection that opens first, and resets the others. The network may
 * also bring a HELLO after that of a later connection.
 */
Test(session, further_connections_of_a_session_are_no_strangers)
{
    struct peer_config old_config;
    struct peer *old;

    meet();
    for (int i = 0; i < SESSION_ATTEMPTS; i++)
        session_dial_next(ends[0].session, session_now_ns());
    old_config = ends[0].pool->peers;
    old_config.identity = agent;
    old_config.handlers = (struct peer_handlers){ .opened = say_old_hello, .closed = old_closed };
    old_is_there = true;
    cr_assert(
        eq(int,
           peer_connect(&old, &loop, (struct sockaddr *)&ends[0].session->addresses.of[0], &old_config, NULL),
           FSDP_OK));
    while (!only_one_is_left())
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(eq(int, ends[1].n_dropped, 0), "%s", ends[1].note);
    cr_assert(eq(u32, ends[1].session->core.connection, 1));
    close_all();
    run();
}

static void say_next_hello(void *arg, struct peer *peer)
{
    struct session_hello hello = { .connection = ends[0].session->core.connection + 1 };

    memcpy(hello.identity, ends[0].session->core.identity, sizeof hello.identity);
    session_write_hello(peer, SESSION_HELLO, &hello);
}

/* With the secret of the job, but from another agent, or from one of an earlier version. */
Test(session, a_session_goes_on_only_with_the_agent_that_began_it)
{
    static const unsigned char other[SESSION_IDENTITY_BYTES] = "somebody else...";
    static const unsigned char *const strangers[] = { other, NULL };
    struct peer_config stranger_config;
    struct peer *stranger;

    meet();
    cr_assert(session_is_of(ends[1].session, agent));
    cr_assert(not(session_is_of(ends[1].session, other)));
    for (int i = 0; i < 2; i++) {
        stranger_config = ends[0].pool->peers;
        stranger_config.identity = strangers[i];
        stranger_config.handlers = (struct peer_handlers){ .opened = say_next_hello, .closed = old_closed };
        old_is_there = true;
        cr_assert(eq(int,
                     peer_connect(&stranger, &loop, (struct sockaddr *)&ends[0].session->addresses.of[0],
                                  &stranger_config, NULL),
                     FSDP_OK));
        while (!only_one_is_left())
            uv_run(&loop, UV_RUN_ONCE);
        cr_assert_not_null(strstr(ends[1].note, "was dropped: it names the session of another agent"), "%s",
                           ends[1].note);
    }
    cr_assert(ends[0].n_ended == 0 && ends[1].n_ended == 0);
    cr_assert(eq(u32, ends[1].session->core.connection, 1));
    close_all();
    run();
}

/* The word of a guard for its agent */

static uv_loop_t guards;

/* Says it with that key, from a loop of its own, as a guard does. */
static void say_swept(const unsigned char *with, const unsigned char *of)
{
    struct swept_will will = { .coordinator = ends[0].session->addresses.of[0] };

    memcpy(will.agent, of, sizeof will.agent);
    cr_assert(eq(int, uv_loop_init(&guards), 0));
    cr_assert(eq(int, swept_say(&guards, &will, with, JOB, 60000, NULL), FSDP_OK));
    while (uv_run(&guards, UV_RUN_NOWAIT) != 0 && !timed_out)
        uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert(eq(int, uv_loop_close(&guards), 0), "nothing is left on its loop");
}

static bool is_swept_or_dropped(void)
{
    return ends[1].n_swept > 0 || ends[1].n_dropped > 0 || timed_out;
}

Test(session, a_guard_speaks_for_its_agent_while_its_session_is_there_and_after_it)
{
    for (int with_key = 0; with_key < 2; with_key++) {
        if (with_key == 1)
            set_up();
        config.key = with_key == 1 ? key : NULL;
        stay = true;
        meet();
        say_swept(config.key, agent);
        while (!is_swept_or_dropped())
            uv_run(&loop, UV_RUN_ONCE);
        cr_assert(ends[1].n_swept == 1 && ends[1].n_dropped == 0, "%s", ends[1].note);
        cr_assert(eq(int, ends[1].n_ended, 0), "what becomes of its session is for the owner of the pool");

        session_leave(ends[0].session);
        while (ends[1].n_ended == 0 && !timed_out)
            uv_run(&loop, UV_RUN_ONCE);
        ends[0].session = NULL;
        ends[1].n_swept = 0;
        close_all();
        run();
    }
}

static void say_swept_of_agent(void *arg, struct peer *peer)
{
    peer_send(peer, &(struct frame){ .type = SESSION_SWEPT, .payload = agent, .size = sizeof agent });
}

static void say_half_a_word(void *arg, struct peer *peer)
{
    peer_send(peer, &(struct frame){ .type = SESSION_SWEPT, .payload = agent, .size = sizeof agent / 2 });
}

/* It has the secret of the job, but has proven to be another agent, or none; or it says half of it. */
Test(session, nobody_else_speaks_for_an_agent)
{
    static const unsigned char other[SESSION_IDENTITY_BYTES] = "somebody else...";
    static const struct stranger_row {
        const unsigned char *identity;
        void (*opened)(void *arg, struct peer *peer);
    } rows[] = { { other, say_swept_of_agent }, { NULL, say_swept_of_agent }, { agent, say_half_a_word } };
    struct peer_config stranger_config;
    struct peer *stranger;

    meet();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stranger_config = ends[0].pool->peers;
        stranger_config.identity = rows[i].identity;
        stranger_config.handlers = (struct peer_handlers){ .opened = rows[i].opened, .closed = old_closed };
        old_is_there = true;
        cr_assert(eq(int,
                     peer_connect(&stranger, &loop, (struct sockaddr *)&ends[0].session->addresses.of[0],
                                  &stranger_config, NULL),
                     FSDP_OK));
        while (!only_one_is_left())
            uv_run(&loop, UV_RUN_ONCE);
        cr_assert_not_null(strstr(ends[1].note, "was dropped: it speaks for another agent"), "%s",
                           ends[1].note);
    }
    cr_assert(ends[1].n_swept == 0 && ends[1].n_ended == 0);
    close_all();
    run();
}

/* A host that is restored from a state in which its agent still ran. */
Test(session, an_agent_whose_guard_has_spoken_is_refused_for_good)
{
    struct endpoint_addresses at = { .n = 1 };
    struct session *session;

    stay = true;
    meet();
    at.of[0] = ends[0].session->addresses.of[0];
    say_swept(key, agent);
    while (!is_swept_or_dropped())
        uv_run(&loop, UV_RUN_ONCE);
    session_drop(ends[1].session);
    session_drop(ends[0].session);
    cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
    while (ends[0].n_ended == 0 && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(eq(int, ends[0].why.status, FSDP_ERR_MISMATCH), "%s", ends[0].why.message);
    close_all();
    run();
}

/* An agent that is restored from an earlier state */

static void meet_and_talk(void)
{
    meet();
    say(0, 0, 5);
    say(1, 0, 5);
    while (!got(0, 5) || !got(1, 5) || ends[1].session->core.acked < 5)
        uv_run(&loop, UV_RUN_ONCE);
}

static void is_refused(int end, const char *words)
{
    cr_assert(eq(int, ends[end].why.status, FSDP_ERR_MISMATCH), "end %d: %s", end, ends[end].why.message);
    cr_assert(eq(str, ends[end].why.message, (char *)words));
}

/* Its sessions are refused from now on, whatever their names are. */
static void comes_no_more(void)
{
    struct endpoint_addresses at = { .n = 1 };
    struct session *session;

    uv_ip4_addr("127.0.0.1", session_pool_port(ends[1].pool), (struct sockaddr_in *)&at.of[0]);
    ends[0].why = (struct fsdp_err){ 0 };
    ends[0].n_ended = 0;
    ends[1].note[0] = '\0';
    cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
    while ((ends[0].n_ended == 0 || ends[1].note[0] == '\0') && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
    is_refused(0, "this node was restored from an earlier state, and is refused for good");
    cr_assert(ends[1].n_refused > 0 && ends[0].n_refused == 0, "who accepts it is told");
    cr_assert_not_null(
        strstr(ends[1].note, "was dropped: it was restored from an earlier state, and is refused for good"),
        "%s", ends[1].note);
    close_all();
    run();
}

/* Its messages 4 and 5, or those of the other end, are still to come for it. */
Test(session, who_was_restored_is_refused_for_good_and_nothing_is_sent_again)
{
    for (int forgets = 0; forgets < 2; forgets++) {
        if (forgets > 0)
            set_up();
        stay = true;
        meet_and_talk();
        if (forgets == 0)
            ends[0].session->core.received = 3;
        else
            ends[0].session->core.sent = ends[0].session->core.acked = 3;
        peer_reset(ends[0].session->peer);
        while ((ends[0].n_ended == 0 || ends[1].n_ended == 0) && !timed_out)
            uv_run(&loop, UV_RUN_ONCE);

        is_refused(0, "this node was restored from an earlier state, and is refused for good");
        is_refused(1, "it was restored from an earlier state, and is refused for good");
        cr_assert(ends[0].n_received == 5 && ends[1].n_received == 5);
        comes_no_more();
    }
}

/* A snapshot is older than the lease: the other end has given the session up, but knows how far it came. */
Test(session, who_was_restored_after_its_session_is_refused_for_good_too)
{
    stay = true;
    meet_and_talk();
    session_drop(ends[1].session);
    ends[0].session->core.received = 3;
    while (ends[0].n_ended == 0 && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);

    is_refused(0, "this node was restored from an earlier state, and is refused for good");
    comes_no_more();
}

Test(session, without_a_key_who_was_restored_ends_its_session_only)
{
    struct endpoint_addresses at = { .n = 1 };
    struct session *session;

    stay = true;
    config.key = NULL;
    meet_and_talk();
    ends[0].session->core.received = 3;
    peer_reset(ends[0].session->peer);
    while ((ends[0].n_ended == 0 || ends[1].n_ended == 0) && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
    is_refused(0, "this node was restored from an earlier state, and is refused for good");

    uv_ip4_addr("127.0.0.1", session_pool_port(ends[1].pool), (struct sockaddr_in *)&at.of[0]);
    cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
    while (ends[0].n_opened < 2 && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(eq(int, ends[1].n_refused, 0));
    close_all();
    run();
}

/* A host that accepts connections, and whose agent is too busy to take them. */
static int begin_busy_host(struct sockaddr_in *address)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof *address;

    uv_ip4_addr("127.0.0.1", 0, address);
    cr_assert(eq(int, bind(fd, (struct sockaddr *)address, sizeof *address), 0));
    cr_assert(eq(int, listen(fd, 64), 0));
    cr_assert(eq(int, getsockname(fd, (struct sockaddr *)address, &length), 0));
    return fd;
}

Test(session, who_is_connected_leaves_a_busy_host_time_before_it_dials_again)
{
    const int64_t ms = 1000000, lease_ms = 10 * LEASE_MS; /* long enough for a machine that stands still */
    struct session *session;
    int64_t began;
    int fd;

    own_lease_ms[0] = own_lease_ms[1] = lease_ms;
    meet();
    session = ends[0].session;
    fd = begin_busy_host((struct sockaddr_in *)&session->addresses.of[0]);
    peer_reset(ends[1].session->peer);
    while ((session->n_attempts == 0 || !peer_connected(session->attempts[0].peer)) && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
    began = session->attempts[0].dialled_ns;
    for (int i = 1; i <= 3; i++)
        session_look(session, began + i * 300 * ms);
    cr_assert(eq(int, session->n_attempts, 1), "it has a third of the lease");
    session_look(session, began + lease_ms / 3 * ms + ms);
    cr_assert(eq(int, session->n_attempts, 2));

    close(fd);
    close_all();
    run();
}

/* A cut that is a little shorter than the lease ends no session. */
Test(session, who_has_little_time_left_dials_again_sooner)
{
    const int64_t ms = 1000000, lease_ns = 3000 * ms;
    struct session *session;

    meet();
    session = ends[0].session;
    session->core.lease_ns = lease_ns;

    session->core.left_ns = lease_ns / 2;
    session_dial_next(session, 0);
    cr_expect(eq(i64, session->dial_at_ns, 250 * ms));
    session->core.left_ns = 999 * ms;
    session_dial_next(session, 0);
    cr_expect(eq(i64, session->dial_at_ns, 100 * ms));

    close_all();
    run();
}

/* A host that may be gone */

/* A host of which no packet comes back: its queue is full, and its kernel drops what comes. */
static int begin_mute_host(struct sockaddr_in *address, int fill[2])
{
    const int fd = begin_busy_host(address);

    cr_assert(eq(int, listen(fd, 0), 0));
    for (int i = 0; i < 2; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fill[i], (struct sockaddr *)address, sizeof *address);
    }
    return fd;
}

/* The addresses of a host: each refuses ('r'), gives no answer ('n'), or accepts and says nothing ('a'). */
static const struct gone_row {
    const char *name, *addresses;
    int n_known;
    enum fsdp_status status;
} gone_rows[] = {
    { "the only one refuses", "r", 1, FSDP_ERR_NOT_FOUND },
    { "it refuses, and the other one never led there", "rn", 1, FSDP_ERR_NOT_FOUND },
    { "none has led there yet", "rn", 0, FSDP_ERR_PEER },
    { "it gives no answer, and another one refuses", "nr", 1, FSDP_ERR_PEER },
    { "one of two refuses", "rn", 2, FSDP_ERR_PEER },
    { "another one accepts", "ra", 1, FSDP_ERR_PEER },
    { "it accepts", "ar", 1, FSDP_ERR_PEER },
};

Test(session, a_host_is_gone_if_it_refuses_wherever_it_was_reached)
{
    for (size_t i = 0; i < sizeof gone_rows / sizeof *gone_rows; i++) {
        const struct gone_row *row = &gone_rows[i];
        struct endpoint_addresses at = { .n = (int)strlen(row->addresses), .n_known = row->n_known };
        int fds[2] = { -1, -1 }, fill[2] = { -1, -1 };
        struct session *session;

        if (i > 0)
            set_up();
        begin_pools();
        ends[0].pool->peers.handshake_ms = 700;
        for (int a = 0; a < at.n; a++) {
            struct sockaddr_in *address = (struct sockaddr_in *)&at.of[a];

            if (row->addresses[a] == 'n')
                fds[a] = begin_mute_host(address, fill);
            else
                fds[a] = begin_busy_host(address);
            if (row->addresses[a] == 'r')
                close(fds[a]);
        }
        cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
        run();
        cr_expect(eq(int, ends[0].why.status, row->status), "%s: %s", row->name, ends[0].why.message);
        for (int a = 0; a < at.n; a++)
            if (row->addresses[a] != 'r')
                close(fds[a]);
        for (int f = 0; f < 2; f++)
            if (fill[f] >= 0)
                close(fill[f]);
    }
}

/* A coordinator that thousands dial at once answers late, and who dials again is the last in its queue. */
Test(session, a_host_that_accepts_and_does_not_answer_is_given_longer_each_time)
{
    struct endpoint_addresses at = { .n = 1 };
    const int fd = begin_busy_host((struct sockaddr_in *)&at.of[0]);
    struct session *session;

    stay = true;
    begin_pools();
    ends[0].pool->peers.handshake_ms = 100;
    for (int i = 0; i < 3; i++) {
        int64_t began_ns;

        uv_update_time(&loop); /* the deadline counts from the loop's time */
        began_ns = session_now_ns();
        cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
        while (ends[0].n_ended == i && !timed_out)
            uv_run(&loop, UV_RUN_ONCE);
        cr_assert(eq(str, ends[0].why.message, "no handshake in time"));
        cr_expect(ge(i64, session_now_ns() - began_ns, (INT64_C(100) << i) * 1000000), "dial %d", i);
    }

    close(fd);
    close_all();
    run();
}

enum { NODES = 3 * PEER_MAX_UNPROVEN_OF_SOURCE };

static bool all_are_up(uint32_t connection)
{
    for (int i = 0; i < 2; i++)
        for (const struct session *at = ends[i].pool->all; at != NULL; at = at->next)
            if (!at->core.up || at->core.connection < connection)
                return timed_out;
    return ends[1].n_opened == NODES || timed_out;
}

/* A switch breaks the connections of all nodes at once, more than a listener holds of strangers. */
Test(session, nodes_that_all_come_back_at_once_are_no_strangers)
{
    struct endpoint_addresses at;
    struct session *session;

    config.n_expected = NODES;
    at = begin_pools();
    for (int i = 0; i < NODES; i++)
        cr_assert(eq(int, session_dial(&session, ends[0].pool, agent, &at, NULL), FSDP_OK));
    while (!all_are_up(1))
        uv_run(&loop, UV_RUN_ONCE);
    for (session = ends[1].pool->all; session != NULL; session = session->next)
        peer_reset(session->peer);
    while (!all_are_up(2))
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(ends[0].n_ended == 0 && ends[1].n_ended == 0);
    cr_assert(eq(int, ends[1].n_dropped, 0), "%s", ends[1].note);
    cr_assert(eq(int, ends[1].pool->n_well, NODES), "and strangers are limited as before");
    close_all();
    run();
}

/* The end that dials is another process */

static pid_t child;
static int to_child[2], from_child[2];

/* The child's end: it dials, says when it has, and then only beats. */
static _Noreturn void be_child(void)
{
    struct endpoint_addresses at = { .n = 1 };
    struct session *session;
    int port;

    if (read(to_child[0], &port, sizeof port) != sizeof port)
        _exit(1);
    uv_loop_init(&loop);
    config.arg = &ends[0];
    session_pool_create(&ends[0].pool, &loop, false, &config, NULL);
    uv_ip4_addr("127.0.0.1", port, (struct sockaddr_in *)&at.of[0]);
    session_dial(&session, ends[0].pool, agent, &at, NULL);
    while (ends[0].n_opened == 0)
        uv_run(&loop, UV_RUN_ONCE);
    if (write(from_child[1], "", 1) != 1)
        _exit(1);
    for (;;)
        uv_run(&loop, UV_RUN_ONCE);
}

static void meet_child(int lease_ms)
{
    struct sockaddr_in at;
    int port;

    config.lease_ms = lease_ms;
    cr_assert(pipe(to_child) == 0 && pipe(from_child) == 0);
    child = fork();
    if (child == 0)
        be_child();
    config.arg = &ends[1];
    cr_assert(eq(int, session_pool_create(&ends[1].pool, &loop, true, &config, NULL), FSDP_OK));
    uv_ip4_addr("127.0.0.1", 0, &at);
    cr_assert(eq(int, session_pool_listen(ends[1].pool, (struct sockaddr *)&at, NULL), FSDP_OK));
    port = session_pool_port(ends[1].pool);
    cr_assert(eq(long, write(to_child[1], &port, sizeof port), (long)sizeof port));
    while (ends[1].n_opened == 0 && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(eq(long, read(from_child[0], &port, 1), 1));
}

static void end_child(void)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* The loop stands still for longer than the lease. What came meanwhile is read before anything is judged. */
Test(session, a_loop_that_stood_still_reads_before_it_judges)
{
    meet_child(LEASE_MS);
    poll(NULL, 0, LEASE_MS * 7 / 6); /* the promise is about this time: nothing else can be waited for */
    for (int turn = 0; turn < 100; turn++)
        uv_run(&loop, UV_RUN_NOWAIT);

    cr_assert(eq(int, ends[1].n_ended, 0), "%s", ends[1].why.message);
    end_child();
    close_all();
    run();
}

Test(session, a_process_that_stands_still_for_the_lease_is_lost)
{
    meet_child(1000);
    kill(child, SIGSTOP);
    run();
    end_child();

    cr_assert(eq(int, ends[1].why.status, FSDP_ERR_PEER));
    cr_assert_not_null(strstr(ends[1].why.message, "no sign of life for 1."), "%s", ends[1].why.message);
}

Test(session, a_process_that_dies_is_lost_long_before_the_lease)
{
    const uint64_t began = uv_hrtime();

    meet_child(30000);
    end_child();
    run();

    cr_assert(lt(u64, uv_hrtime() - began, UINT64_C(30) * 1000000000));
    cr_assert(eq(str, ends[1].why.message, "closed the connection"));
}
