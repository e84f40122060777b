#include "shard_runtime/comm/flight.h"

#include <string.h>

/* Cut to fit and padded with zeros, the last byte included. */
static void copy_words(char *out, size_t size, const char *words)
{
    size_t n = words == NULL ? 0 : strnlen(words, size - 1);

    if (n > 0)
        memcpy(out, words, n);
    memset(out + n, 0, size - n);
}

struct fsdp_flight_entry *flight_begin(struct fsdp_progress *page, const struct flight_note *note,
                                       uint64_t now_ns)
{
    const uint64_t number = atomic_fetch_add_explicit(&page->n_collectives, 1, memory_order_relaxed) + 1;
    struct fsdp_flight_entry *entry = &fsdp_flight(page)[number % FSDP_FLIGHT_ENTRIES];

    atomic_store_explicit(&entry->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* no reader takes what follows for the older entry */
    entry->sequence = note->sequence;
    entry->begun_ns = now_ns;
    atomic_store_explicit(&entry->ended_ns, 0, memory_order_relaxed);
    entry->size_bytes = note->size_bytes;
    entry->root = note->root;
    copy_words(entry->kind, sizeof entry->kind, note->kind);
    copy_words(entry->dtype, sizeof entry->dtype, note->dtype);
    copy_words(entry->op, sizeof entry->op, note->op);
    copy_words(entry->group, sizeof entry->group, note->group);
    atomic_store_explicit(&entry->number, number, memory_order_release);
    return entry;
}

void flight_end(struct fsdp_flight_entry *entry, uint64_t now_ns)
{
    atomic_store_explicit(&entry->ended_ns, now_ns, memory_order_release);
}
