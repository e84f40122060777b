/*
 * Arbiters of three agents on one loop: what each has told its agent. A test makes each arbiter with
 * agent_handlers and &agents[i], and ends in time or fails.
 */
#ifndef UNIT_AGENT_ARBITER_AGENTS_H
#define UNIT_AGENT_ARBITER_AGENTS_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "agent/arbiter/arbiter.h"
#include "shard_runtime/core/clock.h"

enum { AGENTS = 3 };

static struct agent {
    struct arbiter *arbiter;
    char news[64]; /* a letter each: Leads, Follows, Ended, Deposed */
    uint64_t term, before_term;
    int64_t led_ms, fence_ms;
    struct leader_record record; /* of the last follow() or ended() */
    char note[1024], words[1024];
} agents[AGENTS];
static uv_loop_t loop;
static uv_timer_t patience;

static inline void agent_add(struct agent *agent, char letter)
{
    agent->news[strlen(agent->news)] = letter;
}

static inline void on_leads(void *arg, uint64_t term, const struct leader_record *before,
                            int64_t fence_until_ms)
{
    struct agent *agent = arg;

    agent_add(agent, 'L');
    agent->term = term;
    agent->before_term = before == NULL ? 0 : before->term;
    agent->led_ms = clock_boot_ms();
    agent->fence_ms = fence_until_ms;
}

static inline void on_follow(void *arg, const struct leader_record *record)
{
    agent_add(arg, 'F');
    ((struct agent *)arg)->record = *record;
}

static inline void on_ended(void *arg, const struct leader_record *record)
{
    agent_add(arg, 'E');
    ((struct agent *)arg)->record = *record;
}

static inline void on_deposed(void *arg, const char *words)
{
    agent_add(arg, 'D');
    snprintf(((struct agent *)arg)->words, sizeof agents[0].words, "%s", words);
}

static inline void on_note(void *arg, const char *words)
{
    snprintf(((struct agent *)arg)->note, sizeof agents[0].note, "%s", words);
}

static const struct arbiter_handlers agent_handlers = {
    .leads = on_leads, .follow = on_follow, .ended = on_ended, .deposed = on_deposed, .note = on_note
};

static inline void on_patience(uv_timer_t *timer)
{
    cr_assert(false, "news: %s, %s, %s", agents[0].news, agents[1].news, agents[2].news);
}

/** The test has so long. */
static inline void agents_begin(uint64_t patience_ms)
{
    uv_loop_init(&loop);
    uv_timer_init(&loop, &patience);
    uv_timer_start(&patience, on_patience, patience_ms, 0);
}

/** Run the loop until this agent has got that news, in all. */
static inline void await_news(int i, const char *news)
{
    while (strcmp(agents[i].news, news) != 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static inline void agent_destroy(void *arg)
{
    struct agent *agent = arg;

    arbiter_destroy(agent->arbiter);
    agent->arbiter = NULL;
}

/** The agent ends, without a word. */
static inline void leave(int i)
{
    if (arbiter_rest(agents[i].arbiter))
        agent_destroy(&agents[i]);
    else
        arbiter_when_idle(agents[i].arbiter, agent_destroy, &agents[i]);
    while (agents[i].arbiter != NULL)
        uv_run(&loop, UV_RUN_ONCE);
}

/** Ends all, and the loop; the test has closed its own handles. */
static inline void agents_end(void)
{
    for (int i = 0; i < AGENTS; i++)
        leave(i);
    uv_close((uv_handle_t *)&patience, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(eq(int, uv_loop_close(&loop), 0), "a handle was left open");
}

#endif
