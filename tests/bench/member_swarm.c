#include "tests/bench/member_swarm.h"

#include "agent/os/deadlines.h"
#include "agent/rendezvous/identity.h"
#include "agent/rendezvous/rendezvous.h"
#include "agent/wire/little_endian.h"
#include "shard_runtime/core/clock.h"
#include "tests/bench/bench.h"

/* The one socket of all members has room for some hundred answers. A real member has a socket of its own. */
enum { DEADLINE_S = 600, PAUSE_MS = 250, BETWEEN_READS = 32 };

static void on_opened(void *arg, struct session *session)
{
    const struct swarm_member *member = session_data(session);

    (void)arg;
    rendezvous_tell(session, PROTO_JOIN, 0, &member->join);
}

static void send_pulse(const struct swarm *swarm, const struct swarm_member *member)
{
    struct pulse question = { .sent_ns = clock_boot_ns(), .answered_ns = member->answered_ns };
    unsigned char bytes[PULSE_BYTES];

    memcpy(question.session, session_identity(member->session), sizeof question.session);
    if (!pulse_encode(bytes, &question, swarm->key))
        bench_die("a pulse");
    (void)send(swarm->pulse_fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The name of a session is random. */
static uint64_t hash_of(const unsigned char *name)
{
    return get_le(name, 8);
}

static void take_pulse(struct swarm *swarm, const struct pulse *answer)
{
    struct table_entry *at = table_first(&swarm->welcomed, hash_of(answer->session));

    for (; at != NULL; at = table_next(at)) {
        struct swarm_member *member = TABLE_OWNER(at, struct swarm_member, at);

        if (memcmp(session_identity(member->session), answer->session, sizeof answer->session) != 0)
            continue;
        member->pulse_ms = clock_boot_ms();
        if (answer->answered_ns > member->answered_ns)
            member->answered_ns = answer->answered_ns;
    }
}

static void read_pulses(struct swarm *swarm)
{
    unsigned char bytes[PULSE_BYTES + 1];
    struct pulse answer;
    ssize_t n;

    while ((n = recv(swarm->pulse_fd, bytes, sizeof bytes, MSG_DONTWAIT)) >= 0)
        if (pulse_decode(&answer, bytes, (size_t)n, swarm->key) && answer.is_answer)
            take_pulse(swarm, &answer);
}

static void on_pulses(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_pulses(poll->data);
}

static void on_beat(uv_timer_t *timer)
{
    const struct swarm_member *member = timer->data;
    const int64_t now_ms = clock_boot_ms(), pace_ms = member->lease_ms / LEASE_BEATS;
    const struct proto_beat beat = { .sent_ns = clock_boot_ns(),
                                     .lease_ms = member->lease_ms,
                                     .answered_ns = member->answered_ns };

    if (++member->swarm->n_beats % BETWEEN_READS == 0)
        read_pulses(member->swarm);
    send_pulse(member->swarm, member);
    if (member->pulse_ms != 0)
        session_pulse(member->session, now_ms - member->pulse_ms);
    if (member->pulse_ms > now_ms - 2 * pace_ms)
        return;
    member->swarm->n_asked++;
    rendezvous_tell(member->session, PROTO_BEAT, 0, &beat);
}

static void take_answer(struct swarm_member *member, const struct frame *frame)
{
    union proto_message message;

    if (proto_decode(PROTO_BEAT, &message, frame->payload, frame->size, NULL) != FSDP_OK)
        bench_die("an answer that is none");
    member->answered_ns = message.beat.answered_ns;
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
    struct swarm_member *member = session_data(session);
    const uint64_t pace_ms = (uint64_t)member->lease_ms / LEASE_BEATS;

    switch (frame->type) {
    case PROTO_WELCOME:
        swarm->n_welcomed++;
        member->welcomed = true;
        if (!table_add(&swarm->welcomed, &member->at, hash_of(session_identity(session))))
            bench_die("a table");
        uv_timer_start(&member->beat, on_beat, 0, pace_ms);
        break;
    case PROTO_REFUSED:
        errno = 0;
        bench_die("a member was refused: is it of the same build?");
    case PROTO_BEAT:
        take_answer(member, frame);
        break;
    case PROTO_START:
        swarm->generation = (int)frame->generation;
        if (member == swarm->members)
            take_start(swarm, frame);
        swarm->started_at = bench_now();
        if (++swarm->n_started == swarm->n) {
            swarm->started_cpu = bench_clock(swarm->cpu);
            swarm->started_beats = swarm->n_beats;
        }
        break;
    case PROTO_STOP:
        rendezvous_tell(session, PROTO_STOPPED, frame->generation, NULL);
        swarm->stopped_at = bench_now();
        if (++swarm->n_stopped == swarm->n) {
            swarm->stopped_cpu = bench_clock(swarm->cpu);
            swarm->stopped_beats = swarm->n_beats;
        }
        break;
    default:
        break;
    }
}

static void dial(struct swarm *swarm, struct swarm_member *member)
{
    struct endpoint_addresses addresses = { .n = 1 };
    struct fsdp_err err = { 0 };

    uv_ip4_addr(swarm->config->rendezvous_host, swarm->config->rendezvous_port,
                (struct sockaddr_in *)&addresses.of[0]);
    if (session_dial(&member->session, swarm->pool, member->join.identity, &addresses, &err) != FSDP_OK)
        bench_die(err.message);
    session_set_data(member->session, member);
}

static void on_pause_over(uv_timer_t *timer)
{
    struct swarm_member *member = timer->data;

    dial(member->swarm, member);
}

/* A member that has got no answer dials again after a pause, as agent/rendezvous/meeting does. */
static void on_ended(void *arg, struct session *session, const struct fsdp_err *why)
{
    struct swarm *swarm = arg;
    struct swarm_member *member = session_data(session);

    errno = 0;
    if (member->welcomed)
        bench_die(why->message);
    swarm->n_again++;
    uv_timer_start(&member->beat, on_pause_over, PAUSE_MS, 0);
}

static void on_note(void *arg, const char *words)
{
    (void)arg;
    fprintf(stderr, "%s\n", words);
}

static void open_pulses(struct swarm *swarm)
{
    const int room = 4 << 20;
    struct sockaddr_in to;

    uv_ip4_addr(swarm->config->rendezvous_host, swarm->config->rendezvous_port, &to);
    swarm->pulse_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (swarm->pulse_fd < 0 || connect(swarm->pulse_fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        uv_poll_init(&swarm->loop, &swarm->pulses, swarm->pulse_fd) != 0)
        bench_die("a socket for pulses");
    (void)setsockopt(swarm->pulse_fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    swarm->pulses.data = swarm;
    uv_poll_start(&swarm->pulses, UV_READABLE, on_pulses);
}

void swarm_open(struct swarm *swarm, const struct agent_config *config, int capacity)
{
    unsigned char key[TLS_KEY_BYTES];
    const struct session_config sessions = { .key = key,
                                             .job = identity_job(config),
                                             .lease_ms = config->lease_ms,
                                             .n_expected = config->n_nodes - 1,
                                             .handlers = { on_opened, on_frame, on_ended, on_note },
                                             .arg = swarm };
    struct fsdp_err err = { 0 };

    *swarm = (struct swarm){ .capacity = capacity, .config = config, .cpu = CLOCK_MONOTONIC };
    swarm->members = calloc((size_t)capacity, sizeof *swarm->members);
    if (swarm->members == NULL || uv_loop_init(&swarm->loop) != 0)
        bench_die("a swarm");
    open_pulses(swarm);
    if (tls_derive_key(key, config->secret, config->secret_bytes, config->run_id, &err) != FSDP_OK ||
        session_pool_create(&swarm->pool, &swarm->loop, false, &sessions, &err) != FSDP_OK)
        bench_die(err.message);
    swarm->key = pulse_key_create(key);
    if (swarm->key == NULL)
        bench_die("a key");
}

void swarm_join(struct swarm *swarm, int n)
{
    for (int i = 0; i < n; i++) {
        struct swarm_member *member = &swarm->members[swarm->n++];

        member->swarm = swarm;
        member->lease_ms = swarm->config->lease_ms;
        uv_timer_init(&swarm->loop, &member->beat);
        member->beat.data = member;
        identity_fill(&member->join, swarm->config);
        dial(swarm, member);
    }
}

void swarm_fail(struct swarm *swarm)
{
    const struct proto_exited exited = { .death = {
                                             .kind = DEATH_EXIT, .rank = swarm->rank, .code = 1, .pid = 1 } };

    rendezvous_tell(swarm->members[0].session, PROTO_EXITED, (uint32_t)swarm->generation, &exited);
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
    for (int i = 0; i < swarm->n; i++)
        uv_close((uv_handle_t *)&swarm->members[i].beat, NULL);
    uv_close((uv_handle_t *)&swarm->pulses, NULL);
    session_pool_close(swarm->pool);
    uv_run(&swarm->loop, UV_RUN_DEFAULT);
    close(swarm->pulse_fd);
    (void)table_empty(&swarm->welcomed);
    tls_mac_key_destroy(swarm->key);
    if (uv_loop_close(&swarm->loop) != 0)
        bench_die("a swarm with open handles");
    free(swarm->members);
}
