/*
 * What goes wrong in a group whose processes live on. Ranks call different collectives, leave, give up with
 * words, are stopped by the agent, or hold no token. Each runs once for each shape of the cpu back end that
 * can have it.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/unit/comm/grid.h"

enum { SAW_PEER = 40, FLOATS = 5000, LONG_MS = 60000 };

static struct shape all_shapes[] = { { 2, 1 }, { 4, 1 }, { 2, 2 }, { 3, 3 }, { 4, 2 }, { 8, 4 } };
#define SHAPES(suite, name)                                                                                  \
    ParameterizedTestParameters(suite, name)                                                                 \
    {                                                                                                        \
        return cr_make_param_array(struct shape, all_shapes, sizeof all_shapes / sizeof *all_shapes);        \
    }

static bool contains(const struct rank *me, const char *words)
{
    return strstr(me->err.message, words) != NULL;
}

/*
 * One way to be at odds: a call of all ranks but one, that one's call, and how a message tells each of them.
 */
static const struct odds {
    struct call {
        enum { GATHER, SCATTER, REDUCE, BROADCAST, BARRIER } kind;
        size_t n;
        int dtype, op, root;
        const char *words;
    } usual, odd;
} odds[] = {
    { { GATHER, 4000, FSDP_F32, 0, 0, "all_gather #2 of 16000 bytes of float32" },
      { GATHER, 3000, FSDP_F32, 0, 0, "all_gather #2 of 12000 bytes of float32" } },
    { { REDUCE, 5000, FSDP_F32, FSDP_SUM, 0, "all_reduce #2 (sum) of 20000 bytes of float32" },
      { BARRIER, 0, 0, 0, 0, "barrier #2" } },
    { { REDUCE, 10, FSDP_F32, FSDP_SUM, 0, "all_reduce #2 (sum) of 40 bytes of float32" },
      { REDUCE, 10, FSDP_F32, FSDP_MAX, 0, "all_reduce #2 (max) of 40 bytes of float32" } },
    { { REDUCE, 10, FSDP_F32, FSDP_SUM, 0, "all_reduce #2 (sum) of 40 bytes of float32" },
      { REDUCE, 5, FSDP_F64, FSDP_SUM, 0, "all_reduce #2 (sum) of 40 bytes of float64" } },
    { { BROADCAST, 5000, 0, 0, 0, "broadcast #2 of 5000 bytes from rank 0" },
      { BROADCAST, 5000, 0, 0, 1, "broadcast #2 of 5000 bytes from rank 1" } },
    { { SCATTER, 0, FSDP_F32, FSDP_SUM, 0, "reduce_scatter #2 (sum) of 0 bytes of float32" },
      { SCATTER, 3000, FSDP_F32, FSDP_SUM, 0, "reduce_scatter #2 (sum) of 12000 bytes of float32" } },
    { { SCATTER, 4000, FSDP_F32, FSDP_SUM, 0, "reduce_scatter #2 (sum) of 16000 bytes of float32" },
      { GATHER, 3000, FSDP_F32, 0, 0, "all_gather #2 of 12000 bytes of float32" } },
};
static const struct odds *running;
static _Atomic int n_mismatches;

static enum fsdp_status make_call(struct rank *me, const struct call *call)
{
    static float memory[GRID_RANKS][GRID_RANKS * FLOATS];
    float *data = memory[me->r];

    switch (call->kind) {
    case GATHER:
        return fsdp_all_gather(me->comm, data + (size_t)me->r * call->n, data, call->n, call->dtype, NULL,
                               &me->err);
    case SCATTER:
        return fsdp_reduce_scatter(me->comm, data, data + (size_t)me->r * call->n, call->n, call->dtype,
                                   call->op, NULL, &me->err);
    case REDUCE:
        return fsdp_all_reduce(me->comm, data, call->n, call->dtype, call->op, NULL, &me->err);
    case BROADCAST:
        return fsdp_broadcast(me->comm, data, call->n, call->root, NULL, &me->err);
    default:
        return fsdp_barrier(me->comm, &me->err);
    }
}

/* Both calls; a rank that went on to the barrier after them tells that one and one of the two. */
static bool tells_calls(const struct rank *me)
{
    const bool usual = contains(me, running->usual.words), odd = contains(me, running->odd.words);

    return contains(me, "group world: ") &&
           ((usual && odd) || ((usual || odd) && grid.shape.n_nodes > 1 && contains(me, "barrier #3")));
}

