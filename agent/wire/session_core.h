/*
 * One end of a session: a conversation between two agents that outlives its connections. Frames are numbered
 * and kept until the other end has acknowledged them. When a connection breaks, the next one goes on where it
 * ended:
 *   1. The end that dials says in HELLO what it has received and sent. The other end answers with the same.
 *   2. Each end drops the frames that the other has received, and sends the later ones again.
 *   3. A frame that arrives a second time is dropped by its number.
 * So each frame is delivered once and in order, whatever connections were cut in between.
 *
 * A session ends when nothing was heard for a lease. This end's own absence does not count. Time in which it
 * did not look (a stopped process, a paused machine) counts as a lease / SESSION_STALL at most. And the
 * caller passes on everything that has arrived before it judges.
 *
 * A pulse is a sign of life that does not come over the connection (agent/rendezvous/pulse_datagram.h): the
 * other process lives, but may be busy. It keeps the session for some leases. The connection counts as silent
 * all the same, so another one is dialled. In a job of SESSION_MANY nodes or more, a connection is quiet
 * while pulses come and nothing waits to be acknowledged: few signs of life travel over it, because those of
 * thousands would cost a host more than all pulses. It counts as silent later. The end that gets no answers
 * to its pulses asks over the session instead, and so hears from the other.
 *
 * Pure: no sockets, no loop, no clock. Times are nanoseconds of any clock that goes forward.
 */
#ifndef AGENT_SESSION_CORE_H
#define AGENT_SESSION_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/wire/frame.h"
#include "agent/wire/session_hello.h"

enum {
    SESSION_BEATS = 10, /* signs of life in one lease */
    /*
     * the longest time between two beats: so even with a long lease, a session survives a cut half a second
     * shorter than the lease
     */
    SESSION_BEAT_MS = 300,
    SESSION_MANY = 512,
    SESSION_QUIET = 2,         /* signs of life in one lease while the connection is quiet */
    SESSION_PAUSE = 3,         /* the connection is quiet until no pulse has come for a lease / 3 */
    SESSION_STALL = 6,         /* a lease / 6 is the longest time between two looks that counts in full */
    SESSION_PULSE_LEASES = 10, /* leases for which a session stays alive by pulses alone */
    SESSION_HELD_MAX_BYTES = 64 * 1024 * 1024, /* frames that wait to be acknowledged, with their heads */
    SESSION_ACK_FRAMES = 32,                   /* acknowledge at the latest after so many frames */
    SESSION_ACK_BYTES = 65536                  /* and after so many bytes */
};

/* Types of frames that belong to the session itself. */
enum {
    SESSION_ACK = 0,         /* seq 0; no payload: an acknowledgement and a sign of life */
    SESSION_HELLO = 0xff01,  /* seq 0; struct session_hello, from the end that dials */
    SESSION_ANSWER = 0xff02, /* seq 0; struct session_hello, from the end that accepts */
    SESSION_BYE = 0xff03,  /* has a seq, so the other end gets it after all frames that were sent before it */
    SESSION_SWEPT = 0xff04 /* seq 0; first on a connection that begins no session: agent/wire/swept.h */
};

/* What to do with a frame that has arrived. */
enum session_take {
    SESSION_DELIVER,  /* the frame is the next one in order: give it to the handler */
    SESSION_DROP,     /* ignore the frame: it arrived before, or only acknowledges others */
    SESSION_FAREWELL, /* the other end has left */
    SESSION_WRONG     /* the frame's number is impossible: a protocol error */
};

/* The state of a session at a moment. */
enum session_health {
    SESSION_WELL,
    /* nothing was heard for a quarter of the lease; of a quiet connection, for three quarters */
    SESSION_SILENT,
    SESSION_EXPIRED /* nothing was heard for the lease */
};

struct session_held;

