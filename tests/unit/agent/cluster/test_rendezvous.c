/* agent/cluster/rendezvous.c and agent/cluster/meeting.c, against each other, over loopback. */
#include "agent/cluster/rendezvous.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#include <fsdp/link.h>

#include "agent/cluster/meeting.h"

enum { MAX_NODES = 6 };

struct party;

struct agent {
    struct party *party;
    struct agent_config config;
    struct meeting *meeting;
    struct rendezvous *rendezvous; /* it hosts */
    int n_hosts, n_welcomed, n_messages, n_lost, n_failed, n_joined, status;
    char words[1200], notes[4000], where[300], address[64];
    struct proto_join joins[MAX_NODES];
};

/* All agents of a test on one loop. `done` ends the run. */
struct party {
    uv_loop_t loop;
    uv_timer_t deadline;
    struct agent agents[MAX_NODES];
    int port;
    bool (*done)(const struct party *party);
    bool finished, timed_out;
};

static void finish(struct party *party)
{
    if (party->finished || !party->done(party))
        return;
    party->finished = true;
    for (int i = 0; i < MAX_NODES; i++) {
        rendezvous_destroy(party->agents[i].rendezvous);
        meeting_destroy(party->agents[i].meeting);
    }
    uv_close((uv_handle_t *)&party->deadline, NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    struct party *party = timer->data;

    party->timed_out = true;
    uv_stop(timer->loop);
}

static void add_note(void *arg, const char *words)
{
    struct agent *agent = arg;

    strncat(agent->notes, words, sizeof agent->notes - strlen(agent->notes) - 2);
    strcat(agent->notes, "\n");
    finish(agent->party);
}

/* --- the one that hosts */

static int judge(void *arg, const struct proto_join *join, const char *address, struct proto_refused *refused)
{
    struct agent *agent = arg;

    (void)address;
    if (strcmp(join->role, "unwanted") == 0) {
        *refused = (struct proto_refused){ .status = FSDP_EXIT_CONFIG, .words = "you are not wanted" };
        return -1;
    }
    if (strcmp(join->role, "late") == 0) {
        *refused = (struct proto_refused){ .status = 0, .words = "it is complete" };
        return -1;
    }
    agent->joins[++agent->n_joined] = *join;
    return agent->n_joined;
}

static void on_joined(void *arg, int node)
{
    struct agent *agent = arg;
    const struct proto_welcome welcome = { .host = "hhh", .wait = PROTO_WAIT_FORMING };
    char *text = proto_write_welcome(&welcome);

    rendezvous_send(agent->rendezvous, node, PROTO_WELCOME, 0, text, strlen(text));
    rendezvous_send(agent->rendezvous, node, PROTO_START, 5, "hello", 5);
    free(text);
}

static void on_host_message(void *arg, int node, const struct frame *frame)
{
    struct agent *agent = arg;

    cr_assert(node >= 1 && node <= agent->n_joined);
    cr_assert(eq(int, frame->type, PROTO_STOPPED));
    agent->n_messages++;
    finish(agent->party);
}

static void on_host_lost(void *arg, int node, int64_t silent_ms, const char *words)
{
    struct agent *agent = arg;

    cr_assert(node >= 1 && silent_ms >= 0 && silent_ms < 300000);
    agent->n_lost++;
    snprintf(agent->words, sizeof agent->words, "%s", words);
    finish(agent->party);
}

static void on_hosts(void *arg, struct rendezvous *rendezvous, const char *where)
{
    static const struct rendezvous_handlers handlers = { judge, on_joined, on_host_message, on_host_lost,
                                                         add_note };
    struct agent *agent = arg;

    agent->n_hosts++;
    agent->rendezvous = rendezvous;
    snprintf(agent->where, sizeof agent->where, "%s", where);
    snprintf(agent->address, sizeof agent->address, "%s", rendezvous_address(rendezvous));
    cr_assert(eq(int, rendezvous_serve(rendezvous, MAX_NODES + 1, &handlers, agent, NULL), FSDP_OK));
    meeting_destroy(agent->meeting);
    agent->meeting = NULL;
    finish(agent->party);
}

/* --- the members */

static void on_welcomed(void *arg, const struct proto_welcome *welcome, const char *address)
{
    struct agent *agent = arg;

    cr_assert(eq(str, (char *)welcome->host, "hhh"));
    cr_assert(gt(sz, strlen(address), 0));
    agent->n_welcomed++;
    finish(agent->party);
}

static void on_message(void *arg, const struct frame *frame)
{
    struct agent *agent = arg;

    cr_assert(frame->generation == 5 && frame->size == 5 && memcmp(frame->payload, "hello", 5) == 0);
    agent->n_messages++;
    meeting_send(agent->meeting, PROTO_STOPPED, 5, NULL, 0);
    finish(agent->party);
}

static void on_lost(void *arg, const char *words)
{
    struct agent *agent = arg;

    agent->n_lost++;
    snprintf(agent->words, sizeof agent->words, "%s", words);
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

/* --- a party */

static int free_port(uv_loop_t *loop)
{
    struct sockaddr_in address = { 0 };
    uv_tcp_t probe;
    int length = sizeof address;

    uv_tcp_init(loop, &probe);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_bind(&probe, (struct sockaddr *)&address, 0);
    uv_tcp_getsockname(&probe, (struct sockaddr *)&address, &length);
    uv_close((uv_handle_t *)&probe, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    return ntohs(address.sin_port);
}

static void set_up(struct party *party, bool (*done)(const struct party *party))
{
    memset(party, 0, sizeof *party);
    party->done = done;
    uv_loop_init(&party->loop);
    uv_timer_init(&party->loop, &party->deadline);
    party->deadline.data = party;
    uv_timer_start(&party->deadline, on_deadline, 400000, 0);
    party->port = free_port(&party->loop);
    for (int i = 0; i < MAX_NODES; i++) {
        struct agent_config *config = &party->agents[i].config;

        party->agents[i].party = party;
        agent_config_init(config);
        config->n_nodes = config->min_nodes = 2;
        config->node_rank = -1;
        config->join_timeout_ms = 250000;
        config->rendezvous_host = "127.0.0.1";
        config->rendezvous_port = party->port;
        config->secret = "the secret of the job";
        config->secret_bytes = 21;
    }
}

static void start(struct party *party, int i)
{
    static const struct meeting_handlers handlers = { on_hosts, on_welcomed, on_message,
                                                      on_lost,  on_failed,   add_note };
    struct fsdp_err err = { 0 };

    cr_assert(eq(int,
                 meeting_create(&party->agents[i].meeting, &party->loop, &party->agents[i].config, &handlers,
                                &party->agents[i], &err),
                 FSDP_OK),
              "%s", err.message);
}

static void run(struct party *party)
{
    uv_run(&party->loop, UV_RUN_DEFAULT);
    cr_assert(not(party->timed_out), "nothing happened for 40 s");
    cr_assert(eq(int, uv_loop_close(&party->loop), 0));
}

static int n_hosts(const struct party *party)
{
    int n = 0;

    for (int i = 0; i < MAX_NODES; i++)
        n += party->agents[i].n_hosts;
    return n;
}

static bool all_answered(const struct party *party)
{
    int n = 0;

    for (int i = 0; i < MAX_NODES; i++)
        n += party->agents[i].n_hosts > 0 ? party->agents[i].n_messages : 0;
    return n == MAX_NODES - 1;
}

Test(rendezvous, of_six_agents_on_one_host_one_hosts_and_all_talk, .timeout = 600)
{
    static const char *const names[] = { "127.0.0.1", "localhost" };

    for (int name = 0; name < 2; name++) {
        struct party party;

        set_up(&party, all_answered);
        for (int i = 0; i < MAX_NODES; i++) {
            party.agents[i].config.rendezvous_host = names[name];
            start(&party, i);
        }
        run(&party);

        cr_assert(eq(int, n_hosts(&party), 1));
        for (int i = 0; i < MAX_NODES; i++)
            cr_assert(party.agents[i].n_hosts == 1 ||
                          (party.agents[i].n_welcomed == 1 && party.agents[i].n_messages == 1),
                      "agent %d: %s", i, party.agents[i].words);
    }
}

static bool one_hosts(const struct party *party)
{
    return n_hosts(party) == 1;
}

Test(rendezvous, who_is_to_host_where_it_has_not_the_address_listens_everywhere, .timeout = 600)
{
    struct party party;

    set_up(&party, one_hosts);
    party.agents[0].config.rendezvous_host = "192.0.2.1"; /* of nobody: RFC 5737 */
    party.agents[0].config.hosting = AGENT_HOST_YES;
    start(&party, 0);
    run(&party);

    cr_assert_not_null(strstr(party.agents[0].where, "every address"), "%s", party.agents[0].where);
    cr_assert(eq(str, party.agents[0].address, "127.0.0.1"), "no address of its own has been seen yet");
}

static bool first_failed(const struct party *party)
{
    return party->agents[0].n_failed == 1;
}

Test(rendezvous, nobody_hosts_where_nobody_has_the_address, .timeout = 600)
{
    struct party party;

    set_up(&party, first_failed);
    party.agents[0].config.hosting = AGENT_HOST_NO;
    party.agents[0].config.join_timeout_ms = 400;
    start(&party, 0);
    run(&party);

    cr_assert(eq(int, party.agents[0].status, FSDP_EXIT_PEER));
    cr_assert_not_null(strstr(party.agents[0].words, "connection refused"), "%s", party.agents[0].words);
    cr_assert(eq(int, n_hosts(&party), 0));
}

Test(rendezvous, a_name_that_cannot_be_resolved_is_tried_again_and_told_once, .timeout = 600)
{
    struct party party;
    char *told;

    set_up(&party, first_failed);
    party.agents[0].config.rendezvous_host = "no.such.host.invalid"; /* RFC 6761: never resolves */
    party.agents[0].config.join_timeout_ms = 1500;
    start(&party, 0);
    run(&party);

    cr_assert(eq(int, party.agents[0].status, FSDP_EXIT_PEER));
    cr_assert_not_null(strstr(party.agents[0].words, "cannot be resolved"), "%s", party.agents[0].words);
    told = strstr(party.agents[0].notes, "cannot be resolved");
    cr_assert_not_null(told);
    cr_assert_null(strstr(told + 1, "cannot be resolved"));
}

static bool second_failed(const struct party *party)
{
    return party->agents[1].n_failed == 1;
}

static void host_with_0(struct party *party)
{
    start(party, 0);
    while (party->agents[0].n_hosts == 0)
        uv_run(&party->loop, UV_RUN_ONCE);
}

Test(rendezvous, who_is_refused_is_told_why, .timeout = 600)
{
    struct party party;

    set_up(&party, second_failed);
    party.agents[1].config.role = "unwanted";
    host_with_0(&party);
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[1].status, FSDP_EXIT_CONFIG));
    cr_assert_not_null(strstr(party.agents[1].words, "you are not wanted"), "%s", party.agents[1].words);
    cr_assert_not_null(strstr(party.agents[0].notes, "you are not wanted"), "%s", party.agents[0].notes);
}

Test(rendezvous, who_is_told_that_the_job_is_complete_ends_well, .timeout = 600)
{
    struct party party;

    set_up(&party, second_failed);
    party.agents[1].config.role = "late";
    party.agents[1].status = -1;
    host_with_0(&party);
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[1].status, 0));
    cr_assert(eq(str, party.agents[1].words, "it is complete"), "without the word of a refusal");
}

