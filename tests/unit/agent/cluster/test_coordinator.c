/* The coordinator with nodes that are only played: who is told what when nodes come, fail, vanish and leave. */
#include "agent/cluster/coordinator.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/link.h>

#include "agent/cluster/identity.h"

enum { MAX_NODES = 8 };

struct stage;

struct actor {
    struct stage *stage;
    int node; /* its number */
    struct world_plan plan;
    int n_formed, n_stops, n_notices, n_finished, status;
    char line[1100];
};

struct stage {
    uv_loop_t loop;
    uv_timer_t tick; /* so that the loop comes back to the test */
    struct agent_config config;
    struct coordinator *coordinator;
    struct actor actors[MAX_NODES];
    int n_actors;
};

static void play_form(void *member, const struct world_plan *plan)
{
    struct actor *actor = member;

    actor->plan = *plan;
    actor->n_formed++;
    actor->n_stops = actor->n_notices = 0;
}

static void play_stop(void *member, int signal, bool now)
{
    struct actor *actor = member;

    (void)signal;
    (void)now;
    actor->n_stops++;
}

static void play_forward(void *member, int signal)
{
    (void)member;
    (void)signal;
}

static void play_notify(void *member, const struct fsdp_link_notice *notice)
{
    struct actor *actor = member;

    cr_assert(eq(int, (int)notice->kind, FSDP_NOTICE_SAVE_AND_STOP));
    actor->n_notices++;
}

static void play_publish(void *member, const struct fsdp_link_published *published)
{
    (void)member;
    (void)published;
}

static void play_put(void *member, int generation, const char *key, const void *value, size_t size_bytes)
{
    (void)member;
    (void)generation;
    (void)key;
    (void)value;
    (void)size_bytes;
}

static void play_finish(void *member, const struct coordinator_end *end)
{
    struct actor *actor = member;

    actor->n_finished++;
    actor->status = end->status;
    snprintf(actor->line, sizeof actor->line, "%s", end->line);
}

static const struct coordinator_member play = { play_form,    play_stop, play_forward, play_notify,
                                                play_publish, play_put,  play_finish };

/* --- the stage */

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void set_up(struct stage *stage, int min_nodes, int max_nodes, int max_restarts)
{
    const struct coordinator_services services = { .loop = &stage->loop,
                                                   .os = &agent_os_linux,
                                                   .io = &io_posix };
    struct fsdp_err err = { 0 };

    memset(stage, 0, sizeof *stage);
    uv_loop_init(&stage->loop);
    uv_timer_init(&stage->loop, &stage->tick);
    uv_timer_start(&stage->tick, on_tick, 5, 5);
    agent_config_init(&stage->config);
    stage->config.min_nodes = min_nodes;
    stage->config.n_nodes = max_nodes;
    stage->config.node_rank = -1;
    stage->config.max_restarts = max_restarts;
    stage->config.quiet = true;
    stage->config.join_timeout_ms = 600000;
    stage->config.last_call_timeout_ms = 600000;
    cr_assert(eq(int, coordinator_create(&stage->coordinator, &stage->config, &services, &err), FSDP_OK),
              "%s", err.message);
}

static struct actor *enter(struct stage *stage)
{
    struct actor *actor = &stage->actors[stage->n_actors];
    struct proto_refused refused;
    struct proto_join join;

    actor->stage = stage;
    if (stage->n_actors++ > 0) {
        identity_fill(&join, &stage->config);
        actor->node = coordinator_admit(stage->coordinator, &join, "127.0.0.1", &refused);
        cr_assert(gt(int, actor->node, 0), "%s", refused.words);
    }
    coordinator_attach(stage->coordinator, actor->node, &play, actor);
    return actor;
}

static void enter_all(struct stage *stage, int n)
{
    for (int i = 0; i < n; i++)
        enter(stage);
}

/* Its one worker ended; then nothing is left there. */
static void ends(struct actor *actor, enum death_kind kind, int code, int sent_signal)
{
    const struct death death = { .kind = kind,
                                 .rank = actor->plan.first_rank,
                                 .code = code,
                                 .sent_signal = sent_signal,
                                 .when_ns = agent_os_linux.now_ns(agent_os_linux.arg) };

    coordinator_exited(actor->stage->coordinator, actor->node, actor->plan.generation, &death, NULL);
    coordinator_stopped(actor->stage->coordinator, actor->node, actor->plan.generation);
}

static void ends_well(struct actor *actor)
{
    ends(actor, DEATH_NONE, 0, 0);
}

