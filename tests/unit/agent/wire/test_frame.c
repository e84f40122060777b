#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "agent/wire/frame.h"

enum { N_FRAMES = 5 };
static const uint32_t sizes[N_FRAMES] = { 0, 1, 24, 1000, 65536 };

static struct frame_parser parser;
static struct frame frame; /* the last that came out */
static struct fsdp_err err;

static void open_parser(void)
{
    frame_parser_init(&parser, 65536);
}

static void close_parser(void)
{
    frame_parser_fini(&parser);
}

TestSuite(frame, .init = open_parser, .fini = close_parser);

/* Five frames with payload bytes that tell their place. */
static size_t write_frames(unsigned char *out)
{
    size_t length = 0;

    for (int i = 0; i < N_FRAMES; i++) {
        const struct frame one = { .type = (uint16_t)(7 + i),
                                   .generation = (uint32_t)i,
                                   .job = 0x1122334455667788u + (uint64_t)i,
                                   .term = 0xffeeddccbbaa9988u - (uint64_t)i,
                                   .seq = 0x0102030405060708u + (uint64_t)i,
                                   .ack = 0x8070605040302010u - (uint64_t)i,
                                   .size = sizes[i] };

        frame_write_head(out + length, &one);
        length += FRAME_HEAD_BYTES;
        for (uint32_t b = 0; b < sizes[i]; b++)
            out[length++] = (unsigned char)(b * 31 + (uint32_t)i);
    }
    return length;
}

static void check_frame(int i)
{
    cr_assert(frame.type == 7 + i && frame.generation == (uint32_t)i &&
                  frame.job == 0x1122334455667788u + (uint64_t)i && frame.size == sizes[i] &&
                  frame.term == 0xffeeddccbbaa9988u - (uint64_t)i &&
                  frame.seq == 0x0102030405060708u + (uint64_t)i &&
                  frame.ack == 0x8070605040302010u - (uint64_t)i,
              "frame %d", i);
    for (uint32_t b = 0; b < sizes[i]; b++)
        cr_assert(frame.payload[b] == (unsigned char)(b * 31 + (uint32_t)i), "frame %d byte %u", i, b);
}

Test(frame, comes_out_whole_at_any_fragmentation)
{
    static unsigned char bytes[70000];
    const size_t length = write_frames(bytes);

    for (size_t piece = 1; piece < 3000; piece = piece * 3 / 2 + 1) {
        int n = 0;

        for (size_t at = 0; at < length; at += piece) {
            const size_t part = length - at < piece ? length - at : piece;

            cr_assert(eq(int, frame_parser_feed(&parser, bytes + at, part, NULL), FSDP_OK));
            for (;;) {
                cr_assert(eq(int, frame_parser_next(&parser, &frame, NULL), FSDP_OK));
                if (frame.payload == NULL)
                    break;
                check_frame(n++);
            }
        }
        cr_assert(eq(int, n, N_FRAMES), "pieces of %zu", piece);
        cr_assert(eq(ptr, parser.buffer, NULL), "who has nothing to do holds no memory");
    }
}

Test(frame, oversized_is_refused_before_its_payload_arrives)
{
    const struct frame big = { .type = 1, .size = 65537 };
    unsigned char head[FRAME_HEAD_BYTES];

    frame_write_head(head, &big);
    frame_parser_feed(&parser, head, sizeof head, NULL);

    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_ERR_FORMAT));
    cr_assert(eq(str, err.message, "frame of 65537 bytes, at most 65536 are taken here"));

    frame_parser_limit(&parser, 65537);
    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_OK));
    cr_assert(frame.payload == NULL);
}

Test(frame, another_protocol_is_told_by_its_first_bytes)
{
    frame_parser_feed(&parser, "GET / HTTP/1.1\r\n", 5, NULL);

    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_ERR_FORMAT));
}

Test(frame, an_older_version_is_refused_with_its_number)
{
    static const unsigned char head[6] = { 'F', 'S', 'P', 'R', 1, 0 };

    frame_parser_feed(&parser, head, sizeof head, NULL);

    cr_assert(eq(int, frame_parser_next(&parser, &frame, &err), FSDP_ERR_FORMAT));
    cr_assert(eq(str, err.message, "frame version 1, ours is 2"));
}
