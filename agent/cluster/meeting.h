/*
 * How this node meets the others of its job. Who hosts is decided by trying: the node that has an address of
 * the endpoint, and can listen at its port, is the coordinator, and the meeting is over for it. It listens on every
 * address it has, unless the endpoint is on loopback. Every other node connects to the endpoint, as often as it takes,
 * at all the addresses that its name stands for, says who it is and waits to be let in. Names are never compared, so
 * that it does not matter by which of its names a host is called.
 *
 *   create -> hosts()                            this node is the coordinator (agent/cluster/rendezvous.h)
 *          -> welcomed() -> message()... -> lost()   it is a member of another's
 *          -> failed()                           nobody answered in time, or the coordinator refused
 *
 * One that was welcomed and loses the connection before the first message() meets again: nothing had begun.
 *
 * Callbacks run on the loop's thread. hosts(), failed() and lost() come once and last. From within any callback
 * every function here may be called.
 */
#ifndef AGENT_MEETING_H
#define AGENT_MEETING_H

#include "agent/cluster/rendezvous.h"
#include "agent/config.h"

struct meeting;

struct meeting_handlers {
    /* `rendezvous` listens and is the callee's. `where` is for a person: the endpoint, and if it is every address. */
    void (*hosts)(void *arg, struct rendezvous *rendezvous, const char *where);
    void (*welcomed)(void *arg, const struct proto_welcome *welcome, const char *address);
    void (*message)(void *arg, const struct frame *frame);
    void (*lost)(void *arg, const char *words);
    void (*failed)(void *arg, int status, const char *words); /* `status`: the exit status of fsdprun */
    void (*note)(void *arg, const char *words);               /* a line for the log: what is waited for */
};

/**
 * Begin. `config` is borrowed until meeting_destroy().
 *   FSDP_ERR_CONFIG  the endpoint is none
 */
enum fsdp_status meeting_create(struct meeting **out, uv_loop_t *loop, const struct agent_config *config,
                                const struct meeting_handlers *handlers, void *arg, struct fsdp_err *err);

/** To the coordinator; no effect while there is no connection to it. */
void meeting_send(struct meeting *meeting, enum proto_type type, uint32_t generation, const void *payload,
                  size_t size_bytes);
/** Is this node a member, with its connection standing? */
bool meeting_is_member(const struct meeting *meeting);

/** Close, after what is queued has been sent; freed when the loop has run. No callback follows. NULL is a no-op. */
void meeting_destroy(struct meeting *meeting);

#endif
