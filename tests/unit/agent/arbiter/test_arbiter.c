/*
 * Arbiters of several agents on one loop, with one directory. A lease has a second here.
 */
#include "agent/arbiter/arbiter.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/arbiter/directory_store.h"
#include "agent/os/deadlines.h"
#include "tests/unit/agent/arbiter/agents.h"
#include "tests/unit/shardfile/files.h"

enum { LEASE = 1000, PATIENCE_MS = 20000 };

/* Files of each agent: opening them fails, or waits until the gate opens. */
static struct door {
    struct fsdp_io base; /* first */
    _Atomic bool fails, waits;
    _Atomic int n_waiting;
} doors[AGENTS];
static uv_timer_t tick;
static const char *run_dir;

static int door_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    struct door *door = (struct door *)io;

    for (door->n_waiting++; door->waits;)
        usleep(1000); /* on the arbiter's thread: a disk that does not answer */
    door->n_waiting--;
    if (door->fails) {
        errno = EIO;
        return -1;
    }
    return io_posix.open(&io_posix, path, flags, mode);
}

/* A new process: it has an identity of its own. */
static void make(int i)
{
    struct arbiter_spec spec = { .run = 17, .lease_ms = LEASE };
    const bool is_again = doors[i].base.open != NULL;

    agents[i] = (struct agent){ 0 };
    doors[i] = (struct door){ .base = io_posix };
    doors[i].base.open = door_open;
    snprintf((char *)spec.identity, sizeof spec.identity, "agent %c", '0' + i);
    spec.identity[sizeof spec.identity - 1] = is_again;
    cr_assert(eq(int, directory_store_create(&spec.store, &doors[i].base, run_dir, NULL), FSDP_OK));
    cr_assert(eq(int, arbiter_create(&agents[i].arbiter, &loop, &spec, &agent_handlers, &agents[i], NULL),
                 FSDP_OK));
}

static void on_tick(uv_timer_t *timer)
{
}

static void await_time(int64_t ms)
{
    while (clock_boot_ms() < ms)
        uv_run(&loop, UV_RUN_ONCE);
}

static void set_up(void)
{
    run_dir = files_begin();
    agents_begin(PATIENCE_MS);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 10, 10);
    for (int i = 0; i < AGENTS; i++)
        make(i);
}

static void tear_down(void)
{
    uv_close((uv_handle_t *)&tick, NULL);
    agents_end();
    files_end();
}

TestSuite(arbiter, .init = set_up, .fini = tear_down, .timeout = 60);

/* Agent 0 leads, and the others have seen it. */
static void lead_with_the_first(void)
{
    arbiter_claim_first(agents[0].arbiter, "10.0.0.1", 29400);
    await_news(0, "L");
    await_news(1, "F");
    await_news(2, "F");
}

Test(arbiter, the_first_leads_and_the_others_learn_its_address)
{
    const struct leader_progress progress = { .generation = 3, .n_restarts = 1, .step = 70 };

    lead_with_the_first();

    cr_assert(agents[0].term == 1 && agents[0].before_term == 0 && agents[0].fence_ms == 0);
    cr_assert(strcmp(agents[1].record.host, "10.0.0.1") == 0 && agents[1].record.port == 29400);
    cr_assert(arbiter_holds_until_ms(agents[0].arbiter) > clock_boot_ms());
    cr_assert(arbiter_holds_until_ms(agents[1].arbiter) == 0);
    cr_assert(arbiter_has_seen(agents[1].arbiter, (const unsigned char *)"agent 0\0\0\0\0\0\0\0\0"));
    cr_assert(not(arbiter_has_seen(agents[1].arbiter, (const unsigned char *)"agent 2\0\0\0\0\0\0\0\0")));
    arbiter_publish(agents[0].arbiter, &progress);
    while (arbiter_record(agents[1].arbiter)->progress.generation != 3)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(arbiter_record(agents[1].arbiter)->progress.step == 70);
}

Test(arbiter, a_leader_that_is_gone_without_a_word_is_replaced_behind_a_fence)
{
    lead_with_the_first();
    const int64_t gone = clock_boot_ms();

    leave(0);
    arbiter_stand(agents[1].arbiter, 1, "10.0.0.2", 2, gone, 1);
    await_news(1, "FL");
    arbiter_stand(agents[2].arbiter, 2, "10.0.0.3", 3, gone, 1);
    await_news(2, "FF");

    cr_assert(agents[1].led_ms >= gone + LEASE_END_MS(LEASE));
    cr_assert(agents[1].fence_ms >= gone + LEASE_FENCE_MS(LEASE) && agents[1].before_term == 1);
    cr_assert(agents[1].term == 2 && agents[2].record.port == 2);
    make(0);
    arbiter_claim_first(agents[0].arbiter, "10.0.0.1", 29400);
    await_news(0, "F");
    cr_assert(agents[0].record.port == 2, "the host that comes back is a member");
}

