/* Collectives between real processes, against a plain oracle; links libfsdp.
 *
 *   comm_worker check W NODES SEED ROUNDS CHUNK    random collectives, every bit compared
 *   comm_worker garbage W NODES SEED ROUNDS        strangers at the TCP ports change nothing
 *
 * Exit 0 if all is as it must be; else 1, with words on stderr.
 */
#include <arpa/inet.h>
#include <inttypes.h>

#include "tests/support/comm_oracle.h"

/* --- random collectives --------------------------------------------------------------------------------- */

/* A buffer that ends where an overrun is seen: 64 bytes of a mark behind it. */
static unsigned char *buffer(size_t bytes)
{
    unsigned char *at = malloc(bytes + 64);

    memset(at + bytes, 0xa5, 64);
    return at;
}

static bool whole(const unsigned char *at, size_t bytes)
{
    for (int i = 0; i < 64; i++)
        if (at[bytes + (size_t)i] != 0xa5)
            return false;
    return true;
}

static size_t draw_size(uint64_t *state)
{
    static const size_t sizes[] = { 0,  1,   2,   3,   7,   15,   16,   17,   63,  64,
                                    65, 100, 127, 128, 129, 1000, 1023, 1024, 1025 };
    uint64_t x = draw(state);

    if (x % 8 == 0)
        return x / 8 % 40000;
    return sizes[x / 8 % (sizeof sizes / sizeof *sizes)];
}

static int one_gather(int round, uint64_t *state)
{
    static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_BF16, FSDP_F64, FSDP_I64, FSDP_I32, FSDP_U8 };
    const enum fsdp_dtype dtype = dtypes[draw(state) % 6];
    const size_t n = draw_size(state), bytes = n * fsdp_dtype_size(dtype), all = bytes * (size_t)want.W;
    const bool in_place = draw(state) % 2;
    unsigned char *recv = buffer(all), *expected = buffer(all), *own = buffer(bytes);
    unsigned char *send = in_place ? recv + (size_t)rank * bytes : own;
    int bad = 0;

    memset(recv, 0x77, all);
    fill(send, n, dtype, round, rank, 0);
    for (int r = 0; r < want.W; r++)
        fill(expected + (size_t)r * bytes, n, dtype, round, r, 0);
    if (fsdp_all_gather(comm, send, recv, n, dtype, NULL, &err) != FSDP_OK)
        bad = failed("all_gather");
    else if (memcmp(recv, expected, all) != 0 || !whole(recv, all) || !whole(own, bytes))
        bad = failed("all_gather gave other bytes");
    free(recv), free(expected), free(own);
    return bad;
}

static int one_scatter(int round, uint64_t *state)
{
    const enum fsdp_dtype dtype = draw(state) % 2 ? FSDP_F32 : FSDP_BF16;
    const enum fsdp_reduce_op op = (enum fsdp_reduce_op)(draw(state) % 3);
    const size_t n = draw_size(state), bytes = n * fsdp_dtype_size(dtype), all = bytes * (size_t)want.W;
    const bool in_place = draw(state) % 2;
    unsigned char *send = buffer(all), *expected = buffer(bytes), *own = buffer(bytes), *before = buffer(all);
    unsigned char *recv = in_place ? send + (size_t)rank * bytes : own;
    int bad = 0;

    fill(send, n * (size_t)want.W, dtype, round, rank, 0);
    memcpy(before, send, all);
    for (size_t i = 0; i < n; i++)
        expect(expected, i, (size_t)rank * n + i, dtype, op, round);
    if (fsdp_reduce_scatter(comm, send, recv, n, dtype, op, NULL, &err) != FSDP_OK)
        bad = failed("reduce_scatter");
    else if (memcmp(recv, expected, bytes) != 0 || !whole(send, all) || !whole(own, bytes))
        bad = failed("reduce_scatter gave other bytes");
    else if (!in_place && memcmp(send, before, all) != 0)
        bad = failed("reduce_scatter changed what was sent");
    free(send), free(expected), free(own), free(before);
    return bad;
}

