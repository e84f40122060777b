/*
 * Where each buffer lies in the arena. A buffer is an interval of entries; two whose intervals meet may not
 * overlap in bytes. Greedy by size: the largest first, each at the lowest place that is free over its whole
 * interval (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
 * section 5.2); and once more by time, the earliest first; the smaller arena wins.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/plan/plan.h"

enum { ALIGN_BYTES = 64 };

static size_t room_of(const struct plan_buffer *buffer)
{
    return (buffer->size_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Of every storage: the entries from the first to the last use of all buffers in it. */
static void find_intervals(struct plan *plan)
{
    for (int b = 0; b < plan->n_buffers; b++) {
        plan->buffers[b].first = plan->n_entries;
        plan->buffers[b].last = -1;
    }
    for (int a = 0; a < plan->n_accesses; a++) {
        const struct plan_access *access = &plan->accesses[a];
        struct plan_buffer *buffer = &plan->buffers[plan->buffers[access->buffer].storage];

        if (access->entry < buffer->first)
            buffer->first = access->entry;
        if (access->entry > buffer->last)
            buffer->last = access->entry;
    }
    for (int b = 0; b < plan->n_buffers; b++)
        if (plan->buffers[b].step_long) {
            plan->buffers[b].first = 0;
            plan->buffers[b].last = plan->n_entries - 1;
        }
}

static bool meet(const struct plan_buffer *a, const struct plan_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static int larger_first(const void *left, const void *right)
{
    const struct plan_buffer *a = *(const struct plan_buffer *const *)left;
    const struct plan_buffer *b = *(const struct plan_buffer *const *)right;

    if (a->size_bytes != b->size_bytes)
        return a->size_bytes > b->size_bytes ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int earlier_first(const void *left, const void *right)
{
    const struct plan_buffer *a = *(const struct plan_buffer *const *)left;
    const struct plan_buffer *b = *(const struct plan_buffer *const *)right;

    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return larger_first(left, right);
}

static int lower_first(const void *left, const void *right)
{
    const struct plan_buffer *a = *(const struct plan_buffer *const *)left;
    const struct plan_buffer *b = *(const struct plan_buffer *const *)right;

    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The lowest free place for `buffer` among those placed already; `met` is room for pointers. */
static size_t lowest_place(const struct plan_buffer *buffer, struct plan_buffer *const *placed, int n_placed,
                           const struct plan_buffer **met)
{
    size_t place = 0;
    int n_met = 0;

    for (int i = 0; i < n_placed; i++)
        if (meet(buffer, placed[i]))
            met[n_met++] = placed[i];
    qsort(met, (size_t)n_met, sizeof(void *), lower_first);
    for (int i = 0; i < n_met; i++) {
        if (met[i]->offset >= place + room_of(buffer))
            break;
        if (met[i]->offset + room_of(met[i]) > place)
            place = met[i]->offset + room_of(met[i]);
    }
    return place;
}

/* Place all in this order; *arena receives the end of the highest. False when it does not fit size_t. */
static bool place_in_order(struct plan_buffer **order, int n, const struct plan_buffer **met, size_t *arena)
{
    size_t end;

    *arena = 0;
    for (int i = 0; i < n; i++) {
        order[i]->offset = lowest_place(order[i], order, i, met);
        if (!checked_add(order[i]->offset, room_of(order[i]), &end) || end > (size_t)1 << 62)
            return false;
        if (end > *arena)
            *arena = end;
    }
    return true;
}

static void measure_classes(struct plan *plan)
{
    for (int entry = 0; entry < plan->n_entries; entry++) {
        size_t live[PLAN_N_CLASSES] = { 0 };

        for (int b = 0; b < plan->n_buffers; b++) {
            const struct plan_buffer *buffer = &plan->buffers[b];

            if (buffer->storage == b && buffer->first <= entry && entry <= buffer->last)
                live[buffer->class] += room_of(buffer);
        }
        for (int c = 0; c < PLAN_N_CLASSES; c++)
            if (live[c] > plan->class_bytes[c])
                plan->class_bytes[c] = live[c];
    }
}

enum fsdp_status plan_place_buffers(struct plan *plan, struct fsdp_err *err)
{
    struct plan_buffer **order = alloc_array((size_t)plan->n_buffers, sizeof(void *));
    const struct plan_buffer **met = alloc_array((size_t)plan->n_buffers, sizeof(void *));
    enum fsdp_status status = FSDP_OK;
    size_t by_size, by_time;
    int n = 0;

    if (order == NULL || met == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
        goto done;
    }
    find_intervals(plan);
    for (int b = 0; b < plan->n_buffers; b++)
        if (plan->buffers[b].storage == b && plan->buffers[b].last >= 0)
            order[n++] = &plan->buffers[b];
    qsort(order, (size_t)n, sizeof(void *), earlier_first);
    if (!place_in_order(order, n, met, &by_time))
        goto too_large;
    qsort(order, (size_t)n, sizeof(void *), larger_first);
    if (!place_in_order(order, n, met, &by_size))
        goto too_large;
    if (by_time < by_size) {
        qsort(order, (size_t)n, sizeof(void *), earlier_first);
        place_in_order(order, n, met, &by_size);
    }
    plan->arena_bytes = by_size;
    for (int b = 0; b < plan->n_buffers; b++) {
        const struct plan_buffer *storage = &plan->buffers[plan->buffers[b].storage];

        plan->buffers[b].offset = storage->offset;
        plan->buffers[b].first = storage->first;
        plan->buffers[b].last = storage->last;
    }
    measure_classes(plan);
    goto done;
too_large:
    status = fsdp_fail(err, FSDP_ERR_NOMEM, "planning: the buffers of a step do not fit an address space");
done:
    free(order);
    free(met);
    return status;
}
