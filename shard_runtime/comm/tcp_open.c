#include "shard_runtime/comm/tcp_open.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"

enum { NONCE_BYTES = 32, MAC_BYTES = 32, ADDRESS_BYTES = 320 };

/*
 * Accepted connections that have not proved themselves: at most STRANGERS at a time, each for at most
 * STRANGER_MS. If one more comes, the oldest is closed.
 */
enum { STRANGERS = 64, STRANGER_MS = 10000 };

/* A connection may be refused because the other end's queue is full. So it is tried ATTEMPTS times. */
enum { ATTEMPTS = 5, RETRY_MS = 100 };

/*
 * How long the connections may take once every address is known, as all ranks are there then. The accepting
 * end gives up later, because the connecting end knows more about what went wrong. A turn of the loop counts
 * as TURN_MS at most, so that the time a process was stopped (Ctrl-Z) does not count as waiting.
 */
enum { CONNECT_MS = 20000, ACCEPT_MS = 22000, TURN_MS = 1000 };

/* Keep-alive: the longest time between two probes that tcp(7) takes. */
enum { PROBE_MAX_S = 32767 };

struct opening {
    uint32_t from, to;
    unsigned char nonce[NONCE_BYTES];
    unsigned char mac[MAC_BYTES];
};

/* What the HMAC is taken over, as it is in memory: both ends run the same build. */
struct statement {
    char word[8];
    char group[COMM_NAME_BYTES];
    uint32_t generation, from, to, reserved;
    unsigned char challenge[NONCE_BYTES], nonce[NONCE_BYTES];
};

enum stage { VACANT, CONNECTING, AWAIT_CHALLENGE, AWAIT_PROOF, AWAIT_OPENING };

/* A place for one connection that is being opened. `got` bytes of what its stage awaits have come. */
struct door {
    int fd;
    enum stage stage;
    int node; /* connecting end: to which */
    /* on the connecting end: the number of tries, and the errno of the last one; 0: none */
    int attempts, error;
    /*
     * on the accepting end: when the connection came. On the connecting end, while there is no connection:
     * when to try again.
     */
    int64_t since_ms;
    size_t got;
    union {
        unsigned char bytes[sizeof(struct opening)];
        struct opening opening;
        unsigned char challenge[NONCE_BYTES];
        unsigned char proof[MAC_BYTES];
    } in;
    struct opening sent;                  /* connecting end */
    unsigned char challenge[NONCE_BYTES]; /* either end */
};

struct opener {
    const struct tcp_mesh_config *config;
    const struct fsdp_link_hello *hello;
    int *fds;
    int n_open; /* of fds */
    int listener;
    struct sockaddr_storage *addresses; /* (n) where each node listens */
    socklen_t *address_bytes;
    struct door *doors; /* (self) outgoing, then STRANGERS incoming */
    int n_doors;
};

static uint32_t rank_of(const struct tcp_mesh_config *config, int node)
{
    return (uint32_t)(node * config->rails + config->rail);
}

static bool prove(const struct opener *o, const char *word, const struct door *door,
                  const struct opening *opening, unsigned char mac[MAC_BYTES])
{
    struct statement s = { .generation = o->hello->generation, .from = opening->from, .to = opening->to };
    unsigned int length = 0;

    snprintf(s.word, sizeof s.word, "%s", word);
    snprintf(s.group, sizeof s.group, "%s", o->config->name);
    memcpy(s.challenge, door->challenge, NONCE_BYTES);
    memcpy(s.nonce, opening->nonce, NONCE_BYTES);
    return HMAC(EVP_sha256(), o->hello->token, sizeof o->hello->token, (const unsigned char *)&s, sizeof s,
                mac, &length) != NULL &&
           length == MAC_BYTES;
}

static void address_key(char key[FSDP_LINK_KEY_BYTES], const struct tcp_mesh_config *config, int node)
{
    snprintf(key, FSDP_LINK_KEY_BYTES, "comm/%s/tcp/%u", config->name, rank_of(config, node));
}

/* Listens on this node's own address, on a port that the kernel chooses. */
static enum fsdp_status listen_here(struct opener *o, struct fsdp_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    const char *host = o->hello->node_address;
    struct addrinfo *found = NULL;
    enum fsdp_status status = FSDP_OK;
    int code = getaddrinfo(host, "0", &hints, &found);

    if (code != 0)
        return fsdp_fail(err, FSDP_ERR_IO, "this node's address %s: %s", host, gai_strerror(code));
    o->listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (o->listener < 0 || bind(o->listener, found->ai_addr, found->ai_addrlen) < 0 ||
        listen(o->listener, STRANGERS + o->config->n) < 0)
        status = file_fail(err, "listening on this node's address", host);
    freeaddrinfo(found);
    return status;
}

