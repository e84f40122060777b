#include "shard_runtime/shardfile/snapshot.h"

#include <string.h>

static uint32_t state_of(const struct fsdp_snapshot_slot *slot)
{
    return atomic_load_explicit(&slot->state, memory_order_acquire);
}

/* Sets the state. A process that reads this state also sees everything that was stored before it. */
static void set_state(struct fsdp_snapshot_slot *slot, enum fsdp_snapshot_state state)
{
    atomic_store_explicit(&slot->state, (uint32_t)state, memory_order_release);
    /* A process that sees a later store also sees this state. */
    atomic_thread_fence(memory_order_seq_cst);
}

uint64_t snapshot_segment_bytes(uint64_t slot_bytes)
{
    uint64_t bytes;

    if (__builtin_mul_overflow(slot_bytes, (uint64_t)FSDP_SNAPSHOT_SLOTS, &bytes) ||
        __builtin_add_overflow(bytes, (uint64_t)FSDP_SNAPSHOT_HEAD_BYTES, &bytes) || bytes > INT64_MAX)
        return 0;
    return bytes;
}

void snapshot_lay_out(struct fsdp_snapshot_head *head, const struct snapshot_owner *owner,
                      uint64_t slot_bytes)
{
    head->magic = 0; /* if this process is killed before the end of this function, the head is invalid */
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++) {
        struct fsdp_snapshot_slot *slot = &head->slots[i];

        set_state(slot, FSDP_SNAPSHOT_EMPTY);
        slot->number = 0;
        slot->step = -1;
        slot->checksum[0] = slot->checksum[1] = 0;
        atomic_store_explicit(&slot->copied, 0, memory_order_relaxed);
        slot->offset = FSDP_SNAPSHOT_HEAD_BYTES + (uint64_t)i * slot_bytes;
        slot->capacity = slot_bytes;
    }
    head->version = FSDP_SNAPSHOT_VERSION;
    head->rank = owner->rank;
    head->world_size = owner->world_size;
    head->layout_hash = owner->layout_hash;
    atomic_thread_fence(memory_order_seq_cst);
    head->magic = FSDP_SNAPSHOT_MAGIC;
}

static bool is_head(const struct fsdp_snapshot_head *head)
{
    return head->magic == FSDP_SNAPSHOT_MAGIC && head->version == FSDP_SNAPSHOT_VERSION;
}

/* Are the slot's bytes within the segment? */
static bool is_within(const struct fsdp_snapshot_slot *slot, uint64_t segment_bytes)
{
    return slot->offset >= FSDP_SNAPSHOT_HEAD_BYTES && slot->offset <= segment_bytes &&
           slot->capacity <= segment_bytes - slot->offset;
}

bool snapshot_fits(const struct fsdp_snapshot_head *head, const struct snapshot_owner *owner,
                   uint64_t slot_bytes, uint64_t segment_bytes)
{
    bool fits = is_head(head) && head->rank == owner->rank && head->world_size == owner->world_size &&
                head->layout_hash == owner->layout_hash;

    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        fits = fits && is_within(&head->slots[i], segment_bytes) && head->slots[i].capacity >= slot_bytes;
    return fits;
}

void snapshot_keep_only(struct fsdp_snapshot_head *head, struct snapshot_held kept)
{
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (kept.step < 0 || state_of(&head->slots[i]) != FSDP_SNAPSHOT_COMPLETE ||
            head->slots[i].step != kept.step || head->slots[i].generation != kept.generation)
            set_state(&head->slots[i], FSDP_SNAPSHOT_EMPTY);
}

int snapshot_choose(const struct fsdp_snapshot_head *head, int busy)
{
    int chosen = -1;
    bool chosen_counts = false;

    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++) {
        const bool counts = state_of(&head->slots[i]) == FSDP_SNAPSHOT_COMPLETE;

        if (i == busy)
            continue;
        if (chosen < 0 || (chosen_counts && !counts) ||
            (chosen_counts == counts && head->slots[i].number < head->slots[chosen].number)) {
            chosen = i;
            chosen_counts = counts;
        }
    }
    return chosen;
}

void snapshot_begin(struct fsdp_snapshot_head *head, int slot)
{
    set_state(&head->slots[slot], FSDP_SNAPSHOT_WRITING);
    atomic_store_explicit(&head->slots[slot].copied, 0, memory_order_relaxed);
}

uint64_t snapshot_complete(struct fsdp_snapshot_head *head, int slot, int64_t step, uint32_t generation,
                           const struct snapshot_parts *parts)
{
    uint64_t newest = 0;

    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (head->slots[i].number > newest)
            newest = head->slots[i].number;
    snapshot_settle(head, slot,
                    &(struct snapshot_filling){
                        .step = step, .number = newest + 1, .generation = generation, .parts = *parts });
    return newest + 1;
}

