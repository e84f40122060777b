/* Arbiters of three agents on one loop, over a real etcd of three members. */
#include "agent/arbiter/arbiter.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "agent/arbiter/etcd_store.h"
#include "agent/os/deadlines.h"
#include "tests/unit/agent/arbiter/agents.h"
#include "tests/unit/agent/arbiter/etcd_server.h"

enum { LEASE = 3000, PATIENCE_MS = 120000 };

static void make(int i)
{
    const struct etcd_endpoints endpoints = server_endpoints("etcd", 0, n_servers);
    struct arbiter_spec spec = { .run = 17, .lease_ms = LEASE };

    snprintf((char *)spec.identity, sizeof spec.identity, "agent %d", i);
    cr_assert(eq(int, etcd_store_create(&spec.store, &endpoints, "run 7", LEASE, NULL), FSDP_OK));
    if (i == 0)
        server_wait_ready(spec.store);
    cr_assert(eq(int, arbiter_create(&agents[i].arbiter, &loop, &spec, &agent_handlers, &agents[i], NULL),
                 FSDP_OK));
}

static void set_up(void)
{
    servers_begin();
    agents_begin(PATIENCE_MS);
}

static void tear_down(void)
{
    agents_end();
    servers_end();
}

TestSuite(arbiter_etcd, .init = set_up, .fini = tear_down, .timeout = 180);

/* The leader of the run and that of etcd are lost at the same time. */
Test(arbiter_etcd, the_lead_moves_while_etcd_looks_for_a_leader_of_its_own)
{
    int taker, other;

    servers_start(3, "http", NULL);
    for (int i = 0; i < AGENTS; i++)
        make(i);
    arbiter_claim_first(agents[0].arbiter, "10.0.0.1", 29400);
    await_news(0, "L");
    await_news(1, "F");
    await_news(2, "F");
    const int64_t gone = clock_boot_ms();

    server_kill(server_leader());
    leave(0);
    arbiter_stand(agents[1].arbiter, 1, "10.0.0.2", 2, gone, 1);
    arbiter_stand(agents[2].arbiter, 2, "10.0.0.3", 3, gone, 1);
    while (strcmp(agents[1].news, "FL") != 0 && strcmp(agents[2].news, "FL") != 0)
        uv_run(&loop, UV_RUN_ONCE);

    taker = strcmp(agents[1].news, "FL") == 0 ? 1 : 2;
    other = 3 - taker;
    await_news(other, "FF");
    cr_log_info("the lead moved in %d ms\n", (int)(agents[taker].led_ms - gone));
    cr_assert(agents[taker].led_ms >= gone + LEASE_END_MS(LEASE), "the old leader's hold was over");
    cr_assert(agents[taker].fence_ms >= gone + LEASE_FENCE_MS(LEASE));
    cr_assert(agents[taker].term > 1 && agents[other].record.term == agents[taker].term);
    cr_assert(eq(int, agents[other].record.port, taker + 1));
    arbiter_resign(agents[taker].arbiter, 3);
    await_news(taker, "FLE");
    await_news(other, "FFE");
    cr_assert(eq(int, agents[other].record.exit_status, 3));
}
