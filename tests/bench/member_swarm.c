#include "tests/bench/member_swarm.h"

#include "agent/cluster/identity.h"
#include "agent/rendezvous/rendezvous.h"
#include "agent/wire/tls.h"
#include "tests/bench/bench.h"

enum { DEADLINE_S = 120 };

static void on_opened(void *arg, struct session *session)
{
    (void)arg;
    rendezvous_tell(session, PROTO_JOIN, 0, session_data(session));
}

/* The first member's worker has this rank. */
static void take_start(struct swarm *swarm, const struct frame *frame)
{
    union proto_message message;

    if (proto_decode(PROTO_START, &message, frame->payload, frame->size, NULL) != FSDP_OK)
        bench_die("a START that is none");
    swarm->rank = message.start.first_rank;
}

static void on_frame(void *arg, struct session *session, const struct frame *frame)
{
    struct swarm *swarm = arg;

    switch (frame->type) {
    case PROTO_WELCOME:
        swarm->n_welcomed++;
        break;
    case PROTO_START:
        swarm->generation = (int)frame->generation;
        if (session == swarm->members[0])
            take_start(swarm, frame);
        swarm->n_started++;
        swarm->started_at = bench_now();
        break;
    case PROTO_STOP:
        rendezvous_tell(session, PROTO_STOPPED, frame->generation, NULL);
        swarm->n_stopped++;
        swarm->stopped_at = bench_now();
        break;
    default:
        break;
    }
}

static void on_ended(void *arg, struct session *session, const struct fsdp_err *why)
{
    (void)arg;
    (void)session;
    errno = 0;
    bench_die(why->message);
}

static void on_note(void *arg, const char *words)
{
    (void)arg;
    fprintf(stderr, "%s\n", words);
}

void swarm_open(struct swarm *swarm, const struct agent_config *config, int capacity)
{
    unsigned char key[TLS_KEY_BYTES];
    const struct session_config sessions = { .key = key,
                                             .job = identity_job(config),
                                             .lease_ms = config->lease_ms,
                                             .handlers = { on_opened, on_frame, on_ended, on_note },
                                             .arg = swarm };
    struct fsdp_err err = { 0 };

    *swarm = (struct swarm){ .capacity = capacity, .config = config };
    swarm->members = calloc((size_t)capacity, sizeof *swarm->members);
    swarm->joins = calloc((size_t)capacity, sizeof *swarm->joins);
    if (swarm->members == NULL || swarm->joins == NULL || uv_loop_init(&swarm->loop) != 0)
        bench_die("a swarm");
    if (tls_derive_key(key, config->secret, config->secret_bytes, config->run_id, &err) != FSDP_OK ||
        session_pool_create(&swarm->pool, &swarm->loop, false, &sessions, &err) != FSDP_OK)
        bench_die(err.message);
}

void swarm_join(struct swarm *swarm, int n)
{
    struct endpoint_addresses addresses = { .n = 1 };
    struct fsdp_err err = { 0 };

    uv_ip4_addr(swarm->config->rendezvous_host, swarm->config->rendezvous_port,
                (struct sockaddr_in *)&addresses.of[0]);
    for (int i = 0; i < n; i++) {
        struct proto_join *join = &swarm->joins[swarm->n];
        struct session **member = &swarm->members[swarm->n++];

        identity_fill(join, swarm->config);
        if (session_dial(member, swarm->pool, join->identity, &addresses, &err) != FSDP_OK)
            bench_die(err.message);
        session_set_data(*member, join);
    }
}

void swarm_fail(struct swarm *swarm)
{
    const struct proto_exited exited = { .death = {
                                             .kind = DEATH_EXIT, .rank = swarm->rank, .code = 1, .pid = 1 } };

    rendezvous_tell(swarm->members[0], PROTO_EXITED, (uint32_t)swarm->generation, &exited);
}

void swarm_await(struct swarm *swarm, const int *count, int wanted, const char *what)
{
    const double deadline = bench_now() + DEADLINE_S;

    while (*count < wanted) {
        uv_run(&swarm->loop, UV_RUN_ONCE);
        if (bench_now() > deadline) {
            fprintf(stderr, "%s: %d of %d after %d s\n", what, *count, wanted, DEADLINE_S);
            exit(1);
        }
    }
}

static void on_time(uv_timer_t *timer)
{
    *(int *)timer->data = 1;
}

void swarm_idle(struct swarm *swarm, double seconds)
{
    uv_timer_t timer;
    int over = 0;

    uv_timer_init(&swarm->loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_time, (uint64_t)(seconds * 1000), 0);
    swarm_await(swarm, &over, 1, "time");
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&swarm->loop, UV_RUN_NOWAIT);
}

void swarm_close(struct swarm *swarm)
{
    session_pool_close(swarm->pool);
    uv_run(&swarm->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&swarm->loop) != 0)
        bench_die("a swarm with open handles");
    free(swarm->members);
    free(swarm->joins);
}
