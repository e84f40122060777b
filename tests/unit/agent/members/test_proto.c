#include "agent/members/proto.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>

static union proto_message back;

/* A message of each type that has a struct, with values at the ends of what it may carry. */
static union proto_message messages[PROTO_COUNT] = {
    [PROTO_JOIN] = { .join = { .version = "0.1.0 abc",
                               .host = "n\"1\\",
                               .address = "fd00::2",
                               .role = "trainer",
                               .node_rank = -1,
                               .order = 3,
                               .min_nodes = 1,
                               .n_nodes = 2,
                               .n_workers = 8,
                               .what = 0xfedcba9876543210u,
                               .identity = { 0, 9, [15] = 255 },
                               .lost_by = { 255, [15] = 1 },
                               .last_generation = -1,
                               .last_node_rank = 3,
                               .n_unkilled = 2,
                               .held = { .own = { { { 9, 2 }, { 8, 1 } } },
                                         .copies = { { { 9, 2 }, { -1, 0 } } },
                                         .copies_first_rank = -1,
                                         .own_first_rank = 1,
                                         .world_size = 2 } } },
    [PROTO_REFUSED] = { .refused = { .status = 78, .words = "you are not wanted" } },
    [PROTO_WELCOME] = { .welcome = { .host = "h",
                                     .identity = { [15] = 7 },
                                     .run = { 8 },
                                     .first_attempt = 4,
                                     .term = 9,
                                     .wait = PROTO_WAIT_UNKILLED,
                                     .seconds = 10 } },
    [PROTO_START] = { .start = { .restart_count = 1,
                                 .world_size = 4,
                                 .first_rank = 3,
                                 .n_nodes = 2,
                                 .node_rank = 1,
                                 .role_rank = 1,
                                 .role_world_size = 2,
                                 .first_attempt = 7,
                                 .resume_step = -1,
                                 .lease_ms = 3000,
                                 .term = 9,
                                 .master_address = "10.0.0.1",
                                 .node_address = "10.0.0.2",
                                 .master_port = 29500,
                                 .token = { 0, 9, 255, [31] = 17 },
                                 .bears_loss = true } },
    [PROTO_EXITED] = { .exited = { .death = { .kind = DEATH_SIGNAL,
                                              .rank = 9,
                                              .local_rank = 1,
                                              .pid = 4242,
                                              .code = 9,
                                              .sent_signal = 15,
                                              .killed = true,
                                              .age_ns = 1234567890123,
                                              .silent_ns = 600250000000,
                                              .oom_kill = true,
                                              .step = -1,
                                              .phase = -1,
                                              .host = "n1",
                                              .words = "w" },
                                   .detail = { .message = "m",
                                               .traceback = "T\n x\n",
                                               .raised_us = 17,
                                               .error_file = "/e",
                                               .log = "/l",
                                               .shown = true,
                                               .output_at = UINT64_C(1) << 40 } } },
    [PROTO_STOP] = { .stop = { .signal = 0, .now = true, .lost = true } },
    [PROTO_SAVED] = { .saved = { .rank = 5,
                                 .saved = { .step = 7,
                                            .status = FSDP_ERR_IO,
                                            .keep = 3,
                                            .size_bytes = UINT64_C(1) << 60,
                                            .checksum = { UINT64_MAX, 1 },
                                            .loaded_step = -1,
                                            .directory = "/d",
                                            .temporary = ".t",
                                            .file = "f",
                                            .words = "no space" } } },
    [PROTO_PUBLISHED] = { .published = { .step = 7, .status = FSDP_ERR_IO, .words = "w" } },
    [PROTO_NOTICE] = { .notice = { .stop_after_step = -1 } },
    [PROTO_ASK] = { .ask = { .signal = NSIG - 1, .how = REPORTER_FORWARD } },
    [PROTO_FINISH] = { .finish = { .status = 41,
                                   .line = "rank 1 was killed",
                                   .node = -1,
                                   .code = -9,
                                   .detail = { .message = "m" } } },
    [PROTO_FORWARD] = { .stop = { .signal = SIGUSR2 } },
    [PROTO_LOOK] = { .look = { .question = UINT64_MAX, .shown_ns = INT64_MAX } },
    [PROTO_RANK] = { .rank = { .question = 3,
                               .rank = { .rank = 9,
                                         .local_rank = 1,
                                         .pid = 77,
                                         .answered = true,
                                         .live = true,
                                         .state = 'T',
                                         .still = true,
                                         .silent_ns = INT64_MAX,
                                         .bound_ns = 5,
                                         .program = true,
                                         .hearts = true,
                                         .python = true,
                                         .shown_ns = 7,
                                         .pass = FSDP_PHASE_BACKWARD,
                                         .step = -1,
                                         .waits = true,
                                         .layer = "layers.6",
                                         .group = 1,
                                         .sequence = UINT64_MAX,
                                         .size_bytes = 12,
                                         .kind = "all_gather",
                                         .queued = true,
                                         .peer = -1,
                                         .n_missing = 2,
                                         .n_groups = 2,
                                         .groups = { { "world", 0, 1, 16, 7, 6 },
                                                     { "tp.1.8", 8, 1, 2, 9, 8 } } } } },
    [PROTO_UNKILLED] = { .unkilled = { .n = INT32_MAX } },
    [PROTO_PACE] = { .pace = { .rank = 3,
                               .step = 40,
                               .n_steps = 12,
                               .total_ns = INT64_MAX,
                               .own_ns = 5,
                               .data_ns = 4,
                               .delay_ns = 3,
                               .idle_ns = 2 } },
    [PROTO_BEAT] = { .beat = { .answered_ns = 5, .sent_ns = 1, .lease_ms = 999999999000 } },
    [PROTO_FENCED] = { .fenced = { .ago_ms = INT64_C(1) << 40 } },
    [PROTO_STORE] = { .store = { .question = UINT64_MAX,
                                 .kind = REPORTER_STORE_CHANGED,
                                 .port = 65535,
                                 .node = 3,
                                 .pid = INT32_MAX,
                                 .ago_ns = INT64_MAX,
                                 .words = "n1" } },
    [PROTO_HELD] = { .held = { .own = { { { INT64_MAX, 7 }, { -1, 0 } } },
                               .copies = { { { 4, 2 }, { 3, 1 } } },
                               .copies_first_rank = 6,
                               .own_first_rank = 4,
                               .world_size = 8 } },
    [PROTO_HUNG] = { .hung = { .rank = 3, .words = "no progress for 5 s" } },
};

