#include "agent/watch/hang_read.h"

#include <stdio.h>
#include <string.h>

#include "agent/watch/flight.h"

static uint32_t read32(const _Atomic uint32_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static uint64_t read64(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* Copies a text of the page to `out` (size bytes), cut to fit. What a terminal would act on becomes "?". */
static void copy_plain(char *out, size_t size, const char *words)
{
    snprintf(out, size, "%s", words);
    for (char *at = out; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7e)
            *at = '?';
}

/* Adds the page's group with that number. Returns its place in row->groups. */
static int add_group(struct hang_rank *row, const struct fsdp_progress *page, uint32_t number)
{
    const struct fsdp_progress_group *from = &page->groups[number - 1];
    struct hang_group *group = &row->groups[row->n_groups];
    char name[FLIGHT_NAME_BYTES];

    *group = (struct hang_group){ .size = (int)atomic_load_explicit(&from->size, memory_order_acquire),
                                  .begun = read64(&from->begun),
                                  .ended = read64(&from->ended) };
    if (group->size > 0) {
        group->first = from->first;
        group->stride = from->stride;
        copy_plain(group->name, sizeof group->name, flight_group_name(page, number, name));
    }
    return row->n_groups++;
}

/*
 * Returns the recorder's entry for the group's newest collective; if `open`, for the oldest one that has not
 * ended.
 */
static const struct fsdp_flight_entry *find_entry(struct fsdp_progress *page, uint32_t group, bool open)
{
    const uint64_t n = read64(&page->n_collectives);
    const struct fsdp_flight_entry *found = NULL;

    for (uint64_t i = 0; i < FSDP_FLIGHT_ENTRIES && i < n; i++) {
        const struct fsdp_flight_entry *entry = &fsdp_flight(page)[(n - i) % FSDP_FLIGHT_ENTRIES];

        if (read64(&entry->number) != n - i || (group != 0 && read32(&entry->group) != group) ||
            (open && read64(&entry->ended_ns) != 0))
            continue;
        found = entry;
        if (!open)
            break;
    }
    return found;
}

/*
 * Fills in that the rank is in the collective of `entry` (NULL: not known) of the page's group number
 * `number`.
 */
static void read_collective(struct hang_rank *row, struct fsdp_progress *page, uint32_t number,
                            const struct fsdp_flight_entry *entry)
{
    char kind[sizeof entry->kind + 1];

    row->group = add_group(row, page, number);
    row->sequence = row->groups[row->group].begun;
    if (entry == NULL)
        return;
    row->size_bytes = entry->size_bytes;
    memcpy(kind, entry->kind, sizeof entry->kind);
    kind[sizeof entry->kind] = '\0';
    copy_plain(row->kind, sizeof row->kind, kind);
}

/*
 * If the GPU has collectives that are not known to be done, fills in that the rank is in the oldest of them.
 */
static void read_queued(struct hang_rank *row, struct fsdp_progress *page)
{
    const struct fsdp_flight_entry *entry = find_entry(page, 0, true);
    const uint32_t number = entry != NULL ? read32(&entry->group) : 0;

    if (number < 1 || number > FSDP_GROUPS || read32(&page->groups[number - 1].size) == 0)
        return;
    read_collective(row, page, number, entry);
    row->sequence = entry->sequence;
    row->queued = true;
}

static void read_peer(struct hang_rank *row, const struct fsdp_progress_thread *thread)
{
    const struct hang_group *group = &row->groups[row->group];
    const int peer = (int)atomic_load_explicit(&thread->peer, memory_order_relaxed);
    const int64_t rank = group->first + (int64_t)peer * group->stride;

    if (group->stride <= 0 || peer < 0 || peer >= group->size || rank < 0 || rank > INT32_MAX)
        return;
    row->peer = (int)rank;
    row->n_missing = (int)(read32(&thread->n_missing) & INT32_MAX);
}

void hang_rank_read(struct hang_rank *row, struct fsdp_progress *page)
{
    const struct fsdp_progress_thread *thread;
    char layer[FLIGHT_NAME_BYTES];
    uint32_t number, phase;
    uint64_t step;

    row->pass = FSDP_PHASE_START;
    row->step = row->group = row->peer = -1;
    row->n_groups = row->n_missing = 0;
    if (page == NULL || read64(&page->beat_ns) == 0)
        return;
    phase = read32(&page->phase);
    row->pass = read32(&page->pass) <= FSDP_PHASE_OPEN ? (int)read32(&page->pass) : FSDP_PHASE_START;
    row->waits = phase == FSDP_PHASE_WAIT;
    thread = &page->threads[0];
    if (read32(&thread->group) == FSDP_WAITS_FOR_OTHER_THREAD)
        thread = &page->threads[1];
    number = read32(&thread->group);
    if (number >= 1 && number <= FSDP_GROUPS) {
        read_collective(row, page, number, find_entry(page, number, false));
        read_peer(row, thread);
    } else if (read32(&page->threads[1].group) == 0) {
        number = 0;
        read_queued(row, page);
    }
    for (uint32_t other = 1; other <= FSDP_GROUPS && row->n_groups < FSDP_GROUPS; other++)
        if ((row->group < 0 || strcmp(row->groups[0].name, page->groups[other - 1].name) != 0) &&
            read32(&page->groups[other - 1].size) > 0)
            add_group(row, page, other);
    copy_plain(row->layer, sizeof row->layer, flight_place_name(page, read32(&thread->place), layer));
    step = read64(&page->step);
    if (step > 0 ||
        (row->pass != FSDP_PHASE_START && row->pass != FSDP_PHASE_OPEN && row->pass != FSDP_PHASE_LOAD))
        row->step = (int64_t)(step & INT64_MAX);
}

uint64_t hang_signs(const struct fsdp_progress *page)
{
    const uint64_t beat = page != NULL ? read64(&page->beat_ns) : 0;

    return beat == 0 ? 0 : beat + read64(&page->threads[0].moved) + read64(&page->threads[1].moved);
}
