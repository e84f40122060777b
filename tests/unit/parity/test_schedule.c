/*
 * test_fully_shard_comm.py, the orders of events: what PyTorch's FSDP2 noted (tests/parity/fsdp2_schedule.py) against our
 * plan, over many ways of sharding. The order of gathers and reductions, of all groups together, is the same. Forward
 * gathers a unit's parameters ahead in the program, where PyTorch's CPU runs ahead of its streams: so the order in which
 * parameters are freed is compared group by group.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/parity/case.h"

enum { LINE = 2048 };

struct written {
    char micro[3][LINE];
    size_t n_micro;
};

static bool takes_part(const struct plan_entry *e, size_t micro, size_t n_micro)
{
    return e->when == PLAN_ALWAYS || (e->when == PLAN_FIRST && micro == 0) ||
           (e->when == PLAN_LAST && micro + 1 == n_micro);
}

static const char *label(const struct plan_entry *e)
{
    switch (e->kind) {
    case PLAN_GATHER:
        return "U";
    case PLAN_RESHARD:
        return "R";
    case PLAN_REDUCE:
        return "PB";
    case PLAN_ALL_REDUCE:
        return "AR";
    default:
        return NULL;
    }
}

/* The plan in the words of the stored file: a line for each run of the program. */
static void write_events(struct fsdp_model *model, void *user)
{
    const struct plan *plan = &model->training.plan;
    const size_t n_backwards = (size_t)plan->n_backwards;
    struct written *written = user;

    if (fsdp_context_rank(model->context) != 0)
        return;
    for (size_t m = 0; m < written->n_micro; m++)
        for (int i = 0; i < plan->n_entries; i++) {
            const struct plan_entry *e = &plan->entries[i];
            char *line = written->micro[m];
            const size_t n = strlen(line);
            const char *path;

            if (!takes_part(e, m * n_backwards + (size_t)e->backward, written->n_micro * n_backwards))
                continue;
            if (e->kind == PLAN_LOSS)
                snprintf(line + n, LINE - n, "%s|", n > 0 ? " " : "");
            if (label(e) == NULL)
                continue;
            path = plan->groups[e->index].unit->path;
            snprintf(line + n, LINE - n, "%s%s:%s", n > 0 ? " " : "", label(e),
                     path[0] == '\0' ? "(root)" : path);
        }
}

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
                     group != NULL ? group : "collectives", got, want);
}

static void expect_schedule(const char *name, size_t micro, const char *ours, const char *theirs)
{
    static const char *const collectives[] = { "U", "PB", "AR", NULL };
    char copy[LINE], *word, *rest;

    expect_projection(name, micro, ours, theirs, collectives, NULL);
    snprintf(copy, sizeof copy, "%s", theirs);
    for (word = strtok_r(copy, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest))
        if (strchr(word, ':') != NULL)
            expect_projection(name, micro, ours, theirs, NULL, strchr(word, ':') + 1);
}

