#include "shard_runtime/checkpoint/reshard.h"

#include <stdbool.h>
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"

struct plan {
    struct reshard_read *reads;
    size_t n, room;
};

static bool add(struct plan *plan, struct reshard_read read)
{
    if (!alloc_room(&plan->reads, &plan->room, plan->n, sizeof *plan->reads))
        return false;
    plan->reads[plan->n++] = read;
    return true;
}

static unsigned char *place_of(const struct reshard_want *want, uint64_t at)
{
    return want->store == NULL ? want->to + at : NULL;
}

static bool add_piece(struct plan *plan, const struct contents_piece *piece, const struct reshard_want *want,
                      uint64_t elem_bytes)
{
    struct box_runs runs;
    struct box_run run;
    struct box meet;

    if (!box_meet(&piece->box, &want->box, &meet))
        return true;
    runs = box_runs_of(&meet, &piece->box, &want->box);
    while (box_runs_next(&runs, &run))
        if (!add(plan, (struct reshard_read){ .file = piece->file,
                                              .offset = piece->offset + run.in_a * elem_bytes,
                                              .size_bytes = run.n_elems * elem_bytes,
                                              .to = place_of(want, run.in_b * elem_bytes),
                                              .store = want->store,
                                              .in_store = want->in_store,
                                              .at = run.in_b * elem_bytes }))
            return false;
    return true;
}

/*
 * Adds the reads that fill one want, from each file that contains part of it. contents_read() has proven that
 * the files contain every element exactly once.
 */
static bool add_want(struct plan *plan, const struct contents *contents, const struct reshard_want *want)
{
    const uint64_t elem_bytes = fsdp_dtype_size(contents->manifest.tensors[want->tensor].dtype);

    for (size_t i = contents->starts[want->tensor]; i < contents->starts[want->tensor + 1]; i++)
        if (!add_piece(plan, &contents->pieces[i], want, elem_bytes))
            return false;
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct reshard_read *one = a, *two = b;

    if (one->file != two->file)
        return one->file < two->file ? -1 : 1;
    return (one->offset > two->offset) - (one->offset < two->offset);
}

static bool follows(const struct reshard_read *last, const struct reshard_read *next)
{
    if (next->file != last->file || next->offset != last->offset + last->size_bytes ||
        next->store != last->store)
        return false;
    return next->store == NULL ? next->to == last->to + last->size_bytes
                               : next->in_store == last->in_store && next->at == last->at + last->size_bytes;
}

/* Joins reads that are contiguous both in the file and in their destination. The reads must be sorted. */
static void join(struct plan *plan)
{
    size_t kept = 0;

    for (size_t i = 1; i < plan->n; i++) {
        struct reshard_read *last = &plan->reads[kept];
        const struct reshard_read *next = &plan->reads[i];

        if (follows(last, next))
            last->size_bytes += next->size_bytes;
        else
            plan->reads[++kept] = *next;
    }
    plan->n = plan->n == 0 ? 0 : kept + 1;
}

static bool has_box(const struct contents *contents, const struct reshard_want *want)
{
    const struct manifest_tensor *tensor;
    struct box whole;

    if (want->tensor >= contents->manifest.n_tensors)
        return false;
    tensor = &contents->manifest.tensors[want->tensor];
    whole = box_whole(tensor->shape, tensor->n_dims);
    return box_is_within(&want->box, &whole);
}

enum fsdp_status reshard_plan(const struct contents *contents, const struct reshard_want *wants,
                              size_t n_wants, struct reshard_read **reads, size_t *n_reads,
                              struct fsdp_err *err)
{
    struct plan plan = { 0 };

    *reads = NULL;
    *n_reads = 0;
    for (size_t i = 0; i < n_wants; i++) {
        const struct reshard_want *want = &wants[i];

        if (!has_box(contents, want)) {
            free(plan.reads);
            return fsdp_fail(err, FSDP_ERR_ARG, "elements are wanted that tensor %lu does not have",
                             (unsigned long)want->tensor);
        }
        if (!add_want(&plan, contents, want)) {
            free(plan.reads);
            return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the plan of %zu reads", plan.n);
        }
    }
    if (plan.n > 1)
        qsort(plan.reads, plan.n, sizeof *plan.reads, compare);
    join(&plan);
    *reads = plan.reads;
    *n_reads = plan.n;
    return FSDP_OK;
}
