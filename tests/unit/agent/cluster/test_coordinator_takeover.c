/*
 * A coordinator that takes the place of another one in the middle of a run, and one that must give its place
 * up. What does it go on with, and when may it act?
 */
#include "shard_runtime/core/clock.h"
#include "tests/unit/agent/cluster/stage.h"

static struct coordinator_past past;
static struct leader_progress published;
static int n_published;
static bool may_lead;
static struct lease lease;

static bool holds(void *arg)
{
    return *(const bool *)arg;
}

static void publish(void *arg, const struct leader_progress *progress)
{
    cr_assert(arg == &may_lead);
    published = *progress;
    n_published++;
}

static void set_up(void)
{
    make_config();
    clock_ns = 1000000000;
    n_published = 0;
    may_lead = true;
    past = (struct coordinator_past){
        .run = "the first one...",
        .node_rank = 1,
        .progress = { .generation = 4, .n_restarts = 2, .n_restarts_left = 1, .step = 70 }
    };
    stage_services = (struct coordinator_services){ .past = &past, .lead = { 9, holds, publish, &may_lead } };
}

static void tear_down(void)
{
    end();
    if (stage_services.lease != NULL)
        lease_destroy(&lease);
    stage_services = (struct coordinator_services){ 0 };
}

TestSuite(coordinator_takeover, .init = set_up, .fini = tear_down, .timeout = 300);

/* The member that was node `node_rank` of that generation, under the coordinator that was lost. */
static void comes_back(int generation, int node_rank)
{
    struct proto_join *join = &stage_join;

    *join = (struct proto_join){ .last_generation = generation, .last_node_rank = node_rank };
    memcpy(join->lost_by, past.run, sizeof join->lost_by);
    enter();
    *join = (struct proto_join){ .last_generation = -1, .last_node_rank = -1 };
}

Test(coordinator_takeover, it_goes_on_with_numbers_restarts_and_order)
{
    begin(2, 2, 3, 1);
    comes_back(4, 0);
    check_plan(0, 5, 2, 1, 3);
    check_plan(1, 5, 2, 0, 3);
    cr_assert(published.generation == 5 && published.n_restarts == 3 && published.n_restarts_left == 0);
    cr_assert(eq(i64, published.step, 70));
    cr_assert(actors[0].plan.term == 9 && actors[1].plan.term == 9);
    cr_assert(memcmp(welcome_of(1).run, past.run, sizeof past.run) == 0);

    ends(1, DEATH_EXIT, 3, 0);
    obeys(0);
    check_finished(0, 3);
}

/* The record may be older than what a member has seen. */
Test(coordinator_takeover, a_member_that_has_seen_a_later_generation_moves_the_number)
{
    begin(2, 2, 3, 1);
    comes_back(6, 0);
    check_plan(0, 7, 2, 1, 3);
}

Test(coordinator_takeover, where_nodes_may_be_fewer_it_costs_no_restart)
{
    begin(1, 2, 3, 1);
    check_plan(0, 5, 1, 0, 2);
}

/* A node that only waited for a place may take over although the run cannot bear the loss. */
Test(coordinator_takeover, where_no_restart_is_left_it_ends_the_run)
{
    past.progress.n_restarts_left = 0;
    begin(2, 2, 2, 1);
    check_finished(0, FSDP_EXIT_LINK);
    cr_assert(eq(str, actors[0].line, "the node that led the job was lost, and no restart is left"));
    cr_assert(eq(int, actors[0].n_formed, 0));
}

Test(coordinator_takeover, where_nodes_may_be_fewer_it_needs_no_restart)
{
    past.progress.n_restarts_left = 0;
    begin(1, 2, 2, 1);
    check_plan(0, 5, 1, 0, 2);
}

