/*
 * A case is a line for each rank, "; " between them. A line is a list of words:
 *   in=GROUP:N     inside collective N of the group       at=GROUP:N  it has begun N, and is in none
 *   step=N phase   "forward", ...; without one, forward   silent=S    of a bound of 10 s; without it, 11
 *   node=N         without it, 0                          state=C     without it, S
 *   peer=R missing=N  wait  queued  still  kind=K  bytes=N  gone  unknown
 * A group's name is NAME.FIRST.STRIDE.SIZE.
 */
#include "agent/watch/hang_verdict.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/record/first_cause.h"

enum { MOST_RANKS = 16, S = 1000000000 };

static struct hang_rank rows[MOST_RANKS];
static int n_rows;

/* Returns the group's place in the row. */
static int put_group(struct hang_rank *row, const char *text)
{
    struct hang_group group = { 0 };
    char name[HANG_GROUP_BYTES];
    unsigned long begun;
    int i = 0;

    cr_assert_eq(sscanf(text, "%63[^:]:%lu", name, &begun), 2, "%s", text);
    cr_assert_eq(sscanf(name, "%*[a-z].%d.%d.%d", &group.first, &group.stride, &group.size), 3, "%s", text);
    snprintf(group.name, sizeof group.name, "%s", name);
    group.begun = begun;
    while (i < row->n_groups && strcmp(row->groups[i].name, name) != 0)
        i++;
    row->groups[i] = group;
    row->n_groups += i == row->n_groups;
    return i;
}

static void put_word(struct hang_rank *row, const char *word)
{
    if (strncmp(word, "in=", 3) == 0) {
        row->group = put_group(row, word + 3);
        row->sequence = row->groups[row->group].begun;
        row->groups[row->group].ended = row->sequence - 1;
    } else if (strncmp(word, "at=", 3) == 0)
        put_group(row, word + 3);
    else if (strncmp(word, "step=", 5) == 0)
        row->step = atoi(word + 5);
    else if (strncmp(word, "silent=", 7) == 0)
        row->silent_ns = (int64_t)atoi(word + 7) * S;
    else if (strncmp(word, "node=", 5) == 0)
        row->node = atoi(word + 5);
    else if (strncmp(word, "state=", 6) == 0)
        row->state = word[6];
    else if (strncmp(word, "peer=", 5) == 0)
        row->peer = atoi(word + 5);
    else if (strncmp(word, "missing=", 8) == 0)
        row->n_missing = atoi(word + 8);
    else if (strncmp(word, "kind=", 5) == 0)
        snprintf(row->kind, sizeof row->kind, "%s", word + 5);
    else if (strncmp(word, "bytes=", 6) == 0)
        row->size_bytes = (uint64_t)atoi(word + 6);
    else if (strcmp(word, "wait") == 0)
        row->waits = true;
    else if (strcmp(word, "queued") == 0)
        row->queued = true;
    else if (strcmp(word, "still") == 0)
        row->still = true;
    else if (strcmp(word, "gone") == 0)
        row->live = false;
    else if (strcmp(word, "unknown") == 0)
        row->answered = false;
    else if (strcmp(word, "unwatched") == 0)
        row->bound_ns = 0;
    else
        for (row->pass = 0; strcmp(first_cause_phase_name(row->pass), word) != 0; row->pass++)
            cr_assert_lt(row->pass, FSDP_PHASE_OPEN, "%s", word);
}

static void read_rows(const char *text)
{
    char copy[2048], *line, *rest = copy, *words, *word;

    snprintf(copy, sizeof copy, "%s", text);
    for (n_rows = 0; (line = strsep(&rest, ";")) != NULL; n_rows++) {
        rows[n_rows] = (struct hang_rank){ .rank = n_rows,
                                           .answered = true,
                                           .live = true,
                                           .state = 'S',
                                           .silent_ns = 11 * (int64_t)S,
                                           .bound_ns = 10 * (int64_t)S,
                                           .pass = FSDP_PHASE_FORWARD,
                                           .group = -1,
                                           .peer = -1 };
        for (words = line; (word = strsep(&words, " ")) != NULL;)
            if (*word != '\0')
                put_word(&rows[n_rows], word);
    }
}

/* "stuck 1", "link 0 2", "none" (again later), "clear" (no rank is silent). */
static const char *judge(char *out)
{
    struct hang_verdict verdict;
    int n;

    cr_assert(hang_verdict_reach(&verdict, rows, n_rows));
    if (verdict.kind == HANG_NONE)
        return strcpy(out, verdict.again_ns > 0 ? "none" : "clear");
    n = sprintf(out, "%s", hang_kind_name(verdict.kind));
    for (int i = 0; i < verdict.n_ranks; i++)
        n += sprintf(out + n, " %d", verdict.ranks[i]);
    return out;
}

