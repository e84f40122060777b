/*
 * From which memory a world goes on: the choice in tables, and then whole histories in which nodes die at any
 * moment of filling and copying.
 */
#include "agent/snapshot/restore.h"

#include <criterion/criterion.h>
#include <string.h>

#include "agent/snapshot/copies.h"
#include "shard_runtime/core/clock.h"

enum { NODES = 4, RANKS = 2 };

/* A node that had a seat, and has one now: its own steps, copies, and of whose first rank they are. */
#define NODE(before, now, own0, own1, copy0, copy1, of)                                                      \
    {                                                                                                        \
        .held = { .world_size = 6,                                                                           \
                  .own_first_rank = before,                                                                  \
                  .own = { { { own0, 1 }, { own1, 1 } } },                                                   \
                  .copies = { { { copy0, 1 }, { copy1, 1 } } },                                              \
                  .copies_first_rank = of },                                                                 \
        .seat = now                                                                                          \
    }
#define SPARE(now)                                                                                           \
    {                                                                                                        \
        .seat = now                                                                                          \
    }

/* clang-format off */
static const struct choice {
    const char *name;
    struct restore_node nodes[NODES]; /* a node that is not there holds nothing, and has no seat */
    int64_t step;       /* that is chosen, for three nodes */
    int sources[NODES]; /* of each node; -1: it has no seat, or finds it nowhere */
} choices[] = {
    { "a rank died: all have it themselves",
      { NODE(0, 0, 9, 8, 9, 8, 4), NODE(2, 2, 9, 8, 9, 8, 0), NODE(4, 4, 9, 8, 9, 8, 2), SPARE(-1) },
      9, { 0, 1, 2, -1 } },
    { "a node is lost: a spare fetches from the one that holds its copies",
      { NODE(0, 0, 9, 8, 9, 8, 4), SPARE(-1), NODE(4, 4, 9, 8, 9, 8, 2), SPARE(2) }, 9, { 0, -1, 2, 2 } },
    { "the copy of the newest step was on its way: the one before is taken",
      { NODE(0, 0, 9, 8, 9, 8, 4), SPARE(-1), NODE(4, 4, 9, 8, 8, -1, 2), SPARE(2) }, 8, { 0, -1, 2, 2 } },
    { "without copies the lost node's ranks have nothing",
      { NODE(0, 0, 9, 8, -1, -1, -1), SPARE(-1), NODE(4, 4, 9, 8, -1, -1, -1), SPARE(2) },
      -1, { -1, -1, -1, -1 } },
    { "two neighbours are lost: one of them held the other's copies",
      { NODE(0, 0, 9, 8, 9, 8, 4), SPARE(-1), SPARE(-1), SPARE(2) }, -1, { -1, -1, -1, -1 } },
    { "a node that survived without its own finds its copies",
      { NODE(0, 0, 9, 8, 9, 8, 4), NODE(2, 2, -1, -1, 9, 8, 0), NODE(4, 4, 9, 8, 9, 8, 2), SPARE(-1) },
      9, { 0, 2, 2, -1 } },
    { "the leader is lost: the next one gets rank 0, of which it has copies, and the spare the other's ranks",
      { SPARE(-1), NODE(2, 0, 9, 8, 9, 8, 0), NODE(4, 4, 9, 8, 9, 8, 2), SPARE(2) }, 9, { -1, 1, 2, 2 } },
    { "... another one leads: its copies are not of rank 0, and no node fetches what will be replaced",
      { SPARE(-1), NODE(2, 4, 9, 8, 9, 8, 0), NODE(4, 0, 9, 8, 9, 8, 2), SPARE(2) }, 9, { -1, -1, -1, -1 } },
    { "a node that moved to the seat of its copies",
      { NODE(0, 0, 9, 8, 9, 8, 4), SPARE(-1), NODE(4, 2, 9, 8, 9, 8, 2), SPARE(4) }, 9, { 0, -1, 2, 0 } },
    { "nothing was held", { SPARE(0), SPARE(2), SPARE(4), SPARE(-1) }, -1, { -1, -1, -1, -1 } },
};
/* clang-format on */

Test(restore, a_step_is_chosen_that_is_there_for_every_rank)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const struct choice *choice = &choices[i];
        bool covered[NODES];
        int sources[NODES], at_seat[3];
        const struct snapshot_held held = restore_choose(choice->nodes, NODES, RANKS, 3, covered);

        cr_expect_eq(held.step, choice->step, "%s: step %d", choice->name, (int)held.step);
        (void)restore_sources(choice->nodes, NODES, RANKS, 3, held, at_seat, sources);
        for (int node = 0; node < NODES; node++)
            cr_expect_eq(sources[node], choice->sources[node], "%s: node %d", choice->name, node);
    }
}

