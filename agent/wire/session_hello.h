/*
 * The first frame of each connection of a session, and the answer to it. Each end says how much it has
 * received and sent, so that both know which frames are to be sent again.
 *
 * The payload, all numbers little-endian:
 *   identity (16) | connection u32 | verdict u32 | received u64 | sent u64 | lease_ms u32 | 0 u32
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_SESSION_HELLO_H
#define AGENT_SESSION_HELLO_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { SESSION_IDENTITY_BYTES = 16, SESSION_HELLO_BYTES = 48 };

/* The accepting end's answer to a HELLO. */
enum session_verdict {
    SESSION_NEW,       /* the session begins */
    SESSION_GO_ON,     /* the session goes on with this connection */
    SESSION_GONE,      /* this end does not know the session, or has ended it */
    SESSION_STALE,     /* a later connection of this session has come already */
    SESSION_BACKWARDS, /* one end was restored from an earlier state, so the session cannot go on */
    SESSION_VERDICTS
};

struct session_hello {
    unsigned char identity[SESSION_IDENTITY_BYTES]; /* random; names the session */
    uint32_t connection;                            /* 1, 2, 3 ... of this session */
    enum session_verdict verdict;                   /* of an answer; else SESSION_NEW */
    uint64_t received;                              /* highest seq that this end has delivered */
    uint64_t sent;                                  /* the highest seq that this end has given to a frame */
    uint32_t lease_ms;                              /* in an answer: the lease that holds for both ends */
};

/* How far a session has come, as one end knows it. */
struct session_reach {
    /* sent: the highest seq that this end has given; acked: the highest that the other end has delivered */
    uint64_t sent, acked;
    uint64_t received;   /* highest seq that this end has delivered */
    uint32_t connection; /* the latest */
};

/* What the numbers of both ends say. */
enum session_fit {
    SESSION_FITS,
    SESSION_THEY_WENT_BACK, /* the other end does not know what it had sent or received, so it was restored */
    SESSION_WE_WENT_BACK    /* this end was */
};

enum session_fit session_fit(const struct session_reach *ours, const struct session_hello *theirs);
/** Fills `err` with which end was restored, and returns FSDP_ERR_MISMATCH. Not for SESSION_FITS. */
enum fsdp_status session_fit_fail(enum session_fit fit, struct fsdp_err *err);

void session_hello_write(unsigned char out[SESSION_HELLO_BYTES], const struct session_hello *hello);

/** Read a payload, which may come from anyone. FSDP_ERR_FORMAT: it is no hello. */
enum fsdp_status session_hello_read(struct session_hello *hello, const void *payload, size_t n_bytes,
                                    struct fsdp_err *err);

#endif
