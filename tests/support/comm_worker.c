/* Collectives between real processes, against a plain oracle; links libfsdp.
 *
 *   comm_worker check W NODES SEED ROUNDS CHUNK    random collectives, every bit compared
 *   comm_worker kill W NODES SEED REPEATS          SIGKILL of a random rank: FSDP_ERR_PEER on all others, in time
 *   comm_worker mismatch W NODES                   ranks that do not do the same: FSDP_ERR_MISMATCH on all
 *   comm_worker stop W NODES                       a stopped rank is waited for, not given up
 *   comm_worker leave W NODES                      a rank that closes the group: FSDP_ERR_PEER on the others
 *   comm_worker token W NODES                      ranks of another job do not get in
 *   comm_worker garbage W NODES SEED ROUNDS        strangers at the TCP ports change nothing
 *   comm_worker cut W NODES COMMAND                COMMAND cuts the network: FSDP_ERR_PEER on all, in seconds
 *   comm_worker idle W NODES COMMAND               the same while all but one wait and nothing is under way
 *   comm_worker circle 4 2                         ranks at odds that wait in a circle are told
 *
 * Exit 0 if all is as it must be; else 1, with words on stderr.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"
#include "tests/support/mini_agent.h"

/* Generous: it is milliseconds, but a machine that is busy with other things must not fail these tests. */
enum { DEADLINE_S = 60, LATE_S = 10 };

static struct {
    int W, n_nodes, rounds;
    uint64_t seed;
    size_t chunk;
} want;

static struct mini_agent agent;

/* --- numbers --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state)
{
    return mix((*state)++);
}

/* Element i of what `rank` brings to round `round`: odd fractions, so that another order gives other bits. */
static double value_of(int round, int rank, size_t i)
{
    return (double)(int64_t)(mix(want.seed * 1000003 + (uint64_t)round * 64 + (uint64_t)rank + (i << 20)) >> 20) /
           (double)(1 << 21);
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;

    memcpy(&value, &bits, 4);
    return value;
}

static void store(void *at, size_t i, enum fsdp_dtype dtype, double x)
{
    switch (dtype) {
    case FSDP_F32: ((float *)at)[i] = (float)x; break;
    case FSDP_BF16: ((uint16_t *)at)[i] = to_bf16((float)x); break;
    case FSDP_F64: ((double *)at)[i] = x; break;
    case FSDP_I64: ((int64_t *)at)[i] = (int64_t)(x * 4096); break;
    case FSDP_I32: ((int32_t *)at)[i] = (int32_t)x; break;
    default: ((uint8_t *)at)[i] = (uint8_t)(int64_t)x; break;
    }
}

static void fill(void *at, size_t n, enum fsdp_dtype dtype, int round, int rank, size_t first)
{
    for (size_t i = 0; i < n; i++)
        store(at, i, dtype, value_of(round, rank, first + i));
}

/* Element i of the reduction: inside each node in rank order, then the nodes in order; a mean divides at the end. */
static void expect(void *at, size_t at_i, size_t i, enum fsdp_dtype dtype, enum fsdp_reduce_op op, int round)
{
    const int per_node = want.W / want.n_nodes;
    double total = 0;
    int64_t total_i = 0;
    float total_f = 0;

    for (int node = 0; node < want.n_nodes; node++) {
        double part = 0;
        int64_t part_i = 0;
        float part_f = 0;

        for (int l = 0; l < per_node; l++) {
            double x = value_of(round, node * per_node + l, i);
            union { uint16_t b; int64_t i; double d; } raw = { .i = 0 };
            float f;

            store(&raw, 0, dtype, x);
            f = dtype == FSDP_BF16 ? of_bf16(raw.b) : (float)x;
            raw.i = dtype == FSDP_I64 ? raw.i : 0;
            if (l == 0)
                part = x, part_f = f, part_i = raw.i;
            else if (op == FSDP_MAX)
                part = fmax(part, x), part_f = fmaxf(part_f, f),
                part_i = part_i > raw.i ? part_i : raw.i;
            else
                part += x, part_f += f, part_i += raw.i;
        }
        if (node == 0)
            total = part, total_f = part_f, total_i = part_i;
        else if (op == FSDP_MAX)
            total = fmax(total, part), total_f = fmaxf(total_f, part_f), total_i = total_i > part_i ? total_i : part_i;
        else
            total += part, total_f += part_f, total_i += part_i;
    }
    if (op == FSDP_MEAN)
        total /= want.W, total_f /= (float)want.W;
    if (dtype == FSDP_I64)
        ((int64_t *)at)[at_i] = total_i;
    else
        store(at, at_i, dtype, dtype == FSDP_F64 ? total : (double)total_f);
}

