#include "agent/wire/frame.h"

#include <stdlib.h>
#include <string.h>

#include "agent/wire/little_endian.h"

enum { FIRST_BYTES = 1024 /* enough for most frames, and a size for which malloc() keeps blocks ready */ };

void frame_parser_init(struct frame_parser *parser, size_t max_payload)
{
    *parser = (struct frame_parser){ .max_payload = max_payload };
}

void frame_parser_fini(struct frame_parser *parser)
{
    free(parser->buffer);
    *parser = (struct frame_parser){ 0 };
}

void frame_parser_limit(struct frame_parser *parser, size_t max_payload)
{
    parser->max_payload = max_payload;
}

/*
 * Makes room for n_bytes more bytes after those that wait in the parser. Bytes of frames that were taken are
 * dropped first.
 */
static bool make_room(struct frame_parser *parser, size_t n_bytes)
{
    const size_t held = parser->end - parser->start;
    size_t capacity = parser->capacity;
    unsigned char *bigger;

    if (parser->start > 0) {
        memmove(parser->buffer, parser->buffer + parser->start, held);
        parser->start = 0;
        parser->end = held;
    }
    if (capacity - held >= n_bytes)
        return true;
    while (capacity - held < n_bytes)
        capacity = capacity == 0 ? FIRST_BYTES : capacity * 2;
    bigger = realloc(parser->buffer, capacity);
    if (bigger == NULL)
        return false;
    parser->buffer = bigger;
    parser->capacity = capacity;
    return true;
}

enum fsdp_status frame_parser_feed(struct frame_parser *parser, const void *bytes, size_t n_bytes,
                                   struct fsdp_err *err)
{
    if (n_bytes == 0)
        return FSDP_OK;
    if (!make_room(parser, n_bytes))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %zu received bytes", n_bytes);
    memcpy(parser->buffer + parser->end, bytes, n_bytes);
    parser->end += n_bytes;
    return FSDP_OK;
}

/*
 * Checks a frame's head as soon as a part of it has come. A peer with another protocol is recognised by its
 * first bytes, without waiting for the whole head.
 */
static enum fsdp_status judge_head(const unsigned char *head, size_t held, struct fsdp_err *err)
{
    if (held >= 4 && get_le(head, 4) != FRAME_MAGIC)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "not a frame of ours (first bytes %02x %02x %02x %02x)",
                         head[0], head[1], head[2], head[3]);
    if (held >= 6 && get_le(head + 4, 2) != FRAME_VERSION)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "frame version %u, ours is %u", (unsigned)get_le(head + 4, 2),
                         (unsigned)FRAME_VERSION);
    return FSDP_OK;
}

enum fsdp_status frame_parser_next(struct frame_parser *parser, struct frame *frame, struct fsdp_err *err)
{
    const size_t held = parser->end - parser->start;
    const unsigned char *head;
    enum fsdp_status status;
    uint64_t size;

    *frame = (struct frame){ 0 };
    if (held == 0) {
        free(parser->buffer);
        parser->buffer = NULL;
        parser->start = parser->end = parser->capacity = 0;
        return FSDP_OK;
    }
    head = parser->buffer + parser->start;
    status = judge_head(head, held, err);
    if (status != FSDP_OK || held < FRAME_HEAD_BYTES)
        return status;
    size = get_le(head + 12, 4);
    if (size > parser->max_payload)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "frame of %llu bytes, at most %zu are taken here",
                         (unsigned long long)size, parser->max_payload);
    if (held - FRAME_HEAD_BYTES < size)
        return FSDP_OK;
    frame->type = (uint16_t)get_le(head + 6, 2);
    frame->generation = (uint32_t)get_le(head + 8, 4);
    frame->size = (uint32_t)size;
    frame->job = get_le(head + 16, 8);
    frame->term = get_le(head + 24, 8);
    frame->seq = get_le(head + 32, 8);
    frame->ack = get_le(head + 40, 8);
    frame->payload = head + FRAME_HEAD_BYTES;
    parser->start += FRAME_HEAD_BYTES + (size_t)size;
    return FSDP_OK;
}

void frame_write_head(unsigned char out[FRAME_HEAD_BYTES], const struct frame *frame)
{
    put_le(out, FRAME_MAGIC, 4);
    put_le(out + 4, FRAME_VERSION, 2);
    put_le(out + 6, frame->type, 2);
    put_le(out + 8, frame->generation, 4);
    put_le(out + 12, frame->size, 4);
    put_le(out + 16, frame->job, 8);
    put_le(out + 24, frame->term, 8);
    put_le(out + 32, frame->seq, 8);
    put_le(out + 40, frame->ack, 8);
}
