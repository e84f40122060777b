/*
 * Messages from the coordinator. The uplink checks each one, and hands it to this node's coordinator_tell. A
 * START needs a lease, so it is kept until the lease runs, and so are all messages after it.
 */
#include "agent/rendezvous/uplink_impl.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"

static enum fsdp_status take_start(struct uplink *uplink, const struct frame *frame, struct world_plan *plan,
                                   struct fsdp_err *err)
{
    const int n_workers = uplink->config->n_workers;

    if (uplink->up || plan->first_rank > plan->world_size - n_workers || plan->node_rank >= plan->n_nodes ||
        plan->role_rank > plan->role_world_size - n_workers)
        return fsdp_fail(
            err, FSDP_ERR_FORMAT,
            "a generation that cannot be: ranks from %d of %d on node %d of %d, from %d of %d in its role",
            plan->first_rank, plan->world_size, plan->node_rank, plan->n_nodes, plan->role_rank,
            plan->role_world_size);
    plan->generation = uplink->generation = (int)frame->generation;
    uplink->past.node_rank = plan->node_rank;
    uplink->past.progress.generation = plan->generation;
    /* a leader that took over may know of fewer restarts, if it was in no generation before */
    if (uplink->past.progress.n_restarts < (uint32_t)plan->restart_count)
        uplink->past.progress.n_restarts = (uint32_t)plan->restart_count;
    uplink->past.progress.step = plan->resume_step;
    uplink->past.lost_ns = uplink->past.stopped_ns = 0;
    uplink->past.held.world_size = 0;
    meeting_set_held(uplink->meeting, &uplink->past.held);
    uplink->past.last_step = -1;
    uplink->bears_loss = plan->bears_loss;
    uplink->up = true;
    lease_begin(uplink->lease, plan->generation);
    uplink->tell(uplink->member, PROTO_START, plan->generation, plan);
    return FSDP_OK;
}

static enum fsdp_status take_message(struct uplink *uplink, const struct frame *frame, struct fsdp_err *err)
{
    union proto_message message;

    if (frame->type == PROTO_SHOW) { /* it has no payload */
        uplink->tell(uplink->member, PROTO_SHOW, uplink->generation, NULL);
        return FSDP_OK;
    }
    if (frame->type == PROTO_CLOSE) {
        uplink->tell(uplink->member, PROTO_CLOSE, (int)frame->generation, NULL);
        return FSDP_OK;
    }
    OK_OR_RETURN(proto_decode(frame->type, &message, frame->payload, frame->size, err));
    switch (frame->type) {
    case PROTO_OPEN:
        uplink->tell(uplink->member, PROTO_OPEN, (int)frame->generation, &message.open);
        return FSDP_OK;
    case PROTO_ENDED:
    case PROTO_ENTRY:
        uplink->tell(uplink->member, (enum proto_type)frame->type, (int)frame->generation, &message);
        return FSDP_OK;
    case PROTO_START:
        return take_start(uplink, frame, &message.start, err);
    case PROTO_FINISH:
        message.finish.status &= 0xff;
        uplink_end_with(uplink, &message.finish, false);
        return FSDP_OK;
    case PROTO_NOTICE:
        message.notice.kind = FSDP_NOTICE_SAVE_AND_STOP;
        /* fall through */
    case PROTO_STOP:
    case PROTO_FORWARD:
    case PROTO_PUBLISHED:
    case PROTO_PUT:
    case PROTO_LOOK:
    case PROTO_HUNG:
        uplink->tell(uplink->member, (enum proto_type)frame->type, uplink->generation, &message);
        return FSDP_OK;
    default:
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a message of type %u (%s)", frame->type,
                         proto_name(frame->type));
    }
}

/*
 * Is the message about the generation whose ranks run on this node, and not about a later one or about the
 * run?
 */
static bool needs_ranks(const struct frame *frame)
{
    return frame->type != PROTO_START && frame->type != PROTO_FINISH && frame->type != PROTO_OPEN &&
           frame->type != PROTO_CLOSE && frame->type != PROTO_ENDED && frame->type != PROTO_ENTRY;
}

static void take_frame(struct uplink *uplink, const struct frame *frame)
{
    struct fsdp_err err = { 0 };

    if (uplink->ending || uplink->finished)
        return;
    if (needs_ranks(frame) && (!uplink->up || frame->generation != (uint32_t)uplink->generation))
        return; /* the message concerns a generation that is over on this node */
    if (take_message(uplink, frame, &err) != FSDP_OK)
        uplink_end_wrong(uplink, &err);
}

/* Messages that are kept until the lease runs */

enum { HELD_MAX_BYTES = 64 * 1024 * 1024 };

/* A message that is kept until the lease runs: a START, or a message that came after it. */
struct held {
    struct held *next;
    struct frame frame;
    unsigned char payload[];
};

static void hold(struct uplink *uplink, const struct frame *frame)
{
    struct held *held = malloc(sizeof *held + frame->size);

    uplink->held_bytes += frame->size;
    if (held == NULL || uplink->held_bytes > HELD_MAX_BYTES) {
        free(held);
        uplink_end_alone(uplink, FSDP_EXIT_LINK,
                         "the coordinator does not answer, but sends more than can be kept");
        return;
    }
    held->next = NULL;
    held->frame = *frame;
    if (frame->size > 0)
        memcpy(held->payload, frame->payload, frame->size);
    held->frame.payload = held->payload;
    *uplink->held_end = held;
    uplink->held_end = &held->next;
}

void uplink_drop_held(struct uplink *uplink)
{
    for (struct held *held = uplink->held; held != NULL; held = uplink->held) {
        uplink->held = held->next;
        free(held);
    }
    uplink->held_end = &uplink->held;
    uplink->held_bytes = 0;
}

void uplink_take_held(struct uplink *uplink)
{
    while (uplink->held != NULL && lease_runs(uplink->lease)) {
        struct held *held = uplink->held;

        uplink->held = held->next;
        uplink->held_bytes -= held->frame.size;
        if (uplink->held == NULL)
            uplink->held_end = &uplink->held;
        take_frame(uplink, &held->frame);
        free(held);
    }
}

void uplink_take(void *arg, const struct frame *frame)
{
    struct uplink *uplink = arg;

    if (frame->type == PROTO_BEAT)
        uplink_take_answer(uplink, frame);
    else if (frame->type != PROTO_FINISH && !uplink->ending &&
             (uplink->held != NULL || (frame->type == PROTO_START && !lease_runs(uplink->lease))))
        hold(uplink, frame);
    else
        take_frame(uplink, frame);
}