/* The user's limit counts for its window, from the take-over on. */
Test(coordinator_takeover, restarts_of_the_earlier_coordinator_count_in_a_window)
{
    config.restart_window_ms = 60000;
    begin(1, 2, 3, 1);
    ends(0, DEATH_EXIT, 3, 0);
    cr_assert(eq(int, actors[0].n_finished, 0), "one was left");
    ends(0, DEATH_EXIT, 3, 0);
    check_finished(0, 3);
}

/* One was 10 s ago, and the other 50 s. */
Test(coordinator_takeover, they_leave_the_window_as_they_would_have_under_that_one)
{
    config.restart_window_ms = 60000;
    past.progress.restarts_s[0] = 10;
    past.progress.restarts_s[1] = 50;
    begin(1, 2, 3, 1);
    ends(0, DEATH_EXIT, 3, 0);
    cr_assert(published.restarts_s[0] == 0 && published.restarts_s[1] == 10 && published.restarts_s[2] == 50);

    clock_ns += INT64_C(11000000000);
    ends(0, DEATH_EXIT, 3, 0);
    cr_assert(eq(int, actors[0].n_finished, 0), "the older one is 61 s ago");
    ends(0, DEATH_EXIT, 3, 0);
    check_finished(0, 3);
}

/* Its members belong to the run all the same. */
Test(coordinator_takeover, after_one_that_had_begun_nothing_it_begins_with_generation_0)
{
    past.progress = (struct leader_progress){ .generation = -1, .step = -1, .n_restarts_left = 3 };
    past.node_rank = -1;
    begin(2, 2, 3, 1);
    comes_back(-1, -1);
    check_plan(0, 0, 2, 0, 0);
}

Test(coordinator_takeover, a_node_of_another_run_is_refused)
{
    struct proto_refused refused;
    struct proto_join join;

    begin(2, 3, 3, 1);
    identity_fill(&join, &config);
    memset(join.lost_by, 7, sizeof join.lost_by);
    cr_assert(eq(int, coordinator_admit(coordinator, &join, "127.0.0.1", &refused), -1));
    cr_assert(eq(int, refused.status, FSDP_EXIT_LINK));
}

/* Generation 4 had three nodes, and the lost coordinator's, which is swept, was the first of them. */
static void begin_after_a_sweep(void)
{
    stage_services.fence_ms = 5000;
    past.swept = past.took_part = true;
    past.progress.n_nodes = 3;
    past.progress.node_rank = 0;
    begin(1, 3, 3, 1);
}

Test(coordinator_takeover, the_fence_ends_when_all_nodes_but_the_swept_one_have_come)
{
    begin_after_a_sweep();
    cr_assert(eq(int, actors[0].n_formed, 0));
    comes_back(4, 2);
    check_plan(0, 5, 2, 0, 2);
    cr_assert(published.n_nodes == 2 && published.node_rank == 0);
}

Test(coordinator_takeover, the_fence_waits_for_a_node_that_has_not_come)
{
    begin_after_a_sweep();
    comes_back(3, 2);  /* it was in an earlier generation */
    comes_back(4, -1); /* a spare one */
    pass_ms(4999);
    cr_assert(eq(int, actors[0].n_formed, 0));
    pass_ms(1);
    check_plan(0, 5, 3, 1, 2);
}

Test(coordinator_takeover, without_the_proof_the_fence_waits_for_all)
{
    past.progress.n_nodes = 2;
    stage_services.fence_ms = 5000;
    past.took_part = true;
    begin(2, 2, 3, 1);
    comes_back(4, 0);
    cr_assert(eq(int, actors[0].n_formed, 0));
}

/* A coordinator that is lost before it forms a generation knows nothing of the ranks of the one before. */
Test(coordinator_takeover, what_it_publishes_before_its_first_generation_names_no_nodes)
{
    past.progress.n_nodes = 3;
    begin(2, 3, 3, 1);
    coordinator_publish(coordinator);
    cr_assert(eq(int, published.n_nodes, 0));
}

