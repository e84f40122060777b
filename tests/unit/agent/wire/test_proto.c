#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#include "agent/wire/proto.h"

Test(proto, join_comes_back_as_it_was)
{
    struct proto_join join = { .version = "0.1.0 abc",
                               .host = "n\"1\\",
                               .address = "fd00::2",
                               .role = "trainer",
                               .node_rank = -1,
                               .order = 3,
                               .min_nodes = 1,
                               .n_nodes = 2,
                               .n_workers = 8,
                               .what = 0xfedcba9876543210u };
    struct proto_join back;
    char *text = proto_write_join(&join);

    cr_assert(eq(int, proto_read_join(&back, text, strlen(text), NULL), FSDP_OK));
    cr_assert(eq(str, back.version, join.version));
    cr_assert(eq(str, back.host, join.host));
    cr_assert(eq(str, back.address, join.address));
    cr_assert(eq(str, back.role, join.role));
    cr_assert(back.node_rank == -1 && back.order == 3 && back.min_nodes == 1 && back.n_nodes == 2);
    cr_assert(eq(int, back.n_workers, 8));
    cr_assert(eq(u64, back.what, join.what));
    free(text);
}

Test(proto, start_carries_all_of_its_token)
{
    struct proto_start start = {
        .world_size = 4, .master_address = "10.0.0.1", .master_port = 29500, .resume_step = -1
    };
    struct proto_start back;
    char *text;

    for (int i = 0; i < 32; i++)
        start.token[i] = (unsigned char)(i * 9);
    text = proto_write_start(&start);

    cr_assert(eq(int, proto_read_start(&back, text, strlen(text), NULL), FSDP_OK));
    cr_assert(eq(long, back.resume_step, -1));
    cr_assert(memcmp(back.token, start.token, 32) == 0);
    free(text);
}

Test(proto, exited_comes_back_as_it_was)
{
    struct proto_exited exited = { .kind = 2,
                                   .rank = 9,
                                   .local_rank = 1,
                                   .pid = 4242,
                                   .code = 9,
                                   .sent_signal = 15,
                                   .killed = 1,
                                   .step = -1,
                                   .phase = -1,
                                   .host = "n1",
                                   .words = "w",
                                   .age_ns = 1234567890123,
                                   .oom_kill = 1,
                                   .detail = {
                                       .stderr_tail = "a\nb\n", .traceback = "T\n x", .raised_us = 17 } };
    struct proto_exited back;
    char *text = proto_write_exited(&exited);

    cr_assert(eq(int, proto_read_exited(&back, text, strlen(text), NULL), FSDP_OK));
    cr_assert(eq(int, back.rank, 9));
    cr_assert(eq(int, back.sent_signal, 15));
    cr_assert(eq(int, (int)back.killed, 1));
    cr_assert(eq(str, back.detail.stderr_tail, exited.detail.stderr_tail));
    cr_assert(eq(str, back.detail.traceback, exited.detail.traceback));
    cr_assert(eq(long, back.detail.raised_us, 17));
    cr_assert(eq(long, back.age_ns, 1234567890123));
    cr_assert(eq(int, (int)back.oom_kill, 1));
    free(text);
}

Test(proto, saved_keeps_64_bits)
{
    struct fsdp_link_saved saved = { .step = 7,
                                     .status = FSDP_ERR_IO,
                                     .keep = 3,
                                     .size_bytes = UINT64_C(1) << 60,
                                     .checksum = { UINT64_MAX, 1 },
                                     .loaded_step = -1,
                                     .directory = "/d",
                                     .temporary = ".t",
                                     .file = "f",
                                     .words = "no space" };
    struct fsdp_link_saved back;
    char *text = proto_write_saved(&saved, 5);
    int rank;

    cr_assert(eq(int, proto_read_saved(&back, &rank, text, strlen(text), NULL), FSDP_OK));
    cr_assert(eq(int, rank, 5));
    cr_assert(eq(u64, back.size_bytes, saved.size_bytes));
    cr_assert(eq(u64, back.checksum[0], UINT64_MAX));
    cr_assert(eq(str, back.words, "no space"));
    cr_assert(eq(i64, back.loaded_step, -1));
    cr_assert(eq(str, back.directory, "/d"));
    free(text);
}

