/*
 * A frame is one message between agents: a head of fixed size, then a payload of limited size. The parser
 * takes bytes in pieces of any size and returns whole frames. Every frame carries the job it belongs to and
 * the generation in which it was sent. So the receiver recognises a frame of another job or of an earlier
 * generation. `seq` and `ack` are the session's (agent/wire/session_core.h).
 *
 * The head, all numbers little-endian:
 *   magic u32 | version u16 | type u16 | generation u32 | size u32 | job u64 | term u64 | seq u64 | ack u64
 * `term` is 0 as long as one agent leads the job from its start to its end.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_FRAME_H
#define AGENT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum {
    FRAME_MAGIC = 0x52505346, /* "FSPR" */
    FRAME_VERSION = 2,
    FRAME_HEAD_BYTES = 48,
    FRAME_FIRST_MAX_BYTES = 65536,    /* largest payload from a peer that has not joined yet */
    FRAME_MAX_BYTES = 4 * 1024 * 1024 /* largest payload from a peer that has joined */
};

struct frame {
    uint16_t type;
    uint32_t generation;
    uint64_t job, term;
    uint64_t seq; /* counts from 1 in each direction of a session; 0: a frame that is never sent again */
    uint64_t ack; /* the highest seq up to which the sender has received and delivered all frames */
    const unsigned char *payload; /* (size); valid until the next call for this parser */
    uint32_t size;
};

struct frame_parser {
    /*
     * Owned by the parser. It grows to one frame of max_payload and the bytes that came with it. It is NULL
     * while no bytes wait, because a coordinator has thousands of parsers.
     */
    unsigned char *buffer;
    size_t start, end, capacity;
    size_t max_payload;
};

/** Begin an empty parser for payloads of at most `max_payload` bytes. This allocates no memory. */
void frame_parser_init(struct frame_parser *parser, size_t max_payload);
void frame_parser_fini(struct frame_parser *parser);

/** Change the largest payload. The next head is the first to which it applies. */
void frame_parser_limit(struct frame_parser *parser, size_t max_payload);

/** Append received bytes. FSDP_ERR_NOMEM leaves the parser as it was. */
enum fsdp_status frame_parser_feed(struct frame_parser *parser, const void *bytes, size_t n_bytes,
                                   struct fsdp_err *err);

/**
 * Take the next frame.
 *   FSDP_OK          *frame is filled in; or frame->payload is NULL, because no whole frame has come yet
 *   FSDP_ERR_FORMAT  wrong magic or version, or a size above the limit: the caller must close the
 *                    connection, because the rest of its bytes cannot be parsed
 */
enum fsdp_status frame_parser_next(struct frame_parser *parser, struct frame *frame, struct fsdp_err *err);

/** Write the head of `frame` into `out`. frame->payload is not read. */
void frame_write_head(unsigned char out[FRAME_HEAD_BYTES], const struct frame *frame);

#endif