/* A rank that finds out says so. One that only saw another rank leave may say that. */
static int was_told(struct rank *me, enum fsdp_status status)
{
    n_mismatches += status == FSDP_ERR_MISMATCH;
    if (status != FSDP_ERR_MISMATCH && status != FSDP_ERR_PEER)
        return grid_bad(me, "ranks at odds were not noticed");
    return 0;
}

static int at_odds(struct rank *me)
{
    const int odd_rank = (int)(running - odds + 1) % grid.shape.W;
    enum fsdp_status status = make_call(me, me->r == odd_rank ? &running->odd : &running->usual);

    /* A rank of another node may have all that it needs. It is told in the next call. */
    if (status == FSDP_OK && grid.shape.n_nodes > 1)
        status = fsdp_barrier(me->comm, &me->err);
    if (status == FSDP_ERR_MISMATCH && !tells_calls(me))
        return grid_bad(me, "the message does not tell group, kind, number and size of a call");
    return was_told(me, status);
}

SHAPES(comm_grid_faults, ranks_at_odds_are_told)
ParameterizedTest(struct shape *shape, comm_grid_faults, ranks_at_odds_are_told, .timeout = 120)
{
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        running = &odds[i];
        n_mismatches = 0;

        cr_expect_eq(grid_run_joined(*shape, 4096, at_odds), 0, "case %zu", i);
        cr_expect(shape->n_nodes == 1 ? n_mismatches == shape->W : n_mismatches >= 1, "case %zu: %d ranks", i,
                  n_mismatches);
    }
}

/* Ranks 0 and 3 call one collective, 1 and 2 another: each node and each rail is at odds. */
static int in_a_circle(struct rank *me)
{
    static const struct call gather = { GATHER, 1000, FSDP_F32, 0, 0, NULL },
                             reduce = { REDUCE, 1000, FSDP_F32, FSDP_SUM, 0, NULL };

    return was_told(me, make_call(me, me->r == 0 || me->r == 3 ? &gather : &reduce));
}

Test(comm_grid_faults, ranks_at_odds_that_wait_in_a_circle_are_told, .timeout = 120)
{
    cr_expect_eq(grid_run_joined((struct shape){ 4, 2 }, 4096, in_a_circle), 0);
    cr_expect_gt(n_mismatches, 0);
}

/* The last rank closes the group and lives on. */
static int left(struct rank *me)
{
    if (me->r == grid.shape.W - 1)
        return 0;
    if (fsdp_barrier(me->comm, &me->err) != FSDP_ERR_PEER)
        return grid_bad(me, "a rank that left was not noticed");
    return fsdp_barrier(me->comm, &me->err) == FSDP_ERR_PEER ? 0 : grid_bad(me, "the failure did not stick");
}

/*
 * The last rank gives up between two calls. Rank 0 listens for that and passes it on; the others wait in a
 * collective.
 */
static int gives_up(struct rank *me)
{
    if (me->r == grid.shape.W - 1) {
        comm_fail(me->comm, FSDP_ERR_NOMEM, "no memory for it");
        return fsdp_barrier(me->comm, &me->err) == FSDP_ERR_NOMEM ? 0 : grid_bad(me, "it goes on");
    }
    if (me->r == 0 ? !comm_hear(me->comm, LONG_MS, &me->err)
                   : fsdp_barrier(me->comm, &me->err) != FSDP_ERR_PEER)
        return grid_bad(me, "it was not told");
    if (me->r == 0)
        comm_fail(me->comm, FSDP_ERR_PEER, me->err.message);
    return contains(me, "no memory for it") ? 0 : grid_bad(me, "it was not told why");
}

/* The last rank never comes. The agent ends the others' wait. */
static int waits_in_vain(struct rank *me)
{
    link_event(me->link, "{\"event\": \"opened\"}", &me->err);
    while (me->r == grid.shape.W - 1)
        if (link_check(me->link, &me->err) != FSDP_OK)
            return 0;
        else
            poll(NULL, 0, 5);
    return fsdp_barrier(me->comm, &me->err) == FSDP_ERR_PEER ? 0 : grid_bad(me, "it was not stopped");
}

static void abort_all(struct mini_agent *agent, int rank, const char *text)
{
    static int n_opened;

    (void)rank, (void)text;
    if (++n_opened == agent->W)
        for (int r = 0; r < agent->W; r++)
            atomic_store(&agent->pages[r]->abort_word, 1);
}

SHAPES(comm_grid_faults, a_rank_that_leaves_gives_up_or_never_comes_is_told_to_all_others)
ParameterizedTest(struct shape *shape, comm_grid_faults,
                  a_rank_that_leaves_gives_up_or_never_comes_is_told_to_all_others, .timeout = 240)
{
    cr_expect_eq(grid_run_joined(*shape, 0, left), 0);
    cr_expect_eq(grid_run_joined(*shape, 0, gives_up), 0);
    grid.agent.on_event = abort_all;
    cr_expect_eq(grid_run_joined(*shape, 0, waits_in_vain), 0);
}