Test(restore, of_two_nodes_the_one_that_is_left_leads_and_serves_the_spare)
{
    struct restore_node nodes[] = { NODE(2, 0, 9, 8, 9, 8, 0), SPARE(2) };
    const struct snapshot_held step = { 9, 1 };
    int sources[2], at_seat[2];

    nodes[0].held.world_size = 4;
    cr_expect(restore_swaps(&nodes[0], step));
    cr_expect(restore_sources(nodes, 2, RANKS, 2, step, at_seat, sources));
    cr_expect(sources[0] == 0 && sources[1] == 0);
    nodes[0].seat = 2;
    cr_expect_not(restore_swaps(&nodes[0], step), "it has its own");
}

/* The bound of the choice is 50 ms, on a machine that may be busy. */
Test(restore, ten_thousand_nodes_have_their_step_in_time)
{
    enum { MANY = 10000 };
    static struct restore_node nodes[MANY];
    static bool covered[MANY];
    static int sources[MANY], at_seat[MANY];
    struct snapshot_held step = { .step = -1 };
    int64_t least_ns = INT64_MAX;

    for (int i = 0; i < MANY; i++)
        nodes[i] = (struct restore_node){ .held = { .world_size = MANY,
                                                    .own_first_rank = i,
                                                    .own = { { { 9 - i % 2, 1 }, { 8 - i % 2, 1 } } },
                                                    .copies = { { { 8, 1 }, { 7, 1 } } },
                                                    .copies_first_rank = (i + MANY - 1) % MANY },
                                          .seat = i };
    nodes[77].held.world_size = 0; /* a spare in the place of a lost node */
    for (int try = 0; try < 5; try++) {
        const int64_t began_ns = clock_now_ns();

        step = restore_choose(nodes, MANY, 1, MANY, covered);
        cr_assert(restore_sources(nodes, MANY, 1, MANY, step, at_seat, sources));
        if (clock_now_ns() - began_ns < least_ns)
            least_ns = clock_now_ns() - began_ns;
    }
    cr_expect_eq(step.step, 8);
    cr_expect_eq(sources[77], 78);
    cr_expect_lt(least_ns, 50000000, "%d us", (int)(least_ns / 1000));
}

Test(restore, steps_of_two_histories_are_not_one_step)
{
    struct restore_node nodes[] = { NODE(0, 0, 9, 8, 9, 8, 2), SPARE(2) };
    bool covered[2];

    nodes[0].held.world_size = 4;
    nodes[0].held.copies.held[0].generation = 0;
    cr_expect_eq(restore_choose(nodes, 2, RANKS, 2, covered).step, 8);
}

Test(restore, each_node_holds_for_one_other)
{
    for (int n = 2; n < 9; n++) {
        bool holds[9] = { false };

        for (int i = 0; i < n; i++) {
            cr_expect_neq(copies_holder(i, n), i);
            cr_expect_not(holds[copies_holder(i, n)]);
            holds[copies_holder(i, n)] = true;
        }
    }
}

/*
 * Histories. Each node has one rank, which fills slots as a worker does, while other steps of it are copied.
 * One store into a head is one act, and any act that is possible may be the next. A node dies at any moment.
 */

enum { SLOT_BYTES = 4096, SEATS = 3 };

struct rank {
    struct fsdp_snapshot_head own, held; /* `held`: of the node before it */
    int64_t filled;                      /* the newest step of its own */
    int filling, sending;                /* slots; -1: none */
    uint64_t number;                     /* of the filling that is sent */
};

static struct rank ranks[SEATS];
static uint64_t random_state;
static uint32_t generation;
/* The newest step that all ranks have filled, and that is copied of all; and the one that they may fill. */
static int64_t done, target;