Test(coordinator_takeover, no_generation_begins_before_the_fence)
{
    stage_services.fence_ms = 5000;
    begin(1, 2, 3, 1);
    pass_ms(4999);
    cr_assert(eq(int, actors[0].n_formed, 0));
    pass_ms(1);
    check_plan(0, 5, 1, 0, 2);
}

/* What the coordinator before knew of failures and of nodes */

Test(coordinator_takeover, the_third_equal_failure_ends_the_job_whoever_has_seen_the_others)
{
    config.job_json = "{}";
    past.progress.failure = (struct leader_failure){ .kind = DEATH_EXIT, .code = 3, .n = 2 };
    begin(1, 2, 9, 1);
    ends(0, DEATH_EXIT, 3, 0);
    check_finished(0, 3);
    cr_assert_not_null(strstr(actors[0].line, "failed 3 times at step 0"), "%s", actors[0].line);
}

Test(coordinator_takeover, another_failure_begins_a_row_of_its_own_and_is_published)
{
    config.job_json = "{}";
    past.progress.failure = (struct leader_failure){ .kind = DEATH_EXIT, .code = 3, .n = 2 };
    begin(1, 2, 9, 1);
    ends(0, DEATH_EXIT, 4, 0);
    cr_assert(eq(int, actors[0].n_finished, 0));
    cr_assert(published.failure.kind == DEATH_EXIT && published.failure.code == 4 &&
              published.failure.n == 1);
}

static struct roster_node node_of(const char *host)
{
    struct roster_node node = { .address = "127.0.0.1" };

    identity_fill(&node.who, &config);
    snprintf(node.who.host, sizeof node.who.host, "%s", host);
    snprintf(node.from, sizeof node.from, "127.0.0.1");
    return node;
}

static uint64_t name_of(const char *host)
{
    const struct roster_node node = node_of(host);

    return quarantine_name(&node);
}

/* An agent of that host comes: one that was a member of the coordinator before, or one that just started. */
static void comes_from(const char *host, bool was_member)
{
    stage_join = (struct proto_join){ .last_generation = was_member ? 4 : -1, .last_node_rank = -1 };
    snprintf(stage_join.host, sizeof stage_join.host, "%s", host);
    if (was_member)
        memcpy(stage_join.lost_by, past.run, sizeof stage_join.lost_by);
    enter();
    stage_join = (struct proto_join){ .last_generation = -1, .last_node_rank = -1 };
}

static int wait_of(int i)
{
    const struct proto_welcome welcome = welcome_of(i);

    return welcome.wait == PROTO_WAIT_QUARANTINE || welcome.wait == PROTO_WAIT_SLOW ? welcome.seconds : 0;
}

Test(coordinator_takeover, a_node_that_came_and_went_under_another_coordinator_waits)
{
    past.progress.suspects[0] = (struct leader_suspect){ .name = name_of("n2"), .strikes = 3 };
    begin(1, 3, 3, 1);
    comes_from("n2", false);
    comes_from("n3", false);
    cr_assert(wait_of(1) == 20 && wait_of(2) == 0, "%d and %d s", wait_of(1), wait_of(2));
}

Test(coordinator_takeover, a_node_that_was_there_does_not_wait_but_its_next_loss_counts)
{
    past.progress.suspects[0] = (struct leader_suspect){ .name = name_of("n2"), .strikes = 3, .stays = true };
    begin(1, 3, 3, 1);
    comes_from("n2", true);
    cr_assert(eq(int, wait_of(1), 0));
    cr_assert(published.suspects[0].strikes == 3 && published.suspects[0].stays);
    pass_ms(1000);
    obeys(0);
    cr_assert(eq(int, actors[1].n_formed, 1));
    vanishes(1);
    cr_assert(published.suspects[0].strikes == 4 && !published.suspects[0].stays);
    obeys(0);
    comes_from("n2", false);
    cr_assert(eq(int, wait_of(2), 40));
}