/* --- a rank ---------------------------------------------------------------------------------------------- */

static struct fsdp_err err;
static struct link *link_;
static struct fsdp_comm *comm;
static int rank;

static int failed(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, err.message);
    return 1;
}

static enum fsdp_status join(int r, size_t chunk)
{
    struct comm_config config = { .name = "world", .rank = r, .size = want.W, .chunk_bytes = chunk };
    enum fsdp_status status = link_open(&link_, &err);

    rank = r;
    config.link = link_;
    return status == FSDP_OK ? comm_create(&comm, &config, &err) : status;
}

/* Past this, every rank has opened the group: what one does from here on cannot hit another that still opens it. */
static enum fsdp_status join_all(int r, size_t chunk)
{
    enum fsdp_status status = join(r, chunk);

    return status == FSDP_OK ? fsdp_barrier(comm, &err) : status;
}

static void part(void)
{
    fsdp_comm_destroy(comm);
    link_close(link_);
}

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
    static const size_t sizes[] = { 0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 1000, 1023, 1024, 1025 };
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
    case 0: case 1: return one_gather(round, state);
    case 2: case 3: return one_scatter(round, state);
    case 4: case 5: return one_reduce(round, state);
    case 6: case 7: return one_broadcast(round, state);
    default: return fsdp_barrier(comm, &err) == FSDP_OK ? 0 : failed("barrier");
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

/* --- death ----------------------------------------------------------------------------------------------- */

enum { SAW_PEER = 40 };

static struct {
    int n_opened, victim, stage, first_absent;
    double begun_s, act_s, killed_s;
} plot;

static void count_opened(struct mini_agent *a, int r, const char *text)
{
    (void)a, (void)r, (void)text;
    plot.n_opened++;
}

/* Does collectives until one fails; with FSDP_ERR_PEER all is well. */
static int until_peer_rank(int r, void *arg)
{
    enum fsdp_status status;
    uint64_t state = want.seed;
    float *data;

    (void)arg;
    if (join_all(r, 4096) != FSDP_OK)
        return failed("opening");
    data = calloc((size_t)want.W * 20000, sizeof *data);
    link_event(link_, "{\"event\": \"opened\"}", &err);
    do {
        const size_t n = draw(&state) % 20000;

        switch (draw(&state) % 4) {
        case 0: status = fsdp_all_gather(comm, data + (size_t)r * n, data, n, FSDP_F32, NULL, &err); break;
        case 1: status = fsdp_reduce_scatter(comm, data, data + (size_t)r * n, n, FSDP_F32, FSDP_MEAN, NULL, &err); break;
        case 2: status = fsdp_all_reduce(comm, data, n, FSDP_F32, FSDP_SUM, NULL, &err); break;
        default: status = fsdp_barrier(comm, &err); break;
        }
    } while (status == FSDP_OK);
    if (status == FSDP_ERR_PEER && fsdp_barrier(comm, &err) != FSDP_ERR_PEER)
        return failed("the failure did not stick");
    if (status != FSDP_ERR_PEER)
        return failed("not a peer's death");
    free(data);
    part();
    return SAW_PEER;
}

/* Kill the victim a random moment after all have opened the group. */
static int kill_in_time(struct mini_agent *a)
{
    double left;

    if (plot.stage == 0 && plot.n_opened == a->W) {
        plot.act_s = mini_now() + 1e-6 * (double)(mix(want.seed) % 20000);
        plot.stage = 1;
    }
    if (plot.stage != 1)
        return plot.stage == 2 && mini_now() > plot.killed_s + DEADLINE_S ? (mini_die("a rank hangs"), 0) : 100;
    left = plot.act_s - mini_now();
    if (left > 0.002)
        return (int)(left * 1000);
    while (mini_now() < plot.act_s)
        ;
    plot.killed_s = mini_now();
    kill(a->pids[plot.victim], SIGKILL);
    plot.stage = 2;
    return 100;
}

