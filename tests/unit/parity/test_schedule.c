/*
 * test_fully_shard_comm.py, the orders of events: what PyTorch's FSDP2 noted (tests/parity/fsdp2_schedule.py)
 * against what our ranks did in a step (live.h), in many ways of sharding. The order of gathers and
 * reductions, of all groups together, is the same, and so is that in which parameters are freed and gradients
 * reduced. Forward gathers a unit's parameters ahead in the program, where PyTorch's CPU runs ahead of its
 * streams. So gathers are compared with what is freed group by group.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/parity/case.h"
#include "tests/unit/parity/live.h"

enum { LINE = LIVE_LINE, MAX_RANKS = 4 };

/* The words of `line` that begin with one of `kinds`, or name `group`. */
static void project(const char *line, const char *const *kinds, const char *group, char out[LINE])
{
    char copy[LINE], *word, *rest;

    out[0] = '\0';
    snprintf(copy, sizeof copy, "%s", line);
    for (word = strtok_r(copy, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest)) {
        const char *colon = strchr(word, ':');
        bool take = strcmp(word, "|") == 0;

        for (int k = 0; kinds != NULL && kinds[k] != NULL && colon != NULL; k++)
            take |= strncmp(word, kinds[k], strlen(kinds[k])) == 0 && word[strlen(kinds[k])] == ':';
        take |= group != NULL && colon != NULL && strcmp(colon + 1, group) == 0;
        if (take) {
            strcat(out, word);
            strcat(out, " ");
        }
    }
}

static void expect_projection(const char *name, size_t micro, const char *ours, const char *theirs,
                              const char *const *kinds, const char *group)
{
    char got[LINE], want[LINE];

    project(ours, kinds, group, got);
    project(theirs, kinds, group, want);
    cr_expect_str_eq(got, want, "%s, micro-step %zu, %s:\n%s\nPyTorch:\n%s", name, micro,
                     group != NULL ? group : kinds[0], got, want);
}

static void expect_schedule(const char *name, size_t micro, const char *ours, const char *theirs)
{
    static const char *const collectives[] = { "U", "PB", "AR", NULL }, *const ends[] = { "R", "PB", "AR",
                                                                                          NULL };
    char copy[LINE], *word, *rest;

    expect_projection(name, micro, ours, theirs, collectives, NULL);
    expect_projection(name, micro, ours, theirs, ends, NULL);
    snprintf(copy, sizeof copy, "%s", theirs);
    for (word = strtok_r(copy, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest))
        if (strchr(word, ':') != NULL)
            expect_projection(name, micro, ours, theirs, NULL, strchr(word, ':') + 1);
}