static int without_token(struct rank *me)
{
    return grid_join(me) == FSDP_ERR_PEER ? SAW_PEER : grid_bad(me, "a rank with another token was let in");
}

Test(comm_grid_faults, ranks_without_the_token_are_not_let_in, .timeout = 120)
{
    static const struct shape shapes[] = { { 2, 2 }, { 4, 2 } };

    grid.agent.bad_token = true;
    grid.agent.abort_on_death = true; /* a rank that waits for others is told by the agent */
    for (int i = 0; i < 2; i++) {
        grid_run(shapes[i], 0, without_token);
        for (int r = 0; r < shapes[i].W; r++)
            cr_expect_eq(grid.ranks[r].status, SAW_PEER, "rank %d of %d", r, shapes[i].W);
    }
}

static int strangers[GRID_RANKS * 4], n_strangers;

/* A rank has told where it listens: be there first, in every ill-mannered way. */
static void knock(struct mini_agent *agent, int rank, const char *key, const char *value)
{
    static const char noise[300] = "GET / HTTP/1.1";
    static const size_t opening_bytes = 72;
    struct sockaddr_in address = { .sin_family = AF_INET };
    char host[64];
    int port;

    (void)agent, (void)rank;
    if (strncmp(key, "comm/world/tcp/", 15) != 0 || sscanf(value, "%63s %d", host, &port) != 2)
        return;
    address.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, host, &address.sin_addr);
    for (int i = 0; i < 6; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
            mini_die("knocking");
        /* Nothing; too little; one opening's length; too much; too little and gone; nothing and gone. */
        if (i >= 1 && i <= 4 &&
            send(fd, noise,
                 i == 2   ? opening_bytes
                 : i == 3 ? sizeof noise
                          : 7,
                 MSG_NOSIGNAL) < 0)
            mini_die("sending noise");
        if (i >= 4)
            close(fd);
        else
            strangers[n_strangers++] = fd;
    }
}

static int adds_ranks(struct rank *me)
{
    const int W = grid.shape.W;
    int64_t sum = me->r;

    if (fsdp_all_reduce(me->comm, &sum, 1, FSDP_I64, FSDP_SUM, NULL, &me->err) != FSDP_OK)
        return grid_bad(me, "adding");
    return sum == (int64_t)W * (W - 1) / 2 ? 0 : grid_bad(me, "another sum");
}

Test(comm_grid_faults, strangers_at_the_tcp_ports_change_nothing, .timeout = 120)
{
    static const struct shape shapes[] = { { 2, 2 }, { 4, 4 }, { 4, 2 } };

    grid.agent.on_put = knock;
    for (int i = 0; i < 3; i++) {
        n_strangers = 0;
        cr_expect_eq(grid_run_joined(shapes[i], 0, adds_ranks), 0);
        cr_expect_eq(n_strangers, 4 * shapes[i].W);
        while (n_strangers > 0)
            close(strangers[--n_strangers]);
    }
}

/* Groups of a world of 2 x 2: the ranks of a node, of a rail, and those that are spread unevenly. */
static int splits(struct rank *me)
{
    static const int parts[][2] = { { 0, 1 }, { 2, 3 }, { 0, 2 }, { 1, 3 } }, uneven[] = { 0, 1, 2 };

    for (int i = 0; i < 4; i++) {
        const int *part = parts[i];
        struct fsdp_comm *comm;
        int64_t sum = me->r;
        char name[16];

        snprintf(name, sizeof name, "part%d", i);
        if (part[0] != me->r && part[1] != me->r)
            continue;
        if (comm_split(&comm, me->comm, name, part, 2, &me->err) != FSDP_OK ||
            fsdp_all_reduce(comm, &sum, 1, FSDP_I64, FSDP_SUM, NULL, &me->err) != FSDP_OK)
            return grid_bad(me, name);
        fsdp_comm_destroy(comm);
        if (sum != part[0] + part[1])
            return grid_bad(me, "another sum");
    }
    return comm_can_split(me->comm, "uneven", uneven, 3, &me->err) == FSDP_ERR_UNSUPPORTED
               ? 0
               : grid_bad(me, "an uneven group was taken");
}

Test(comm_grid_faults, a_part_of_the_world_has_the_sides_that_its_members_need, .timeout = 120)
{
    cr_expect_eq(grid_run_joined((struct shape){ 4, 2 }, 0, splits), 0);
}