static int run_kill_once(double *slowest_s)
{
    int bad = 0;

    memset(&plot, 0, sizeof plot);
    plot.victim = (int)(mix(want.seed + 77) % (uint64_t)want.W);
    agent.on_event = count_opened;
    agent.next_ms = kill_in_time;
    mini_run(&agent, until_peer_rank, NULL);
    for (int r = 0; r < want.W; r++) {
        const int status = agent.statuses[r];
        const double took = agent.ended_s[r] - plot.killed_s;

        if (r == plot.victim ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                             : !(WIFEXITED(status) && WEXITSTATUS(status) == SAW_PEER)) {
            fprintf(stderr, "rank %d (victim %d) ended with %#x\n", r, plot.victim, status);
            bad = 1;
        }
        if (r != plot.victim && took > *slowest_s)
            *slowest_s = took;
    }
    return bad;
}

static int run_kill(int repeats)
{
    double slowest = 0;
    int bad = 0, n_late = 0;

    for (int i = 0; i < repeats && bad == 0; i++, want.seed++) {
        double this_time = 0;

        bad = run_kill_once(&this_time);
        n_late += this_time > LATE_S;
        slowest = this_time > slowest ? this_time : slowest;
    }
    fprintf(stderr, "%d kills, the last of the others ended after %.1f ms at most\n", repeats, slowest * 1e3);
    return bad != 0 || n_late > 0;
}

/* --- a cut ----------------------------------------------------------------------------------------------- */

static const char *cut_command;

static int waiting_rank(int r, void *arg)
{
    (void)arg;
    if (join_all(r, 0) != FSDP_OK)
        return failed("opening");
    link_event(link_, "{\"event\": \"opened\"}", &err);
    if (r >= want.W - want.W / want.n_nodes) {
        while (link_check(link_, &err) == FSDP_OK)
            poll(NULL, 0, 5); /* nobody of the last node ever comes */
        return SAW_PEER;
    }
    if (fsdp_barrier(comm, &err) != FSDP_ERR_PEER)
        return failed("the cut was not noticed");
    part();
    return SAW_PEER;
}

static int end_the_leaver(struct mini_agent *a);

static int cut_in_time(struct mini_agent *a)
{
    if (plot.stage == 0 && plot.n_opened == a->W) {
        if (system(cut_command) != 0)
            mini_die(cut_command);
        plot.killed_s = mini_now();
        plot.stage = 1;
    }
    if (plot.stage == 1 && mini_now() > plot.killed_s + DEADLINE_S)
        mini_die("a rank hangs");
    return end_the_leaver(a);
}

static int run_cut(int (*rank_main)(int rank, void *arg))
{
    double slowest = 0;
    int bad = 0;

    agent.on_event = count_opened;
    plot.first_absent = rank_main == waiting_rank ? want.W - want.W / want.n_nodes : want.W;
    agent.next_ms = cut_in_time;
    mini_run(&agent, rank_main, NULL);
    for (int r = 0; r < want.W; r++) {
        bad |= !WIFEXITED(agent.statuses[r]) || WEXITSTATUS(agent.statuses[r]) != SAW_PEER;
        if (agent.ended_s[r] - plot.killed_s > slowest)
            slowest = agent.ended_s[r] - plot.killed_s;
    }
    fprintf(stderr, "the last rank noticed the cut after %.1f s\n", slowest);
    return bad;
}

/* --- a rank that leaves ---------------------------------------------------------------------------------- */

static int leaving_rank(int r, void *arg)
{
    (void)arg;
    if (join_all(r, 0) != FSDP_OK)
        return failed("opening");
    if (r == want.W - 1) {
        fsdp_comm_destroy(comm); /* and lives on until the others have noticed */
        while (link_check(link_, &err) == FSDP_OK)
            poll(NULL, 0, 5);
        return 0;
    }
    if (fsdp_barrier(comm, &err) != FSDP_ERR_PEER)
        return failed("a rank that left was not noticed");
    part();
    return 0;
}

/* Once all but those that left have ended, their wait is over. */
static int end_the_leaver(struct mini_agent *a)
{
    int n_live = 0;

    for (int r = 0; r < plot.first_absent; r++)
        n_live += a->socks[r] >= 0;
    for (int r = plot.first_absent; r < a->W && n_live == 0; r++)
        atomic_store(&a->pages[r]->abort_word, 1);
    return 10;
}

