#include "tests/unit/parity/live.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/parity/sabotage.h"

/* Of this thread's rank. */
static _Thread_local struct live *live;
static _Thread_local const struct plan *plan;
static _Thread_local const struct plan_entry *current; /* the entry that runs; NULL between runs */

static void write_word(const char *kind, const char *name)
{
    char *line = live->runs[live->n_runs];
    const size_t n = strlen(line);

    snprintf(line + n, LIVE_LINE - n, "%s%s%s", n > 0 ? " " : "", kind, name);
}

static void write_event(const char *kind, const struct plan_entry *e)
{
    write_word(kind, plan_unit_name(plan, e->index));
}

static void on_entry(void *observer, int entry)
{
    plan = &((const struct program *)observer)->plan;
    if (entry == plan->n_entries) {
        current = NULL;
        live->n_runs++;
        cr_assert(live->n_runs < LIVE_RUNS);
        return;
    }
    current = &plan->entries[entry];
    if (current->kind == PLAN_LOSS)
        write_word("|", "");
    else if (current->kind == PLAN_RESHARD)
        write_event("R:", current);
}

/* What a group's entry is to call, with how many elements from each of how many ranks, and its word. */
static const struct expected {
    enum plan_entry_kind entry;
    enum comm_kind call;
    const char *word;
} expectations[] = {
    { PLAN_GATHER, COMM_ALL_GATHER, "U:" },
    { PLAN_REDUCE, COMM_REDUCE_SCATTER, "PB:" },
    { PLAN_ALL_REDUCE, COMM_ALL_REDUCE, "AR:" },
};

static bool fits(const struct fsdp_comm *comm, size_t n_elems)
{
    const struct plan_group *group = &plan->groups[current->index];
    const size_t size = fsdp_dtype_size(group->param_dtype);

    switch (current->kind) {
    case PLAN_GATHER:
        return comm->size == current->gather.k &&
               n_elems * size ==
                   (current->gather.slice >= 0 ? group->slice_row_bytes : group->gather_row_bytes);
    case PLAN_REDUCE:
        return comm->size == group->W && n_elems == group->grad_row_elems;
    default:
        return comm->size == group->R && n_elems == group->grad_row_elems;
    }
}

static void on_collective(const struct fsdp_comm *comm, enum comm_kind kind, size_t n_elems)
{
    if (live == NULL || current == NULL)
        return; /* ranks agree on targets, losses and norms between runs */
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++)
        if (expectations[i].entry == current->kind)
            write_event(expectations[i].call != kind ? "(another collective):"
                        : fits(comm, n_elems)        ? expectations[i].word
                                                     : "(another size or group):",
                        current);
}

void live_begin(struct fsdp_model *model, void *lives)
{
    live = &((struct live *)lives)[fsdp_context_rank(fsdp_model_context(model))];
    *live = (struct live){ 0 };
    model->training.observe = on_entry;
    model->training.observer = &model->training;
    sabotage_listen(on_collective);
}