#define W2 "world.0.1.2"
#define W3 "world.0.1.3"
#define W4 "world.0.1.4"

Test(hang_verdict, the_rank_for_which_others_wait_is_named)
{
    static const char *const cases[][2] = {
        /* no hang */
        { "silent=1; silent=1", "clear" },
        { "silent=10; silent=9", "clear" },
        { "unwatched silent=999; silent=1", "clear" },
        { "gone silent=999; silent=1", "clear" },
        { "unknown; silent=1", "clear" },
        /* one does not come */
        { "in=" W2 ":7; at=" W2 ":6", "stuck 1" },
        { "in=" W2 ":7; at=" W2 ":6 silent=50", "stuck 1" },
        { "in=" W2 ":7; at=" W2 ":6 silent=2", "none" },
        { "in=" W2 ":7 silent=5; at=" W2 ":6", "stuck 1" },
        { "in=" W2 ":7; at=" W2 ":6 state=T", "stuck 1" },
        { "at=" W2 ":6; in=" W2 ":7", "stuck 0" },
        { "in=" W2 ":7 node=0; at=" W2 ":6 node=1 silent=2", "none" },
        { "in=" W3 ":7; in=" W3 ":7; at=" W3 ":6 node=1 save silent=3", "none" },
        { "in=" W3 ":7; in=" W3 ":7; at=" W3 ":6 node=1 save", "stuck 2" },
        { "in=" W2 ":1; start", "stuck 1" },
        { "in=" W2 ":1; load step=-1", "stuck 1" },
        { "in=" W2 ":1; load step=-1 silent=4", "none" },
        { "in=" W2 ":7; at=" W2 ":6 unwatched", "none" },
        { "in=" W3 ":7; at=" W3 ":6; at=" W3 ":6", "stuck 1" },
        { "in=" W3 ":7; at=" W3 ":6 step=5; at=" W3 ":6 step=4", "stuck 2" },
        { "in=" W3 ":7; at=" W3 ":6; at=" W3 ":6 silent=12", "stuck 2" },
        { "in=" W3 ":7; at=" W3 ":6 silent=12; at=" W3 ":6 state=T", "stuck 2" },
        { "in=" W3 ":7; at=" W3 ":6 silent=12; at=" W3 ":6 state=D", "stuck 2" },
        { "in=" W3 ":7; at=" W3 ":6; at=" W3 ":6 silent=2", "stuck 1" },
        { "at=" W2 ":7; at=" W2 ":7 done silent=30", "stuck 1" },
        /* a rank that ended is left to those who need it */
        { "in=" W2 ":7; at=" W2 ":6 gone", "stuck 0" },
        { "in=" W3 ":7; at=" W3 ":6 gone; at=" W3 ":6 silent=1", "none" },
        /* a node that does not answer */
        { "in=" W2 ":7; unknown node=1", "none" },
        { "in=" W3 ":7; at=" W3 ":6; unknown node=1", "stuck 1" },
        /* meshes: the count over all groups misleads */
        { "in=tp.0.1.2:9 at=dp.0.2.2:31; at=tp.0.1.2:8 at=dp.1.2.2:33; in=dp.0.2.2:32 at=tp.2.1.2:9; "
          "in=dp.1.2.2:34 at=tp.2.1.2:9",
          "stuck 1" },
        { "in=tp.0.1.2:9; in=dp.1.2.2:5 at=tp.0.1.2:8; at=tp.2.1.2:9; in=tp.2.1.2:8 at=dp.1.2.2:4",
          "stuck 2" },
        { "in=tp.0.1.2:9; in=dp.1.2.2:5 at=tp.0.1.2:8; in=tp.2.1.2:10; at=tp.2.1.2:9 at=dp.1.2.2:4 silent=2",
          "none" },
        { "in=a.0.1.2:3; at=a.0.1.2:2 in=b.1.1.2:9; at=b.1.1.2:8 in=c.2.1.2:1; start", "stuck 3" },
        { "in=a.0.1.2:3; at=a.0.1.2:2 in=b.1.1.2:9; at=b.1.1.2:8 in=c.2.1.2:1; open silent=1", "none" },
        { "in=a.0.0.2:3; at=a.0.0.2:2", "stuck 1" }, /* members by the rows alone */
        /* left inside */
        { "in=" W2 ":9; in=" W2 ":9 state=T", "stuck 1" },
        { "in=" W2 ":9 silent=30; in=" W2 ":9 state=T", "stuck 1" },
        { "in=" W2 ":9 silent=12; in=" W2 ":9", "stuck 0" },
        { "in=" W2 ":9; in=" W2 ":9 silent=2", "none" },
        { "in=" W2 ":9 state=D; in=" W2 ":9", "stuck 0" },
        { "in=" W4 ":9 peer=2; in=" W4 ":9; in=" W4 ":9 node=1; in=" W4 ":9 node=1 state=T", "stuck 3" },
        { "in=" W4 ":9 peer=2; in=" W4 ":9; at=" W4 ":9 node=1; in=" W4 ":9 node=1", "stuck 2" },
        /* held inside: those who wait there run now and then */
        { "in=" W2 ":9 silent=2; in=" W2 ":9 still", "stuck 1" },
        { "in=" W2 ":9; in=" W2 ":9 still silent=2", "none" },
        { "in=" W2 ":9 silent=2; in=" W2 ":9 still queued", "none" },
        { "in=" W2 ":9 peer=1 missing=1; in=" W2 ":9 node=1 peer=0 missing=1 still", "stuck 1" },
        { "in=" W4 ":9 peer=2; in=" W4 ":9 silent=4; in=" W4 ":9 node=1; in=" W4 ":9 node=1 still",
          "stuck 3" },
        { "in=" W2 ":9 still; at=" W2 ":8 silent=3", "none" },
        { "in=" W2 ":9; at=" W2 ":8 still silent=2", "none" },
        /* a stopped rank is named, not the one that it waits for too */
        { "in=" W2 ":9 state=T; at=" W2 ":8 silent=3", "stuck 0" },
        /* links */
        { "in=" W2 ":9 peer=1 missing=1; in=" W2 ":9 node=1 peer=0 missing=1", "link 0 1" },
        { "in=" W2 ":9 peer=1 missing=1; in=" W2 ":9 node=1 peer=0 missing=1 silent=9", "none" },
        { "in=" W2 ":9 peer=1 missing=1; in=" W2 ":9 node=1 peer=0 missing=1 state=T", "stuck 1" },
        { "in=" W4 ":9 peer=2; in=" W4 ":9; in=" W4 ":9 node=1 peer=0; in=" W4 ":9 node=1", "link 0 2" },
        { "in=" W3 ":9 peer=1 missing=2; in=" W3 ":9 node=1 peer=2 missing=1; in=" W3
          ":9 node=2 peer=1 missing=1",
          "link 1 2" },
        { "in=" W2 ":9 peer=1; in=" W2 ":10 node=1", "link 0 1" }, /* its bytes had left the process */
        /* mismatches */
        { "in=" W2 ":5 kind=all_gather; in=" W2 ":5 kind=all_reduce", "mismatch 0 1" },
        { "in=" W3 ":5 kind=all_gather; in=" W3 ":5 kind=all_reduce; in=" W3 ":5 kind=all_gather",
          "mismatch 1 0" },
        { "in=" W2 ":5 kind=all_gather bytes=4; in=" W2 ":5 kind=all_gather bytes=8", "mismatch 0 1" },
        { "in=" W2 ":5 at=tp.0.1.2:2; in=tp.0.1.2:3 at=" W2 ":4", "mismatch 0 1" },
        { "in=" W2 ":5 at=tp.0.1.2:2; in=tp.0.1.2:3 at=" W2 ":4 silent=5", "none" },
        /* waiting for an answer through the agent */
        { "wait open; start", "stuck 1" },
        { "wait open; start silent=1", "none" },
        { "wait open; open", "stuck 1" },
        { "wait open; wait open silent=12", "stuck 1" },
        { "wait save; save", "stuck 1" },
        { "wait save; save silent=3", "none" },
        { "wait save; wait save silent=13", "stuck 1" },
        { "wait save; wait save silent=1; unknown", "none" },
        /* collectives that wait on a GPU */
        { "in=" W2 ":13 queued; at=" W2 ":12", "stuck 1" },
        { "in=" W2 ":12 queued at=" W2 ":14; in=" W2 ":12 queued at=" W2 ":12", "stuck 1" },
    };
    char out[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_rows(cases[i][0]);
        cr_expect_str_eq(judge(out), cases[i][1], "%s: %s, not %s", cases[i][0], out, cases[i][1]);
    }
}

