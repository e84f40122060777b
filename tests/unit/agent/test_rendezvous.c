#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#include "agent/rendezvous.h"
#include "agent/tls.h"

enum { MAX_NODES = 5 };

struct party;

struct agent {
    struct party *party;
    struct rendezvous *rendezvous;
    struct rendezvous_config config;
    unsigned char key[TLS_KEY_BYTES];
    int n_formed, n_failed, n_lost, n_messages, status;
    char words[1200], notes[4000];
};

/* All agents of a test on one loop. `done` ends the run. */
struct party {
    uv_loop_t loop;
    uv_timer_t deadline;
    struct agent agents[MAX_NODES];
    int n_agents, port;
    bool (*done)(const struct party *party);
    bool finished, timed_out;
};

static void finish(struct party *party)
{
    if (party->finished || !party->done(party))
        return;
    party->finished = true;
    for (int i = 0; i < party->n_agents; i++)
        rendezvous_destroy(party->agents[i].rendezvous);
    uv_close((uv_handle_t *)&party->deadline, NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    struct party *party = timer->data;

    party->timed_out = true;
    uv_stop(timer->loop);
}

static void on_formed(void *arg)
{
    struct agent *agent = arg;

    agent->n_formed++;
    if (agent->config.self.node_rank == 0)
        rendezvous_broadcast(agent->rendezvous, PROTO_START, 5, "hello", 5);
    finish(agent->party);
}

static void on_failed(void *arg, int status, const char *words)
{
    struct agent *agent = arg;

    agent->n_failed++;
    agent->status = status;
    snprintf(agent->words, sizeof agent->words, "%s", words);
    finish(agent->party);
}

static void on_message(void *arg, int node, const struct frame *frame)
{
    struct agent *agent = arg;

    agent->n_messages++;
    if (agent->config.self.node_rank != 0) {
        cr_assert(eq(int, node, 0));
        cr_assert(eq(u32, frame->generation, 5));
        cr_assert(frame->size == 5 && memcmp(frame->payload, "hello", 5) == 0);
        rendezvous_send(agent->rendezvous, 0, PROTO_STOPPED, 5, NULL, 0);
    }
    finish(agent->party);
}

static void on_lost(void *arg, int node, const char *words)
{
    struct agent *agent = arg;

    (void)node;
    agent->n_lost++;
    snprintf(agent->words, sizeof agent->words, "%s", words);
    finish(agent->party);
}

static void on_note(void *arg, const char *words)
{
    struct agent *agent = arg;

    strncat(agent->notes, words, sizeof agent->notes - strlen(agent->notes) - 2);
    strcat(agent->notes, "\n");
    finish(agent->party);
}

static void set_up(struct party *party, bool (*done)(const struct party *party))
{
    static const struct rendezvous_handlers handlers = { on_formed, on_failed, on_message, on_lost, on_note };
    struct sockaddr_in address = { 0 };
    uv_tcp_t probe;
    int length = sizeof address;

    memset(party, 0, sizeof *party);
    party->done = done;
    uv_loop_init(&party->loop);
    uv_timer_init(&party->loop, &party->deadline);
    party->deadline.data = party;
    uv_timer_start(&party->deadline, on_deadline, 30000, 0);
    /* A port that is free now: bound, read, closed. */
    uv_tcp_init(&party->loop, &probe);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_bind(&probe, (struct sockaddr *)&address, 0);
    uv_tcp_getsockname(&probe, (struct sockaddr *)&address, &length);
    party->port = ntohs(address.sin_port);
    uv_close((uv_handle_t *)&probe, NULL);
    uv_run(&party->loop, UV_RUN_NOWAIT);
    for (int i = 0; i < MAX_NODES; i++) {
        struct agent *agent = &party->agents[i];

        agent->party = party;
        tls_derive_key(agent->key, "the secret of the job", 21, "id", NULL);
        agent->config = (struct rendezvous_config){
            .host = "127.0.0.1",
            .port = party->port,
            .key = agent->key,
            .job = 1,
            .join_timeout_ms = 15000,
            .self = { .version = "v", .host = "h", .node_rank = i, .n_nodes = 2, .n_workers = 2, .what = 9 },
            .handlers = handlers,
            .arg = agent,
        };
    }
}

static void start(struct party *party, int i)
{
    struct fsdp_err err = { 0 };

    cr_assert(
        eq(int, rendezvous_create(&party->agents[i].rendezvous, &party->loop, &party->agents[i].config, &err),
           FSDP_OK),
        "%s", err.message);
    if (i >= party->n_agents)
        party->n_agents = i + 1;
}

static void run(struct party *party)
{
    uv_run(&party->loop, UV_RUN_DEFAULT);
    cr_assert(not(party->timed_out), "nothing happened for 30 s");
    cr_assert(eq(int, uv_loop_close(&party->loop), 0));
}

static bool all_answered(const struct party *party)
{
    return party->agents[0].n_messages == party->agents[0].config.self.n_nodes - 1;
}

Test(rendezvous, five_nodes_form_in_any_order_and_talk, .timeout = 60)
{
    const int order[MAX_NODES] = { 3, 1, 0, 4, 2 }; /* members before the coordinator too: they keep trying */
    struct party party;

    set_up(&party, all_answered);
    for (int i = 0; i < MAX_NODES; i++)
        party.agents[i].config.self.n_nodes = MAX_NODES;
    for (int i = 0; i < MAX_NODES; i++)
        start(&party, order[i]);
    run(&party);

    for (int i = 0; i < MAX_NODES; i++) {
        cr_assert(eq(int, party.agents[i].n_formed, 1), "node %d", i);
        cr_assert(eq(int, party.agents[i].n_failed, 0), "node %d: %s", i, party.agents[i].words);
    }
}

static bool one_formed(const struct party *party)
{
    return party->agents[0].n_formed == 1;
}

Test(rendezvous, one_node_needs_nobody_and_listens_nowhere, .timeout = 60)
{
    struct party party;

    set_up(&party, one_formed);
    party.agents[0].config.self.n_nodes = 1;
    party.agents[0].config.host = NULL;
    start(&party, 0);
    run(&party);

    cr_assert(eq(int, party.agents[0].n_formed, 1));
}

static bool member_failed(const struct party *party)
{
    return party->agents[1].n_failed == 1;
}

static void check_refused(struct party *party, int status, const char *words)
{
    start(party, 0);
    start(party, 1);
    run(party);
    cr_assert(eq(int, party->agents[1].status, status), "%s", party->agents[1].words);
    cr_assert_not_null(strstr(party->agents[1].words, words), "%s", party->agents[1].words);
    cr_assert(eq(int, party->agents[0].n_formed + party->agents[0].n_failed, 0));
}

Test(rendezvous, who_does_not_fit_is_told_why, .timeout = 60)
{
    struct party party;

    set_up(&party, member_failed);
    party.agents[1].config.self.what = 10;
    check_refused(&party, FSDP_EXIT_CONFIG, "another job file");

    set_up(&party, member_failed);
    party.agents[1].config.self.n_nodes = 3;
    check_refused(&party, FSDP_EXIT_CONFIG, "started for 3 nodes");

    set_up(&party, member_failed);
    party.agents[1].config.self.n_workers = 1;
    check_refused(&party, FSDP_EXIT_CONFIG, "1 workers");

    set_up(&party, member_failed);
    snprintf(party.agents[1].config.self.version, 64, "w");
    check_refused(&party, FSDP_EXIT_CONFIG, "runs fsdprun w");
}

Test(rendezvous, a_wrong_secret_ends_the_member_and_not_the_coordinator, .timeout = 60)
{
    struct party party;

    set_up(&party, member_failed);
    tls_derive_key(party.agents[1].key, "not the secret", 14, "id", NULL);
    check_refused(&party, FSDP_EXIT_PEER, "TLS");
}

static bool third_failed_and_formed(const struct party *party)
{
    return party->agents[2].n_failed == 1 && party->agents[0].n_formed == 1;
}

Test(rendezvous, a_taken_rank_is_refused_and_the_world_forms_without_it, .timeout = 60)
{
    struct party party;

    set_up(&party, third_failed_and_formed);
    for (int i = 0; i < 4; i++)
        party.agents[i].config.self.n_nodes = 3;
    party.agents[2].config.self.node_rank = 1;
    party.agents[3].config.self.node_rank = 2;
    start(&party, 0);
    start(&party, 1);
    while (rendezvous_n_connected(party.agents[0].rendezvous) < 1)
        uv_run(&party.loop, UV_RUN_ONCE);
    start(&party, 2);
    while (party.agents[2].n_failed == 0)
        uv_run(&party.loop, UV_RUN_ONCE);
    start(&party, 3);
    run(&party);

    cr_assert_not_null(strstr(party.agents[2].words, "node rank 1 is taken"), "%s", party.agents[2].words);
}

static bool both_failed(const struct party *party)
{
    return party->agents[0].n_failed == 1;
}

Test(rendezvous, the_wait_is_bounded_and_names_who_is_missing, .timeout = 60)
{
    struct party party;

    set_up(&party, both_failed);
    party.agents[0].config.self.n_nodes = 3;
    party.agents[0].config.join_timeout_ms = 400;
    start(&party, 0);
    run(&party);

    cr_assert(eq(int, party.agents[0].status, FSDP_EXIT_PEER));
    cr_assert_not_null(strstr(party.agents[0].words, "1 of 3 nodes came"), "%s", party.agents[0].words);
    cr_assert_not_null(strstr(party.agents[0].words, "missing node 1 2"), "%s", party.agents[0].words);
}

Test(rendezvous, a_member_without_a_coordinator_gives_up_in_time, .timeout = 60)
{
    struct party party;

    set_up(&party, member_failed);
    party.agents[1].config.join_timeout_ms = 400;
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[1].status, FSDP_EXIT_PEER));
    cr_assert_not_null(strstr(party.agents[1].words, "connection refused"), "%s", party.agents[1].words);
}

static bool coordinator_lost_one(const struct party *party)
{
    if (party->agents[0].n_messages == 1 && party->agents[1].rendezvous != NULL) {
        /* The member goes away as a killed process would: its connection closes. */
        rendezvous_destroy(party->agents[1].rendezvous);
        ((struct party *)party)->agents[1].rendezvous = NULL;
    }
    return party->agents[0].n_lost == 1;
}

Test(rendezvous, a_member_that_goes_is_told_as_lost, .timeout = 60)
{
    struct party party;

    set_up(&party, coordinator_lost_one);
    start(&party, 0);
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[0].n_lost, 1));
    cr_assert(eq(int, party.agents[1].n_lost, 0));
}
