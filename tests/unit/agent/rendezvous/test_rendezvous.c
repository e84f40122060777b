/* agent/rendezvous/rendezvous.c and agent/rendezvous/meeting.c, against each other, over loopback. */
#include "agent/os/deadlines.h"
#include "agent/rendezvous/rendezvous.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/rendezvous/identity.h"
#include "agent/rendezvous/meeting.h"
#include "agent/wire/tls.h"
#include "shard_runtime/core/clock.h"

enum { MAX_NODES = 6 };

/* All agents of a test are on one loop. `done` ends the run. */
static struct agent {
    struct agent_config config;
    struct meeting *meeting;
    struct rendezvous *rendezvous; /* it hosts */
    bool one_number;               /* whom it hosts gets the number of the one before */
    bool returns;                  /* it meets again when it is lost */
    bool arbitrated;               /* an arbiter, which the test plays, says who leads */
    int n_offers, port;            /* where it would host */
    int n_hosts, n_welcomed, n_messages, n_lost, n_failed, n_joined, status;
    char words[1200], notes[4000], where[300], address[64];
    struct proto_join joins[MAX_NODES];
    struct meeting *freed;  /* of a member whose last process ends while it joins; NULL: of none */
    int n_unkilled;         /* as it was said last; -1: it was not */
    struct pulse_told told; /* the last */
} agents[MAX_NODES];
static uv_loop_t loop;
static uv_timer_t deadline;
static bool finished, timed_out;

static bool never(void)
{
    return false;
}

static bool (*done)(void) = never;

