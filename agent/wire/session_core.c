#include "agent/wire/session_core.h"

#include <stdlib.h>
#include <string.h>

struct session_held {
    struct session_held *next;
    uint64_t seq;
    uint32_t generation, size;
    uint16_t type;
    unsigned char payload[];
};

static size_t weight_of(const struct session_held *held)
{
    return FRAME_HEAD_BYTES + (size_t)held->size;
}

void session_core_init(struct session_core *core, const unsigned char identity[SESSION_IDENTITY_BYTES],
                       int64_t lease_ns, int64_t now_ns)
{
    *core = (struct session_core){ .lease_ns = lease_ns, .left_ns = lease_ns };
    memcpy(core->identity, identity, SESSION_IDENTITY_BYTES);
    core->heard_ns = core->looked_ns = core->told_ns = core->pulsed_ns = now_ns;
}

static void drop_oldest(struct session_core *core)
{
    struct session_held *held = core->oldest;

    core->oldest = held->next;
    if (core->oldest == NULL)
        core->newest = NULL;
    if (core->to_write == held)
        core->to_write = held->next;
    core->held_bytes -= weight_of(held);
    free(held);
}

void session_core_fini(struct session_core *core)
{
    while (core->oldest != NULL)
        drop_oldest(core);
}

/* Frames that leave */

enum fsdp_status session_core_send(struct session_core *core, uint16_t type, uint32_t generation,
                                   const void *payload, size_t size_bytes, struct fsdp_err *err)
{
    struct session_held *held = size_bytes > FRAME_MAX_BYTES ? NULL : malloc(sizeof *held + size_bytes);

    if (held == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a frame of %zu bytes cannot be sent", size_bytes);
    *held = (struct session_held){
        .seq = core->sent + 1, .generation = generation, .size = (uint32_t)size_bytes, .type = type
    };
    if (core->held_bytes + weight_of(held) > SESSION_HELD_MAX_BYTES) {
        free(held);
        return fsdp_fail(err, FSDP_ERR_BUSY, "does not take what is sent to it");
    }
    if (size_bytes > 0)
        memcpy(held->payload, payload, size_bytes);
    core->sent++;
    core->held_bytes += weight_of(held);
    if (core->newest != NULL)
        core->newest->next = held;
    else
        core->oldest = held;
    core->newest = held;
    if (core->to_write == NULL)
        core->to_write = held;
    return FSDP_OK;
}

/* Returns what a frame that is about to be written acknowledges. The frame is a sign of life too. */
static uint64_t tell_received(struct session_core *core, int64_t now_ns)
{
    core->told_ns = now_ns;
    core->untold_frames = core->untold_bytes = 0;
    return core->received;
}

bool session_core_next(struct session_core *core, int64_t now_ns, struct frame *out)
{
    const struct session_held *held = core->to_write;

    if (!core->up || held == NULL)
        return false;
    *out = (struct frame){ .type = held->type,
                           .generation = held->generation,
                           .seq = held->seq,
                           .ack = tell_received(core, now_ns),
                           .payload = held->payload,
                           .size = held->size };
    core->to_write = held->next;
    return true;
}

struct frame session_core_ack(struct session_core *core, int64_t now_ns)
{
    return (struct frame){ .type = SESSION_ACK, .ack = tell_received(core, now_ns) };
}

static bool pulses_come(const struct session_core *core)
{
    return core->pulse_left_ns > core->lease_ns - core->lease_ns / SESSION_PAUSE;
}

/*
 * Do pulses serve in place of the signs of life over the connection? Not under a long lease: there are fewer
 * of them than of those, and so one cut that is shorter than the lease could last too long.
 */
static bool is_quiet(const struct session_core *core)
{
    return core->is_one_of_many && core->lease_ns / SESSION_BEATS <= INT64_C(1000000) * SESSION_BEAT_MS &&
           pulses_come(core);
}

/* The time between two signs of life over the connection. */
static int64_t pace_ns(const struct session_core *core)
{
    const int64_t beat_ns = core->lease_ns / SESSION_BEATS, longest_ns = INT64_C(1000000) * SESSION_BEAT_MS;

    if (is_quiet(core) && core->untold_frames == 0)
        return core->lease_ns / SESSION_QUIET;
    return beat_ns < longest_ns ? beat_ns : longest_ns;
}

bool session_core_ack_is_due(const struct session_core *core, int64_t now_ns)
{
    return core->up && (core->untold_frames >= SESSION_ACK_FRAMES ||
                        core->untold_bytes >= SESSION_ACK_BYTES || now_ns - core->told_ns >= pace_ns(core));
}

/* Frames that arrive */

static void acknowledged(struct session_core *core, uint64_t ack)
{
    while (core->oldest != NULL && core->oldest->seq <= ack)
        drop_oldest(core);
    if (ack > core->acked)
        core->acked = ack;
}

enum session_take session_core_take(struct session_core *core, const struct frame *frame,
                                    struct fsdp_err *err)
{
    if (frame->ack > core->sent) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "it acknowledges message %llu, and %llu were sent",
                  (unsigned long long)frame->ack, (unsigned long long)core->sent);
        return SESSION_WRONG;
    }
    acknowledged(core, frame->ack);
    if (frame->seq == 0 && frame->type != SESSION_ACK) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "a message of type %u without a number", frame->type);
        return SESSION_WRONG;
    }
    if (frame->seq <= core->received)
        return SESSION_DROP;
    if (frame->seq != core->received + 1) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "message %llu came after message %llu",
                  (unsigned long long)frame->seq, (unsigned long long)core->received);
        return SESSION_WRONG;
    }
    core->received++;
    core->untold_frames++;
    core->untold_bytes += FRAME_HEAD_BYTES + frame->size;
    return frame->type == SESSION_BYE ? SESSION_FAREWELL : SESSION_DELIVER;
}