static int one_reduce(int round, uint64_t *state)
{
    static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_F64, FSDP_I64 };
    const enum fsdp_dtype dtype = dtypes[draw(state) % 3];
    const enum fsdp_reduce_op op = (enum fsdp_reduce_op)(draw(state) % 3);
    const size_t n = draw_size(state), bytes = n * fsdp_dtype_size(dtype);
    unsigned char *data = buffer(bytes), *expected = buffer(bytes);
    int bad = 0;

    if (dtype != FSDP_I64 || op != FSDP_MEAN) {
        fill(data, n, dtype, round, rank, 0);
        for (size_t i = 0; i < n; i++)
            expect(expected, i, i, dtype, op, round);
        if (fsdp_all_reduce(comm, data, n, dtype, op, NULL, &err) != FSDP_OK)
            bad = failed("all_reduce");
        else if (memcmp(data, expected, bytes) != 0 || !whole(data, bytes))
            bad = failed("all_reduce gave other bytes");
    }
    free(data), free(expected);
    return bad;
}

static int one_broadcast(int round, uint64_t *state)
{
    const size_t bytes = draw_size(state);
    const int root = (int)(draw(state) % (uint64_t)want.W);
    unsigned char *data = buffer(bytes), *expected = buffer(bytes);
    int bad = 0;

    fill(data, bytes, FSDP_U8, round, rank, 0);
    fill(expected, bytes, FSDP_U8, round, root, 0);
    if (fsdp_broadcast(comm, data, bytes, root, NULL, &err) != FSDP_OK)
        bad = failed("broadcast");
    else if (memcmp(data, expected, bytes) != 0 || !whole(data, bytes))
        bad = failed("broadcast gave other bytes");
    free(data), free(expected);
    return bad;
}

static int one_round(int round, uint64_t *state)
{
    switch (draw(state) % 9) {
    case 0:
    case 1:
        return one_gather(round, state);
    case 2:
    case 3:
        return one_scatter(round, state);
    case 4:
    case 5:
        return one_reduce(round, state);
    case 6:
    case 7:
        return one_broadcast(round, state);
    default:
        return fsdp_barrier(comm, &err) == FSDP_OK ? 0 : failed("barrier");
    }
}

static int check_rank(int r, void *arg)
{
    uint64_t state = want.seed;
    int bad = 0;

    (void)arg;
    if (join(r, want.chunk) != FSDP_OK)
        return failed("opening");
    for (int round = 0; round < want.rounds && bad == 0; round++) {
        bad = one_round(round, &state);
        if (bad != 0)
            fprintf(stderr, "rank %d: in round %d of seed %" PRIu64 "\n", rank, round, want.seed);
    }
    part();
    return bad;
}

static int run_check(void)
{
    int bad = 0;

    mini_run(&agent, check_rank, NULL);
    for (int r = 0; r < want.W; r++)
        if (agent.statuses[r] != 0) {
            fprintf(stderr, "rank %d ended with %#x\n", r, agent.statuses[r]);
            bad = 1;
        }
    return bad;
}

/* --- strangers ------------------------------------------------------------------------------------------ */

static int strangers[MINI_RANKS * 8], n_strangers;

/* A rank has said where it listens: be there first, in every ill-mannered way. */
static void knock(struct mini_agent *a, int r, const char *key, const char *value)
{
    static const char noise[300] = "GET / HTTP/1.1";
    struct sockaddr_in address = { .sin_family = AF_INET };
    char host[64];
    int port;

    (void)a, (void)r;
    if (strncmp(key, "comm/world/tcp/", 15) != 0 || sscanf(value, "%63s %d", host, &port) != 2)
        return;
    address.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, host, &address.sin_addr);
    for (int i = 0; i < 6; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
            mini_die("knocking");
        /* Nothing; too little; exactly one opening's length; too much; too little and gone; nothing and gone. */
        if (i >= 1 && i <= 4 && send(fd, noise, i == 2 ? 72 : i == 3 ? sizeof noise : 7, MSG_NOSIGNAL) < 0)
            mini_die("sending noise");
        if (i >= 4)
            close(fd);
        else
            strangers[n_strangers++] = fd;
    }
}

static int run_garbage(void)
{
    int bad;

    agent.on_put = knock;
    bad = run_check();
    for (int i = 0; i < n_strangers; i++)
        close(strangers[i]);
    if (n_strangers != 4 * want.W)
        mini_die("not every rank was knocked at");
    return bad;
}

int main(int argc, char **argv)
{
    if (!read_want(argc, argv))
        return 2;
    if (strcmp(argv[1], "check") == 0)
        return run_check();
    if (strcmp(argv[1], "garbage") == 0)
        return run_garbage();
    return 2;
}