/* Its agent was lost together with the coordinator, and this is another one. */
Test(coordinator_takeover, a_node_that_was_there_and_was_started_again_waits)
{
    past.progress.suspects[0] = (struct leader_suspect){ .name = name_of("n2"), .strikes = 3, .stays = true };
    begin(1, 3, 3, 1);
    comes_from("n2", false);
    cr_assert(eq(int, wait_of(1), 20));
}

Test(coordinator_takeover, a_slow_node_still_waits_for_its_time)
{
    past.progress.suspects[0] =
        (struct leader_suspect){ .name = name_of("n2"), .slow_rank = 5, .aside_s = 1800, .stays = false };
    begin(1, 3, 3, 1);
    comes_from("n2", true);
    cr_assert(eq(int, wait_of(1), 1800));
    cr_assert(eq(int, (int)welcome_of(1).wait, PROTO_WAIT_SLOW));
    cr_assert(published.suspects[0].aside_s == 1800 && published.suspects[0].slow_rank == 5);
}

Test(coordinator_takeover, the_loss_of_the_node_that_led_counts_too)
{
    past.progress.leader = name_of("n1");
    past.progress.suspects[0] = (struct leader_suspect){ .name = name_of("n1"), .strikes = 1, .stays = true };
    begin(1, 3, 3, 1);
    comes_from("n1", true);
    cr_assert(eq(int, wait_of(1), 10));
    cr_assert(eq(u64, published.leader, quarantine_name(&coordinator->roster.nodes[COORDINATOR_SELF])));
}

Test(coordinator_takeover, a_world_of_fixed_size_has_no_quarantine)
{
    past.progress.leader = name_of("n1");
    past.progress.suspects[0] = (struct leader_suspect){ .name = name_of("n2"), .strikes = 3 };
    begin(2, 2, 3, 1);
    comes_from("n2", false);
    cr_assert(eq(int, wait_of(1), 0));
}

static char timeline[512];

static void keep_timeline(void *arg, const char *event)
{
    (void)arg;
    if (strstr(event, "\"timeline\"") != NULL)
        snprintf(timeline, sizeof timeline, "%s", event);
}

/*
 * The lost leader was heard of for the last time 7 s ago. 2 s later this node missed it, and 1 s later its
 * ranks were gone. A member has seen a generation of which this node knows nothing.
 */
Test(coordinator_takeover, it_writes_the_timeline_of_the_restart)
{
    const int64_t now_ns = clock_boot_ns();
    int detected_ms, stopped_ms, fenced_ms, formed_ms, took_ms;
    struct events *events;

    clock_ns = 100000000000;
    past.heard_ns = now_ns - 7000000000;
    past.lost_ns = now_ns - 5000000000;
    past.stopped_ns = now_ns - 4000000000;
    past.last_step = 75;
    stage_services.fence_ms = 3000;
    cr_assert(eq(int, events_open(&events, -1, "events", NULL), FSDP_OK));
    events_watch(events, keep_timeline, NULL);
    begin(2, 2, 3, 1);
    took_ms = (int)((clock_boot_ns() - now_ns) / 1000000) + 1;
    coordinator->services.events = events;
    comes_back(6, 0);
    pass_ms(4000);
    cr_assert(eq(int, actors[0].n_formed, 1));
    actors[0].reporter.record(actors[0].reporter.to, 7, "spawn", NULL);
    actors[0].reporter.record(actors[0].reporter.to, 7, "spawn", NULL);
    cr_assert(eq(int,
                 sscanf(timeline,
                        "{\"time\": %*f, \"event\": \"timeline\", \"generation\": 7, \"reason\": \"node\", "
                        "\"rank\": null, \"detected_ms\": %d, \"stopped_ms\": %d, \"fenced_ms\": %d, "
                        "\"formed_ms\": %d",
                        &detected_ms, &stopped_ms, &fenced_ms, &formed_ms),
                 4),
              "%s", timeline);
    /* The last two are late by up to the time that begin() took. The test's own clock stands still. */
    cr_expect(detected_ms == 2000 && stopped_ms == 3000, "%s", timeline);
    cr_expect(fenced_ms >= 10000 && fenced_ms <= 10000 + took_ms && formed_ms - fenced_ms == 1000, "%s",
              timeline);
    cr_expect_not_null(strstr(timeline, "\"lost_steps\": 75,"), "there is no checkpoint: %s", timeline);
    events_close(events);
    coordinator->services.events = NULL;
}