/* Connections */

/* The other end has received up to `received`: everything after that is written on the new connection. */
static void resume(struct session_core *core, uint64_t received, int64_t now_ns)
{
    acknowledged(core, received);
    core->n_replayed = 0;
    for (const struct session_held *held = core->oldest; held != core->to_write; held = held->next)
        core->n_replayed++;
    core->to_write = core->oldest;
    core->ended = false;
    core->up = true;
    core->told_ns = now_ns;
    session_core_heard(core, now_ns);
}

static struct session_hello describe(const struct session_core *core)
{
    struct session_hello hello = { .connection = core->connection,
                                   .received = core->received,
                                   .sent = core->sent,
                                   .lease_ms = (uint32_t)(core->lease_ns / 1000000) };

    memcpy(hello.identity, core->identity, SESSION_IDENTITY_BYTES);
    return hello;
}

void session_core_dial(struct session_core *core, struct session_hello *hello)
{
    core->up = false;
    core->connection++;
    *hello = describe(core);
}

struct session_reach session_core_reach(const struct session_core *core)
{
    return (struct session_reach){ core->sent, core->acked, core->received, core->connection };
}

static enum session_fit fit_of(const struct session_core *core, const struct session_hello *theirs)
{
    const struct session_reach ours = session_core_reach(core);

    return session_fit(&ours, theirs);
}

enum fsdp_status session_core_answered(struct session_core *core, const struct session_hello *answer,
                                       int64_t now_ns, struct fsdp_err *err)
{
    const enum session_verdict expected = core->connection == 1 ? SESSION_NEW : SESSION_GO_ON;

    if (memcmp(answer->identity, core->identity, SESSION_IDENTITY_BYTES) != 0 ||
        answer->connection != core->connection || answer->lease_ms == 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "its answer is to another hello");
    if (answer->verdict == SESSION_BACKWARDS ||
        (answer->verdict == expected && fit_of(core, answer) != SESSION_FITS))
        return session_fit_fail(fit_of(core, answer), err); /* theirs may fit: the answer tells less */
    if (answer->verdict != expected)
        return fsdp_fail(err, FSDP_ERR_PEER, "it has ended the session with this node");
    core->lease_ns = (int64_t)answer->lease_ms * 1000000;
    resume(core, answer->received, now_ns);
    return FSDP_OK;
}

static enum session_verdict judge(const struct session_core *core, const struct session_hello *hello)
{
    if (hello->connection <= core->connection)
        return SESSION_STALE;
    if (core->connection > 0)
        return fit_of(core, hello) == SESSION_FITS ? SESSION_GO_ON : SESSION_BACKWARDS;
    return hello->connection == 1 && hello->received == 0 && hello->sent == 0 ? SESSION_NEW : SESSION_GONE;
}

enum session_verdict session_core_accept(struct session_core *core, const struct session_hello *hello,
                                         struct session_hello *answer, int64_t now_ns)
{
    const enum session_verdict verdict = judge(core, hello);

    if (verdict == SESSION_NEW || verdict == SESSION_GO_ON) {
        core->connection = hello->connection;
        resume(core, hello->received, now_ns);
    }
    *answer = describe(core);
    answer->connection = hello->connection;
    answer->verdict = verdict;
    return verdict;
}

void session_core_broken(struct session_core *core)
{
    core->up = false;
}

void session_core_closed(struct session_core *core, int64_t now_ns)
{
    const int64_t beat_ns = core->lease_ns / SESSION_BEATS;

    core->up = false;
    core->ended = true;
    core->pulse_left_ns = 0;
    core->looked_ns = now_ns;
    if (core->left_ns > beat_ns)
        core->left_ns = beat_ns;
}

/* Time */

void session_core_heard(struct session_core *core, int64_t now_ns)
{
    core->heard_ns = core->looked_ns = now_ns;
    core->left_ns = core->lease_ns;
}

void session_core_pulse(struct session_core *core, int64_t ago_ns, int64_t now_ns)
{
    /* the next look takes the time since the last one, also that before the pulse */
    const int64_t most_ns = core->lease_ns / SESSION_STALL, passed_ns = now_ns - core->looked_ns;
    const int64_t left_ns = core->lease_ns - ago_ns + (passed_ns < most_ns ? passed_ns : most_ns);

    if (now_ns - ago_ns > core->pulsed_ns)
        core->pulsed_ns = now_ns - ago_ns;
    if (!core->ended && left_ns > core->pulse_left_ns)
        core->pulse_left_ns = left_ns;
}

int64_t session_core_silent_since_ns(const struct session_core *core)
{
    return pulses_come(core) || core->heard_ns > core->pulsed_ns ? core->heard_ns : core->pulsed_ns;
}

/* Is the lease over, also by pulses? */
static bool is_over(const struct session_core *core)
{
    return core->left_ns <= 0 &&
           (core->pulse_left_ns <= 0 || core->left_ns <= -core->lease_ns * (SESSION_PULSE_LEASES - 1));
}

enum session_health session_core_look(struct session_core *core, int64_t now_ns)
{
    const int64_t most_ns = core->lease_ns / SESSION_STALL, passed_ns = now_ns - core->looked_ns;
    int64_t most_silent_ns;

    core->looked_ns = now_ns;
    core->left_ns -= passed_ns < most_ns ? passed_ns : most_ns;
    core->pulse_left_ns -= passed_ns < most_ns ? passed_ns : most_ns;
    if (is_over(core))
        return SESSION_EXPIRED;
    most_silent_ns = core->lease_ns / 4 * (is_quiet(core) ? 3 : 1);
    return core->left_ns <= core->lease_ns - most_silent_ns ? SESSION_SILENT : SESSION_WELL;
}