struct session_core {
    unsigned char identity[SESSION_IDENTITY_BYTES];
    int64_t lease_ns;
    bool is_one_of_many; /* one of many sessions of its host, so its connection may be quiet */
    bool up;             /* there is a connection, and both ends know each other's numbers on it */
    uint32_t connection; /* number of the latest connection; 0: none */
    uint64_t sent, acked, received;
    struct session_held *oldest, *newest; /* frames that are not acknowledged */
    /* the first of these frames that was not written on the current connection */
    struct session_held *to_write;
    size_t held_bytes;
    uint32_t untold_frames, untold_bytes; /* received since the last acknowledgement was written */
    uint32_t n_replayed;                  /* frames that this connection sends again */
    int64_t left_ns;                      /* what is left of the lease */
    int64_t pulse_left_ns;                /* the same by pulses alone */
    bool ended;                           /* the other end has closed its connection, and no other came */
    int64_t heard_ns, looked_ns;          /* last sign of life on a connection; last look */
    int64_t pulsed_ns;                    /* last pulse */
    int64_t told_ns;                      /* when this end last gave a sign of life */
};

void session_core_init(struct session_core *core, const unsigned char identity[SESSION_IDENTITY_BYTES],
                       int64_t lease_ns, int64_t now_ns);
void session_core_fini(struct session_core *core);

/* Frames that leave */

/**
 * Number a frame and keep a copy until it is acknowledged. Nothing is kept after a failure.
 *   FSDP_ERR_BUSY   SESSION_HELD_MAX_BYTES wait already
 *   FSDP_ERR_NOMEM  no memory, or a frame above FRAME_MAX_BYTES
 */
enum fsdp_status session_core_send(struct session_core *core, uint16_t type, uint32_t generation,
                                   const void *payload, size_t size_bytes, struct fsdp_err *err);
/**
 * Take the next frame to write on this connection now. It is also an acknowledgement and a sign of life. Its
 * payload is valid until the next call for this core.
 * Returns false if there is none, or if the session is not up.
 */
bool session_core_next(struct session_core *core, int64_t now_ns, struct frame *out);
/** Returns a SESSION_ACK, the acknowledgement to write now. */
struct frame session_core_ack(struct session_core *core, int64_t now_ns);
/**
 * Is an acknowledgement due, because enough frames were received, or because no frame was sent for a beat?
 */
bool session_core_ack_is_due(const struct session_core *core, int64_t now_ns);

/* Frames that arrive */

/** Take a frame of the current connection. SESSION_WRONG: `err` has the reason. */
enum session_take session_core_take(struct session_core *core, const struct frame *frame,
                                    struct fsdp_err *err);

/* Connections */

/**
 * Begin the next connection, at the end that dials: fill in the HELLO. Until session_core_answered() nothing
 * is written on it. The previous connection must be closed before this call. So no frame with a higher number
 * than `sent` of this HELLO was ever written.
 */
void session_core_dial(struct session_core *core, struct session_hello *hello);
/**
 * Take the answer to the HELLO of the current connection. After FSDP_OK the session is up.
 *   FSDP_ERR_PEER      the other end has ended the session
 *   FSDP_ERR_MISMATCH  one end was restored from an earlier state: `err` says which
 *   FSDP_ERR_FORMAT    the answer cannot be
 */
enum fsdp_status session_core_answered(struct session_core *core, const struct session_hello *answer,
                                       int64_t now_ns, struct fsdp_err *err);
/**
 * Judge a HELLO, at the end that accepts, and fill in the answer. After SESSION_NEW and SESSION_GO_ON the
 * session is up on the new connection; frames that still come on the previous one must not be taken.
 */
enum session_verdict session_core_accept(struct session_core *core, const struct session_hello *hello,
                                         struct session_hello *answer, int64_t now_ns);
struct session_reach session_core_reach(const struct session_core *core);
/** The current connection is gone. */
void session_core_broken(struct session_core *core);
/**
 * The other end has closed the connection in order, but without BYE, as the kernel of a dead process does.
 * The other end gets one beat of time to dial again.
 */
void session_core_closed(struct session_core *core, int64_t now_ns);

/* Time */

/** Bytes have arrived on the current connection. */
void session_core_heard(struct session_core *core, int64_t now_ns);
/** A pulse came `ago_ns` ago. No effect if the other end has closed its connection in order. */
void session_core_pulse(struct session_core *core, int64_t ago_ns, int64_t now_ns);
/**
 * Since when nothing is heard: the last sign of life. While pulses come it is the connection that is silent,
 * so they do not count.
 */
int64_t session_core_silent_since_ns(const struct session_core *core);
/**
 * Judges the session after time has passed. Call it only after all frames that had arrived were passed on.
 */
enum session_health session_core_look(struct session_core *core, int64_t now_ns);

#endif