static void obeys(struct actor *actor)
{
    ends(actor, DEATH_SIGNAL, SIGTERM, SIGTERM);
}

static void vanishes(struct actor *actor)
{
    coordinator_lost(actor->stage->coordinator, actor->node, 100, "closed the connection");
}

/* A run that still goes on is stopped first, as it is by its user. */
static void tear_down(struct stage *stage)
{
    if (stage->actors[0].n_finished == 0) {
        coordinator_stop(stage->coordinator, SIGTERM, true);
        for (int i = 0; i < stage->n_actors; i++)
            obeys(&stage->actors[i]);
    }
    cr_assert(eq(int, stage->actors[0].n_finished, 1));
    cr_assert(coordinator_destroy(stage->coordinator));
    uv_close((uv_handle_t *)&stage->tick, NULL);
    uv_run(&stage->loop, UV_RUN_DEFAULT);
    cr_assert(eq(int, uv_loop_close(&stage->loop), 0));
}

/* Let time pass until the first of the actors has been formed n times, or finished. */
static void wait_for(struct stage *stage, int n_formed)
{
    while (stage->actors[0].n_formed < n_formed && stage->actors[0].n_finished == 0)
        uv_run(&stage->loop, UV_RUN_ONCE);
}

/* --- forming */

Test(coordinator, a_world_forms_at_once_when_all_are_there, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 3, 0);
    enter_all(&stage, 2);
    cr_assert(eq(int, stage.actors[0].n_formed, 0), "the last call has not been made");
    enter(&stage);

    for (int i = 0; i < 3; i++)
        cr_assert(stage.actors[i].n_formed == 1 && stage.actors[i].plan.world_size == 3 &&
                  stage.actors[i].plan.node_rank == i && stage.actors[i].plan.generation == 0);
    for (int i = 0; i < 3; i++)
        ends_well(&stage.actors[i]);
    for (int i = 0; i < 3; i++)
        cr_assert(stage.actors[i].n_finished == 1 && stage.actors[i].status == 0);
    tear_down(&stage);
}

/* The key of the connections between ranks. */
Test(coordinator, each_generation_has_a_key_of_its_own, .timeout = 300)
{
    static const unsigned char none[sizeof((struct world_plan *)0)->token];
    unsigned char first[sizeof none];
    struct stage stage;

    set_up(&stage, 2, 2, 1);
    enter_all(&stage, 2);
    wait_for(&stage, 1);
    memcpy(first, stage.actors[0].plan.token, sizeof first);
    cr_expect(memcmp(first, none, sizeof first) != 0);
    cr_expect(memcmp(stage.actors[1].plan.token, first, sizeof first) == 0, "it is one for all nodes");

    ends(&stage.actors[1], DEATH_EXIT, 3, 0);
    obeys(&stage.actors[0]);
    wait_for(&stage, 2);
    cr_assert(eq(int, stage.actors[0].plan.generation, 1));
    cr_expect(memcmp(stage.actors[0].plan.token, first, sizeof first) != 0);
    cr_expect(memcmp(stage.actors[0].plan.token, stage.actors[1].plan.token, sizeof first) == 0);
    tear_down(&stage);
}

Test(coordinator, a_smaller_world_forms_after_the_last_call, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 3, 0);
    stage.config.last_call_timeout_ms = 50;
    enter_all(&stage, 2);
    cr_assert(eq(int, stage.actors[0].n_formed, 0));
    wait_for(&stage, 1);

    cr_assert(eq(int, stage.actors[0].plan.n_nodes, 2));
    tear_down(&stage);
}

Test(coordinator, too_few_by_the_join_timeout_are_75_and_say_who_is_here, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 3, 4, 0);
    stage.config.join_timeout_ms = 50;
    enter_all(&stage, 2);
    wait_for(&stage, 1);

    for (int i = 0; i < 2; i++)
        cr_assert(stage.actors[i].n_finished == 1 && stage.actors[i].status == FSDP_EXIT_PEER);
    cr_assert_not_null(strstr(stage.actors[0].line, "2 of 3 nodes came"), "%s", stage.actors[0].line);
    tear_down(&stage);
}

Test(coordinator, a_node_that_waits_and_goes_is_waited_for_again, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 3, 3, 0);
    enter_all(&stage, 2);
    vanishes(&stage.actors[1]);
    enter(&stage);
    cr_assert(eq(int, stage.actors[0].n_formed, 0), "two of three");
    enter(&stage);

    cr_assert(stage.actors[0].n_formed == 1 && stage.actors[0].plan.n_nodes == 3);
    tear_down(&stage);
}

