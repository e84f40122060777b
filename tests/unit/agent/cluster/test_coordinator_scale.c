/*
 * What an event of one node costs the coordinator. While it happens, the memory of the other nodes and of
 * earlier deaths is forbidden.
 */
#include "tests/unit/agent/cluster/stage.h"
#include "tests/unit/agent/forbid.h"

enum { N = 4000, WATCHED = 2000 };

static int n_told[PROTO_COUNT];

static void count(void *member, enum proto_type type, int generation, const void *message)
{
    n_told[type]++;
}

/*
 * Forbid all nodes but the coordinator's own and the watched one, and all deaths but the first and the
 * last.
 */
static void forbid_others(bool forbidden)
{
    const struct roster *roster = &coordinator->roster;

    forbid(&roster->nodes[1], &roster->nodes[WATCHED], forbidden);
    forbid(&roster->nodes[WATCHED + 1], &roster->nodes[roster->capacity], forbidden);
    forbid(&coordinator->nodes[1], &coordinator->nodes[WATCHED], forbidden);
    forbid(&coordinator->nodes[WATCHED + 1], &coordinator->nodes[roster->capacity], forbidden);
    if (coordinator->n_deaths > 2)
        forbid(&coordinator->deaths[1], &coordinator->deaths[coordinator->n_deaths - 1], forbidden);
}

static void dies(int node, enum death_kind kind, int code, int sent_signal)
{
    const struct reporter reporter = coordinator_reporter(coordinator, node);
    const struct death death = { .kind = kind,
                                 .rank = coordinator->roster.nodes[node].first_rank,
                                 .code = code,
                                 .sent_signal = sent_signal,
                                 .when_ns = agent_os_linux.now_ns(agent_os_linux.arg) };

    reporter.exited(reporter.to, coordinator->generation, &death, NULL);
}

static void stops(int node)
{
    const struct reporter reporter = coordinator_reporter(coordinator, node);

    reporter.stopped(reporter.to, coordinator->generation);
}

static int comes(void)
{
    struct proto_refused refused;
    struct proto_join join;
    int node;

    identity_fill(&join, &config);
    node = coordinator_admit(coordinator, &join, "127.0.0.1", &refused);
    cr_assert(gt(int, node, 0), "%s", refused.words);
    coordinator_set_address(coordinator, "127.0.0.1");
    coordinator_attach(coordinator, node, count, NULL);
    return node;
}

TestSuite(coordinator_scale, .init = make_config, .fini = end, .timeout = 600);

Test(coordinator_scale, an_event_of_one_node_looks_at_no_other_node_and_at_no_earlier_death)
{
    struct proto_welcome welcome;

    begin(N, N, 0, 1);
    while (roster_n_present(&coordinator->roster) < N - 1)
        comes();
    forbid(&coordinator->roster.nodes[1], &coordinator->roster.nodes[N - 2], true);
    coordinator_welcome(coordinator, N - 2, &welcome);
    cr_assert(welcome.wait == PROTO_WAIT_FORMING);
    coordinator_gather(coordinator);
    forbid(&coordinator->roster.nodes[1], &coordinator->roster.nodes[N - 2], false);
    comes();
    wait_for(1);
    cr_assert(eq(int, n_told[PROTO_START], N - 1));

    dies(1, DEATH_EXIT, 7, 0);
    cr_assert(eq(int, n_told[PROTO_STOP], N - 1));
    for (int node = 0; node < WATCHED; node++) {
        if (node != 1)
            dies(node, DEATH_SIGNAL, SIGTERM, SIGTERM);
        stops(node);
    }
    coordinator_lost(coordinator, N - 1, 0, "closed the connection");
    cr_assert(eq(int, n_told[PROTO_STOP], 2 * (N - 1) - 1),
              "the first loss shortens the grace of all others");

    forbid_others(true);
    dies(WATCHED, DEATH_EXIT, 75, 0);
    stops(WATCHED);
    coordinator_lost(coordinator, WATCHED, 0, "closed the connection");
    forbid_others(false);

    cr_assert(eq(int, coordinator->cause, 0));
    for (int node = WATCHED + 1; node < N - 1; node++) {
        cr_assert(eq(int, actors[0].n_finished, 0), "node %d is still up", node);
        stops(node);
    }
    check_finished(0, 7);
}