Test(hang_verdict, those_who_wait_are_counted_in_the_collective_that_most_are_in)
{
    struct hang_verdict verdict;
    char words[HANG_WORDS_BYTES];

    read_rows("in=" W4 ":7 kind=all_gather; at=" W4 ":6; in=" W4 ":7 kind=all_gather; silent=3 in=" W4
              ":7 kind=all_gather");
    strcpy(rows[0].layer, "layers.6");
    strcpy(rows[1].layer, "layers.5.feed_forward.w1");
    cr_assert(hang_verdict_reach(&verdict, rows, n_rows));
    cr_assert(verdict.n_waiters == 3 && verdict.waiter == 0);

    cr_expect_str_eq(
        hang_words(&verdict, rows, words),
        "no progress for 10 s in layers.5.feed_forward.w1; 3 ranks wait for it in all_gather #7 of " W4
        " (layers.6)");
}

/* The law: ranks of a mesh run the same program until one of them stops. */

enum { OPS = 40 };

static uint64_t state;

static unsigned draw(unsigned n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state % n);
}

/*
 * A mesh of dp x tp. Collective `op` of the program is of the world, of the rank's tp group or of its
 * dp group.
 */
static struct model {
    int tp, dp, kinds[OPS];
    int at[MOST_RANKS]; /* the next collective of each rank */
    bool inside[MOST_RANKS];
} model;