struct snapshot_filling snapshot_filling_of(const struct fsdp_snapshot_head *head, int slot)
{
    const struct fsdp_snapshot_slot *at = &head->slots[slot];

    return (struct snapshot_filling){
        .step = at->step,
        .number = at->number,
        .generation = at->generation,
        .parts = { at->size_bytes, at->elsewhere_bytes, at->manifest_bytes },
        .checksum = { at->checksum[0], at->checksum[1] },
    };
}

void snapshot_settle(struct fsdp_snapshot_head *head, int slot, const struct snapshot_filling *filling)
{
    struct fsdp_snapshot_slot *filled = &head->slots[slot];

    filled->number = filling->number;
    filled->step = filling->step;
    filled->generation = filling->generation;
    filled->size_bytes = filling->parts.size_bytes;
    filled->elsewhere_bytes = filling->parts.elsewhere_bytes;
    filled->manifest_bytes = filling->parts.manifest_bytes;
    filled->checksum[0] = filling->checksum[0];
    filled->checksum[1] = filling->checksum[1];
    set_state(filled, FSDP_SNAPSHOT_COMPLETE);
}

void snapshot_set_copying(struct fsdp_snapshot_head *head, bool copying)
{
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        atomic_store_explicit(&head->slots[i].copied, 0, memory_order_relaxed);
    atomic_store_explicit(&head->copying, copying, memory_order_release);
}

int snapshot_uncopied(const struct fsdp_snapshot_head *head)
{
    int next = -1;

    for (int i = 0; is_head(head) && i < FSDP_SNAPSHOT_SLOTS; i++) {
        const struct fsdp_snapshot_slot *slot = &head->slots[i];

        if (state_of(slot) == FSDP_SNAPSHOT_COMPLETE &&
            atomic_load_explicit(&slot->copied, memory_order_relaxed) != slot->number &&
            (next < 0 || slot->number < head->slots[next].number))
            next = i;
    }
    return next;
}

void snapshot_mark_copied(struct fsdp_snapshot_head *head, int slot, uint64_t number)
{
    atomic_store_explicit(&head->slots[slot].copied, number, memory_order_release);
}

bool snapshot_is_copied(const struct fsdp_snapshot_head *head)
{
    return atomic_load_explicit(&head->copying, memory_order_acquire) == 0 || snapshot_uncopied(head) < 0;
}

int snapshot_find(const struct fsdp_snapshot_head *head, int64_t step)
{
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (state_of(&head->slots[i]) == FSDP_SNAPSHOT_COMPLETE && head->slots[i].step == step)
            return i;
    return -1;
}

bool snapshot_is(const struct fsdp_snapshot_head *head, int slot, uint64_t number, uint64_t segment_bytes)
{
    const struct fsdp_snapshot_slot *at;
    uint64_t bytes;

    if (!is_head(head) || slot < 0 || slot >= FSDP_SNAPSHOT_SLOTS)
        return false;
    at = &head->slots[slot];
    return state_of(at) == FSDP_SNAPSHOT_COMPLETE && at->number == number && is_within(at, segment_bytes) &&
           !__builtin_add_overflow(at->size_bytes, at->elsewhere_bytes, &bytes) &&
           !__builtin_add_overflow(bytes, at->manifest_bytes, &bytes) && bytes <= at->capacity;
}

struct snapshot_list snapshot_list_empty(void)
{
    struct snapshot_list list;

    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        list.held[i] = (struct snapshot_held){ .step = -1 };
    return list;
}

static void add_held(struct snapshot_list *list, struct snapshot_held held)
{
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (held.step > list->held[i].step) {
            const struct snapshot_held moved = list->held[i];

            list->held[i] = held;
            held = moved;
        }
}

struct snapshot_list snapshot_list_of(const struct fsdp_snapshot_head *head, uint32_t rank,
                                      uint32_t world_size)
{
    struct snapshot_list list = snapshot_list_empty();

    if (!is_head(head) || head->rank != rank || head->world_size != world_size)
        return list;
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (state_of(&head->slots[i]) == FSDP_SNAPSHOT_COMPLETE && head->slots[i].step >= 0)
            add_held(&list, (struct snapshot_held){ head->slots[i].step, head->slots[i].generation });
    return list;
}

bool snapshot_list_has(const struct snapshot_list *list, struct snapshot_held held)
{
    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (held.step >= 0 && list->held[i].step == held.step && list->held[i].generation == held.generation)
            return true;
    return false;
}

struct snapshot_list snapshot_list_both(const struct snapshot_list *a, const struct snapshot_list *b)
{
    struct snapshot_list both = snapshot_list_empty();

    for (int i = 0; i < FSDP_SNAPSHOT_SLOTS; i++)
        if (snapshot_list_has(b, a->held[i]))
            add_held(&both, a->held[i]);
    return both;
}