Test(arbiter, a_leader_that_resigns_ends_the_run_for_all)
{
    lead_with_the_first();

    arbiter_resign(agents[0].arbiter, 3);
    await_news(0, "LE");
    await_news(1, "FE");
    await_news(2, "FE");

    cr_assert(agents[1].record.exit_status == 3 && arbiter_holds_until_ms(agents[0].arbiter) == 0);
    leave(0);
    make(0);
    arbiter_claim_first(agents[0].arbiter, "10.0.0.1", 29400);
    await_news(0, "L");
    cr_assert(agents[0].term == 2 && agents[0].fence_ms == 0 && agents[0].before_term == 1);
}

Test(arbiter, a_leader_whose_store_fails_says_so_and_is_deposed)
{
    lead_with_the_first();

    doors[0].fails = true;
    await_news(0, "LD");

    cr_assert(strstr(agents[0].note, "the arbiter (directory) fails: open ") != NULL, "%s", agents[0].note);
    cr_assert(strstr(agents[0].words, "took no record for 1.0 s") != NULL, "%s", agents[0].words);
    doors[0].fails = false;
    arbiter_stand(agents[0].arbiter, 0, "10.0.0.1", 29400, 0, 0);
    await_news(0, "LDL");
    cr_assert(agents[0].term == 2 && strstr(agents[0].note, "answers again") != NULL, "%s", agents[0].note);
}

Test(arbiter, a_leader_whose_disk_stands_still_is_deposed_while_the_loop_goes_on)
{
    lead_with_the_first();
    doors[0].waits = true;
    while (doors[0].n_waiting == 0)
        uv_run(&loop, UV_RUN_ONCE);
    const int64_t hold = arbiter_holds_until_ms(agents[0].arbiter);

    arbiter_stand(agents[1].arbiter, 1, "10.0.0.2", 2, clock_boot_ms() - LEASE, 1);
    await_news(0, "LD");
    cr_assert(clock_boot_ms() >= hold && clock_boot_ms() < hold + LEASE / 2);
    await_news(1, "FL");
    cr_assert(strstr(agents[0].note, "has not answered for") != NULL, "%s", agents[0].note);

    doors[0].waits = false;
    await_news(0, "LDF");

    cr_assert(agents[0].record.port == 2 && agents[1].led_ms > hold);
}

Test(arbiter, contact_with_all_stands_in_for_the_store)
{
    lead_with_the_first();
    doors[0].fails = true;
    for (const int64_t until = clock_boot_ms() + 2 * LEASE; clock_boot_ms() < until;) {
        arbiter_in_contact_until(agents[0].arbiter, clock_boot_ms() + LEASE);
        await_time(clock_boot_ms() + LEASE / 10);
    }
    cr_assert(eq(str, agents[0].news, "L"));

    await_news(0, "LD");
}

/* No loop turns here, so this agent and the others learn nothing. */
Test(arbiter, a_leader_whose_loop_stands_still_renews_its_record)
{
    lead_with_the_first();
    const int64_t began = clock_boot_ms();

    while (clock_boot_ms() < began + 3 * LEASE) {
        cr_assert(arbiter_holds_until_ms(agents[0].arbiter) > clock_boot_ms());
        usleep(LEASE);
    }
    await_time(clock_boot_ms() + LEASE);

    cr_assert(eq(str, agents[0].news, "L"));
    cr_assert(eq(str, agents[0].note, ""));
}

Test(arbiter, one_that_waits_for_an_old_leader_says_so)
{
    lead_with_the_first();
    leave(0);
    make(0);

    arbiter_old_is_gone(agents[0].arbiter);
    arbiter_claim_first(agents[0].arbiter, "10.0.0.1", 29400);
    while (agents[0].note[0] == '\0')
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(strstr(agents[0].note, "10.0.0.1:29400 may still lead, or another take over: "
                                     "the record is watched for 4.0 s") != NULL,
              "%s", agents[0].note);
    await_news(0, "L");
    cr_assert(agents[0].fence_ms > 0 && agents[0].fence_ms < clock_boot_ms());
}

Test(arbiter, one_that_its_leader_never_let_in_waits_longer_unless_it_knows_that_it_is_gone)
{
    lead_with_the_first();
    leave(0);

    arbiter_stand(agents[1].arbiter, 1, "10.0.0.2", 2, 0, 0);
    while (agents[1].note[0] == '\0')
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert(strstr(agents[1].note, "is watched for 11.1 s") != NULL, "%s", agents[1].note);
    arbiter_old_is_gone(agents[1].arbiter);
    const int64_t told = clock_boot_ms();
    await_news(1, "FL");

    cr_assert(agents[1].led_ms < told + 3 * LEASE);
}
