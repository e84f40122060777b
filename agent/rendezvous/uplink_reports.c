/* Reports from this node to the coordinator: each call of struct reporter becomes a message. */
#include "agent/rendezvous/uplink_impl.h"

#include <unistd.h>

#include "shard_runtime/core/clock.h"

static void send_message(struct uplink *uplink, enum proto_type type, int generation, const void *message)
{
    if (!uplink->ending)
        meeting_send(uplink->meeting, type, (uint32_t)generation, message);
}

static void report_exited(void *to, int generation, const struct death *death,
                          const struct errors_detail *detail)
{
    struct proto_exited exited = { .death = *death };
    struct uplink *uplink = to;

    if (death->step > uplink->past.last_step)
        uplink->past.last_step = death->step;
    /*
     * before the report: the coordinator should learn that the lease is over before it learns what followed
     */
    uplink_look_at_lease(uplink);
    if (detail != NULL)
        errors_detail_copy(&exited.detail, detail);
    send_message(to, PROTO_EXITED, generation, &exited);
}

static void report_explained(void *to, int generation, const char *json, size_t length)
{
    send_message(to, PROTO_EXPLAINED, generation, &(struct proto_explained){ json, length });
}

static void report_held(void *to, int generation, const struct restore_steps *held)
{
    struct uplink *uplink = to;

    uplink->past.held = *held; /* kept for another coordinator, if this one is lost */
    meeting_set_held(uplink->meeting, held);
    if (!uplink->ending && !uplink->again)
        send_message(to, PROTO_HELD, generation, held);
}

static void report_entry(void *to, int generation, const struct snapshot_entry *entry)
{
    const struct uplink *uplink = to;

    if (!uplink->ending && !uplink->again)
        send_message(to, PROTO_ENTRY, generation, entry);
}

static void report_stopped(void *to, int generation)
{
    struct uplink *uplink = to;

    (void)uplink_note_end_of_lease(uplink); /* there is nothing left to stop */
    uplink->up = uplink->fenced = false;
    uplink->past.stopped_ns = clock_boot_ns();
    lease_end(uplink->lease);
    if (uplink->ending)
        uplink_finish(uplink);
    else if (uplink->again)
        uplink_join_again(uplink);
    else
        send_message(uplink, PROTO_STOPPED, generation, NULL);
}

static void report_unkilled(void *to, int n)
{
    const struct uplink *uplink = to;

    meeting_set_unkilled(uplink->meeting, n);
}

static void report_event(void *to, int generation, int rank, const char *json, size_t length)
{
    send_message(to, PROTO_EVENT, generation, &(struct proto_event){ rank, json, length });
}

static void report_record(void *to, int generation, const char *event, const struct events_field *fields)
{
    char line[EVENTS_LINE_BYTES];
    const size_t length = events_format(line, sizeof line, 0, generation, event, fields);

    if (length > 0)
        report_event(to, generation, -1, line, length - 1); /* the coordinator adds its own time */
}

static void report_saved(void *to, int generation, int rank, const struct fsdp_link_saved *saved,
                         int manifest_fd)
{
    if (manifest_fd >= 0)
        close(manifest_fd); /* only rank 0 has a manifest's head, and rank 0 runs on the coordinator's node */
    send_message(to, PROTO_SAVED, generation, &(struct proto_saved){ .rank = rank, .saved = *saved });
}

static void report_suspects(void *to, int generation)
{
    send_message(to, PROTO_SUSPECT, generation, NULL);
}

static void report_rank(void *to, int generation, uint64_t question, const struct hang_rank *rank)
{
    send_message(to, PROTO_RANK, generation, &(struct proto_rank){ .question = question, .rank = *rank });
}

static void report_pace(void *to, int generation, const struct pace *pace)
{
    send_message(to, PROTO_PACE, generation, pace);
}

static void report_put(void *to, int generation, const char *key, const void *value, size_t size_bytes)
{
    send_message(to, PROTO_PUT, generation, &(struct proto_put){ key, value, size_bytes });
}

static void report_want(void *to, int generation, const char *key)
{
    send_message(to, PROTO_WANT, generation, &(struct proto_want){ key });
}

static void report_store(void *to, int generation, const struct reporter_store *store)
{
    send_message(to, PROTO_STORE, generation, store);
}

static void report_asked(void *to, int signal, enum reporter_ask how)
{
    struct uplink *uplink = to;
    const struct proto_ask ask = { .signal = signal, .how = how };

    /* without a coordinator the ranks are ending */
    if (how == REPORTER_FORWARD && (!uplink->up || !meeting_is_member(uplink->meeting)))
        return;
    if (how != REPORTER_FORWARD)
        uplink->asked = signal;
    if (how == REPORTER_STOP_NOW &&
        /*
         * stop this node's workers at once; the coordinator stops those of other nodes when it gets the
         * request
         */
        uplink->up)
        uplink_stop_ranks(uplink, &(struct proto_stop){ .signal = signal, .now = true });
    if (meeting_is_member(uplink->meeting) && uplink->generation >= 0) {
        send_message(uplink, PROTO_ASK, uplink->generation, &ask);
        return;
    }
    uplink_end_stopped(uplink, signal);
}

struct reporter uplink_reporter(struct uplink *uplink)
{
    return (struct reporter){ .to = uplink,
                              .exited = report_exited,
                              .explained = report_explained,
                              .held = report_held,
                              .entry = report_entry,
                              .stopped = report_stopped,
                              .unkilled = report_unkilled,
                              .event = report_event,
                              .record = report_record,
                              .saved = report_saved,
                              .suspects = report_suspects,
                              .rank = report_rank,
                              .pace = report_pace,
                              .put = report_put,
                              .want = report_want,
                              .store = report_store,
                              .asked = report_asked };
}
