/*
 * What workers, the kernel and other nodes write for the agent, under libFuzzer. These are error files,
 * messages, accounts of hangs, stacks of Python, hellos, pulses, watchdog timers, and the texts by which an
 * OOM kill is found. Each is refused, or taken into bounded fields. A timer that was taken is in the set
 * once.
 */
#include "agent/members/proto.h"
#include "agent/os/oom.h"
#include "agent/record/error_file.h"
#include "agent/rendezvous/pulse_datagram.h"
#include "agent/watch/hang_table.h"
#include "agent/watch/python_stack.h"
#include "agent/watch/timers.h"
#include "agent/wire/session_core.h"
#include "tests/fuzz/fuzz.h"

static void check_error_file(const char *text, size_t size)
{
    static struct proto_exited exited;
    static union proto_message back;
    static char account[32768];
    size_t n_bytes;
    char *wire;

    memset(&exited, 0, sizeof exited);
    if (!error_file_parse(&exited.detail, text, size))
        return;
    never(error_file_age_ns(&exited.detail, INT64_C(1700000000000000)) < 0);
    wire = proto_encode(PROTO_EXITED, &exited, &n_bytes);
    never(proto_decode(PROTO_EXITED, &back, wire, n_bytes, NULL) != FSDP_OK ||
          strcmp(back.exited.detail.message, exited.detail.message) != 0 ||
          strcmp(back.exited.detail.traceback, exited.detail.traceback) != 0);
    free(wire);
    errors_account(&exited.detail, account, sizeof account);
    for (const char *at = account; *at != '\0'; at++)
        never(((unsigned char)*at < 0x20 && *at != '\n' && *at != '\t') ||
              *at == 0x7f); /* nothing a terminal would act on */
}

/* The bytes as the payload of every message that a node may send. A key that is taken ends within them. */
static void check_message(const char *text, size_t size)
{
    static union proto_message message;
    struct fsdp_err why = { 0 };

    for (unsigned type = 0; type <= PROTO_COUNT; type++) {
        struct fsdp_err err = { 0 };

        (void)taken(proto_decode(type, &message, text, size, &err), &err);
    }
    never(taken(proto_decode(PROTO_WANT, &message, text, size, &why), &why) &&
          (message.want.key != text || message.want.key[0] == '\0' || strlen(message.want.key) + 1 != size));
}

static void check_hang(const char *text, size_t size)
{
    static char lines[HANG_PRINT_BYTES];
    struct hang_table table = { 0 };
    int n_lines = 0;

    hang_table_add(&table, text, size);
    hang_table_add(&table, text, size / 2);
    free(hang_table_take(&table, text, size, (int)(size % 3), lines));
    for (const char *at = lines; *at != '\0'; at++) {
        n_lines += *at == '\n';
        never(((unsigned char)*at < 0x20 && *at != '\n') || *at == 0x7f);
    }
    never(n_lines > HANG_LINES);
}

static void check_stack(const char *text, size_t size)
{
    static struct python_stack stack;

    never(python_stack_take(&stack, text, size, "/w") != (stack.n_frames > 0));
    never(stack.n_frames > PYTHON_STACK_FRAMES || stack.own >= stack.n_frames);
    for (int i = 0; i < stack.n_frames; i++)
        for (const char *at = stack.frames[i]; *at != '\0'; at++)
            never(at - stack.frames[i] >= PYTHON_STACK_FRAME_BYTES || (unsigned char)*at < 0x20 ||
                  *at == 0x7f);
}

/*
 * The bytes as a HELLO to a session that has sent and received something, and as the head of its next frame.
 */
static void check_hello(const char *bytes, size_t size)
{
    enum { MESSAGE = 7 };
    static const unsigned char identity[SESSION_IDENTITY_BYTES];
    const struct session_hello first = { .connection = 1 };
    struct session_hello hello, answer;
    struct session_core core;
    struct frame frame = { 0 };
    struct fsdp_err err = { 0 };

    session_core_init(&core, identity, 3000000000, 0);
    never(session_core_accept(&core, &first, &answer, 0) != SESSION_NEW);
    never(session_core_send(&core, MESSAGE, 0, "text", 4, NULL) != FSDP_OK);
    if (taken(session_hello_read(&hello, bytes, size, &err), &err) &&
        session_core_accept(&core, &hello, &answer, 0) == SESSION_GO_ON)
        never(hello.received > 1 || hello.connection < 2 ||
              session_core_next(&core, 0, &frame) != (hello.received == 0));
    frame = (struct frame){ 0 };
    if (size >= sizeof frame.seq + sizeof frame.ack) {
        memcpy(&frame.seq, bytes, sizeof frame.seq);
        memcpy(&frame.ack, bytes + sizeof frame.seq, sizeof frame.ack);
        frame.type = MESSAGE;
        never(session_core_take(&core, &frame, &err) == SESSION_DELIVER && frame.seq != core.received);
    }
    session_core_fini(&core);
}

static void check_pulse(const char *bytes, size_t size)
{
    unsigned char written[PULSE_BYTES], again[PULSE_BYTES];
    struct pulse pulse, back;

    if (!pulse_decode(&pulse, bytes, size, NULL))
        return;
    never(size != PULSE_BYTES || pulse.sent_ns <= 0 || pulse.answered_ns < 0 || pulse.lease_ms < 0);
    never(!pulse_encode(written, &pulse, NULL) || !pulse_decode(&back, written, sizeof written, NULL));
    never(!pulse_encode(again, &back, NULL) || memcmp(again, written, sizeof again) != 0);
}

static void check_timer(const char *line, size_t size)
{
    struct timer_request request, expired;
    struct timers timers = { 0 };
    struct fsdp_err err = { 0 };

    if (!taken(timers_parse(&request, line, size, &err), &err))
        return;
    never(request.pid <= 0 || request.signal < 0 || request.signal > 64);
    timers_take(&timers, &request, NULL);
    timers_take(&timers, &request, NULL);
    never(timers.n != (request.expires_us >= 0) ||
          timers_pop(&timers, INT64_MAX, &expired) != (request.expires_us >= 0));
    timers_fini(&timers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), path[32];
    uint64_t n;
    bool v1;

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_error_file(text, size);
    check_message(text, size);
    check_hang(text, size);
    check_stack(text, size);
    check_hello(text, size);
    check_pulse(text, size);
    check_timer(text, size);
    oom_parse_counter(text, &n);
    oom_parse_record(text);
    never(oom_parse_group(text, &v1, path, sizeof path) && memchr(path, '\0', sizeof path) == NULL);
    free(text);
    return 0;
}
