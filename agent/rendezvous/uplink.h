/*
 * This node as one of several. It meets the others (agent/rendezvous/meeting.h), and then it either hosts
 * them or becomes a member. The uplink of a member is its line to the coordinator:
 *   - the uplink hands each message of the coordinator to a coordinator_tell, as a coordinator in this
 *     process would;
 *   - a report of this node, a call of struct reporter, becomes a message.
 * When the line is lost, the uplink stops the workers of this node within the grace, because no node may go
 * on without its coordinator. Then the node joins again, as one that is new, until join_timeout. The run ends
 * here with 76 if the coordinator is gone, or if the job does not bear the loss of a node.
 *
 * Where an arbiter says who leads (agent/arbiter/arbiter.h), a coordinator that is gone may have a successor:
 *   1. The node ends its ranks and joins again in that case too. stands() says that no rank is left.
 *   2. uplink_lead(): this node takes the place. hosts() comes when no rank is left.
 *   3. uplink_follow(): another node leads, and this one joins it.
 *
 * The uplink keeps the node's lease (agent/os/lease.h). A generation begins only while it runs. If it is over
 * and the line still stands, the node takes part in the next generation.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_UPLINK_H
#define AGENT_UPLINK_H

#include "agent/cluster/coordinator.h"
#include "agent/config.h"
#include "agent/os/lease.h"
#include "agent/rendezvous/rendezvous.h"

struct uplink;

/* The uplink's own reports, in addition to the messages of the coordinator. */
struct uplink_handlers {
    /* This node hosts. `rendezvous` belongs to the callee, which destroys the uplink. */
    void (*hosts)(void *member, struct rendezvous *rendezvous, const char *where);
    void (*note)(void *member, const char *words); /* a line for the log */
    /* The following are used only if there is an arbiter; otherwise all are NULL. */
    /* as of struct meeting_handlers */
    bool (*offers)(void *member, const char *host, int port);
    /* this node is a member of the coordinator `identity`, which leads with that term */
    void (*joined)(void *member, const unsigned char identity[PROTO_IDENTITY_BYTES], uint64_t term);
    /* returns whether this node may take the place of a lost coordinator, or join the one that does */
    bool (*may_stand)(void *member);
    /*
     * this node may lead now: it has no coordinator and no rank. The arguments are those of arbiter_stand()
     */
    void (*stands)(void *member, int seat, const char *host, int port, int64_t heard_ms);
};

/**
 * Begin to meet the other nodes.
 *   config    borrowed until uplink_destroy()
 *   tell      gets what the coordinator tells this node. PROTO_START may come first; PROTO_FINISH comes
 *             once and last
 *   handlers  copied
 *   member    the first argument of `tell` and of `handlers`
 *   lease     of this node; borrowed until uplink_destroy()
 * FSDP_ERR_CONFIG: the configured endpoint cannot be used. After a failure nothing is left.
 */
enum fsdp_status uplink_create(struct uplink **out, uv_loop_t *loop, const struct agent_config *config,
                               coordinator_tell *tell, const struct uplink_handlers *handlers, void *member,
                               const struct lease *lease, struct fsdp_err *err);
void uplink_destroy(struct uplink *uplink); /* NULL is a no-op */

/** As meeting_keep_identity(), right after uplink_create(). */
void uplink_keep_identity(struct uplink *uplink, const unsigned char identity[PROTO_IDENTITY_BYTES]);
/** The arbiter has given this node the lead. hosts() follows, or PROTO_FINISH if it cannot lead. */
void uplink_lead(struct uplink *uplink);
/** The arbiter has said that another node leads, at that address. No effect while this node is a member. */
void uplink_follow(struct uplink *uplink, const char *host, int port);
/**
 * Call it once, right after uplink_create(): this node has led the run, and goes on as a member that has lost
 * its coordinator. Other nodes reach it at `host`.
 */
void uplink_rejoin(struct uplink *uplink, const struct coordinator_past *past, const char *host);
/** The arbiter reports that the run is over. Unless this node is a member, it ends with this status. */
void uplink_over(struct uplink *uplink, int exit_status);
/** Fills in what this node knows of the run so far: run, node_rank, and some of the progress. */
void uplink_past(const struct uplink *uplink, struct coordinator_past *past);

/**
 * Returns the struct reporter that turns each report into a message to the coordinator. It is valid until
 * uplink_destroy(). While this node is not a member, a signal that asks for something ends this node alone.
 */
struct reporter uplink_reporter(struct uplink *uplink);

/**
 * Tell the coordinator that every rank of this node was killed, because its guard is gone. The agent's
 * process ends after that.
 */
void uplink_swept(struct uplink *uplink);

#endif
