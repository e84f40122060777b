#include "shard_runtime/comm/flight.h"

#include <string.h>

/* Copies `words`, cut to fit and padded with zeros; the last byte is always zero. NULL is all zeros. */
static void copy_words(char *out, size_t size, const char *words)
{
    size_t n = words == NULL ? 0 : strnlen(words, size - 1);

    if (n > 0)
        memcpy(out, words, n);
    memset(out + n, 0, size - n);
}

uint32_t flight_add_group(struct fsdp_progress *page, const struct flight_group *group)
{
    uint32_t n = 0;

    while (n < FSDP_GROUPS - 1 && atomic_load_explicit(&page->groups[n].size, memory_order_relaxed) != 0)
        n++;
    if (n == FSDP_GROUPS - 1)
        return FSDP_GROUPS;
    copy_words(page->groups[n].name, sizeof page->groups[n].name, group->name);
    page->groups[n].first = group->first;
    page->groups[n].stride = group->stride;
    atomic_store_explicit(&page->groups[n].size, (uint32_t)group->size, memory_order_release);
    return n + 1;
}

uint32_t flight_add_place(struct fsdp_progress *page, const char *name)
{
    const uint32_t n = atomic_load_explicit(&page->n_places, memory_order_relaxed);
    const size_t length = strlen(name);
    char *const places = fsdp_places(page);

    if (length >= FSDP_PLACE_BYTES)
        name += length - (FSDP_PLACE_BYTES - 1);
    for (uint32_t i = 0; i < n && i < FSDP_PLACES; i++)
        if (strcmp(places + (size_t)i * FSDP_PLACE_BYTES, name) == 0)
            return i + 1;
    if (n >= FSDP_PLACES)
        return 0;
    copy_words(places + (size_t)n * FSDP_PLACE_BYTES, FSDP_PLACE_BYTES, name);
    atomic_store_explicit(&page->n_places, n + 1, memory_order_release);
    return n + 1;
}

/* Returns the group's entry on the page; NULL: `number` stands for no group. */
static struct fsdp_progress_group *group_of(struct fsdp_progress *page, uint32_t number)
{
    return number >= 1 && number <= FSDP_GROUPS ? &page->groups[number - 1] : NULL;
}

struct fsdp_flight_entry *flight_begin(struct fsdp_progress *page, const struct flight_note *note,
                                       uint64_t now_ns)
{
    const uint64_t number = atomic_fetch_add_explicit(&page->n_collectives, 1, memory_order_relaxed) + 1;
    struct fsdp_flight_entry *entry = &fsdp_flight(page)[number % FSDP_FLIGHT_ENTRIES];
    struct fsdp_progress_group *group = group_of(page, note->group);

    atomic_store_explicit(&entry->number, 0, memory_order_relaxed);
    atomic_thread_fence(
        /*
         * The number 0 becomes visible first, so a reader never takes the new fields for those of the older
         * entry.
         */
        memory_order_release);
    entry->sequence = note->sequence;
    entry->begun_ns = now_ns;
    atomic_store_explicit(&entry->ended_ns, 0, memory_order_relaxed);
    entry->size_bytes = note->size_bytes;
    entry->root = note->root;
    copy_words(entry->kind, sizeof entry->kind, note->kind);
    copy_words(entry->dtype, sizeof entry->dtype, note->dtype);
    copy_words(entry->op, sizeof entry->op, note->op);
    atomic_store_explicit(&entry->group, note->group, memory_order_relaxed);
    atomic_store_explicit(&entry->place, note->place, memory_order_relaxed);
    atomic_store_explicit(&entry->number, number, memory_order_release);
    if (group != NULL)
        atomic_store_explicit(&group->begun, note->sequence, memory_order_relaxed);
    return entry;
}

void flight_end(struct fsdp_progress *page, struct fsdp_flight_entry *entry, uint64_t now_ns)
{
    struct fsdp_progress_group *group =
        group_of(page, atomic_load_explicit(&entry->group, memory_order_relaxed));

    atomic_store_explicit(&entry->ended_ns, now_ns, memory_order_release);
    if (group != NULL && atomic_load_explicit(&group->ended, memory_order_relaxed) < entry->sequence)
        atomic_store_explicit(&group->ended, entry->sequence, memory_order_relaxed);
}

void flight_spend(struct fsdp_progress *page, enum fsdp_spent what, uint64_t ns)
{
    const uint64_t spent_ns = atomic_load_explicit(&page->spent_ns[what], memory_order_relaxed);

    atomic_store_explicit(&page->spent_ns[what], spent_ns + ns, memory_order_relaxed);
}

void flight_end_step(struct fsdp_progress *page, uint64_t step, uint64_t now_ns)
{
    struct fsdp_progress_step *at = &page->step_spent[step & 1];

    atomic_store_explicit(&at->step, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* 0 is seen before the new times */
    atomic_store_explicit(&at->at_ns, now_ns, memory_order_relaxed);
    for (int i = 0; i < FSDP_SPENT_N; i++)
        atomic_store_explicit(&at->spent_ns[i],
                              atomic_load_explicit(&page->spent_ns[i], memory_order_relaxed),
                              memory_order_relaxed);
    atomic_store_explicit(&at->step, step, memory_order_release);
}