static int draw(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

static struct rank *holder_of(int i)
{
    return &ranks[copies_holder(i, SEATS)];
}

static void begin_rank(int i)
{
    const struct snapshot_owner owner = { (uint32_t)i, SEATS, 7 };

    memset(&ranks[i], 0, sizeof ranks[i]);
    snapshot_lay_out(&ranks[i].own, &owner, SLOT_BYTES);
}

static bool all_are_copied(void)
{
    for (int i = 0; i < SEATS; i++)
        if (!snapshot_is_copied(&ranks[i].own))
            return false;
    return true;
}

/*
 * Fills a slot. After each step the ranks agree whether one of them is copied still, and fill no slot then
 * (trainer/loop.c): the step `target` is open for all at once.
 */
static void act_fill(int i)
{
    struct rank *rank = &ranks[i];

    if (rank->filling < 0) {
        if (rank->filled == target)
            return;
        rank->filling = snapshot_choose(&rank->own, -1);
        snapshot_begin(&rank->own, rank->filling);
        return;
    }
    snapshot_complete(&rank->own, rank->filling, ++rank->filled, generation,
                      &(struct snapshot_parts){ 1, 0, 1 });
    rank->filling = -1;
}

static void act_copy(int i)
{
    struct rank *rank = &ranks[i];
    struct fsdp_snapshot_head *held = &holder_of(i)->held;

    if (rank->sending < 0) {
        rank->sending = snapshot_uncopied(&rank->own);
        if (rank->sending < 0)
            return;
        rank->number = rank->own.slots[rank->sending].number;
        if (held->magic == 0)
            snapshot_lay_out(held, &(struct snapshot_owner){ (uint32_t)i, SEATS, 7 }, SLOT_BYTES);
        snapshot_begin(held, rank->sending);
        return;
    }
    if (draw(2) == 0) { /* the bytes are there */
        const struct snapshot_filling filling = snapshot_filling_of(&rank->own, rank->sending);

        cr_assert_eq(filling.number, rank->number, "it was filled again while it was sent");
        snapshot_settle(held, rank->sending, &filling);
        snapshot_mark_copied(&rank->own, rank->sending, rank->number);
        rank->sending = -1;
    }
}

/* Do all have the step, and is it copied? Then the next one is open. */
static void look(void)
{
    bool all = all_are_copied();

    for (int i = 0; i < SEATS; i++)
        all = all && ranks[i].filled == target;
    if (all)
        done = target++;
}

static void list(struct restore_node nodes[SEATS], int dead)
{
    for (int i = 0; i < SEATS; i++) {
        nodes[i] = (struct restore_node){ .held.world_size = i != dead ? SEATS : 0, .seat = i };
        nodes[i].held.own_first_rank = i;
        nodes[i].held.own = snapshot_list_of(&ranks[i].own, (uint32_t)i, SEATS);
        nodes[i].held.copies_first_rank = (int)ranks[i].held.rank;
        nodes[i].held.copies = snapshot_list_of(&ranks[i].held, ranks[i].held.rank, SEATS);
    }
}

/* A generation begins from `step`, with another node in the place of the dead one. */
static void restart(const struct restore_node nodes[SEATS], int dead, struct snapshot_held step)
{
    int sources[SEATS], at_seat[SEATS], source;

    cr_assert(restore_sources(nodes, SEATS, 1, SEATS, step, at_seat, sources));
    source = sources[dead];
    begin_rank(dead);
    for (int i = 0; i < SEATS; i++) {
        snapshot_keep_only(&ranks[i].own, step);
        snapshot_keep_only(&ranks[i].held, step);
    }
    for (int slot = 0; slot < FSDP_SNAPSHOT_SLOTS; slot++)
        if (ranks[source].held.slots[slot].step == step.step &&
            snapshot_find(&ranks[source].held, step.step) == slot) {
            const struct snapshot_filling filling = snapshot_filling_of(&ranks[source].held, slot);

            snapshot_begin(&ranks[dead].own, slot);
            snapshot_settle(&ranks[dead].own, slot, &filling);
        }
    generation++;
    for (int i = 0; i < SEATS; i++) {
        snapshot_set_copying(&ranks[i].own, true);
        ranks[i].filled = step.step;
        ranks[i].filling = ranks[i].sending = -1;
    }
    done = step.step - 1;
    target = step.step;
}

Test(restore, whichever_node_dies_at_any_moment_there_is_a_step_for_all)
{
    for (int run = 0; run < 8000; run++) {
        random_state = (uint64_t)run;
        generation = 0;
        done = -1;
        target = -1;
        for (int i = 0; i < SEATS; i++) {
            begin_rank(i);
            snapshot_set_copying(&ranks[i].own, true);
            ranks[i].filled = -1;
            ranks[i].filling = ranks[i].sending = -1;
        }
        for (int death = 0; death < 4; death++) {
            struct restore_node nodes[SEATS];
            struct snapshot_held step;
            bool covered[SEATS];
            const int64_t began = done;
            const int acts = 40 + draw(60), dead = draw(SEATS);

            /* What the lost node had held is copied again at first: nothing bears a second loss before. */
            for (int act = 0; act < acts || done <= began; act++) {
                const int i = draw(SEATS);

                if (draw(2) == 0)
                    act_fill(i);
                else
                    act_copy(i);
                look();
            }
            list(nodes, dead);
            step = restore_choose(nodes, SEATS, 1, SEATS, covered);
            cr_assert_geq(step.step, done, "run %d, death %d: step %d of %d", run, death, (int)step.step,
                          (int)done);
            restart(nodes, dead, step);
        }
    }
}