static int members_of(int rank, int kind, int *first, int *stride)
{
    *first = kind == 0 ? 0 : kind == 1 ? rank / model.tp * model.tp : rank % model.tp;
    *stride = kind == 2 ? model.tp : 1;
    return kind == 0 ? model.tp * model.dp : kind == 1 ? model.tp : model.dp;
}

/* Can the rank, which is inside a collective, leave it? All members must have come to it. */
static bool can_leave(int rank)
{
    int first, stride;
    const int op = model.at[rank], size = members_of(rank, model.kinds[op], &first, &stride);

    for (int i = 0; i < size; i++) {
        const int other = first + i * stride;

        if (model.at[other] < op || (model.at[other] == op && !model.inside[other]))
            return false;
    }
    return true;
}

/* Lets one rank go a step further. Returns whether it could. */
static bool advance(int rank)
{
    if (model.at[rank] == OPS || (model.inside[rank] && !can_leave(rank)))
        return false;
    if (model.inside[rank])
        model.at[rank]++;
    model.inside[rank] = !model.inside[rank];
    return true;
}

/* The row that the rank's page would give. */
static void show(int rank, int per_node)
{
    static const char *const names[] = { "world", "tp", "dp" };
    struct hang_rank *row = &rows[rank];

    *row = (struct hang_rank){ .rank = rank,
                               .node = rank / per_node,
                               .answered = true,
                               .live = true,
                               .state = 'S',
                               .bound_ns = 10 * (int64_t)S,
                               .step = 3,
                               .group = -1,
                               .peer = -1,
                               .n_groups = 3 };
    for (int kind = 0; kind < 3; kind++) {
        struct hang_group *group = &row->groups[kind];

        group->size = members_of(rank, kind, &group->first, &group->stride);
        snprintf(group->name, sizeof group->name, "%s.%d", names[kind], group->first);
        for (int op = 0; op < model.at[rank]; op++)
            group->ended += model.kinds[op] == kind;
        group->begun = group->ended;
    }
    if (!model.inside[rank])
        return;
    row->group = model.kinds[model.at[rank]];
    row->sequence = ++row->groups[row->group].begun;
}

Test(hang_verdict, the_one_rank_that_stopped_is_named_whatever_the_others_did_before)
{
    char out[64], wanted[64];
    int n_named = 0;

    for (uint64_t seed = 1; seed <= 10000; seed++) {
        int culprit, stops_at, n_still = 0;

        state = seed * 0x9e3779b97f4a7c15;
        model = (struct model){ .tp = 1 + (int)draw(4), .dp = 1 + (int)draw(4) };
        n_rows = model.tp * model.dp;
        for (int op = 0; op < OPS; op++)
            model.kinds[op] = (int)draw(3);
        culprit = (int)draw((unsigned)n_rows);
        stops_at = (int)draw(OPS);
        for (unsigned moves = draw(3) == 0 ? draw(200) : 100000; moves > 0 && n_still < 64 * n_rows;
             moves--) {
            const int rank = (int)draw((unsigned)n_rows);
            const bool stopped = rank == culprit && model.at[rank] == stops_at && !model.inside[rank];

            n_still = !stopped && advance(rank) ? 0 : n_still + 1;
        }
        for (int rank = 0; rank < n_rows; rank++) {
            const bool stopped = rank == culprit && model.at[rank] == stops_at && !model.inside[rank];
            const struct model before = model;
            const bool goes_on = !stopped && advance(rank);

            model = before;
            show(rank, model.tp);
            rows[rank].silent_ns = (goes_on ? draw(10) : 8 + draw(20)) * (int64_t)S;
            if (!goes_on && model.at[rank] == OPS)
                rows[rank].live = false;
        }

        snprintf(wanted, sizeof wanted, "stuck %d", culprit);
        judge(out);
        cr_assert(strcmp(out, wanted) == 0 || strcmp(out, "none") == 0 || strcmp(out, "clear") == 0,
                  "seed %d: %s, not %s", (int)seed, out, wanted);
        if (rows[culprit].live && model.at[culprit] == stops_at && !model.inside[culprit] &&
            rows[culprit].silent_ns > rows[culprit].bound_ns) {
            cr_assert_str_eq(out, wanted, "seed %d", (int)seed);
            n_named++;
        }
    }
    cr_assert_gt(n_named, 5000);
}