static bool has_struct(unsigned type)
{
    return type != PROTO_PUT && type != PROTO_WANT && type != PROTO_EVENT && type != PROTO_EXPLAINED &&
           type != PROTO_STOPPED && type != PROTO_SUSPECT && type != PROTO_SWEPT && type != PROTO_CAN_LEAD &&
           type != PROTO_SHOW && type != PROTO_OPEN && type != PROTO_CLOSE && type != PROTO_ENDED &&
           type != PROTO_ENTRY;
}

/* Lines point into the struct, so that they are not constant. */
static void set_tail(struct errors_tail *tail)
{
    errors_tail_take(tail, "a\nb", 3, false);
}

static enum fsdp_status decode(unsigned type, const char *text, struct fsdp_err *err)
{
    return proto_decode(type, &back, text, strlen(text), err);
}

Test(proto, every_message_has_a_name_and_comes_back_as_it_was)
{
    set_tail(&messages[PROTO_EXITED].exited.detail.tail);
    set_tail(&messages[PROTO_FINISH].finish.detail.tail);
    for (unsigned type = PROTO_JOIN; type < PROTO_COUNT; type++) {
        struct errors_tail *tail = type == PROTO_EXITED ? &back.exited.detail.tail : &back.finish.detail.tail;
        size_t n_bytes;
        char *text;

        cr_expect(ne(str, (char *)proto_name(type), "unknown"), "%u", type);
        if (!has_struct(type))
            continue;
        memset(&back, 0, sizeof back);
        text = proto_encode(type, &messages[type], &n_bytes);
        cr_assert(eq(int, decode(type, text, NULL), FSDP_OK), "%s: %s", proto_name(type), text);
        if (type == PROTO_EXITED || type == PROTO_FINISH) {
            cr_assert(eq(int, tail->n_lines, 2));
            cr_expect(eq(str, (char *)tail->lines[1], "b"));
            memcpy(tail,
                   type == PROTO_EXITED ? &messages[type].exited.detail.tail
                                        : &messages[type].finish.detail.tail,
                   sizeof *tail);
        }
        cr_expect(memcmp(&back, &messages[type], sizeof back) == 0, "%s: %s", proto_name(type), text);
        free(text);
    }
    cr_expect(eq(str, (char *)proto_name(0), "unknown"));
    cr_expect(eq(str, (char *)proto_name(PROTO_COUNT), "unknown"));
}

