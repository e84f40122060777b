/*
 * Messages between agents: a fixed head, then a bounded payload. Incremental: bytes go in at any fragmentation,
 * whole frames come out. Every frame carries the job it belongs to and the generation it was sent in, so that
 * what is left over from another job or an earlier forming of the world is known at sight.
 *
 * On the wire, all numbers little-endian:  magic u32 | version u16 | type u16 | generation u32 | size u32 | job u64
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
    FRAME_VERSION = 1,
    FRAME_HEAD_BYTES = 24,
    FRAME_FIRST_MAX_BYTES = 65536,    /* payload of a peer that has not joined yet */
    FRAME_MAX_BYTES = 4 * 1024 * 1024 /* payload of a peer that has */
};

struct frame {
    uint16_t type;
    uint32_t generation;
    uint64_t job;
    const unsigned char *payload; /* (size); valid until the parser is fed or asked again */
    uint32_t size;
};

struct frame_parser {
    unsigned char *buffer; /* owned; grows up to one frame of max_payload and what came with it */
    size_t start, end, capacity;
    size_t max_payload;
};

/** An empty parser that takes payloads of at most `max_payload` bytes. No memory is taken yet. */
void frame_parser_init(struct frame_parser *parser, size_t max_payload);
void frame_parser_fini(struct frame_parser *parser);

/** Let larger (or only smaller) payloads in from the next head on. */
void frame_parser_limit(struct frame_parser *parser, size_t max_payload);

/** Append received bytes. FSDP_ERR_NOMEM leaves the parser as it was. */
enum fsdp_status frame_parser_feed(struct frame_parser *parser, const void *bytes, size_t n_bytes,
                                   struct fsdp_err *err);

/**
 * Take the next frame.
 *   FSDP_OK          *frame is filled, or frame->payload is NULL: no whole frame is there yet
 *   FSDP_ERR_FORMAT  wrong magic or version, or a size above the limit: the connection is worth nothing now
 */
enum fsdp_status frame_parser_next(struct frame_parser *parser, struct frame *frame, struct fsdp_err *err);

/** Write the head of `frame` (its payload pointer is not looked at). */
void frame_write_head(unsigned char out[FRAME_HEAD_BYTES], const struct frame *frame);

#endif
