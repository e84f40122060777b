/*
 * An agent that has an arbiter and nothing else.
 *   arbiter_agent RUN_DIR PORT SEAT LEASE_MS first|member
 * It prints what it learns, a line each, with the time of CLOCK_BOOTTIME in milliseconds; other agents know
 * it by its port. A member stands as soon as it has followed a leader. TERM: a leader resigns; then it ends.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "agent/arbiter/arbiter.h"
#include "agent/arbiter/directory_store.h"
#include "shard_runtime/core/clock.h"

static struct arbiter *arbiter;
static uv_signal_t term;
static int port, seat;

static long long now_ms(void)
{
    return clock_boot_ms();
}

static void end(void *arg)
{
    (void)arg;
    arbiter_destroy(arbiter);
    uv_close((uv_handle_t *)&term, NULL);
}

static void leave(void)
{
    if (arbiter_rest(arbiter))
        end(NULL);
    else
        arbiter_when_idle(arbiter, end, NULL);
}

static void on_leads(void *arg, uint64_t term_number, const struct leader_record *before,
                     int64_t fence_until_ms)
{
    (void)arg;
    printf("%lld leads %llu after %d, fence %lld\n", now_ms(), (unsigned long long)term_number,
           before == NULL ? 0 : before->port, (long long)fence_until_ms);
}

static void on_follow(void *arg, const struct leader_record *record)
{
    (void)arg;
    printf("%lld follows %llu at %d\n", now_ms(), (unsigned long long)record->term, record->port);
    arbiter_stand(arbiter, seat, "host", port, now_ms(), record->term);
}

static void on_ended(void *arg, const struct leader_record *record)
{
    (void)arg;
    printf("%lld ended %d\n", now_ms(), record->exit_status);
    leave();
}

static void on_deposed(void *arg, const char *words)
{
    (void)arg;
    printf("%lld deposed: %s\n", now_ms(), words);
    arbiter_stand(arbiter, seat, "host", port, 0, 0);
}

static void on_note(void *arg, const char *words)
{
    (void)arg;
    printf("%lld note: %s\n", now_ms(), words);
}

static void on_term(uv_signal_t *handle, int signal)
{
    (void)handle, (void)signal;
    if (arbiter_holds_until_ms(arbiter) > now_ms())
        arbiter_resign(arbiter, 7);
    else
        leave();
}

int main(int argc, char **argv)
{
    const struct arbiter_handlers handlers = {
        .leads = on_leads, .follow = on_follow, .ended = on_ended, .deposed = on_deposed, .note = on_note
    };
    struct arbiter_spec spec = { .run = 17 };
    struct fsdp_err err = { 0 };
    uv_loop_t loop;

    if (argc != 6)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    port = atoi(argv[2]);
    seat = atoi(argv[3]);
    spec.lease_ms = atoi(argv[4]);
    snprintf((char *)spec.identity, sizeof spec.identity, "%d %lld", port % 10000, now_ms() % 10000000);
    uv_loop_init(&loop);
    uv_signal_init(&loop, &term);
    uv_signal_start(&term, on_term, SIGTERM);
    if (directory_store_create(&spec.store, &io_posix, argv[1], &err) != FSDP_OK ||
        arbiter_create(&arbiter, &loop, &spec, &handlers, NULL, &err) != FSDP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (strcmp(argv[5], "first") == 0)
        arbiter_claim_first(arbiter, "host", port);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