Test(proto, an_entry_comes_back_with_its_files)
{
    struct snapshot_entry entry = {
        .name = "step-7", .number = 2, .first_rank = 8, .world_size = 16, .more = true
    };
    const char *const bad[] = { "../x", "", ".x", "a/b" };
    size_t n_bytes;
    char *text;

    entry.files = "step-7/a\0002\0\0b";
    entry.files_bytes = sizeof "step-7/a\0002\0\0b" - 1;
    text = proto_encode(PROTO_ENTRY, &entry, &n_bytes);
    cr_assert(eq(int, proto_decode(PROTO_ENTRY, &back, text, n_bytes, NULL), FSDP_OK));
    cr_assert(eq(sz, back.entry.files_bytes, entry.files_bytes));
    cr_expect(memcmp(back.entry.files, entry.files, entry.files_bytes) == 0);
    cr_expect(eq(str, back.entry.name, "step-7"));
    cr_expect(back.entry.number == 2 && back.entry.first_rank == 8 && back.entry.world_size == 16);
    cr_expect(back.entry.more && !back.entry.complete);
    cr_expect(eq(int, proto_decode(PROTO_ENTRY, &back, text, strlen(text), NULL), FSDP_ERR_FORMAT));
    free(text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(entry.name, sizeof entry.name, "%s", bad[i]);
        text = proto_encode(PROTO_ENTRY, &entry, &n_bytes);
        cr_expect(eq(int, proto_decode(PROTO_ENTRY, &back, text, n_bytes, NULL), FSDP_ERR_FORMAT), "%s",
                  bad[i]);
        free(text);
    }
}