Test(rendezvous, a_wrong_secret_ends_the_member_and_not_the_host, .timeout = 600)
{
    struct party party;

    set_up(&party, second_failed);
    party.agents[1].config.secret = "not the secret of it.";
    host_with_0(&party);
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[1].status, FSDP_EXIT_PEER));
    cr_assert_not_null(strstr(party.agents[1].words, "TLS"), "%s", party.agents[1].words);
    cr_assert(eq(int, party.agents[0].n_joined, 0));
}

Test(rendezvous, another_run_id_is_told_to_both_without_a_secret_too, .timeout = 600)
{
    struct party party;

    set_up(&party, second_failed);
    for (int i = 0; i < 2; i++)
        party.agents[i].config.secret = NULL;
    party.agents[1].config.run_id = "another";
    host_with_0(&party);
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[1].status, FSDP_EXIT_PEER));
    cr_assert_not_null(strstr(party.agents[1].words, "another job (is --rdzv-id"), "%s",
                       party.agents[1].words);
    cr_assert_not_null(strstr(party.agents[0].notes, "127.0.0.1"), "%s", party.agents[0].notes);
}

static bool host_lost_one(const struct party *party)
{
    if (party->agents[0].n_messages == 1 && party->agents[1].meeting != NULL) {
        /* The member goes away as a killed process would: its connection closes. */
        meeting_destroy(party->agents[1].meeting);
        ((struct party *)party)->agents[1].meeting = NULL;
    }
    return party->agents[0].n_lost == 1;
}