static const struct schedule {
    const char *name, *reference;
    struct way way;
} schedules[] = {
    { "default", "transformer", { .W = 2 } },
    { "reshard-true", "transformer", { .W = 2, .reshard = FSDP_RESHARD_TRUE } },
    { "reshard-false", "transformer", { .W = 2, .reshard = FSDP_RESHARD_FALSE } },
    { "reshard-to-2", "transformer", { .W = 4, .reshard_size = 2, .auto_root = true } },
    { "root-only", "transformer", { .W = 2, .groups = ROOT_ONLY } },
    { "nested", "transformer", { .W = 2, .groups = BY_LINEAR } },
    { "lists", "transformer", { .W = 2, .groups = IN_LISTS } },
    { "prefetch-2", "transformer", { .W = 2, .prefetch = 2 } },
    { "recompute", "transformer", { .W = 2, .recompute = FSDP_CHECKPOINT_FULL } },
    { "hybrid", "transformer", { .W = 4, .replicate = 2 } },
    { "accumulate-last", "transformer", { .W = 2, .n_micro = 3 } },
    { "accumulate-every", "transformer", { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY } },
    { "accumulate-kept",
      "transformer",
      { .W = 2, .n_micro = 3, .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true } },
    { "hybrid-deferred",
      "transformer",
      { .W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .defers_all_reduce = true } },
    { "twice", "twice", { .W = 2 } },
    { "twice-reshard-false", "twice", { .W = 2, .reshard = FSDP_RESHARD_FALSE } },
    { "two-forwards", "transformer", { .W = 2, .n_micro = 2, .forwards = 2 } },
    { "two-forwards-reshard-true",
      "transformer",
      { .W = 2, .n_micro = 2, .forwards = 2, .reshard = FSDP_RESHARD_TRUE } },
    { "two-forwards-reshard-false",
      "transformer",
      { .W = 2, .n_micro = 2, .forwards = 2, .reshard = FSDP_RESHARD_FALSE } },
    { "two-forwards-reshard-to-2",
      "transformer",
      { .W = 4, .n_micro = 2, .forwards = 2, .reshard_size = 2, .auto_root = true } },
    { "two-forwards-nested", "transformer", { .W = 2, .n_micro = 2, .forwards = 2, .groups = BY_LINEAR } },
    { "two-forwards-recompute",
      "transformer",
      { .W = 2, .n_micro = 2, .forwards = 2, .recompute = FSDP_CHECKPOINT_FULL } },
    { "two-forwards-twice", "twice", { .W = 2, .n_micro = 2, .forwards = 2 } },
    { "two-forwards-leading", "leading", { .W = 2, .n_micro = 2, .forwards = 2 } },
    { "two-forwards-hybrid", "transformer", { .W = 4, .replicate = 2, .n_micro = 2, .forwards = 2 } },
    { "two-backwards",
      "transformer",
      { .W = 2, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .sync = FSDP_SYNC_EVERY } },
    { "two-backwards-last",
      "transformer",
      { .W = 2, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .sync = FSDP_SYNC_LAST } },
    { "two-backwards-reshard-true",
      "transformer",
      { .W = 2,
        .n_micro = 2,
        .forwards = 2,
        .backwards = FSDP_BACKWARD_OF_EACH,
        .sync = FSDP_SYNC_EVERY,
        .reshard = FSDP_RESHARD_TRUE } },
    { "two-backwards-reshard-false",
      "transformer",
      { .W = 2,
        .n_micro = 2,
        .forwards = 2,
        .backwards = FSDP_BACKWARD_OF_EACH,
        .sync = FSDP_SYNC_EVERY,
        .reshard = FSDP_RESHARD_FALSE } },
    { "two-backwards-kept",
      "transformer",
      { .W = 2,
        .n_micro = 2,
        .forwards = 2,
        .backwards = FSDP_BACKWARD_OF_EACH,
        .sync = FSDP_SYNC_LAST,
        .reshard = FSDP_RESHARD_FALSE,
        .keep_after_backward = true } },
    { "two-backwards-nested",
      "transformer",
      { .W = 2,
        .n_micro = 2,
        .forwards = 2,
        .backwards = FSDP_BACKWARD_OF_EACH,
        .sync = FSDP_SYNC_EVERY,
        .groups = BY_LINEAR } },
    { "tied", "tied", { .W = 2 } },
    { "frozen", "biases", { .W = 2 } },
    { "frozen-leading", "leading", { .W = 2 } },
    { "frozen-leading-reshard-true", "leading", { .W = 2, .reshard = FSDP_RESHARD_TRUE } },
    { "frozen-leading-kept", "leading", { .W = 2, .reshard = FSDP_RESHARD_FALSE } },
    { "frozen-leading-nested", "leading", { .W = 2, .groups = BY_LINEAR } },
    { "tensor", "tensor", { .W = 4, .tensor = 2 } },
};

static void plan_case(const struct schedule *schedule, struct written *written)
{
    struct reference *reference = reference_read(schedule->reference);
    struct way way = schedule->way;
    static struct seen seen;

    *written = (struct written){ .n_micro = way.n_micro > 0 ? way.n_micro : 1 };
    if (way.forwards > 0)
        written->n_micro /= way.forwards;
    way.steps = 1;
    way.prepare = write_events;
    way.user = written;
    case_run(reference, &way, &seen);
    seen_free(&seen);
    reference_free(reference);
}

Test(parity_comm, the_schedule_is_pytorchs, .timeout = 300)
{
    FILE *file = fopen(SOURCE_DIR "/tests/parity/reference/fsdp2/schedule.txt", "r");
    char line[LINE], name[32], current[32] = "";
    static struct written written;
    int n_lines = 0;

    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        size_t micro, begin;

        if (line[0] == '#')
            continue;
        cr_assert(sscanf(line, "%31s %zu %zn", name, &micro, &begin) == 2, "%s", line);
        for (size_t i = 0; strcmp(name, current) != 0 && i < sizeof schedules / sizeof *schedules; i++)
            if (strcmp(schedules[i].name, name) == 0) {
                plan_case(&schedules[i], &written);
                strcpy(current, name);
            }
        cr_assert_str_eq(name, current, "nobody plans %s", name);
        cr_assert(micro < written.n_micro);
        expect_schedule(name, micro, written.micro[micro], line + begin);
        n_lines++;
    }
    fclose(file);
    cr_expect_geq(n_lines, (int)(sizeof schedules / sizeof *schedules), "each is stored");
}