Test(proto, what_cannot_be_is_refused)
{
    static const struct {
        unsigned type;
        const char *text, *words;
    } cases[] = {
        { 0, "{}", "a message of type 0 (unknown)" },
        { PROTO_COUNT, "{}", "a message of type 35 (unknown)" },
        { PROTO_STOPPED, "{}", "a message of type 7 (stopped)" },
        { PROTO_REFUSED, "{\"status\":1}", "a message whose words is missing or unfit" },
        { PROTO_WELCOME,
          "{\"host\":\"h\",\"identity\":\"00000000000000000000000000000000\","
          "\"run\":\"00000000000000000000000000000000\",\"first_attempt\":0,\"term\":\"0\",\"wait\":7,"
          "\"seconds\":0}",
          "a message whose wait is missing or unfit" },
        { PROTO_STOP, "{\"signal\":65,\"now\":false}", "a message whose signal is missing or unfit" },
        { PROTO_FORWARD, "{\"signal\":0}", "a message whose signal is missing or unfit" },
        { PROTO_ASK, "{\"signal\":0,\"how\":0}", "a message whose signal is missing or unfit" },
        { PROTO_ASK, "{\"signal\":2,\"how\":4}", "a message whose how is missing or unfit" },
        { PROTO_RANK, "{}", "a rank without the lines of its groups" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fsdp_err err = { 0 };

        cr_expect(eq(int, decode(cases[i].type, cases[i].text, &err), FSDP_ERR_FORMAT), "%s", cases[i].text);
        cr_expect(eq(str, err.message, (char *)cases[i].words), "%s", cases[i].text);
    }
}

/* An exit of a kind that a node cannot report, or that is yet to come; a generation without ranks. */
Test(proto, a_number_out_of_its_limits_is_refused)
{
    static const struct {
        unsigned type;
        const char *was, *is;
    } cases[] = {
        { PROTO_EXITED, "\"kind\":2", "\"kind\":6" },
        { PROTO_EXITED, "\"age_ns\":\"1", "\"age_ns\":\"-" },
        { PROTO_START, "\"world_size\":4", "\"world_size\":0" },
        { PROTO_START, "\"first_rank\":3", "\"first_rank\":-1" },
        { PROTO_START, "\"node_rank\":1", "\"node_rank\":-1" },
        { PROTO_START, "\"role_rank\":1", "\"role_rank\":-1" },
        { PROTO_START, "\"first_attempt\":7", "\"first_attempt\":-1" },
        { PROTO_START, "\"lease_ms\":\"3000", "\"lease_ms\":\"9" },
        { PROTO_PACE, "\"n_steps\":\"12", "\"n_steps\":\"0" },
        { PROTO_PACE, "\"delay_ns\":\"3", "\"delay_ns\":\"-3" },
        { PROTO_BEAT, "\"sent_ns\":\"1", "\"sent_ns\":\"0" },
        { PROTO_BEAT, "\"lease_ms\":\"999999999000", "\"lease_ms\":\"9" },
        { PROTO_BEAT, "\"lease_ms\":\"999999999000", "\"lease_ms\":\"9223372036854" },
        { PROTO_FENCED, "\"ago_ms\":\"", "\"ago_ms\":\"-" },
        { PROTO_STORE, "\"kind\":4", "\"kind\":5" },
        { PROTO_STORE, "\"port\":65535", "\"port\":65536" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_bytes;
        char *text = proto_encode(cases[i].type, &messages[cases[i].type], &n_bytes), changed[2000];
        const char *at = strstr(text, cases[i].was);

        cr_assert_not_null(at, "%s in %s", cases[i].was, text);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, cases[i].is,
                 at + strlen(cases[i].was));
        cr_expect(eq(int, decode(cases[i].type, changed, NULL), FSDP_ERR_FORMAT), "%s", changed);
        free(text);
    }
}

Test(proto, put_needs_a_key_with_its_end)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = { { "kvv", 3 }, { "\0vv", 3 }, { "", 0 } };
    size_t n_bytes;
    char *payload = proto_encode(PROTO_PUT, &(struct proto_put){ "k", "vv", 2 }, &n_bytes);

    cr_assert(eq(int, proto_decode(PROTO_PUT, &back, payload, n_bytes, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)back.put.key, "k"));
    cr_assert(back.put.value_bytes == 2 && memcmp(back.put.value, "vv", 2) == 0);
    for (int i = 0; i < 3; i++)
        cr_assert(eq(int, proto_decode(PROTO_PUT, &back, bad[i].bytes, bad[i].n, NULL), FSDP_ERR_FORMAT));
    free(payload);
}

Test(proto, want_is_a_key_and_nothing_more)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = { { "k", 1 }, { "\0", 1 }, { "k\0v", 3 }, { "k\0", 3 }, { "", 0 } };
    char longest[FSDP_LINK_KEY_BYTES + 1] = { 0 };
    size_t n_bytes;
    char *payload;

    memset(longest, 'k', FSDP_LINK_KEY_BYTES - 1);
    payload = proto_encode(PROTO_WANT, &(struct proto_want){ longest }, &n_bytes);
    cr_assert(eq(int, proto_decode(PROTO_WANT, &back, payload, n_bytes, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)back.want.key, longest));
    for (int i = 0; i < 5; i++)
        cr_assert(eq(int, proto_decode(PROTO_WANT, &back, bad[i].bytes, bad[i].n, NULL), FSDP_ERR_FORMAT),
                  "%d", i);
    longest[FSDP_LINK_KEY_BYTES - 1] = 'k';
    cr_assert(eq(int, proto_decode(PROTO_WANT, &back, longest, sizeof longest, NULL), FSDP_ERR_FORMAT));
    free(payload);
}