Test(rendezvous, a_member_that_goes_is_told_as_lost, .timeout = 600)
{
    struct party party;

    set_up(&party, host_lost_one);
    host_with_0(&party);
    start(&party, 1);
    run(&party);

    cr_assert(eq(int, party.agents[0].n_lost, 1));
    cr_assert(eq(int, party.agents[1].n_lost, 0));
}

static bool member_lost_host(const struct party *party)
{
    if (party->agents[0].n_messages == 1 && party->agents[0].rendezvous != NULL) {
        /* The host goes away; its connections are cut after a while. */
        rendezvous_destroy(party->agents[0].rendezvous);
        ((struct party *)party)->agents[0].rendezvous = NULL;
    }
    return party->agents[1].n_lost == 1;
}

Test(rendezvous, a_host_that_goes_waits_for_the_goodbyes_and_no_longer, .timeout = 600)
{
    struct party party;
    uint64_t began;

    set_up(&party, member_lost_host);
    host_with_0(&party);
    start(&party, 1);
    began = uv_hrtime();
    run(&party);

    cr_assert(gt(u64, (uv_hrtime() - began) / 1000000, RENDEZVOUS_LINGER_MS - 1000));
}

static bool second_messaged(const struct party *party)
{
    return party->agents[1].n_messages > 0;
}

/* Who loses the one that hosts before anything has begun meets again, and may be the host itself then. */
Test(rendezvous, who_was_welcomed_and_lost_its_host_meets_again, .timeout = 600)
{
    struct party party;

    set_up(&party, second_messaged);
    party.agents[1].config.hosting = AGENT_HOST_NO;
    start(&party, 1); /* before anybody listens */
    for (int i = 0; i < 3; i++)
        uv_run(&party.loop, UV_RUN_ONCE);
    host_with_0(&party);
    run(&party);

    cr_assert(eq(int, party.agents[1].n_welcomed, 1));
}
