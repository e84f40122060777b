/*
 * A coordinator whose nodes are only played. An actor is a node with one worker: it counts what the
 * coordinator tells it, and the test says what happens there.
 */
#ifndef UNIT_AGENT_STAGE_H
#define UNIT_AGENT_STAGE_H

#include "agent/cluster/coordinator_impl.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/link.h>

#include "agent/rendezvous/identity.h"

enum { MAX_NODES = 48 };

static struct actor {
    int node; /* its number */
    struct reporter reporter;
    struct world_plan plan;
    int n_formed, n_stops, n_notices, n_finished, status;
    bool lost; /* the last stop said that a node is lost */
    int n_puts;
    char put[16];           /* key and value of the last PUT */
    uint64_t question;      /* the last that it was asked about its ranks; 0: none */
    struct proto_hung hung; /* the last rank that it was told of, and how often it was told of one */
    int n_hung, n_shows;    /* ... and how often it was asked what its ranks show */
    int formed_at;          /* its place among all that were formed */
    int n_storm; /* so often it reports failures and signals while it is told to stop, and then obeys */
    struct proto_open order; /* the last for a store, and how often it was to open and close one */
    int n_opens, n_closes;
    int n_ended;                                  /* so many agents it was told of that never come back */
    unsigned char identity[PROTO_IDENTITY_BYTES]; /* its agent's, unless it is the coordinator's */
    char line[1100];
} actors[MAX_NODES];
static int n_actors, n_starts;
static bool actors_are_silent; /* they do not answer an order for a store */
static uv_loop_t loop;
static uv_timer_t tick; /* so that the loop comes back to the test */
static struct agent_config config;
static int64_t clock_ns; /* the coordinator's clock, if a test sets it; 0: the machine's */
static struct coordinator *coordinator;
/* What a test sets of the coordinator's services, and of the next node that comes. */
static struct coordinator_services stage_services;
static struct proto_join stage_join = { .last_generation = -1, .last_node_rank = -1 };

static inline void storms(struct actor *actor);

/* What becomes of the store of its last order. */
static inline void tells_of_store(int i, const struct reporter_store *what)
{
    struct reporter_store numbered = *what;

    numbered.question = actors[i].order.question;
    actors[i].reporter.store(actors[i].reporter.to, 0, &numbered);
}

/* It has opened that store, at a port that says which actor it is. */
static inline void opens(int i)
{
    struct reporter_store opened = { .kind = REPORTER_STORE_OPEN, .port = 1000 + i };

    snprintf(opened.words, sizeof opened.words, "%s", actors[i].order.address);
    tells_of_store(i, &opened);
}

static inline void play(void *member, enum proto_type type, int generation, const void *message)
{
    struct actor *actor = member;
    const struct coordinator_end *end = message;

    if (type == PROTO_START) {
        actor->plan = *(const struct world_plan *)message;
        actor->n_formed++;
        actor->formed_at = ++n_starts;
        actor->n_stops = actor->n_notices = 0;
    } else if (type == PROTO_STOP) {
        actor->n_stops++;
        actor->lost = ((const struct proto_stop *)message)->lost;
        if (actor->n_storm > 0)
            storms(actor);
    } else if (type == PROTO_NOTICE) {
        cr_assert(eq(int, (int)((const struct fsdp_link_notice *)message)->kind, FSDP_NOTICE_SAVE_AND_STOP));
        actor->n_notices++;
    } else if (type == PROTO_LOOK) {
        actor->question = ((const struct proto_look *)message)->question;
    } else if (type == PROTO_SHOW) {
        actor->n_shows++;
    } else if (type == PROTO_HUNG) {
        actor->hung = *(const struct proto_hung *)message;
        actor->n_hung++;
    } else if (type == PROTO_PUT) {
        const struct proto_put *put = message;

        actor->n_puts++;
        snprintf(actor->put, sizeof actor->put, "%s=%.*s", put->key, (int)put->value_bytes,
                 (const char *)put->value);
    } else if (type == PROTO_OPEN) {
        actor->order = *(const struct proto_open *)message;
        actor->n_opens++;
        if (!actors_are_silent)
            opens((int)(actor - actors));
    } else if (type == PROTO_ENDED) {
        actor->n_ended += (int)((const struct proto_ended *)message)->n;
    } else if (type == PROTO_CLOSE) {
        actor->n_closes++;
    } else if (type == PROTO_FINISH) {
        actor->n_finished++;
        actor->status = end->status;
        snprintf(actor->line, sizeof actor->line, "%s", end->line);
    }
}

/* The stage */

static inline int64_t stage_now_ns(void *arg)
{
    return clock_ns != 0 ? clock_ns : agent_os_linux.now_ns(arg);
}

static inline void on_tick(uv_timer_t *timer)
{
}

/* What a test changes of it, it changes before begin(). */
static inline void make_config(void)
{
    agent_config_init(&config);
    config.node_rank = -1;
    config.quiet = true;
    config.join_timeout_ms = config.last_call_timeout_ms = 600000;
}