struct bad {
    const char *text, *words;
};

Test(proto, what_is_not_exactly_a_message_is_refused)
{
    const struct bad rows[] = {
        { "", "a message that is no JSON object" },
        { "[]", "a message that is no JSON object" },
        { "{\"status\":1,\"words\":\"x\"} ", "a message that is no JSON object" },
        { "{\"status\":1}", "a message whose words is missing or unfit" },
        { "{\"status\":1.5,\"words\":\"x\"}", "a message whose status is missing or unfit" },
        { "{\"status\":1e300,\"words\":\"x\"}", "a message whose status is missing or unfit" },
        { "{\"status\":\"1\",\"words\":\"x\"}", "a message whose status is missing or unfit" },
        { "{\"status\":1,\"wordz\":\"x\"}", "a message with the unknown key wordz" },
        { "{\"status\":1,\"words\":\"x\",\"words\":\"y\"}", "a message with more keys than it may have" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fsdp_err err = { 0 };
        struct proto_refused refused;

        cr_assert(
            eq(int, proto_read_refused(&refused, rows[i].text, strlen(rows[i].text), &err), FSDP_ERR_FORMAT),
            "%s", rows[i].text);
        cr_assert(eq(str, err.message, (char *)rows[i].words), "%s", rows[i].text);
    }
}

Test(proto, a_text_too_long_for_its_place_is_refused)
{
    struct proto_refused refused;
    char text[1200];

    snprintf(text, sizeof text, "{\"status\":1,\"words\":\"%0*d\"}", PROTO_WORDS_BYTES - 1, 0);
    cr_assert(eq(int, proto_read_refused(&refused, text, strlen(text), NULL), FSDP_OK));
    snprintf(text, sizeof text, "{\"status\":1,\"words\":\"%0*d\"}", PROTO_WORDS_BYTES, 0);
    cr_assert(eq(int, proto_read_refused(&refused, text, strlen(text), NULL), FSDP_ERR_FORMAT));
}

/* Every message with every byte replaced in turn: refused or read, never more. The sanitizers watch. */
Test(proto, changed_bytes_are_survived)
{
    struct proto_exited exited = {
        .kind = 2, .rank = 3, .pid = 1234, .code = 9, .words = "m", .detail = { .stderr_tail = "a\nb\n" }
    };
    char *text = proto_write_exited(&exited);
    const size_t length = strlen(text);
    int n_read = 0, n_refused = 0;

    for (size_t at = 0; at < length; at++) {
        const char kept = text[at];

        for (int with = 1; with < 256; with += 11) {
            struct proto_exited back;

            text[at] = (char)with;
            if (proto_read_exited(&back, text, length, NULL) == FSDP_OK)
                n_read++;
            else
                n_refused++;
        }
        text[at] = kept;
    }
    cr_assert(gt(int, n_refused, 0));
    cr_assert(gt(int, n_read, 0));
    free(text);
}

Test(proto, put_needs_a_key_with_its_end)
{
    const void *value;
    const char *key;
    size_t n;

    cr_assert(eq(int, proto_read_put(&key, &value, &n, "k\0vv", 4, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)key, "k"));
    cr_assert(eq(sz, n, 2));
    cr_assert(eq(int, proto_read_put(&key, &value, &n, "kvv", 3, NULL), FSDP_ERR_FORMAT));
    cr_assert(eq(int, proto_read_put(&key, &value, &n, "\0vv", 3, NULL), FSDP_ERR_FORMAT));
    cr_assert(eq(int, proto_read_put(&key, &value, &n, "", 0, NULL), FSDP_ERR_FORMAT));
}

Test(proto, every_message_has_a_name)
{
    for (unsigned type = PROTO_JOIN; type < PROTO_COUNT; type++)
        cr_assert(ne(str, (char *)proto_name(type), "unknown"), "%u", type);
    cr_assert(eq(str, (char *)proto_name(0), "unknown"));
    cr_assert(eq(str, (char *)proto_name(PROTO_COUNT), "unknown"));
}