/* --- a fixed number of nodes */

Test(coordinator, a_lost_node_of_a_fixed_world_without_restarts_is_76, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 2, 0);
    enter_all(&stage, 2);
    vanishes(&stage.actors[1]);
    cr_assert(eq(int, stage.actors[0].n_stops, 1), "at once");
    obeys(&stage.actors[0]);

    cr_assert(stage.actors[0].n_finished == 1 && stage.actors[0].status == FSDP_EXIT_LINK);
    cr_assert_not_null(strstr(stage.actors[0].line, "node 1"), "%s", stage.actors[0].line);
    tear_down(&stage);
}

Test(coordinator, a_lost_node_of_a_fixed_world_costs_a_restart_and_is_waited_for, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 2, 1);
    enter_all(&stage, 2);
    vanishes(&stage.actors[1]);
    obeys(&stage.actors[0]);
    cr_assert(stage.actors[0].n_formed == 1 && stage.actors[0].n_finished == 0, "it waits");
    enter(&stage);
    for (int i = 0; i < 3; i += 2)
        cr_assert(stage.actors[i].plan.generation == 1 && stage.actors[i].plan.restart_count == 1 &&
                  stage.actors[i].plan.node_rank == i / 2);

    vanishes(&stage.actors[2]);
    obeys(&stage.actors[0]);
    cr_assert(eq(int, stage.actors[0].status, FSDP_EXIT_LINK), "no restart is left");
    tear_down(&stage);
}

Test(coordinator, nobody_takes_the_place_in_time, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 2, 5);
    enter_all(&stage, 2);
    stage.config.join_timeout_ms = 50;
    vanishes(&stage.actors[1]);
    obeys(&stage.actors[0]);
    wait_for(&stage, 2);

    cr_assert(stage.actors[0].status == FSDP_EXIT_LINK && stage.actors[0].n_formed == 1);
    cr_assert_not_null(strstr(stage.actors[0].line, "no other came"), "%s", stage.actors[0].line);
    tear_down(&stage);
}

Test(coordinator, a_node_lost_between_two_generations_counts_too, .timeout = 300)
{
    for (int left = 0; left < 2; left++) {
        struct stage stage;

        set_up(&stage, 3, 3, 2 + left);
        enter_all(&stage, 3);
        vanishes(&stage.actors[1]); /* one restart */
        obeys(&stage.actors[0]);
        obeys(&stage.actors[2]);
        vanishes(&stage.actors[2]); /* two */
        cr_assert(eq(int, stage.actors[0].n_finished, 0));
        enter(&stage);
        enter(&stage);
        cr_assert(eq(int, stage.actors[0].plan.restart_count, 2));
        vanishes(&stage.actors[3]);
        obeys(&stage.actors[0]);
        obeys(&stage.actors[4]);
        cr_assert(eq(int, stage.actors[0].n_finished, left == 0), "with %d left", left);
        tear_down(&stage);
    }
}

Test(coordinator, the_last_restart_is_not_spent_twice, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 3, 3, 1);
    enter_all(&stage, 3);
    vanishes(&stage.actors[1]);
    obeys(&stage.actors[0]);
    obeys(&stage.actors[2]);
    vanishes(&stage.actors[2]);

    cr_assert(stage.actors[0].n_finished == 1 && stage.actors[0].status == FSDP_EXIT_LINK);
    tear_down(&stage);
}

/* What fails because a node is gone may be seen before the node is: nothing had been heard of it by then. */
Test(coordinator, a_node_that_had_fallen_silent_is_blamed_for_what_failed_since, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 2, 0);
    enter_all(&stage, 2);
    ends(&stage.actors[0], DEATH_EXIT, 1, 0);
    coordinator_lost(stage.coordinator, stage.actors[1].node, 3000, "no sign of life");

    cr_assert(eq(int, stage.actors[0].n_finished, 0));
    cr_assert(stage.actors[0].n_formed == 2 && stage.actors[0].plan.restart_count == 0);
    tear_down(&stage);
}

/* --- a world that may be smaller */

