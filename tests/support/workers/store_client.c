/*
 * A client of the agent's store on real sockets, for tests/conformance/test_store.sh: one action, at
 * MASTER_ADDR and MASTER_PORT. Ends with 0 when all was as it must be; else says on stderr what was not.
 *   conversation     every operation, byte by byte
 *   refusals         what ends a connection, and that it ends no other
 *   slow             much is asked and nothing read: the store stops listening, and goes on when it is read
 *   many=N           N connections at once: each adds 1, all wait for one key, one sets it; prints the memory
 *                    of the agent (the parent process) before and after
 *   fresh=FILE       the store holds nothing; leave a key in it and append the port to FILE
 *   connect          is a connection served? Exit 3: it was closed. After from=ADDRESS: from this address
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/oracles/tcpstore_wire.h"

enum { PATIENCE_MS = 600000, CLOSED = 3 };

static struct addrinfo *store_at;
static const char *source;

static __attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* One connection */

static int try_connect(void)
{
    const int on = 1;
    int fd = socket(store_at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fail("socket: %s", strerror(errno));
    if (source != NULL) {
        struct sockaddr_in from = { .sin_family = AF_INET };

        if (inet_pton(AF_INET, source, &from.sin_addr) != 1 ||
            bind(fd, (struct sockaddr *)&from, sizeof from) != 0)
            fail("bind %s: %s", source, strerror(errno));
    }
    if (connect(fd, store_at->ai_addr, store_at->ai_addrlen) != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int connect_raw(void)
{
    int fd = try_connect();

    if (fd < 0)
        fail("connect: %s", strerror(errno));
    return fd;
}

static void send_all(int fd, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            fail("send: %s", strerror(errno));
        at += sent;
        n -= (size_t)sent;
    }
}

/* So many bytes, or fewer when the connection ends: how many. */
static size_t receive(int fd, void *bytes, size_t n)
{
    size_t got = 0;

    while (got < n) {
        struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
        ssize_t read_n;

        if (poll(&poll_fd, 1, PATIENCE_MS) == 0)
            fail("no answer in %d ms: %zu of %zu bytes", PATIENCE_MS, got, n);
        read_n = recv(fd, (unsigned char *)bytes + got, n - got, 0);
        if (read_n < 0 && errno == EINTR)
            continue;
        if (read_n <= 0)
            return got;
        got += (size_t)read_n;
    }
    return got;
}

static void expect_bytes(int fd, const void *want, size_t n, const char *when)
{
    unsigned char *got = malloc(n);
    const size_t got_n = receive(fd, got, n);

    if (got_n != n)
        fail("%s: the connection ended after %zu of %zu bytes", when, got_n, n);
    if (memcmp(got, want, n) != 0)
        fail("%s: another answer of %zu bytes", when, n);
    free(got);
}

static void expect_byte(int fd, unsigned char want, const char *when)
{
    expect_bytes(fd, &want, 1, when);
}

static void expect_end(int fd, const char *when)
{
    unsigned char byte;

    if (receive(fd, &byte, 1) != 0)
        fail("%s: it was answered", when);
    close(fd);
}

static void send_wire(int fd, struct wire *wire)
{
    send_all(fd, wire->bytes, wire->n);
    wire->n = 0;
}

/* What was sent before on any connection has been read when this comes back. */
static void ping(int fd)
{
    struct wire wire = { 0 };
    const uint32_t nonce = 4711;

    wire_op(&wire, TCPSTORE_PING);
    wire_u32(&wire, nonce);
    send_wire(fd, &wire);
    expect_bytes(fd, &nonce, sizeof nonce, "ping");
    free(wire.bytes);
}

static int connect_valid(void)
{
    struct wire wire = { 0 };
    int fd = connect_raw();

    wire_validate(&wire);
    send_wire(fd, &wire);
    ping(fd);
    free(wire.bytes);
    return fd;
}

static void set_key(int fd, const char *key, const char *value)
{
    struct wire wire = { 0 };

    wire_key(&wire, TCPSTORE_SET, key, value);
    send_wire(fd, &wire);
    free(wire.bytes);
}

static void send_wait(int fd, const char *key)
{
    struct wire wire = { 0 };

    wire_list(&wire, TCPSTORE_WAIT, (const char *[]){ key, NULL });
    send_wire(fd, &wire);
    free(wire.bytes);
}

static void expect_keys(int fd, int64_t n)
{
    struct wire wire = { 0 };

    wire_op(&wire, TCPSTORE_GETNUMKEYS);
    send_wire(fd, &wire);
    expect_bytes(fd, &n, sizeof n, "the number of keys");
    free(wire.bytes);
}

/* The agent, which is the parent */

static long agent_kb(const char *name)
{
    char path[64], line[256];
    long kb = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)getppid());
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kb = atol(line + strlen(name) + 1);
    if (file != NULL)
        fclose(file);
    return kb;
}

/* Actions */

static void act_conversation(void)
{
    struct wire asked = { 0 }, answered = { 0 };
    int other = connect_valid(), fd;

    wire_conversation(&asked, &answered);
    fd = connect_raw();
    for (size_t i = 0; i < asked.n; i++) {
        send_all(fd, asked.bytes + i, 1);
        ping(other); /* the byte has been read, alone */
    }
    expect_bytes(fd, answered.bytes, answered.n, "byte by byte");
    free(asked.bytes);
    free(answered.bytes);
}

