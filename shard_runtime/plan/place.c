/*
 * Where each buffer lies in the arena. A buffer is an interval of entries; two whose intervals meet may not
 * overlap in bytes. Greedy by size: the largest first, each at the lowest place that is free over its whole
 * interval (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
 * section 5.2); and once more by time, the earliest first; the smaller arena wins.
 *
 * Where the arena begins with gradient shards, which come to life in the reverse order of the groups, each buffer may also go
 * to the highest free place among them: the shards that are written soonest after its end, so that what lives longer finds the
 * others. Both orders are tried with that as well.
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
    for (int b = 0; b < plan->n_buffers; b++)
        if (plan->buffers[b].fixed)
            plan->buffers[b].last = plan->n_entries;
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

/* Those among the first `n_placed` that live while `buffer` does, by place, into `met`. */
static int list_met(const struct plan_buffer *buffer, struct plan_buffer *const *placed, int n_placed,
                    const struct plan_buffer **met)
{
    int n_met = 0;

    for (int i = 0; i < n_placed; i++)
        if (meet(buffer, placed[i]))
            met[n_met++] = placed[i];
    qsort(met, (size_t)n_met, sizeof(void *), lower_first);
    return n_met;
}

/* The lowest free place for `room` bytes beside those. */
static size_t lowest_place(size_t room, const struct plan_buffer *const *met, int n_met)
{
    size_t place = 0;

    for (int i = 0; i < n_met; i++) {
        if (met[i]->offset >= place + room)
            break;
        if (met[i]->offset + room_of(met[i]) > place)
            place = met[i]->offset + room_of(met[i]);
    }
    return place;
}

/* The highest that ends at `limit` or before; false: there is none. */
static bool highest_place(size_t room, const struct plan_buffer *const *met, int n_met, size_t limit,
                          size_t *place)
{
    size_t free_from = 0;
    bool found = false;

    for (int i = 0; i <= n_met && free_from < limit; i++) {
        const size_t until = i < n_met && met[i]->offset < limit ? met[i]->offset : limit;

        if (until >= free_from && until - free_from >= room) {
            *place = until - room;
            found = true;
        }
        if (i < n_met && met[i]->offset + room_of(met[i]) > free_from)
            free_from = met[i]->offset + room_of(met[i]);
    }
    return found;
}

/* One way to place: in an order, and where each goes of the places that are free. */
struct way {
    int (*before)(const void *left, const void *right);
    bool among_gradients; /* the highest there, if there is one */
};

static const struct way ways[] = {
    { larger_first, false }, { earlier_first, false }, { larger_first, true }, { earlier_first, true }
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* What is being placed: those of fixed places stand first. */
struct placing {
    struct plan_buffer **order;
    const struct plan_buffer **met; /* room for as many */
    int n_fixed, n;
    size_t gradient_bytes;
};

/* Place all in this way; *arena receives the end of the highest. False when it does not fit size_t. */
static bool place_in(const struct placing *p, const struct way *way, size_t *arena)
{
    *arena = p->gradient_bytes;
    qsort(p->order + p->n_fixed, (size_t)(p->n - p->n_fixed), sizeof(void *), way->before);
    for (int i = p->n_fixed; i < p->n; i++) {
        struct plan_buffer *buffer = p->order[i];
        const int n_met = list_met(buffer, p->order, i, p->met);
        const size_t room = room_of(buffer);
        size_t end;

        if (!way->among_gradients || !highest_place(room, p->met, n_met, p->gradient_bytes, &buffer->offset))
            buffer->offset = lowest_place(room, p->met, n_met);
        if (!checked_add(buffer->offset, room, &end) || end > (size_t)1 << 62)
            return false;
        if (end > *arena)
            *arena = end;
    }
    return true;
}

/* In the way that gives the smallest arena, of equal ones the first. */
static bool place_best(const struct placing *p, size_t *arena)
{
    const int n_ways = p->n_fixed > 0 ? (int)N_WAYS : (int)N_WAYS / 2;
    int best = 0;

    for (int w = 0; w < n_ways; w++) {
        size_t end;

        if (!place_in(p, &ways[w], &end))
            return false;
        if (w == 0 || end < *arena) {
            best = w;
            *arena = end;
        }
    }
    return best + 1 == n_ways || place_in(p, &ways[best], arena);
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

/* Those that have a place of their own, the fixed ones first. */
static void list_places(struct plan *plan, struct placing *p)
{
    for (int fixed = 1; fixed >= 0; fixed--) {
        for (int b = 0; b < plan->n_buffers; b++)
            if (plan->buffers[b].storage == b && plan->buffers[b].last >= 0 &&
                plan->buffers[b].fixed == (fixed == 1))
                p->order[p->n++] = &plan->buffers[b];
        if (fixed == 1)
            p->n_fixed = p->n;
    }
}

enum fsdp_status plan_place_buffers(struct plan *plan, struct fsdp_err *err)
{
    struct placing p = { .order = alloc_array((size_t)plan->n_buffers, sizeof(void *)),
                         .met = alloc_array((size_t)plan->n_buffers, sizeof(void *)),
                         .gradient_bytes = plan->gradient_bytes };
    enum fsdp_status status = FSDP_OK;

    if (p.order == NULL || p.met == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
        goto done;
    }
    find_intervals(plan);
    list_places(plan, &p);
    if (!place_best(&p, &plan->arena_bytes)) {
        status =
            fsdp_fail(err, FSDP_ERR_NOMEM, "planning: the buffers of a step do not fit an address space");
        goto done;
    }
    for (int b = 0; b < plan->n_buffers; b++) {
        const struct plan_buffer *storage = &plan->buffers[plan->buffers[b].storage];

        plan->buffers[b].offset = storage->offset;
        plan->buffers[b].first = storage->first;
        plan->buffers[b].last = storage->last;
    }
    measure_classes(plan);
done:
    free(p.order);
    free(p.met);
    return status;
}