static void finish(void)
{
    if (finished || !done())
        return;
    finished = true;
    for (int i = 0; i < MAX_NODES; i++) {
        rendezvous_destroy(agents[i].rendezvous);
        meeting_destroy(agents[i].meeting);
    }
    uv_close((uv_handle_t *)&deadline, NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    timed_out = true;
    uv_stop(timer->loop);
}

static void add_note(void *arg, const char *words)
{
    struct agent *agent = arg;

    strncat(agent->notes, words, sizeof agent->notes - strlen(agent->notes) - 2);
    strcat(agent->notes, "\n");
    finish();
}

/* The one that hosts */

static int judge(void *arg, const struct proto_join *join, const char *address, struct proto_refused *refused)
{
    struct agent *agent = arg;

    if (strcmp(join->role, "unwanted") == 0) {
        *refused = (struct proto_refused){ .status = FSDP_EXIT_CONFIG, .words = "you are not wanted" };
        return -1;
    }
    agent->joins[++agent->n_joined] = *join;
    if (agent->freed != NULL)
        meeting_set_unkilled(agent->freed, 0);
    return agent->one_number ? 1 : agent->n_joined;
}

static void on_joined(void *arg, int node)
{
    struct agent *agent = arg;
    const struct proto_welcome welcome = { .host = "hhh",
                                           .run = "iiiiiiiiiiiiiii",
                                           .wait = PROTO_WAIT_FORMING };

    rendezvous_send(agent->rendezvous, node, PROTO_WELCOME, 0, &welcome);
    rendezvous_send(agent->rendezvous, node, PROTO_PUT, 5, &(struct proto_put){ .key = "hell" });
}

static void on_host_message(void *arg, int node, const struct frame *frame)
{
    struct agent *agent = arg;
    union proto_message message;

    cr_assert(node >= 1 && node <= agent->n_joined);
    if (frame->type == PROTO_UNKILLED) {
        cr_assert(eq(int, proto_decode(frame->type, &message, frame->payload, frame->size, NULL), FSDP_OK));
        agent->n_unkilled = message.unkilled.n;
        finish();
        return;
    }
    cr_assert(eq(int, frame->type, PROTO_STOPPED));
    agent->n_messages++;
    finish();
}

static void on_host_lost(void *arg, int node, int64_t silent_ms, const struct fsdp_err *why)
{
    struct agent *agent = arg;

    cr_assert(node >= 1 && silent_ms >= 0 && silent_ms < 300000);
    agent->n_lost++;
    snprintf(agent->words, sizeof agent->words, "%s", why->message);
    finish();
}

/* The thread that answers pulses has no leave to do so, while a test holds it back. */
static _Atomic bool may_answer;
static _Atomic int n_asks;

static bool may_answer_now(void *arg)
{
    const bool may = may_answer;

    n_asks++;
    return may;
}

static void keep(void *arg, int64_t contact_until_ns)
{
}

static void on_told(void *arg, int node, const struct pulse_told *told)
{
    ((struct agent *)arg)->told = *told;
}

static void on_hosts(void *arg, struct rendezvous *rendezvous, const char *where)
{
    static const struct rendezvous_handlers handlers = { .judge = judge,
                                                         .joined = on_joined,
                                                         .message = on_host_message,
                                                         .lost = on_host_lost,
                                                         .note = add_note,
                                                         .told = on_told };
    const struct pulse_lead lead = { may_answer_now, keep, arg };
    struct agent *agent = arg;

    agent->n_hosts++;
    agent->rendezvous = rendezvous;
    snprintf(agent->where, sizeof agent->where, "%s", where);
    snprintf(agent->address, sizeof agent->address, "%s", rendezvous_address(rendezvous));
    cr_assert(eq(int, rendezvous_serve(rendezvous, MAX_NODES + 1, &handlers, agent, &lead, NULL), FSDP_OK));
    meeting_destroy(agent->meeting);
    agent->meeting = NULL;
    finish();
}

static bool on_offers(void *arg, const char *host, int port)
{
    struct agent *agent = arg;

    agent->n_offers++;
    snprintf(agent->address, sizeof agent->address, "%s", host);
    agent->port = port;
    finish();
    return true;
}

/* The members */

static void on_welcomed(void *arg, const struct proto_welcome *welcome, const char *address)
{
    struct agent *agent = arg;

    cr_assert(eq(str, (char *)welcome->host, "hhh"));
    cr_assert(gt(sz, strlen(address), 0));
    agent->n_welcomed++;
    finish();
}

static void on_message(void *arg, const struct frame *frame)
{
    struct agent *agent = arg;

    cr_assert(frame->generation == 5 && frame->size == 5 && memcmp(frame->payload, "hell", 5) == 0);
    agent->n_messages++;
    meeting_send(agent->meeting, PROTO_STOPPED, 5, NULL);
    finish();
}

static void on_lost(void *arg, const struct fsdp_err *why)
{
    struct agent *agent = arg;

    agent->n_lost++;
    snprintf(agent->words, sizeof agent->words, "%s", why->message);
    if (agent->returns)
        meeting_again(agent->meeting, 5, 1);
    finish();
}

static void on_failed(void *arg, int status, const char *words)
{
    struct agent *agent = arg;

    agent->n_failed++;
    agent->status = status;
    snprintf(agent->words, sizeof agent->words, "%s", words);
    finish();
}

/* A party */

static int free_port(void)
{
    struct sockaddr_in address = { 0 };
    uv_tcp_t probe;
    int length = sizeof address;

    uv_tcp_init(&loop, &probe);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_bind(&probe, (struct sockaddr *)&address, 0);
    uv_tcp_getsockname(&probe, (struct sockaddr *)&address, &length);
    uv_close((uv_handle_t *)&probe, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return ntohs(address.sin_port);
}

static void set_up(void)
{
    int port;

    uv_loop_init(&loop);
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, on_deadline, 400000, 0);
    port = free_port();
    for (int i = 0; i < MAX_NODES; i++) {
        struct agent_config *config = &agents[i].config;

        agents[i] = (struct agent){ .n_unkilled = -1 };
        agent_config_init(config);
        config->n_nodes = config->min_nodes = 2;
        config->node_rank = -1;
        config->join_timeout_ms = 250000;
        config->rendezvous_host = "127.0.0.1";
        config->rendezvous_port = port;
        config->secret = "the secret of the job";
        config->secret_bytes = 21;
    }
    finished = false;
    done = never;
}

TestSuite(rendezvous, .init = set_up, .timeout = 600);

static void start(int i)
{
    const struct meeting_handlers handlers = { .hosts = on_hosts,
                                               .offers = agents[i].arbitrated ? on_offers : NULL,
                                               .welcomed = on_welcomed,
                                               .message = on_message,
                                               .lost = on_lost,
                                               .failed = on_failed,
                                               .note = add_note };
    struct fsdp_err err = { 0 };

    cr_assert(eq(int,
                 meeting_create(&agents[i].meeting, &loop, &agents[i].config, &handlers, &agents[i], &err),
                 FSDP_OK),
              "%s", err.message);
}

static void run_until(bool (*condition)(void))
{
    done = condition;
    finish(); /* it may be so already */
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(not(timed_out), "nothing happened for 400 s");
    cr_assert(eq(int, uv_loop_close(&loop), 0));
}

static void host_with_0(void)
{
    start(0);
    while (agents[0].n_hosts == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

/* Agent 0 hosts, and 1 comes. */
static void run_two_until(bool (*condition)(void))
{
    host_with_0();
    start(1);
    run_until(condition);
}

static void has(const char *text, const char *words)
{
    cr_assert_not_null(strstr(text, words), "\"%s\" does not say \"%s\"", text, words);
}

static int n_hosts(void)
{
    int n = 0;

    for (int i = 0; i < MAX_NODES; i++)
        n += agents[i].n_hosts;
    return n;
}

static bool all_answered(void)
{
    int n = 0;

    for (int i = 0; i < MAX_NODES; i++)
        n += agents[i].n_hosts > 0 ? agents[i].n_messages : 0;
    return n == MAX_NODES - 1;
}

Test(rendezvous, of_six_agents_on_one_host_one_hosts_and_all_talk)
{
    static const char *const names[] = { "127.0.0.1", "localhost" };

    for (int name = 0; name < 2; name++) {
        if (name > 0)
            set_up();
        for (int i = 0; i < MAX_NODES; i++) {
            agents[i].config.rendezvous_host = names[name];
            start(i);
        }
        run_until(all_answered);

        cr_assert(eq(int, n_hosts(), 1));
        for (int i = 0; i < MAX_NODES; i++)
            cr_assert(agents[i].n_hosts == 1 || (agents[i].n_welcomed == 1 && agents[i].n_messages == 1),
                      "agent %d: %s", i, agents[i].words);
    }
}

static bool one_hosts(void)
{
    return n_hosts() == 1;
}

Test(rendezvous, who_is_to_host_where_it_has_not_the_address_listens_everywhere)
{
    agents[0].config.rendezvous_host = "192.0.2.1"; /* no host has it: RFC 5737 */
    agents[0].config.hosting = AGENT_HOST_YES;
    start(0);
    run_until(one_hosts);

    has(agents[0].where, "every address");
    cr_assert(eq(str, agents[0].address, "127.0.0.1"), "no address of its own has been seen yet");
}

static bool first_failed(void)
{
    return agents[0].n_failed == 1;
}

/* Agent 0 alone, which gives up after so long. */
static void run_alone(int64_t join_timeout_ms)
{
    agents[0].config.join_timeout_ms = join_timeout_ms;
    start(0);
    run_until(first_failed);
    cr_assert(eq(int, agents[0].status, FSDP_EXIT_PEER));
}

Test(rendezvous, nobody_hosts_where_nobody_has_the_address)
{
    agents[0].config.hosting = AGENT_HOST_NO;
    run_alone(400);
    has(agents[0].words, "connection refused");
    cr_assert(eq(int, n_hosts(), 0));
}

Test(rendezvous, a_name_that_cannot_be_resolved_is_tried_again_and_told_once)
{
    agents[0].config.rendezvous_host = "no.such.host.invalid"; /* RFC 6761: never resolves */
    run_alone(1500);
    has(agents[0].words, "cannot be resolved");
    has(agents[0].notes, "cannot be resolved");
    cr_assert_null(strstr(strstr(agents[0].notes, "cannot be resolved") + 1, "cannot be resolved"));
}

static bool second_failed(void)
{
    return agents[1].n_failed == 1;
}

static bool none_is_left(void)
{
    return agents[0].n_unkilled == 0;
}

/* Neither JOIN nor a message to a coordinator that has not let it in would say so. */
Test(rendezvous, processes_that_end_while_a_node_joins_are_not_forgotten)
{
    host_with_0();
    start(1);
    meeting_set_unkilled(agents[1].meeting, 2);
    agents[0].freed = agents[1].meeting;
    run_until(none_is_left);

    cr_assert(eq(int, agents[0].joins[1].n_unkilled, 2));
}

Test(rendezvous, who_is_refused_is_told_why)
{
    agents[1].config.role = "unwanted";
    run_two_until(second_failed);

    cr_assert(eq(int, agents[1].status, FSDP_EXIT_CONFIG));
    has(agents[1].words, "you are not wanted");
    has(agents[0].notes, "you are not wanted");
}

/* One that names another identity than it has proven */

static void say_join(void *arg, struct session *session)
{
    struct proto_join join;

    identity_fill(&join, &agents[1].config);
    rendezvous_tell(session, PROTO_JOIN, 0, &join);
}

static void take_refusal(void *arg, struct session *session, const struct frame *frame)
{
    union proto_message message;

    cr_assert(eq(int, frame->type, PROTO_REFUSED));
    cr_assert(eq(int, proto_decode(PROTO_REFUSED, &message, frame->payload, frame->size, NULL), FSDP_OK));
    agents[1].status = message.refused.status;
    memcpy(agents[1].words, message.refused.words, PROTO_WORDS_BYTES);
}

static void ignore_end(void *arg, struct session *session, const struct fsdp_err *why)
{
}

static bool always(void)
{
    return true;
}

Test(rendezvous, who_names_another_identity_than_it_has_proven_is_refused)
{
    static const unsigned char identity[PROTO_IDENTITY_BYTES] = "some other node";
    const struct agent_config *config = &agents[1].config;
    unsigned char key[TLS_KEY_BYTES];
    const struct session_config sessions = { .key = key,
                                             .job = identity_job(config),
                                             .lease_ms = config->lease_ms,
                                             .handlers = { say_join, take_refusal, ignore_end, NULL } };
    struct endpoint_addresses at = { .n = 1 };
    struct session_pool *pool;
    struct session *session;

    host_with_0();
    tls_derive_key(key, config->secret, config->secret_bytes, config->run_id, NULL);
    cr_assert(eq(int, session_pool_create(&pool, &loop, false, &sessions, NULL), FSDP_OK));
    uv_ip4_addr("127.0.0.1", config->rendezvous_port, (struct sockaddr_in *)&at.of[0]);
    cr_assert(eq(int, session_dial(&session, pool, identity, &at, NULL), FSDP_OK));
    while (agents[1].status == 0 && !timed_out)
        uv_run(&loop, UV_RUN_ONCE);
    session_pool_close(pool);
    run_until(always);

    cr_assert(eq(int, agents[1].status, FSDP_EXIT_CONFIG));
    has(agents[1].words,
        " (127.0.0.1) names another identity than its connection has proven; it runs fsdprun ");
    has(agents[0].notes, "a node was refused: ");
    cr_assert(eq(int, agents[0].n_joined, 0));
}

Test(rendezvous, another_run_id_is_told_to_both_without_a_secret_too)
{
    agents[0].config.secret = agents[1].config.secret = NULL;
    agents[1].config.run_id = "another";
    run_two_until(second_failed);

    cr_assert(eq(int, agents[1].status, FSDP_EXIT_PEER));
    has(agents[1].words, "another job (is --rdzv-id");
    has(agents[0].notes, "127.0.0.1");
}

static bool member_lost_host(void)
{
    if (agents[0].n_messages == 1 && agents[0].rendezvous != NULL) {
        rendezvous_destroy(agents[0].rendezvous);
        agents[0].rendezvous = NULL;
    }
    return agents[1].n_lost == 1;
}

Test(rendezvous, a_host_that_goes_says_so)
{
    run_two_until(member_lost_host);

    has(agents[1].words, "has left");
}

static bool member_returned(void)
{
    if (agents[0].n_messages == 1 && agents[1].n_lost == 0)
        rendezvous_drop(agents[0].rendezvous, 1);
    return agents[0].n_messages == 2;
}

Test(rendezvous, a_member_that_was_lost_joins_the_same_coordinator_again)
{
    static const unsigned char nobody[PROTO_IDENTITY_BYTES];
    const struct proto_join *joins = agents[0].joins;

    agents[1].returns = true;
    run_two_until(member_returned);

    cr_assert(agents[1].n_lost == 1 && agents[1].n_welcomed == 2 && agents[0].n_joined == 2);
    cr_assert(memcmp(joins[1].identity, nobody, sizeof nobody) != 0 &&
                  memcmp(joins[1].identity, joins[2].identity, sizeof nobody) == 0,
              "the agent is the same");
    cr_assert(memcmp(joins[1].lost_by, nobody, sizeof nobody) == 0);
    cr_assert(memcmp(joins[2].lost_by, "iiiiiiiiiiiiiii", sizeof nobody) == 0);
    cr_assert(joins[1].last_generation == -1 && joins[1].last_node_rank == -1);
    cr_assert(joins[2].last_generation == 5 && joins[2].last_node_rank == 1);
}

static bool who_was_let_go_has_left(void)
{
    if (agents[0].n_messages == 1 && agents[2].meeting == NULL)
        start(2);
    return agents[0].n_messages == 2 && agents[1].n_lost == 1;
}

/* A node that was let go may still have its session, in a cut for instance, when another node comes. */
Test(rendezvous, a_number_that_is_given_again_is_no_more_of_the_one_before)
{
    agents[0].one_number = true;
    run_two_until(who_was_let_go_has_left);

    has(agents[1].words, "has left");
    cr_assert(agents[0].n_lost == 0 && agents[2].n_welcomed == 1 && agents[2].n_lost == 0);
}

static bool member_gave_up(void)
{
    member_lost_host();
    return agents[1].n_failed == 1;
}

/* Both have the address. */
Test(rendezvous, a_member_whose_coordinator_is_gone_does_not_host_itself_and_need_not_wait)
{
    agents[1].returns = true;
    agents[1].config.lease_ms = 300;
    run_two_until(member_gave_up);

    cr_assert(eq(int, agents[1].status, FSDP_EXIT_LINK));
    has(agents[1].words, "connection refused");
    cr_assert(eq(int, n_hosts(), 1));
}

static bool second_messaged(void)
{
    return agents[1].n_messages > 0;
}

/* Who loses the one that hosts before anything has begun meets again, and may be the host itself then. */
Test(rendezvous, who_was_welcomed_and_lost_its_host_meets_again)
{
    agents[1].config.hosting = AGENT_HOST_NO;
    start(1); /* before any agent listens */
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_ONCE);
    host_with_0();
    run_until(second_messaged);

    cr_assert(eq(int, agents[1].n_welcomed, 1));
}

/* Where an arbiter says who leads */

static bool second_asks(void)
{
    return agents[0].n_offers == 1 && agents[1].n_welcomed == 1;
}

Test(rendezvous, who_has_the_endpoint_offers_it_and_hosts_when_it_leads)
{
    agents[0].arbitrated = agents[1].arbitrated = true;
    start(0);
    while (agents[0].n_offers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(agents[0].n_hosts == 0 && agents[0].port == agents[0].config.rendezvous_port);
    cr_assert(eq(str, agents[0].address, "127.0.0.1"));
    start(1);
    for (int i = 0; i < 40; i++)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(eq(int, agents[1].n_welcomed, 0), "no node is served before");

    meeting_lead(agents[0].meeting);
    cr_assert(eq(int, agents[0].n_hosts, 1));
    run_until(second_asks);
}

static bool follower_is_welcomed(void)
{
    return agents[1].n_welcomed == 1;
}

/* An earlier leader has moved: the one that has the endpoint joins it there, and does not host. */
Test(rendezvous, who_has_the_endpoint_follows_a_leader_elsewhere)
{
    const int elsewhere = free_port();

    agents[0].arbitrated = agents[1].arbitrated = true;
    start(1);
    while (agents[1].n_offers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    agents[0].config.rendezvous_port = elsewhere;
    start(0);
    while (agents[0].n_offers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    meeting_lead(agents[0].meeting);
    meeting_follow(agents[1].meeting, "127.0.0.1", elsewhere);
    run_until(follower_is_welcomed);

    cr_assert(agents[1].n_hosts == 0 && agents[0].n_joined == 1);
}

/* Else the host would see the node give up its place, and count that as a loss. */
Test(rendezvous, the_arbiter_names_the_leader_that_is_being_joined)
{
    agents[0].arbitrated = agents[1].arbitrated = true;
    start(0);
    while (agents[0].n_offers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    meeting_lead(agents[0].meeting);
    start(1);
    while (agents[0].n_joined == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(eq(int, agents[1].n_welcomed, 0), "its answer is under way");
    meeting_follow(agents[1].meeting, "127.0.0.1", agents[0].config.rendezvous_port);
    run_until(follower_is_welcomed);

    cr_assert(eq(int, agents[0].n_joined, 1));
}

/* The host goes. Agent 1, which was its member, takes its place, at an address of its own, and 2 is told. */
static bool successor_serves(void)
{
    const char *host;
    int port;

    if (agents[0].n_offers == 1 && agents[0].n_hosts == 0)
        meeting_lead(agents[0].meeting);
    if (agents[0].rendezvous != NULL && agents[0].n_messages == 2) {
        rendezvous_destroy(agents[0].rendezvous);
        agents[0].rendezvous = NULL;
    }
    if (agents[1].n_lost == 1 && agents[2].n_lost == 1 && agents[1].n_offers == 0) {
        cr_assert(eq(int, meeting_offer(agents[1].meeting, &host, &port, NULL), FSDP_OK));
        cr_assert(eq(str, (char *)host, "127.0.0.2"));
        agents[1].n_offers = 1;
        meeting_lead(agents[1].meeting);
        meeting_follow(agents[2].meeting, host, port);
    }
    return agents[1].n_messages == 2;
}

Test(rendezvous, a_member_takes_the_place_of_its_host)
{
    for (int i = 0; i < 3; i++)
        agents[i].arbitrated = agents[i].returns = true;
    agents[1].config.local_address = "127.0.0.2";
    start(0);
    while (agents[0].n_offers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    start(1);
    start(2);
    run_until(successor_serves);

    cr_assert(agents[1].n_hosts == 1 && agents[2].n_welcomed == 2);
    has(agents[1].where, "127.0.0.2");
    cr_assert(memcmp(agents[1].joins[1].lost_by, "iiiiiiiiiiiiiii", PROTO_IDENTITY_BYTES) == 0,
              "it is the same run");
}

/* The leader that it follows is gone as well, and so is its own offer. The arbiter may name another one. */
static bool stander_gave_up(void)
{
    const char *host;
    int port;

    if (agents[0].n_offers == 1 && agents[0].n_hosts == 0)
        meeting_lead(agents[0].meeting);
    if (agents[0].n_messages == 1)
        agents[1].config.join_timeout_ms = 2000;
    member_lost_host();
    if (agents[1].n_lost == 1 && agents[1].n_offers == 0) {
        agents[1].n_offers = 1;
        cr_assert(eq(int, meeting_offer(agents[1].meeting, &host, &port, NULL), FSDP_OK));
        meeting_follow(agents[1].meeting, host, port);
    }
    return agents[1].n_failed == 1;
}

Test(rendezvous, who_may_come_to_lead_waits_also_where_nobody_listens)
{
    agents[0].arbitrated = agents[1].arbitrated = agents[1].returns = true;
    agents[1].config.lease_ms = 300;
    start(0);
    while (agents[0].n_offers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    start(1);
    run_until(stander_gave_up);

    cr_assert(eq(int, agents[1].status, FSDP_EXIT_LINK));
    has(agents[1].words, "no answer from 127.0.0.1");
    has(agents[1].words, "for 2 s");
}

/* Where an etcd takes the endpoint's place */

static bool first_is_welcomed(void)
{
    return agents[0].n_welcomed == 1;
}

static bool at_once(void)
{
    return true;
}

static void without_an_endpoint(int i)
{
    agents[i].arbitrated = true;
    agents[i].config.rendezvous_host = NULL;
    agents[i].config.rendezvous_port = 0;
    agents[i].config.etcd = "etcd://no.such.name.invalid,127.0.0.1:1";
}

static void offers(int i, int n)
{
    start(i);
    while (agents[i].n_offers < n)
        uv_run(&loop, UV_RUN_ONCE);
}

/* The first member of the etcd has no address; the second one shows how this host is reached. */
Test(rendezvous, without_an_endpoint_each_node_offers_and_follows_the_one_that_leads)
{
    without_an_endpoint(0);
    without_an_endpoint(1);
    agents[1].config.local_address = "127.0.0.2";
    offers(0, 1);
    offers(1, 1);
    cr_assert(eq(str, agents[0].address, "127.0.0.1"));
    cr_assert(eq(str, agents[1].address, "127.0.0.2"));
    cr_assert(agents[0].n_hosts == 0 && agents[1].n_hosts == 0);
    has(agents[0].notes, "up to 250 s (the name no.such.name.invalid cannot be resolved");

    meeting_lead(agents[1].meeting);
    meeting_follow(agents[0].meeting, agents[1].address, agents[1].port);
    run_until(first_is_welcomed);
}

/* It was never a member, so only the arbiter can say that the place of the one that was named is free. */
Test(rendezvous, without_an_endpoint_a_node_offers_again_when_the_leader_is_gone)
{
    without_an_endpoint(0);
    offers(0, 1);

    for (int n = 2; n < 4; n++) {
        meeting_follow(agents[0].meeting, "127.0.0.1", free_port());
        while (agents[0].n_offers < n)
            uv_run(&loop, UV_RUN_ONCE);
    }
    meeting_lead(agents[0].meeting);
    cr_assert(eq(int, agents[0].n_hosts, 1));
    has(agents[0].where, "127.0.0.1:");
    run_until(at_once);
}

/* A node that may not host, as one of a job that was given a rank above 0, waits to be told who leads. */
Test(rendezvous, without_an_endpoint_a_node_that_may_not_host_waits)
{
    without_an_endpoint(0);
    without_an_endpoint(1);
    agents[0].config.hosting = AGENT_HOST_NO;
    start(0);
    offers(1, 1);
    meeting_lead(agents[1].meeting);
    for (int i = 0; i < 6; i++)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(agents[0].n_offers == 0 && agents[0].n_welcomed == 0);

    meeting_follow(agents[0].meeting, "127.0.0.1", agents[1].port);
    run_until(first_is_welcomed);
}

/* Beats beside the session */

static int pulse_fd;

/* Sends a question of the member's session, or of another one. */
static void ask_by_datagram(const struct agent *member, int64_t sent_ns, bool another)
{
    struct pulse question = { .sent_ns = sent_ns };
    struct tls_mac_key *key = pulse_key_create(meeting_key(member->meeting));
    unsigned char bytes[PULSE_BYTES];
    struct pulse_aim aim;

    cr_assert(meeting_aim(member->meeting, &aim));
    memcpy(question.session, aim.session, sizeof question.session);
    question.session[3] ^= another;
    cr_assert(pulse_encode(bytes, &question, key));
    tls_mac_key_destroy(key);
    cr_assert(sendto(pulse_fd, bytes, sizeof bytes, 0, (struct sockaddr *)&aim.to,
                     sizeof(struct sockaddr_in)) == PULSE_BYTES);
}

static struct agent *const member = &agents[1];

static bool is_member(void)
{
    return agents[0].n_messages > 0;
}

static void join_with_pulses(void)
{
    const struct timeval patience = { .tv_sec = 100 };

    may_answer = true;
    pulse_fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(pulse_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    host_with_0();
    start(1);
    while (!is_member())
        uv_run(&loop, UV_RUN_ONCE);
}

static void leave_with_pulses(void)
{
    close(pulse_fd);
    run_until(at_once);
}

static struct pulse await_answer(void)
{
    struct tls_mac_key *key = pulse_key_create(meeting_key(member->meeting));
    unsigned char bytes[PULSE_BYTES];
    struct pulse answer;

    cr_assert(recv(pulse_fd, bytes, sizeof bytes, 0) == PULSE_BYTES);
    cr_assert(pulse_decode(&answer, bytes, sizeof bytes, key) && answer.is_answer);
    tls_mac_key_destroy(key);
    return answer;
}

/* No loop turns in this test once the member has joined. */
Test(rendezvous, a_thread_answers_a_pulse_once_and_only_for_a_session_that_is_there)
{
    unsigned char byte;

    join_with_pulses();
    ask_by_datagram(member, 100, false);
    ask_by_datagram(member, 100, false); /* a stranger has recorded it */
    ask_by_datagram(member, 99, false);
    ask_by_datagram(member, 102, true);
    ask_by_datagram(member, 101, false);

    for (int64_t sent_ns = 100; sent_ns <= 101; sent_ns++) {
        const struct pulse answer = await_answer();

        cr_assert(eq(i64, answer.sent_ns, sent_ns));
        cr_assert(eq(i64, answer.lease_ms, LEASE_RANKS_MS(member->config.lease_ms)));
        cr_assert(answer.answered_ns > 0 && answer.answered_ns <= clock_boot_ns());
    }
    cr_assert(recv(pulse_fd, &byte, 1, MSG_DONTWAIT) < 0);
    leave_with_pulses();
}

Test(rendezvous, a_leader_without_a_hold_answers_no_pulse)
{
    join_with_pulses();
    may_answer = false;
    ask_by_datagram(member, 100, false);
    while (n_asks == 0)
        sched_yield();
    may_answer = true;
    ask_by_datagram(member, 101, false);

    cr_assert(eq(i64, await_answer().sent_ns, 101));
    leave_with_pulses();
}

Test(rendezvous, who_loses_a_node_knows_the_last_answer_that_it_got)
{
    struct pulse answer;

    join_with_pulses();
    ask_by_datagram(member, 100, false);
    answer = await_answer(); /* the loop has not turned since */
    meeting_destroy(member->meeting);
    member->meeting = NULL;
    while (agents[0].n_lost == 0)
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(eq(i64, agents[0].told.answered_ns, answer.answered_ns));
    leave_with_pulses();
}