Test(coordinator, a_lost_node_of_an_elastic_world_costs_nothing, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 3, 0);
    enter_all(&stage, 3);
    vanishes(&stage.actors[1]);
    obeys(&stage.actors[0]);
    obeys(&stage.actors[2]);

    for (int i = 0; i < 3; i += 2)
        cr_assert(stage.actors[i].n_formed == 2 && stage.actors[i].plan.n_nodes == 2 &&
                  stage.actors[i].plan.generation == 1 && stage.actors[i].plan.restart_count == 0 &&
                  stage.actors[i].plan.node_rank == i / 2);
    tear_down(&stage);
}

Test(coordinator, a_newcomer_is_taken_in_without_a_restart, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 2, 0);
    stage.config.last_call_timeout_ms = 1;
    enter(&stage);
    wait_for(&stage, 1);
    enter(&stage);
    while (stage.actors[0].n_stops == 0)
        uv_run(&stage.loop, UV_RUN_ONCE);
    obeys(&stage.actors[0]);

    for (int i = 0; i < 2; i++)
        cr_assert(stage.actors[i].plan.n_nodes == 2 && stage.actors[i].plan.generation == 1 &&
                  stage.actors[i].plan.restart_count == 0);
    tear_down(&stage);
}

Test(coordinator, newcomers_that_come_together_are_taken_in_together, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 5, 0);
    stage.config.last_call_timeout_ms = 1;
    enter(&stage);
    wait_for(&stage, 1);
    enter_all(&stage, 3);
    cr_assert(eq(int, stage.actors[0].n_stops, 0), "more may be on their way");
    while (stage.actors[0].n_stops == 0)
        uv_run(&stage.loop, UV_RUN_ONCE);
    obeys(&stage.actors[0]);

    cr_assert(stage.actors[0].plan.n_nodes == 4 && stage.actors[0].plan.generation == 1);
    tear_down(&stage);
}

Test(coordinator, a_world_that_is_ending_is_not_disturbed, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 3, 0);
    stage.config.last_call_timeout_ms = 1;
    enter_all(&stage, 2);
    wait_for(&stage, 1);
    ends_well(&stage.actors[1]);
    enter(&stage);
    for (int i = 0; i < 20; i++)
        uv_run(&stage.loop, UV_RUN_NOWAIT);
    cr_assert(eq(int, stage.actors[0].n_stops, 0));
    ends_well(&stage.actors[0]);

    for (int i = 0; i < 3; i++)
        cr_assert(stage.actors[i].n_finished == 1 && stage.actors[i].status == 0, "%d", i);
    tear_down(&stage);
}

Test(coordinator, one_that_vanishes_when_its_ranks_have_ended_is_not_missed, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 2, 0);
    enter_all(&stage, 2);
    ends_well(&stage.actors[1]);
    vanishes(&stage.actors[1]);
    cr_assert(eq(int, stage.actors[0].n_stops, 0));
    ends_well(&stage.actors[0]);

    cr_assert(stage.actors[0].n_finished == 1 && stage.actors[0].status == 0);
    tear_down(&stage);
}

/* --- goodbyes */

Test(coordinator, who_says_goodbye_leaves_and_the_others_go_on, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 2, 0);
    enter_all(&stage, 2);
    coordinator_leave(stage.coordinator, stage.actors[1].node, SIGTERM, false, false);
    coordinator_leave(stage.coordinator, stage.actors[1].node, SIGTERM, false, false);
    cr_assert(stage.actors[0].n_stops == 1 && stage.actors[1].n_stops == 1);
    obeys(&stage.actors[1]);
    obeys(&stage.actors[0]);

    cr_assert(stage.actors[1].n_finished == 1 && stage.actors[1].status == 128 + SIGTERM);
    cr_assert(stage.actors[0].n_formed == 2 && stage.actors[0].plan.n_nodes == 1 &&
              stage.actors[0].plan.restart_count == 0 && stage.actors[0].n_finished == 0);
    vanishes(&stage.actors[1]); /* its connection closes: nobody is missed */
    cr_assert(eq(int, stage.actors[0].n_stops, 0));
    tear_down(&stage);
}

Test(coordinator, where_too_few_would_remain_a_goodbye_stops_the_job, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 2, 3);
    enter_all(&stage, 2);
    coordinator_leave(stage.coordinator, stage.actors[1].node, SIGINT, false, false);
    obeys(&stage.actors[0]);
    obeys(&stage.actors[1]);

    for (int i = 0; i < 2; i++)
        cr_assert(stage.actors[i].n_finished == 1 && stage.actors[i].status == 128 + SIGINT);
    tear_down(&stage);
}