static inline void enter(void)
{
    struct actor *actor = &actors[n_actors];
    struct proto_refused refused;
    struct proto_join join;

    if (n_actors++ > 0) {
        identity_fill(&join, &config);
        memcpy(join.lost_by, stage_join.lost_by, sizeof join.lost_by);
        if (stage_join.host[0] != '\0')
            memcpy(join.host, stage_join.host, sizeof join.host);
        join.last_generation = stage_join.last_generation;
        join.last_node_rank = stage_join.last_node_rank;
        join.n_unkilled = stage_join.n_unkilled;
        memcpy(actor->identity, join.identity, sizeof actor->identity);
        actor->node = coordinator_admit(coordinator, &join, "127.0.0.1", &refused);
        cr_assert(gt(int, actor->node, 0), "%s", refused.words);
    }
    actor->reporter = coordinator_reporter(coordinator, actor->node);
    coordinator_attach(coordinator, actor->node, play, actor);
}

/* A run of min:max nodes, of which `n` have come. */
static inline void begin(int min_nodes, int max_nodes, int max_restarts, int n)
{
    static struct agent_os os;
    struct coordinator_services services = stage_services;
    struct fsdp_err err = { 0 };
    struct proto_join self;

    services.self = &self;
    services.loop = &loop;
    services.os = &os;
    services.io = &io_posix;

    os = agent_os_linux;
    os.now_ns = stage_now_ns;
    memset(actors, 0, sizeof actors);
    n_actors = n_starts = 0;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 5, 5);
    config.min_nodes = min_nodes;
    config.n_nodes = max_nodes;
    config.max_restarts = max_restarts;
    identity_fill(&self, &config);
    cr_assert(eq(int, coordinator_create(&coordinator, &config, &services, &err), FSDP_OK), "%s",
              err.message);
    while (n_actors < n)
        enter();
}

/* Its one worker ended; then nothing is left there. */
static inline void ends(int i, enum death_kind kind, int code, int sent_signal)
{
    const struct actor *actor = &actors[i];
    const struct death death = { .kind = kind,
                                 .rank = actor->plan.first_rank,
                                 .code = code,
                                 .sent_signal = sent_signal,
                                 .when_ns = stage_now_ns(agent_os_linux.arg) };

    actor->reporter.exited(actor->reporter.to, actor->plan.generation, &death, NULL);
    actor->reporter.stopped(actor->reporter.to, actor->plan.generation);
}

static inline void asks(int i, int signal, enum reporter_ask how)
{
    actors[i].reporter.asked(actors[i].reporter.to, signal, how);
}

static inline void ends_well(int i)
{
    ends(i, DEATH_NONE, 0, 0);
}

static inline void obeys(int i)
{
    ends(i, DEATH_SIGNAL, SIGTERM, SIGTERM);
}

static inline void storms(struct actor *actor)
{
    const struct death death = { .kind = DEATH_EXIT, .code = 1 };

    for (; actor->n_storm > 0; actor->n_storm--) {
        actor->reporter.exited(actor->reporter.to, actor->plan.generation, &death, NULL);
        asks((int)(actor - actors), SIGTERM, REPORTER_STOP);
    }
    obeys((int)(actor - actors));
}

static inline void vanishes(int i)
{
    actors[i].n_stops = 0;
    coordinator_lost(coordinator, actors[i].node, 100, "closed the connection");
}

/* A run that still goes on is stopped first, as it is by its user. */
static inline void end(void)
{
    if (coordinator == NULL)
        return;
    if (actors[0].n_finished == 0) {
        asks(0, SIGTERM, REPORTER_STOP_NOW);
        for (int i = 0; i < n_actors; i++)
            obeys(i);
    }
    cr_assert(eq(int, actors[0].n_finished, 1));
    cr_assert(coordinator_destroy(coordinator));
    coordinator = NULL;
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(eq(int, uv_loop_close(&loop), 0));
}

/* Let time pass until the first of the actors has been formed n times, or finished. */
static inline void wait_for(int n_formed)
{
    while (actors[0].n_formed < n_formed && actors[0].n_finished == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

/* The same until that actor has the order for a store. */
static inline void wait_until_ordered(int i)
{
    while (actors[i].n_opens == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

/* Sets the coordinator's clock, which begin() must have found set, so much later. */
static inline void pass_ms(int64_t ms)
{
    clock_ns += ms * 1000000;
    if (coordinator->timer != NULL)
        coordinator->timer->timer_cb(coordinator->timer);
}

static inline struct proto_welcome welcome_of(int i)
{
    struct proto_welcome welcome = { 0 };

    coordinator_welcome(coordinator, actors[i].node, &welcome);
    return welcome;
}

static inline void check_plan(int i, int generation, int n_nodes, int node_rank, int restart_count)
{
    const struct world_plan *plan = &actors[i].plan;

    cr_assert(plan->generation == generation && plan->n_nodes == n_nodes && plan->node_rank == node_rank &&
                  plan->restart_count == restart_count,
              "actor %d: generation %d, %d nodes, node rank %d, %d restarts", i, plan->generation,
              plan->n_nodes, plan->node_rank, plan->restart_count);
}

static inline void check_finished(int i, int status)
{
    cr_assert(eq(int, actors[i].n_finished, 1), "actor %d", i);
    cr_assert(eq(int, actors[i].status, status), "actor %d", i);
}

#endif
