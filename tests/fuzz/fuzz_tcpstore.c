/*
 * What clients may send to the store, under libFuzzer. The first byte chooses. Even: the rest is one client's
 * stream, given whole and byte by byte, and both must be answered with the same bytes. Odd: the rest is
 * pieces of three clients that share the keys. A byte before each piece says whose it is and how long. A
 * piece of no length is a client that dies, and another that takes its place.
 */
#include "agent/tcpstore/tcpstore_session.h"
#include "tests/fuzz/fuzz.h"

enum { N_CLIENTS = 3, MAX_KEPT = 8 << 20 };

static void on_wake(void *arg, void *owner)
{
    (void)arg;
    tcpstore_session_woken(owner);
}

struct answers {
    unsigned char *bytes;
    size_t n;
};

static void collect(struct tcpstore_session *session, struct answers *answers)
{
    size_t n;
    unsigned char *bytes = tcpstore_session_take(session, &n);

    if (answers != NULL && n > 0) {
        answers->bytes = realloc(answers->bytes, answers->n + n);
        memcpy(answers->bytes + answers->n, bytes, n);
        answers->n += n;
    }
    free(bytes);
}

/* False: the client is to be closed. */
static bool feed(struct tcpstore_session *session, const uint8_t *data, size_t n, struct answers *answers)
{
    unsigned char *copy = malloc(n > 0 ? n : 1); /* alone, so that a look past its end is seen */
    const unsigned char *at = copy;
    struct fsdp_err err = { 0 };
    enum fsdp_status status = FSDP_OK;

    if (n > 0)
        memcpy(copy, data, n);
    while (n > 0 && status == FSDP_OK) {
        status = tcpstore_session_feed(session, &at, &n, &err);
        collect(session, answers);
    }
    free(copy);
    return taken(status, &err);
}

static void begin(struct tcpstore_session *session, struct tcpstore_keys *keys)
{
    const unsigned char op = TCPSTORE_VALIDATE;
    const uint32_t magic = TCPSTORE_MAGIC;

    tcpstore_session_init(session, keys, session);
    never(!feed(session, &op, sizeof op, NULL) ||
          !feed(session, (const uint8_t *)&magic, sizeof magic, NULL));
}

static bool run_stream(const uint8_t *data, size_t size, size_t step, struct answers *answers)
{
    struct tcpstore_keys *keys = tcpstore_keys_create(MAX_KEPT, on_wake, NULL);
    struct tcpstore_session session;
    bool alive = true;

    tcpstore_session_init(&session, keys, &session);
    for (size_t at = 0; at < size && alive; at += step)
        alive = feed(&session, data + at, size - at < step ? size - at : step, answers);
    tcpstore_session_fini(&session);
    never(tcpstore_keys_n_waits(keys) != 0);
    tcpstore_keys_destroy(keys);
    return alive;
}

static void check_fragments(const uint8_t *data, size_t size)
{
    struct answers whole = { 0 }, bytewise = { 0 };
    const bool alive = run_stream(data, size, size > 0 ? size : 1, &whole);

    never(run_stream(data, size, 1, &bytewise) != alive || whole.n != bytewise.n ||
          (whole.n > 0 && memcmp(whole.bytes, bytewise.bytes, whole.n) != 0));
    free(whole.bytes);
    free(bytewise.bytes);
}

static void check_clients(const uint8_t *data, size_t size)
{
    struct tcpstore_keys *keys = tcpstore_keys_create(MAX_KEPT, on_wake, NULL);
    struct tcpstore_session sessions[N_CLIENTS];

    for (int i = 0; i < N_CLIENTS; i++)
        begin(&sessions[i], keys);
    while (size > 0) {
        struct tcpstore_session *session = &sessions[data[0] % N_CLIENTS];
        size_t n = data[0] / N_CLIENTS;

        data++;
        size--;
        n = n < size ? n : size;
        if (n == 0 || !feed(session, data, n, NULL)) {
            tcpstore_session_fini(session);
            begin(session, keys);
        }
        data += n;
        size -= n;
        never(tcpstore_keys_used_bytes(keys) > MAX_KEPT);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        tcpstore_session_fini(&sessions[i]);
    never(tcpstore_keys_n_waits(keys) != 0);
    tcpstore_keys_destroy(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0)
        check_fragments(data + 1, size - 1);
    else
        check_clients(data + 1, size - 1);
    return 0;
}