Test(proto, open_lists_its_guests_and_nothing_more)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        { "1 1\0a\0b", 7 },    { "1 1\0a\0", 6 },  { "1 0\0a\0b\0", 8 }, { "-1 1\0a\0b\0", 9 },
        { "1 1x\0a\0b\0", 9 }, { "1\0a\0b\0", 6 }, { "x\0", 2 },         { "1048577 1\0a\0b\0", 14 }
    };
    const struct proto_guest guests[] = { { 0, 8, "n 1", "" },
                                          { PROTO_GUEST_MAX, 1, "fd00::2", "10.0.0.2" } };
    struct proto_open open = {
        .question = UINT64_MAX, .named = "n1", .address = "n2", .must = true, .port = 7
    };
    char list[64], *payload;
    const char *at;
    struct proto_guest guest;
    size_t n_bytes;

    for (int i = 0; i < 2; i++) {
        open.guests_bytes = proto_add_guest(list, sizeof list, open.guests_bytes, &guests[i]);
        cr_assert(gt(sz, open.guests_bytes, 0));
    }
    cr_assert(eq(sz, proto_add_guest(list, open.guests_bytes + 7, open.guests_bytes, &guests[0]), 0));
    open.guests = list;
    payload = proto_encode(PROTO_OPEN, &open, &n_bytes);
    cr_assert(eq(int, proto_decode(PROTO_OPEN, &back, payload, n_bytes, NULL), FSDP_OK));
    cr_assert(back.open.question == UINT64_MAX && back.open.port == 7 && back.open.must &&
              back.open.self == 0);
    cr_assert(strcmp(back.open.named, "n1") == 0 && strcmp(back.open.address, "n2") == 0);
    at = back.open.guests;
    for (int i = 0; i < 2; i++) {
        cr_assert(proto_next_guest(&back.open, &at, &guest));
        cr_assert(guest.node == guests[i].node && guest.n_workers == guests[i].n_workers);
        cr_assert(strcmp(guest.address, guests[i].address) == 0 && strcmp(guest.from, guests[i].from) == 0);
    }
    cr_assert_not(proto_next_guest(&back.open, &at, &guest));
    free(payload);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        open.guests = bad[i].bytes;
        open.guests_bytes = bad[i].n;
        payload = proto_encode(PROTO_OPEN, &open, &n_bytes);
        cr_expect(eq(int, proto_decode(PROTO_OPEN, &back, payload, n_bytes, NULL), FSDP_ERR_FORMAT), "%zu",
                  i);
        free(payload);
    }
    cr_expect(eq(int, proto_decode(PROTO_OPEN, &back, "{}", 2, NULL), FSDP_ERR_FORMAT));
}

Test(proto, event_needs_a_rank)
{
    static const char *const bad[] = { "-2 {}", "1x {}", "{}" };
    size_t n_bytes;
    char *payload = proto_encode(PROTO_EVENT, &(struct proto_event){ -1, "{}", 2 }, &n_bytes);

    cr_assert(eq(int, proto_decode(PROTO_EVENT, &back, payload, n_bytes, NULL), FSDP_OK));
    cr_assert(back.event.rank == -1 && back.event.length == 2 && memcmp(back.event.json, "{}", 2) == 0);
    for (int i = 0; i < 3; i++)
        cr_assert(eq(int, decode(PROTO_EVENT, bad[i], NULL), FSDP_ERR_FORMAT));
    free(payload);
}