/* Its agent stood still for so long that the guard acted, and holds the lead all the same. */
Test(coordinator_takeover, the_killed_ranks_of_its_own_node_end_the_generation)
{
    cr_assert(eq(int, lease_create(&lease, NULL), FSDP_OK));
    lease_extend(&lease, clock_boot_ns(), 600000);
    stage_services.lease = &lease;
    begin(2, 2, 4, 1);
    comes_back(4, 0);
    lease_clear(&lease);
    ends(0, DEATH_SIGNAL, SIGKILL, SIGKILL);
    cr_assert(eq(int, actors[1].n_stops, 1), "it would wait for them");
    obeys(1);
    cr_assert(eq(int, actors[0].n_formed, 1), "they would be killed again");
    lease_extend(&lease, clock_boot_ns(), 600000);
    pass_ms(200);
    check_plan(0, 6, 2, 1, 4);
}

Test(coordinator_takeover, no_generation_begins_while_it_may_not_lead)
{
    may_lead = false;
    begin(1, 2, 3, 1);
    pass_ms(60000);
    cr_assert(eq(int, actors[0].n_formed, 0));
    cr_assert_not(coordinator_may_grant(coordinator));
    may_lead = true;
    pass_ms(100);
    check_plan(0, 5, 1, 0, 2);
}

/* The other nodes belong to the other leader now. */
Test(coordinator_takeover, a_deposed_one_kills_its_own_ranks_and_tells_no_other_node)
{
    begin(2, 2, 3, 1);
    comes_back(4, 0);
    coordinator_depose(coordinator, "n2 leads");
    cr_assert(actors[0].n_stops > 0 && actors[1].n_stops == 0);
    obeys(0);
    check_finished(0, FSDP_EXIT_LINK);
    cr_assert(eq(str, actors[0].line, "n2 leads"));
    cr_assert(eq(int, actors[1].n_finished, 0));
}

Test(coordinator_takeover, one_that_is_deposed_while_it_waits_ends_at_once)
{
    begin(2, 2, 3, 1);
    coordinator_depose(coordinator, "n2 leads");
    check_finished(0, FSDP_EXIT_LINK);
}

/* Contact with all that could lead */

static void begin_first(int min_nodes, int max_nodes)
{
    stage_services.past = NULL;
    begin(min_nodes, max_nodes, 3, max_nodes);
}

Test(coordinator_takeover, alone_it_is_in_contact_with_everybody)
{
    begin_first(1, 1);
    cr_assert(coordinator_in_contact_until_ms(coordinator) > clock_boot_ms());
}

Test(coordinator_takeover, the_member_that_heard_from_it_longest_ago_counts_also_when_it_is_lost)
{
    const int64_t now = clock_boot_ns(), lease_ms = config.lease_ms;

    begin_first(2, 3);
    cr_assert(eq(i64, coordinator_in_contact_until_ms(coordinator), 0), "they have heard nothing yet");
    coordinator_heard(coordinator, actors[1].node, now - 1000000000);
    coordinator_heard(coordinator, actors[2].node, now);
    cr_assert(eq(i64, coordinator_in_contact_until_ms(coordinator), now / 1000000 - 1000 + lease_ms));
    vanishes(1);
    cr_assert(eq(i64, coordinator_in_contact_until_ms(coordinator), now / 1000000 - 1000 + lease_ms));
    obeys(0);
    obeys(2);
}