/* Puts "HOST PORT" where the other nodes of the rail get it: in the agents' store. */
static enum fsdp_status publish_address(struct opener *o, struct fsdp_err *err)
{
    char key[FSDP_LINK_KEY_BYTES], text[ADDRESS_BYTES], host[256], port[32];
    struct sockaddr_storage *address = &o->addresses[o->config->self];
    socklen_t length = sizeof *address;
    int code;

    if (getsockname(o->listener, (struct sockaddr *)address, &length) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "the port listened on: %s", strerror(errno));
    o->address_bytes[o->config->self] = length;
    code = getnameinfo((struct sockaddr *)address, length, host, sizeof host, port, sizeof port,
                       NI_NUMERICHOST | NI_NUMERICSERV);
    if (code != 0)
        return fsdp_fail(err, FSDP_ERR_IO, "the port listened on: %s", gai_strerror(code));
    snprintf(text, sizeof text, "%s %s", host, port);
    address_key(key, o->config, o->config->self);
    return link_put(o->config->link, key, text, strlen(text) + 1, -1, err);
}

/* Waits until `node` has published its address. */
static enum fsdp_status learn_address(struct opener *o, int node, struct fsdp_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    char key[FSDP_LINK_KEY_BYTES], text[ADDRESS_BYTES] = "";
    size_t size = sizeof text;
    struct addrinfo *found = NULL;
    char *space;

    address_key(key, o->config, node);
    OK_OR_RETURN(link_get(o->config->link, key, text, &size, NULL, err));
    text[sizeof text - 1] = '\0';
    space = strchr(text, ' ');
    if (space != NULL)
        *space = '\0';
    if (space == NULL || getaddrinfo(text, space + 1, &hints, &found) != 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is no address", key);
    memcpy(&o->addresses[node], found->ai_addr, found->ai_addrlen);
    o->address_bytes[node] = found->ai_addrlen;
    freeaddrinfo(found);
    return FSDP_OK;
}

/* Writes the address for a message: "10.0.0.2:4321", "[::1]:4321". */
static const char *address_words(const struct opener *o, int node, char out[ADDRESS_BYTES])
{
    char host[256] = "?", port[32] = "?";

    (void)getnameinfo((const struct sockaddr *)&o->addresses[node], o->address_bytes[node], host, sizeof host,
                      port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, ADDRESS_BYTES, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
    return out;
}

static void shut(struct door *door)
{
    if (door->fd >= 0)
        close(door->fd);
    door->fd = -1;
    door->stage = VACANT;
    door->got = 0;
}

int64_t tcp_patience_ms(const struct link *link)
{
    return link_hello(link)->lease_ms * 5 / 2;
}

/*
 * Sends small messages at once, and finds a host that is out of reach for tcp_patience_ms():
 *   - on an idle connection, by keep-alive;
 *   - on a connection with data under way, by is_cut() in tcp_mesh.c.
 * TCP_USER_TIMEOUT would do the second too. But it would also give up a process that is only stopped and
 * whose window is full (tcp(7)). For such a process the rank must wait.
 */
static void tune(int fd, const struct link *link)
{
    const int on = 1, idle_s = 1, probes = 4;
    const int64_t pace_s = (tcp_patience_ms(link) + 1000 * probes - 1) / (1000 * probes);
    const int interval_s = pace_s < PROBE_MAX_S ? (int)pace_s : PROBE_MAX_S;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Both ends have proved themselves: the connection is the rail's now, and the door is free. */
static void let_in(struct opener *o, struct door *door, int node)
{
    o->fds[node] = door->fd;
    o->n_open++;
    door->fd = -1;
    shut(door);
}

static enum fsdp_status start_connecting(struct opener *o, struct door *door, struct fsdp_err *err)
{
    const struct sockaddr *address = (const struct sockaddr *)&o->addresses[door->node];

    door->attempts++;
    door->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "a socket: %s", strerror(errno));
    tune(door->fd, o->config->link);
    door->stage = CONNECTING;
    door->got = 0;
    if (connect(door->fd, address, o->address_bytes[door->node]) < 0 && errno != EINPROGRESS &&
        errno != EINTR) {
        door->error = errno;
        shut(door); /* counted as an attempt, tried again below */
    }
    door->since_ms = clock_now_ms() + RETRY_MS;
    return FSDP_OK;
}

/* Accepts what waits at the listener, and sends each of them a challenge. */
static void accept_all(struct opener *o)
{
    for (;;) {
        struct door *door = &o->doors[o->config->self], *oldest = door;
        int fd = accept4(o->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            return;
        for (; door < o->doors + o->n_doors && door->stage != VACANT; door++)
            if (door->since_ms < oldest->since_ms)
                oldest = door;
        if (door == o->doors + o->n_doors) {
            door = oldest;
            shut(door);
        }
        tune(fd, o->config->link);
        door->fd = fd;
        door->stage = AWAIT_OPENING;
        door->since_ms = clock_now_ms();
        /* The socket's buffer is empty and takes all 32 bytes, unless the connection is broken already. */
        if (getrandom(door->challenge, NONCE_BYTES, 0) != NONCE_BYTES ||
            send(fd, door->challenge, NONCE_BYTES, MSG_NOSIGNAL) != NONCE_BYTES)
            shut(door);
    }
}

static bool answer_challenge(const struct opener *o, struct door *door)
{
    memcpy(door->challenge, door->in.challenge, NONCE_BYTES);
    door->sent =
        (struct opening){ .from = rank_of(o->config, o->config->self), .to = rank_of(o->config, door->node) };
    return getrandom(door->sent.nonce, NONCE_BYTES, 0) == NONCE_BYTES &&
           prove(o, "open", door, &door->sent, door->sent.mac) &&
           send(door->fd, &door->sent, sizeof door->sent, MSG_NOSIGNAL) == sizeof door->sent;
}

/*
 * On the accepting end: all bytes of an opening have come. Its numbers are not trusted before its HMAC is
 * found right.
 */
static void judge_opening(struct opener *o, struct door *door)
{
    const struct opening *opening = &door->in.opening;
    unsigned char mac[MAC_BYTES];
    int node;

    if (!prove(o, "open", door, opening, mac) || CRYPTO_memcmp(mac, opening->mac, MAC_BYTES) != 0 ||
        opening->to != rank_of(o->config, o->config->self)) {
        shut(door);
        return;
    }
    for (node = o->config->self + 1; node < o->config->n; node++)
        if (rank_of(o->config, node) == opening->from)
            break;
    if (node == o->config->n || o->fds[node] >= 0 || !prove(o, "proof", door, opening, mac) ||
        send(door->fd, mac, MAC_BYTES, MSG_NOSIGNAL) != MAC_BYTES) {
        shut(door);
        return;
    }
    let_in(o, door, node);
}

/* On the connecting end: all bytes of the other end's proof have come. */
static void judge_proof(struct opener *o, struct door *door)
{
    unsigned char mac[MAC_BYTES];

    if (prove(o, "proof", door, &door->sent, mac) && CRYPTO_memcmp(mac, door->in.proof, MAC_BYTES) == 0)
        let_in(o, door, door->node);
    else
        shut(door);
}

static size_t awaited_bytes(enum stage stage)
{
    return stage == AWAIT_OPENING     ? sizeof(struct opening)
           : stage == AWAIT_CHALLENGE ? NONCE_BYTES
                                      : MAC_BYTES;
}

/*
 * poll() has reported a door. Reads what its stage needs and not one byte more, because the bytes that follow
 * are the rail's data.
 */
static void serve(struct opener *o, struct door *door)
{
    ssize_t n;

    if (door->stage == CONNECTING) {
        int error = 0;
        socklen_t length = sizeof error;

        getsockopt(door->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        door->error = error;
        if (error != 0)
            shut(door);
        else
            door->stage = AWAIT_CHALLENGE;
        return;
    }
    n = recv(door->fd, door->in.bytes + door->got, awaited_bytes(door->stage) - door->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        shut(door);
        return;
    }
    door->got += (size_t)n;
    if (door->got < awaited_bytes(door->stage))
        return;
    door->got = 0;
    if (door->stage == AWAIT_OPENING) {
        judge_opening(o, door);
    } else if (door->stage == AWAIT_PROOF) {
        judge_proof(o, door);
    } else {
        door->stage = AWAIT_PROOF;
        if (!answer_challenge(o, door))
            shut(door);
    }
}

static enum fsdp_status refused(const struct opener *o, const struct door *door, struct fsdp_err *err)
{
    char where[ADDRESS_BYTES];

    return fsdp_fail(
        err, FSDP_ERR_PEER,
        "rank %u cannot connect to rank %u at %s: %s; it is gone, of another job, or a firewall refuses "
        "connections",
        rank_of(o->config, o->config->self), rank_of(o->config, door->node),
        address_words(o, door->node, where),
        door->error != 0 ? strerror(door->error) : "the connection was closed");
}

/* The time is up. Names the first connection that is not open. */
static enum fsdp_status too_late(const struct opener *o, struct fsdp_err *err)
{
    const uint32_t self = rank_of(o->config, o->config->self);
    char theirs[ADDRESS_BYTES], ours[ADDRESS_BYTES];
    int node = 0;

    while (node == o->config->self || o->fds[node] >= 0)
        node++;
    if (node < o->config->self)
        return fsdp_fail(err, FSDP_ERR_PEER, "rank %u cannot connect to rank %u at %s within %d s: %s", self,
                         rank_of(o->config, node), address_words(o, node, theirs), CONNECT_MS / 1000,
                         o->doors[node].stage == CONNECTING
                             ? "no answer; a firewall between nodes must let all ports through"
                             : "it took the connection and says nothing");
    return fsdp_fail(
        err, FSDP_ERR_PEER,
        "rank %u, at %s, did not connect to rank %u, at %s, within %d s; a firewall between nodes "
        "must let all ports through",
        rank_of(o->config, node), address_words(o, node, theirs), self,
        address_words(o, o->config->self, ours), ACCEPT_MS / 1000);
}

static int limit_ms(const struct opener *o)
{
    for (int node = 0; node < o->config->self; node++)
        if (o->fds[node] < 0)
            return CONNECT_MS;
    return ACCEPT_MS;
}

/*
 * Connects again where that failed, and closes accepted connections that take too long to prove themselves.
 */
static enum fsdp_status tend(struct opener *o, struct fsdp_err *err)
{
    const int64_t now = clock_now_ms();

    for (int i = 0; i < o->n_doors; i++) {
        struct door *door = &o->doors[i];

        if (i >= o->config->self) {
            if (door->stage != VACANT && now - door->since_ms > STRANGER_MS)
                shut(door);
        } else if (door->stage == VACANT && o->fds[door->node] < 0) {
            enum fsdp_status status = FSDP_OK;

            if (door->attempts == ATTEMPTS)
                return refused(o, door, err);
            if (now >= door->since_ms)
                status = start_connecting(o, door, err);
            if (status != FSDP_OK)
                return status;
        }
    }
    return FSDP_OK;
}

static enum fsdp_status open_doors(struct opener *o, struct fsdp_err *err)
{
    struct pollfd *polls = calloc((size_t)o->n_doors + 1, sizeof *polls);
    int64_t before = clock_now_ms(), waited_ms = 0;
    enum fsdp_status status = FSDP_OK;

    if (polls == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "opening %d connections", o->config->n);
    while (status == FSDP_OK && o->n_open < o->config->n - 1) {
        const int64_t now = clock_now_ms();

        waited_ms += now - before < TURN_MS ? now - before : TURN_MS;
        before = now;
        /*
         * tells the agent that this process is alive. This wait has a limit of its own, so the agent must not
         * take it for a hang.
         */
        link_alive(o->config->link);
        status = waited_ms > limit_ms(o) ? too_late(o, err) : tend(o, err);
        if (status != FSDP_OK)
            break;
        for (int i = 0; i < o->n_doors; i++)
            polls[i] = (struct pollfd){ .fd = o->doors[i].fd,
                                        .events = o->doors[i].stage == CONNECTING ? POLLOUT : POLLIN };
        polls[o->n_doors] = (struct pollfd){ .fd = o->listener, .events = POLLIN };
        poll(polls, (nfds_t)o->n_doors + 1, WATCH_SLICE_MS);
        for (int i = 0; i < o->n_doors; i++)
            if (polls[i].fd >= 0 && polls[i].revents != 0)
                serve(o, &o->doors[i]);
        if (polls[o->n_doors].revents != 0)
            accept_all(o);
        status = watch_check(o->config->watch, err);
    }
    free(polls);
    return status;
}

enum fsdp_status tcp_open_all(int *fds, const struct tcp_mesh_config *config, struct fsdp_err *err)
{
    struct opener o = { .config = config,
                        .hello = link_hello(config->link),
                        .fds = fds,
                        .listener = -1,
                        .n_doors = config->self + STRANGERS };
    enum fsdp_status status;

    for (int i = 0; i < config->n; i++)
        fds[i] = -1;
    o.doors = calloc((size_t)o.n_doors, sizeof *o.doors);
    o.addresses = calloc((size_t)config->n, sizeof *o.addresses);
    o.address_bytes = calloc((size_t)config->n, sizeof *o.address_bytes);
    if (o.doors == NULL || o.addresses == NULL || o.address_bytes == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "opening %d connections", config->n);
        goto done;
    }
    for (int i = 0; i < o.n_doors; i++)
        o.doors[i] = (struct door){ .fd = -1, .node = i };
    status = listen_here(&o, err);
    if (status == FSDP_OK)
        status = publish_address(&o, err);
    for (int node = 0; node < config->n && status == FSDP_OK; node++)
        if (node != config->self)
            status = learn_address(&o, node, err);
    if (status == FSDP_OK)
        status = open_doors(&o, err);
done:
    for (int i = 0; i < o.n_doors && o.doors != NULL; i++)
        shut(&o.doors[i]);
    if (o.listener >= 0)
        close(o.listener);
    free(o.addresses);
    free(o.address_bytes);
    free(o.doors);
    return status;
}
