/*
 * Gives each buffer its place in the arena. A buffer lives for an interval of entries. Two buffers whose
 * intervals meet may not overlap in bytes.
 *
 * The largest buffer is placed first, each at the lowest place that is free over its whole interval. See
 * section 5.2 of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020. The
 * same is tried with the earliest buffer first. The smaller arena wins.
 *
 * If the arena begins with gradient shards, both orders are tried in a second way. Then a buffer goes to the
 * highest free place among the shards. Shards come to life in the reverse order of the groups, so the highest
 * ones are written soonest. This leaves the lower ones to buffers that live longer.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/plan/plan.h"

/* For every storage, find the first and the last entry that uses a buffer in it. */
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

/* A buffer that has its place: the bytes from `offset` up to `end`, in use from entry `first` to `last`. */
struct placed {
    size_t offset, end;
    int first, last;
};

/* Are the placed buffer and `buffer` both in use at some entry? */
static bool meets(const struct placed *placed, const struct plan_buffer *buffer)
{
    return placed->first <= buffer->last && buffer->first <= placed->last;
}

/*
 * The lowest free place for `room` bytes over the life of `buffer`. `placed` has n items, ordered by offset.
 */
static size_t lowest_place(const struct plan_buffer *buffer, size_t room, const struct placed *placed, int n)
{
    size_t place = 0;

    for (int i = 0; i < n && placed[i].offset < place + room; i++)
        if (placed[i].end > place && meets(&placed[i], buffer))
            place = placed[i].end;
    return place;
}

/* Set *place to the highest free place that ends at `limit` or before. False: there is none. */
static bool highest_place(const struct plan_buffer *buffer, size_t room, const struct placed *placed, int n,
                          size_t limit, size_t *place)
{
    size_t free_from = 0;
    bool found = false;

    for (int i = 0; i <= n && free_from < limit; i++) {
        const size_t until = i < n && placed[i].offset < limit ? placed[i].offset : limit;

        if (i < n && !meets(&placed[i], buffer))
            continue;
        if (until >= free_from && until - free_from >= room) {
            *place = until - room;
            found = true;
        }
        if (i < n && placed[i].end > free_from)
            free_from = placed[i].end;
    }
    return found;
}

/* Add the buffer to the n items of `placed`, which stay ordered by offset. */
static void add_placed(struct placed *placed, int n, const struct plan_buffer *buffer)
{
    int low = 0, high = n;

    while (low < high) {
        const int middle = low + (high - low) / 2;

        if (placed[middle].offset <= buffer->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&placed[low + 1], &placed[low], (size_t)(n - low) * sizeof *placed);
    placed[low] = (struct placed){ .offset = buffer->offset,
                                   .end = buffer->offset + plan_align(buffer->size_bytes),
                                   .first = buffer->first,
                                   .last = buffer->last };
}

/* One way to place: the order of buffers, and which of its free places each one takes. */
struct way {
    int (*before)(const void *left, const void *right);
    bool among_gradients; /* prefers the highest free place among the gradient shards */
};

static const struct way ways[] = {
    { larger_first, false }, { earlier_first, false }, { larger_first, true }, { earlier_first, true }
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* The buffers to place. Those whose places are fixed come first. */
struct placing {
    struct plan_buffer **order;
    struct placed *placed; /* room for the same number */
    int n_fixed, n;
    size_t gradient_bytes;
};

/* Place all buffers in this way. *arena receives the end of the highest. False: it does not fit size_t. */
static bool place_in(const struct placing *p, const struct way *way, size_t *arena)
{
    *arena = p->gradient_bytes;
    qsort(p->order + p->n_fixed, (size_t)(p->n - p->n_fixed), sizeof(void *), way->before);
    for (int i = 0; i < p->n_fixed; i++)
        add_placed(p->placed, i, p->order[i]);
    for (int i = p->n_fixed; i < p->n; i++) {
        struct plan_buffer *buffer = p->order[i];
        const size_t room = plan_align(buffer->size_bytes);
        size_t end;

        if (!way->among_gradients ||
            !highest_place(buffer, room, p->placed, i, p->gradient_bytes, &buffer->offset))
            buffer->offset = lowest_place(buffer, room, p->placed, i);
        if (!checked_add(buffer->offset, room, &end) || end > (size_t)1 << 62)
            return false;
        add_placed(p->placed, i, buffer);
        if (end > *arena)
            *arena = end;
    }
    return true;
}

/* Places all buffers in the way that gives the smallest arena; among equal ones, in the first such way. */
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

/*
 * Find the most bytes that each class holds at any one entry. `change` is room for n_entries numbers: by how
 * much the class grows or, modulo 2^64, shrinks at the entry.
 */
static void measure_classes(struct plan *plan, size_t *change)
{
    for (int c = 0; c < PLAN_N_CLASSES; c++) {
        size_t live = 0;

        memset(change, 0, (size_t)plan->n_entries * sizeof *change);
        for (int b = 0; b < plan->n_buffers; b++) {
            const struct plan_buffer *buffer = &plan->buffers[b];

            if ((int)buffer->class != c || buffer->storage != b || buffer->last < buffer->first)
                continue;
            if (buffer->first < plan->n_entries)
                change[buffer->first] += plan_align(buffer->size_bytes);
            if (buffer->last + 1 < plan->n_entries)
                change[buffer->last + 1] -= plan_align(buffer->size_bytes);
        }
        for (int entry = 0; entry < plan->n_entries; entry++) {
            live += change[entry];
            if (live > plan->class_bytes[c])
                plan->class_bytes[c] = live;
        }
    }
}

/* List the buffers that have a place of their own, the fixed ones first. */
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
                         .placed = alloc_array((size_t)plan->n_buffers, sizeof *p.placed),
                         .gradient_bytes = plan->gradient_bytes };
    size_t *change = alloc_array((size_t)plan->n_entries, sizeof *change);
    enum fsdp_status status = FSDP_OK;

    if (p.order == NULL || p.placed == NULL || change == NULL) {
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
    measure_classes(plan, change);
done:
    free(p.order);
    free(p.placed);
    free(change);
    return status;
}
