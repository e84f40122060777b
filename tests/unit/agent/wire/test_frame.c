#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "agent/wire/frame.h"

enum { N_FRAMES = 5 };
static const uint32_t sizes[N_FRAMES] = { 0, 1, 24, 1000, 65536 };

/* Five frames with payload bytes that tell their place. */
static size_t write_frames(unsigned char *out)
{
    size_t length = 0;

    for (int i = 0; i < N_FRAMES; i++) {
        struct frame frame = { .type = (uint16_t)(7 + i),
                               .generation = (uint32_t)i,
                               .job = 0x1122334455667788u + (uint64_t)i,
                               .size = sizes[i] };

        frame_write_head(out + length, &frame);
        length += FRAME_HEAD_BYTES;
        for (uint32_t b = 0; b < sizes[i]; b++)
            out[length++] = (unsigned char)(b * 31 + (uint32_t)i);
    }
    return length;
}

static void check_frame(const struct frame *frame, int i)
{
    cr_assert(eq(u16, frame->type, (uint16_t)(7 + i)));
    cr_assert(eq(u32, frame->generation, (uint32_t)i));
    cr_assert(eq(u64, frame->job, 0x1122334455667788u + (uint64_t)i));
    cr_assert(eq(u32, frame->size, sizes[i]));
    for (uint32_t b = 0; b < sizes[i]; b++)
        cr_assert(frame->payload[b] == (unsigned char)(b * 31 + (uint32_t)i), "frame %d byte %u", i, b);
}

Test(frame, comes_out_whole_at_any_fragmentation)
{
    static unsigned char bytes[70000];
    const size_t length = write_frames(bytes);

    for (size_t piece = 1; piece < 3000; piece = piece * 3 / 2 + 1) {
        struct frame_parser parser;
        struct frame frame;
        int n = 0;

        frame_parser_init(&parser, 65536);
        for (size_t at = 0; at < length; at += piece) {
            const size_t part = length - at < piece ? length - at : piece;

            cr_assert(eq(int, frame_parser_feed(&parser, bytes + at, part, NULL), FSDP_OK));
            for (;;) {
                cr_assert(eq(int, frame_parser_next(&parser, &frame, NULL), FSDP_OK));
                if (frame.payload == NULL)
                    break;
                check_frame(&frame, n++);
            }
        }
        cr_assert(eq(int, n, N_FRAMES), "pieces of %zu", piece);
        frame_parser_fini(&parser);
    }
}

Test(frame, oversized_is_refused_before_its_payload_arrives)
{
    struct frame big = { .type = 1, .size = 65537 };
    unsigned char head[FRAME_HEAD_BYTES];
    struct frame_parser parser;
    struct fsdp_err err = { 0 };
    struct frame frame;

    frame_write_head(head, &big);
    frame_parser_init(&parser, 65536);
    frame_parser_feed(&parser, head, sizeof head, NULL);

    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_ERR_FORMAT));
    cr_assert(eq(str, err.message, "frame of 65537 bytes, at most 65536 are taken here"));

    frame_parser_limit(&parser, 65537);
    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_OK));
    cr_assert(frame.payload == NULL);
    frame_parser_fini(&parser);
}

Test(frame, another_protocol_is_told_by_its_first_bytes)
{
    struct frame_parser parser;
    struct fsdp_err err = { 0 };
    struct frame frame;

    frame_parser_init(&parser, 65536);
    frame_parser_feed(&parser, "GET / HTTP/1.1\r\n", 5, NULL);

    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_ERR_FORMAT));
    frame_parser_fini(&parser);
}

/* Any one bit of the head flipped: refused, waited for, or a frame that says something else; never a crash or an overrun. */
Test(frame, flipped_heads_are_survived)
{
    struct frame good = { .type = 3, .generation = 9, .job = 77, .size = 10 };

    for (int bit = 0; bit < FRAME_HEAD_BYTES * 8; bit++) {
        unsigned char bytes[FRAME_HEAD_BYTES + 10] = { 0 };
        struct frame_parser parser;
        struct frame frame;

        frame_write_head(bytes, &good);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        frame_parser_init(&parser, 4096);
        frame_parser_feed(&parser, bytes, sizeof bytes, NULL);
        if (frame_parser_next(&parser, &frame, NULL) == FSDP_OK && frame.payload != NULL)
            cr_assert(le(u32, frame.size, 10u), "bit %d", bit);
        else
            cr_assert(frame.payload == NULL);
        frame_parser_fini(&parser);
    }
}