static const struct schedule {
    const char *name, *reference;
    struct way way;
} schedules[] = {
    OF("default", "transformer", .W = 2),
    OF("reshard-true", "transformer", .W = 2, .reshard = FSDP_RESHARD_TRUE),
    OF("reshard-false", "transformer", .W = 2, .reshard = FSDP_RESHARD_FALSE),
    OF("reshard-to-2", "transformer", .W = 4, .reshard_size = 2, .auto_root = true),
    OF("root-only", "transformer", .W = 2, .groups = ROOT_ONLY),
    OF("nested", "transformer", .W = 2, .groups = BY_LINEAR),
    OF("lists", "transformer", .W = 2, .groups = IN_LISTS),
    OF("prefetch-2", "transformer", .W = 2, .prefetch = 2),
    OF("recompute", "transformer", .W = 2, .recompute = FSDP_CHECKPOINT_FULL),
    OF("hybrid", "transformer", .W = 4, .replicate = 2),
    OF("accumulate-last", "transformer", .W = 2, .n_micro = 3),
    OF("accumulate-every", "transformer", .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY),
    OF("accumulate-kept", "transformer", .W = 2, .n_micro = 3, .reshard = FSDP_RESHARD_FALSE,
       .keep_after_backward = true),
    OF("hybrid-deferred", "transformer", .W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY,
       .defers_all_reduce = true),
    OF("twice", "twice", .W = 2),
    OF("twice-reshard-false", "twice", .W = 2, .reshard = FSDP_RESHARD_FALSE),
    OF("two-forwards", "transformer", TWO_FORWARDS),
    OF("two-forwards-reshard-true", "transformer", TWO_FORWARDS, .reshard = FSDP_RESHARD_TRUE),
    OF("two-forwards-reshard-false", "transformer", TWO_FORWARDS, .reshard = FSDP_RESHARD_FALSE),
    OF("two-forwards-reshard-to-2", "transformer", .W = 4, .n_micro = 2, .forwards = 2, .reshard_size = 2,
       .auto_root = true),
    OF("two-forwards-nested", "transformer", TWO_FORWARDS, .groups = BY_LINEAR),
    OF("two-forwards-recompute", "transformer", TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_FULL),
    OF("two-forwards-twice", "twice", TWO_FORWARDS),
    OF("two-forwards-leading", "leading", TWO_FORWARDS),
    OF("two-forwards-hybrid", "transformer", .W = 4, .replicate = 2, .n_micro = 2, .forwards = 2),
    OF("two-backwards", "transformer", TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY),
    OF("two-backwards-last", "transformer", TWO_BACKWARDS, .sync = FSDP_SYNC_LAST),
    OF("two-backwards-reshard-true", "transformer", TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY,
       .reshard = FSDP_RESHARD_TRUE),
    OF("two-backwards-reshard-false", "transformer", TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY,
       .reshard = FSDP_RESHARD_FALSE),
    OF("two-backwards-kept", "transformer", TWO_BACKWARDS, .sync = FSDP_SYNC_LAST,
       .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true),
    OF("two-backwards-nested", "transformer", TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY, .groups = BY_LINEAR),
    OF("tied", "tied", .W = 2),
    OF("frozen", "biases", .W = 2),
    OF("frozen-leading", "leading", .W = 2),
    OF("frozen-leading-reshard-true", "leading", .W = 2, .reshard = FSDP_RESHARD_TRUE),
    OF("frozen-leading-kept", "leading", .W = 2, .reshard = FSDP_RESHARD_FALSE),
    OF("frozen-leading-nested", "leading", .W = 2, .groups = BY_LINEAR),
    OF("tensor", "tensor", .W = 4, .tensor = 2),
};

/* A step of it; what rank 0 did, which is what every rank did. */
static const struct live *run_live(const struct schedule *schedule)
{
    struct reference *reference = reference_read(schedule->reference);
    static struct live lives[MAX_RANKS];
    struct way way = schedule->way;
    static struct seen seen;

    way.steps = 1;
    way.prepare = live_begin;
    way.user = lives;
    case_run(reference, &way, &seen);
    cr_expect_eq(seen_compare(&seen, reference, schedule->name), 0);
    for (int rank = 1; rank < way.W; rank++)
        for (int run = 0; run < LIVE_RUNS; run++)
            cr_expect_str_eq(lives[rank].runs[run], lives[0].runs[run], "%s: rank %d does something else",
                             schedule->name, rank);
    seen_free(&seen);
    reference_free(reference);
    return lives;
}

Test(parity_comm, the_schedule_is_pytorchs, .timeout = 3000)
{
    FILE *file = fopen(SOURCE_DIR "/tests/parity/reference/fsdp2/schedule.txt", "r");
    const size_t n_schedules = N(schedules);
    char line[LINE], name[32], current[32] = "";
    const struct live *live = NULL;
    size_t n_live = 0;

    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        size_t micro, begin;

        if (line[0] == '#')
            continue;
        cr_assert(sscanf(line, "%31s %zu %zn", name, &micro, &begin) == 2, "%s", line);
        for (size_t i = 0; strcmp(name, current) != 0 && i < n_schedules; i++)
            if (strcmp(schedules[i].name, name) == 0) {
                live = run_live(&schedules[i]);
                strcpy(current, name);
                n_live++;
            }
        cr_assert_str_eq(name, current, "nobody runs %s", name);
        cr_assert((int)micro < live->n_runs);
        expect_schedule(name, micro, live->runs[micro], line + begin);
    }
    fclose(file);
    cr_expect_eq(n_live, n_schedules, "each is stored");
}