static int run_leave(void)
{
    int bad = 0;

    plot.first_absent = want.W - 1;
    agent.next_ms = end_the_leaver;
    mini_run(&agent, leaving_rank, NULL);
    for (int r = 0; r < want.W; r++)
        bad |= agent.statuses[r] != 0;
    return bad;
}

/* --- mismatch -------------------------------------------------------------------------------------------- */

static int n_mismatch_cases(void)
{
    return 7;
}

/* The odd one does something else than the others. */
static enum fsdp_status differ(int which, bool odd, float *data)
{
    const size_t n = odd ? 3000 : 4000;

    switch (which) {
    case 0: return fsdp_all_gather(comm, data + (size_t)rank * n, data, n, FSDP_F32, NULL, &err);
    case 1: return odd ? fsdp_barrier(comm, &err) : fsdp_all_reduce(comm, data, 5000, FSDP_F32, FSDP_SUM, NULL, &err);
    case 2: return fsdp_all_reduce(comm, data, 10, FSDP_F32, odd ? FSDP_MAX : FSDP_SUM, NULL, &err);
    case 3: return fsdp_all_reduce(comm, data, odd ? 5 : 10, odd ? FSDP_F64 : FSDP_F32, FSDP_SUM, NULL, &err);
    case 4: return fsdp_broadcast(comm, data, 30000, odd ? 1 : 0, NULL, &err);
    case 5: return fsdp_reduce_scatter(comm, data, data + (size_t)rank * n, odd ? n : 0, FSDP_F32, FSDP_SUM, NULL, &err);
    default:
        return odd ? fsdp_all_gather(comm, data + (size_t)rank * n, data, n, FSDP_F32, NULL, &err)
                   : fsdp_reduce_scatter(comm, data, data + (size_t)rank * n, n, FSDP_F32, FSDP_SUM, NULL, &err);
    }
}

static int mismatch_rank(int r, void *arg)
{
    const int which = *(int *)arg;
    float *data = calloc((size_t)want.W * 5000, sizeof *data);
    enum fsdp_status status = join_all(r, 4096);

    if (status != FSDP_OK)
        return failed("opening");
    status = differ(which, r == (which + 1) % want.W, data);
    /* A rank of another node that had no part in it may have what it needs, and learns it in the next call. */
    if (status == FSDP_OK && want.n_nodes > 1)
        status = fsdp_barrier(comm, &err);
    /* The one at odds and whoever compares with it say so; a rank that only saw another leave may say that. */
    if (status != FSDP_ERR_MISMATCH && status != FSDP_ERR_PEER)
        return failed("ranks at odds were not noticed");
    if (status == FSDP_ERR_MISMATCH && strstr(err.message, "#2") == NULL && strstr(err.message, "#3") == NULL)
        return failed("the message does not tell which call");
    link_event(link_, status == FSDP_ERR_MISMATCH ? "{\"m\": 1}" : "{\"p\": 1}", &err);
    free(data);
    part();
    return 0;
}

static int n_mismatches;

static void count_mismatches(struct mini_agent *a, int r, const char *text)
{
    (void)a, (void)r;
    n_mismatches += strstr(text, "\"m\"") != NULL;
}

static int run_mismatch(void)
{
    int bad = 0;

    agent.on_event = count_mismatches;
    for (int which = 0; which < n_mismatch_cases(); which++) {
        n_mismatches = 0;
        mini_run(&agent, mismatch_rank, &which);
        for (int r = 0; r < want.W; r++)
            bad |= agent.statuses[r] != 0;
        if (n_mismatches < 1 || (want.n_nodes == 1 && n_mismatches != want.W)) {
            fprintf(stderr, "case %d: only %d of %d ranks saw the mismatch\n", which, n_mismatches, want.W);
            bad = 1;
        }
    }
    return bad;
}

/* --- a stopped rank -------------------------------------------------------------------------------------- */

static int stop_rank(int r, void *arg)
{
    const size_t n = 2000000; /* more than the sockets between two hosts hold */
    float *data = calloc((size_t)want.W * n, sizeof *data);

    (void)arg;
    if (join_all(r, 0) != FSDP_OK)
        return failed("opening");
    if (r == want.W - 1) {
        link_event(link_, "{\"event\": \"stopping\"}", &err);
        raise(SIGSTOP);
    }
    for (int i = 0; i < 2; i++)
        if (fsdp_all_gather(comm, data + (size_t)r * n, data, n, FSDP_F32, NULL, &err) != FSDP_OK)
            return failed("all_gather across a stop");
    free(data);
    part();
    return 0;
}