Test(coordinator, a_spare_takes_the_place_of_who_says_goodbye, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 2, 2, 0);
    enter_all(&stage, 3);
    cr_assert(eq(int, stage.actors[2].n_formed, 0));
    coordinator_leave(stage.coordinator, stage.actors[1].node, SIGTERM, false, false);
    obeys(&stage.actors[0]);
    obeys(&stage.actors[1]);

    cr_assert(stage.actors[2].n_formed == 1 && stage.actors[2].plan.node_rank == 1);
    cr_assert(stage.actors[1].status == 128 + SIGTERM && stage.actors[0].n_finished == 0);
    tear_down(&stage);
}

Test(coordinator, who_leaves_on_notice_is_asked_to_save_first, .timeout = 300)
{
    struct stage stage;

    set_up(&stage, 1, 2, 0);
    enter_all(&stage, 2);
    coordinator_leave(stage.coordinator, stage.actors[1].node, SIGUSR1, false, true);
    cr_assert(stage.actors[0].n_notices == 1 && stage.actors[1].n_notices == 1);
    cr_assert(stage.actors[0].n_stops == 0 && stage.actors[1].n_stops == 0);
    ends(&stage.actors[0], DEATH_NONE, FSDP_EXIT_NOTICE, 0);
    ends(&stage.actors[1], DEATH_NONE, FSDP_EXIT_NOTICE, 0);

    cr_assert(stage.actors[1].n_finished == 1 && stage.actors[1].status == FSDP_EXIT_NOTICE);
    cr_assert(stage.actors[0].n_formed == 2 && stage.actors[0].n_finished == 0);
    tear_down(&stage);
}

Test(coordinator, a_run_that_has_ended_lets_nobody_in_and_says_how_it_ended, .timeout = 300)
{
    struct stage stage;
    struct proto_refused refused = { .status = -1 };
    struct proto_join join;

    set_up(&stage, 2, 2, 0);
    enter_all(&stage, 2);
    ends_well(&stage.actors[0]);
    ends_well(&stage.actors[1]);
    identity_fill(&join, &stage.config);

    cr_assert(eq(int, coordinator_admit(stage.coordinator, &join, "127.0.0.1", &refused), -1));
    cr_assert(eq(int, refused.status, 0));
    cr_assert_not_null(strstr(refused.words, "the job is complete"), "%s", refused.words);
    tear_down(&stage);
}

/* One that came while the world was ending: as the others if the job goes on, and else not as they. */
Test(coordinator, who_comes_while_the_world_ends_has_the_jobs_status_only_after_a_part_in_it, .timeout = 300)
{
    for (int max_restarts = 0; max_restarts < 2; max_restarts++) {
        struct stage stage;
        struct actor *late;

        set_up(&stage, 1, 2, max_restarts);
        stage.config.last_call_timeout_ms = 50;
        enter(&stage);
        wait_for(&stage, 1);
        coordinator_exited(stage.coordinator, 0, 0,
                           &(struct death){ .kind = DEATH_EXIT,
                                            .code = 41,
                                            .when_ns = agent_os_linux.now_ns(agent_os_linux.arg) },
                           NULL);
        late = enter(&stage);
        cr_assert(eq(int, (int)coordinator_wait_of(stage.coordinator, late->node), PROTO_WAIT_ENDING));
        coordinator_stopped(stage.coordinator, 0, 0);
        if (max_restarts == 1) {
            wait_for(&stage, 2);
            cr_assert(eq(int, late->n_formed, 1));
            ends(&stage.actors[0], DEATH_EXIT, 41, 0);
            obeys(late);
        }

        cr_assert(eq(int, stage.actors[0].status, 41));
        cr_assert(eq(int, late->status, max_restarts == 1 ? 41 : FSDP_EXIT_PEER));
        tear_down(&stage);
    }
}

/* What was sent in an older generation means nothing now. */
Test(coordinator, reports_of_an_older_generation_are_dropped, .timeout = 300)
{
    struct stage stage;
    struct actor late;

    set_up(&stage, 1, 2, 0);
    enter_all(&stage, 2);
    late = stage.actors[0];
    vanishes(&stage.actors[1]);
    obeys(&stage.actors[0]);
    cr_assert(eq(int, stage.actors[0].plan.generation, 1));
    ends(&late, DEATH_EXIT, 9, 0);

    cr_assert(stage.actors[0].n_finished == 0 && stage.actors[0].n_stops == 0);
    ends_well(&stage.actors[0]);
    cr_assert(stage.actors[0].n_finished == 1 && stage.actors[0].status == 0);
    tear_down(&stage);
}
