/*
 * Links libfsdp.
 *
 * The threads of a leader, under the thread sanitizer: one answers the beats of a member (whose own thread
 * asks: agent/rendezvous/pulse_listener.h and pulse_sender.h), another renews the record of who leads
 * (agent/arbiter/arbiter.h). The loop turns meanwhile, looks at the member, and loses it again and again.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/arbiter/arbiter.h"
#include "agent/arbiter/directory_store.h"
#include "agent/rendezvous/pulse_listener.h"
#include "agent/rendezvous/pulse_sender.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/shardfile/io.h"

enum { LEASE_MS = 600, SESSIONS = 20 };

static struct {
    uv_loop_t loop;
    uv_timer_t tick;
    struct arbiter *arbiter;
    struct pulse_listener *listener;
    struct pulse_member member;
    struct pulse_sender *sender;
    struct pulse_aim aim;
    struct lease lease, own;
    int n_sessions, n_leads;
} at;

static void require(bool good, const char *words)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", words);
    exit(1);
}

static bool holds(void *arg)
{
    (void)arg;
    return clock_boot_ms() < arbiter_holds_until_ms(at.arbiter);
}

static void keep(void *arg, int64_t contact_until_ns)
{
    (void)arg;
    arbiter_in_contact_until(at.arbiter, contact_until_ns / 1000000);
    if (holds(NULL))
        lease_extend(&at.own, clock_boot_ns(), LEASE_MS);
}

static void begin_session(void)
{
    at.aim.session[0]++;
    lease_clear(&at.lease);
    pulse_listener_admit(at.listener, &at.member, at.aim.session);
    (void)pulse_sender_aim(at.sender, &at.aim);
}

static void end(void *arg)
{
    (void)arg;
    arbiter_destroy(at.arbiter);
}

static void finish(void)
{
    uv_close((uv_handle_t *)&at.tick, NULL);
    pulse_sender_destroy(at.sender);
    pulse_listener_destroy(at.listener);
    if (arbiter_rest(at.arbiter))
        end(NULL);
    else
        arbiter_when_idle(at.arbiter, end, NULL);
}

static void on_tick(uv_timer_t *timer)
{
    struct pulse_told told;

    (void)timer;
    arbiter_publish(at.arbiter, &(struct leader_progress){ .generation = at.n_sessions, .step = -1 });
    pulse_listener_turn(at.listener, INT64_MAX);
    (void)pulse_sender_turn(at.sender, 0);
    (void)lease_is_over(&at.own);
    if (pulse_listener_told(at.listener, &at.member).heard_ns == 0)
        return;
    (void)pulse_sender_aim(at.sender, NULL);
    told = pulse_listener_forget(at.listener, &at.member);
    require(told.answered_ns > 0 && lease_runs(&at.lease), "no answer has come");
    if (++at.n_sessions == SESSIONS)
        finish();
    else
        begin_session();
}

static void on_leads(void *arg, uint64_t term, const struct leader_record *before, int64_t fence_until_ms)
{
    const struct pulse_lead lead = { holds, keep, NULL };

    (void)arg, (void)term, (void)before, (void)fence_until_ms;
    at.n_leads++;
    require(pulse_listener_serve(at.listener, &lead), "no thread");
    begin_session();
    uv_timer_start(&at.tick, on_tick, 1, 1);
}

static void on_record(void *arg, const struct leader_record *record)
{
    (void)arg, (void)record;
    require(false, "another leads");
}

static void on_words(void *arg, const char *words)
{
    (void)arg;
    fprintf(stderr, "%s\n", words);
}

/* The listener has the port that was free for another socket. */
static void open_listener(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t size = sizeof address;

    require(bind(fd, (struct sockaddr *)&address, size) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &size) == 0,
            "no socket");
    close(fd);
    at.aim = (struct pulse_aim){ .pace_ms = 1, .patience_ms = 10 * LEASE_MS };
    memcpy(&at.aim.to, &address, sizeof address);
    at.listener = pulse_listener_create(LEASE_MS, NULL);
    require(pulse_listener_bind(at.listener, (struct sockaddr *)&address), "no listener");
}

int main(void)
{
    static const struct arbiter_handlers handlers = { on_leads, on_record, on_record, on_words, on_words };
    struct arbiter_spec spec = { .run = 17, .identity = "leader", .lease_ms = LEASE_MS };
    char directory[] = "/tmp/fsdp-tsan-lead-XXXXXX";

    require(mkdtemp(directory) != NULL, "no directory");
    uv_loop_init(&at.loop);
    uv_timer_init(&at.loop, &at.tick);
    require(lease_create(&at.lease, NULL) == FSDP_OK && lease_create(&at.own, NULL) == FSDP_OK, "no lease");
    open_listener();
    at.sender = pulse_sender_create(&at.lease, NULL);
    require(directory_store_create(&spec.store, &io_posix, directory, NULL) == FSDP_OK, "no store");
    require(arbiter_create(&at.arbiter, &at.loop, &spec, &handlers, NULL, NULL) == FSDP_OK, "no arbiter");
    arbiter_claim_first(at.arbiter, "127.0.0.1", 1);
    uv_run(&at.loop, UV_RUN_DEFAULT);
    require(at.n_leads == 1 && at.n_sessions == SESSIONS, "it did not lead");
    require(uv_loop_close(&at.loop) == 0, "a handle was left open");
    lease_destroy(&at.lease);
    lease_destroy(&at.own);
    return 0;
}