static void note_stop(struct mini_agent *a, int r, const char *text)
{
    (void)a, (void)r, (void)text;
    plot.begun_s = mini_now();
}

/* Longer than any time-out of a cut link. */
static int wake_it(struct mini_agent *a)
{
    if (plot.stage == 0 && plot.begun_s > 0 && mini_now() > plot.begun_s + (want.n_nodes > 1 ? 6.0 : 0.5)) {
        kill(a->pids[a->W - 1], SIGCONT);
        plot.stage = 1;
    }
    return 20;
}

static int run_stop(void)
{
    int bad = 0;

    agent.on_event = note_stop;
    agent.next_ms = wake_it;
    mini_run(&agent, stop_rank, NULL);
    for (int r = 0; r < want.W; r++)
        bad |= agent.statuses[r] != 0;
    return bad != 0 || plot.stage != 1;
}

/* --- ranks of another job -------------------------------------------------------------------------------- */

static int token_rank(int r, void *arg)
{
    (void)arg;
    return join(r, 0) == FSDP_ERR_PEER ? SAW_PEER : failed("a rank with another token was let in");
}

static int run_token(void)
{
    int bad = 0;

    agent.bad_token = true;
    agent.abort_on_death = true; /* the one that is connected to learns it from the agent */
    mini_run(&agent, token_rank, NULL);
    for (int r = 0; r < want.W; r++)
        bad |= !WIFEXITED(agent.statuses[r]) || WEXITSTATUS(agent.statuses[r]) != SAW_PEER;
    return bad;
}

/* --- strangers ------------------------------------------------------------------------------------------- */

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

/* Ranks 0 and 3 call one collective, 1 and 2 another: each node and each rail is at odds. */
static int circle_rank(int r, void *arg)
{
    float *data = calloc(4 * 1000, sizeof *data);
    enum fsdp_status status;

    (void)arg;
    if (join_all(r, 4096) != FSDP_OK)
        return failed("opening");
    status = r == 0 || r == 3 ? fsdp_all_gather(comm, data + r * 1000, data, 1000, FSDP_F32, NULL, &err)
                              : fsdp_all_reduce(comm, data, 1000, FSDP_F32, FSDP_SUM, NULL, &err);
    if (status != FSDP_ERR_MISMATCH && status != FSDP_ERR_PEER)
        return failed("ranks at odds were not noticed");
    link_event(link_, status == FSDP_ERR_MISMATCH ? "{\"m\": 1}" : "{\"p\": 1}", &err);
    free(data);
    part();
    return 0;
}

static int run_circle(void)
{
    int bad = 0;

    agent.on_event = count_mismatches;
    mini_run(&agent, circle_rank, NULL);
    for (int r = 0; r < want.W; r++)
        bad |= agent.statuses[r] != 0;
    return bad != 0 || n_mismatches == 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    want.W = atoi(argv[2]);
    want.n_nodes = atoi(argv[3]);
    if (want.W < 1 || want.W > MINI_RANKS || want.n_nodes < 1 || want.W % want.n_nodes != 0)
        return 2;
    agent.W = want.W;
    agent.n_nodes = want.n_nodes;
    want.seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    want.rounds = argc > 5 ? atoi(argv[5]) : 1;
    want.chunk = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
    if (strcmp(argv[1], "check") == 0)
        return run_check();
    if (strcmp(argv[1], "kill") == 0)
        return run_kill(want.rounds);
    if (strcmp(argv[1], "mismatch") == 0)
        return run_mismatch();
    if (strcmp(argv[1], "stop") == 0)
        return run_stop();
    if (strcmp(argv[1], "leave") == 0)
        return run_leave();
    if (strcmp(argv[1], "token") == 0)
        return run_token();
    if (strcmp(argv[1], "garbage") == 0)
        return run_garbage();
    cut_command = argc > 4 ? argv[4] : "false";
    if (strcmp(argv[1], "cut") == 0)
        return run_cut(until_peer_rank);
    if (strcmp(argv[1], "idle") == 0)
        return run_cut(waiting_rank);
    if (strcmp(argv[1], "circle") == 0)
        return run_circle();
    return 2;
}