Test(coordinator_takeover, one_that_has_swept_its_node_cannot_lead)
{
    begin_first(2, 3);
    coordinator_heard(coordinator, actors[2].node, clock_boot_ns());
    coordinator_swept(coordinator, actors[1].node);
    cr_assert(coordinator_in_contact_until_ms(coordinator) > clock_boot_ms());
    obeys(0);
    obeys(2);
}

Test(coordinator_takeover, one_that_leaves_could_lead_until_it_is_known_to_have_left)
{
    const int64_t now = clock_boot_ns(), lease_ms = config.lease_ms;

    begin_first(1, 2);
    coordinator_heard(coordinator, actors[1].node, now - 1000000000);
    asks(1, SIGTERM, REPORTER_STOP);
    obeys(1);
    obeys(0);
    cr_assert(eq(int, actors[1].n_finished, 1));
    cr_assert(eq(i64, coordinator_in_contact_until_ms(coordinator), now / 1000000 - 1000 + lease_ms));
    coordinator_forget_away(coordinator, actors[1].node);
    cr_assert(coordinator_in_contact_until_ms(coordinator) > clock_boot_ms());
    obeys(0);
}

/* Those whom the leader before let in, and this one has not, wait by the record (agent/arbiter/lead.h). */
Test(coordinator_takeover, after_a_take_over_those_count_whom_it_let_in)
{
    const int64_t now = clock_boot_ns();

    begin(2, 2, 3, 1);
    cr_assert(coordinator_in_contact_until_ms(coordinator) > clock_boot_ms());
    cr_assert_not(coordinator_has_formed(coordinator));
    comes_back(4, 0);
    cr_assert(coordinator_has_formed(coordinator));
    cr_assert(eq(u64, welcome_of(1).term, 9));
    cr_assert(eq(i64, coordinator_in_contact_until_ms(coordinator), 0), "it has heard nothing yet");
    coordinator_heard(coordinator, actors[1].node, now);
    cr_assert(eq(i64, coordinator_in_contact_until_ms(coordinator), now / 1000000 + config.lease_ms));
}

/* Training diverged at a step: the only worker of the node ends with that. */
static void diverges(int64_t step)
{
    const struct actor *actor = &actors[0];
    const struct death death = { .kind = DEATH_EXIT,
                                 .code = 1,
                                 .phase = FSDP_PHASE_DIVERGED,
                                 .step = step,
                                 .host = "node-7",
                                 .when_ns = clock_ns };

    actor->reporter.exited(actor->reporter.to, actor->plan.generation, &death, NULL);
    actor->reporter.stopped(actor->reporter.to, actor->plan.generation);
}

Test(coordinator_takeover, a_divergence_at_the_same_step_ends_the_job_whoever_has_seen_the_first)
{
    config.job_json = "{}";
    past.progress.diverged =
        (struct leader_divergence){ .step = 12, .generation = 3, .world_size = 1, .rank = -1 };
    begin(1, 2, 3, 1);
    diverges(12);
    check_finished(0, FSDP_EXIT_DIVERGED);
    cr_assert(strstr(actors[0].line, "it did so at this step in generation 3 too") != NULL, "%s",
              actors[0].line);
}

Test(coordinator_takeover, a_divergence_is_published_until_its_step_has_passed)
{
    config.job_json = "{}";
    begin(1, 2, 3, 1);
    diverges(12);
    cr_assert(eq(int, actors[0].n_finished, 0));
    cr_assert(published.diverged.step == 12 && published.diverged.generation == 5 &&
              published.diverged.world_size == 1 && published.diverged.rank == -1);
    cr_assert(eq(str, published.diverged.host, "node-7"));
    coordinator_passed(coordinator, 12);
    coordinator_publish(coordinator);
    cr_assert(eq(int, published.diverged.world_size, 0));
}