static void act_refusals(void)
{
    static const struct refusal {
        const char *what;
        bool valid;
        const char *bytes;
        size_t n;
    } refusals[] = {
        { "a wrong magic", false, "\0\1\2\3\4", 5 },
        { "an unknown operation", true, "\x13", 1 },
    };
    int other = connect_valid();

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        int fd = refusals[i].valid ? connect_valid() : connect_raw();

        send_all(fd, refusals[i].bytes, refusals[i].n);
        expect_end(fd, refusals[i].what);
        ping(other);
    }
}

/* 125 MiB of answers each, more than sockets hold: what was asked waits in the store, and not the answers. */
static void act_slow(void)
{
    enum { ASKED = 2000, VALUE = 64 << 10, ROOM_KB = 64 << 10 };
    char *value = malloc(VALUE + 1);
    int slow = connect_valid(), dies = connect_valid(), other = connect_valid();
    struct wire asked = { 0 }, answer = { 0 };
    const long before_kb = agent_kb("VmRSS:");

    memset(value, 'v', VALUE);
    value[VALUE] = '\0';
    set_key(other, "/k", value);
    ping(other);
    for (int i = 0; i < ASKED; i++)
        wire_key(&asked, TCPSTORE_GET, "/k", NULL);
    wire_list(&asked, TCPSTORE_WAIT, (const char *[]){ "/later", NULL });
    send_all(slow, asked.bytes, asked.n);
    send_wait(dies, "/later");
    send_all(dies, asked.bytes, asked.n);
    for (int i = 0; i < ASKED; i++)
        ping(other); /* others are served meanwhile */
    if (agent_kb("VmRSS:") - before_kb > ROOM_KB)
        fail("the agent keeps %ld kB for two clients that do not read", agent_kb("VmRSS:") - before_kb);
    close(dies);
    wire_text(&answer, value);
    for (int i = 0; i < ASKED; i++)
        expect_bytes(slow, answer.bytes, answer.n, "one of many answers");
    set_key(other, "/later", "");
    expect_byte(slow, 0, "the wait behind them");
    free(value);
    free(asked.bytes);
    free(answer.bytes);
}

static void act_many(int n)
{
    int *fds = calloc((size_t)n, sizeof *fds);
    struct wire wire = { 0 };
    bool *seen = calloc((size_t)n + 1, sizeof *seen);
    const long before_kb = agent_kb("VmRSS:");

    for (int i = 0; i < n; i++) {
        fds[i] = connect_raw();
        wire_validate(&wire);
        send_wire(fds[i], &wire);
    }
    for (int i = 0; i < n; i++) {
        wire_key(&wire, TCPSTORE_ADD, "/count", NULL);
        wire_i64(&wire, 1);
        send_wire(fds[i], &wire);
    }
    for (int i = 0; i < n; i++) {
        int64_t count = 0;

        if (receive(fds[i], &count, sizeof count) != sizeof count)
            fail("connection %d of %d was closed", i, n);
        if (count < 1 || count > n || seen[count])
            fail("connection %d counts %lld, out of order or again", i, (long long)count);
        seen[count] = true;
    }
    for (int i = 0; i < n; i++)
        send_wait(fds[i], "/go");
    for (int i = 0; i < n; i++)
        ping(fds[i]);
    set_key(fds[n / 2], "/go", "");
    for (int i = 0; i < n; i++)
        expect_byte(fds[i], 0, "the key all wait for");
    printf("agent %ld kB (%ld before)\n", agent_kb("VmRSS:"), before_kb);
    free(fds);
    free(seen);
    free(wire.bytes);
}

static void act_fresh(const char *path)
{
    int fd = connect_valid();
    FILE *file = fopen(path, "ae");

    expect_keys(fd, 0);
    set_key(fd, "/left here", getenv("MASTER_PORT"));
    expect_keys(fd, 1);
    if (file == NULL || fprintf(file, "%s\n", getenv("MASTER_PORT")) < 0 || fclose(file) != 0)
        fail("%s: %s", path, strerror(errno));
}

/* Whoever is refused sees an end or a reset, and never an answer. */
static int act_connect(void)
{
    struct wire wire = { 0 };
    uint32_t nonce = 0;
    int fd = try_connect();

    if (fd < 0) {
        fprintf(stderr, "connect: %s\n", strerror(errno));
        return CLOSED;
    }
    wire_validate(&wire);
    wire_op(&wire, TCPSTORE_PING);
    wire_u32(&wire, 17);
    if (send(fd, wire.bytes, wire.n, MSG_NOSIGNAL) == (ssize_t)wire.n)
        receive(fd, &nonce, sizeof nonce);
    free(wire.bytes);
    return nonce == 17 ? 0 : CLOSED;
}

static void find_store(void)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    int error;

    if (host == NULL || port == NULL)
        fail("no MASTER_ADDR and MASTER_PORT");
    error = getaddrinfo(host, port, &hints, &store_at);
    if (error != 0)
        fail("%s: %s", host, gai_strerror(error));
}

int main(int argc, char **argv)
{
    const char *action = argc > 1 ? argv[argc - 1] : "";
    const char *value = strchr(action, '=') == NULL ? "" : strchr(action, '=') + 1;
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (argc == 3 && strncmp(argv[1], "from=", 5) == 0)
        source = argv[1] + 5;
    find_store();
    if (strcmp(action, "conversation") == 0)
        act_conversation();
    else if (strcmp(action, "refusals") == 0)
        act_refusals();
    else if (strcmp(action, "slow") == 0)
        act_slow();
    else if (strncmp(action, "many=", 5) == 0)
        act_many(atoi(value));
    else if (strncmp(action, "fresh=", 6) == 0)
        act_fresh(value);
    else if (strcmp(action, "connect") == 0)
        return act_connect();
    else
        fail("no such action: %s", action);
    return 0;
}
