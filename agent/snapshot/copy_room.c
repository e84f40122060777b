#include "agent/snapshot/copy_room.h"

#include "shard_runtime/core/memory_room.h"

bool copy_room_take(struct copy_room *room, struct copy_claim *claim, const struct copy_segment *segment,
                    const struct copy_offer *offer)
{
    const uint64_t own = copy_missing_bytes(segment, offer);
    uint64_t missing = own, free_bytes;
    bool fits;

    pthread_mutex_lock(&room->mutex);
    /*
     * The claims are counted before the free memory. So what another copy takes in between counts twice; in
     * the other order it would not count at all.
     */
    for (const struct copy_claim *other = room->claims; other != NULL; other = other->next)
        if (__builtin_add_overflow(missing, copy_missing_bytes(other->segment, other->offer), &missing))
            missing = UINT64_MAX;
    free_bytes = memory_room(room->root);
    fits = own == 0 || missing <= free_bytes - free_bytes / 8;
    if (fits) {
        *claim = (struct copy_claim){ room->claims, segment, offer };
        room->claims = claim;
    }
    pthread_mutex_unlock(&room->mutex);
    return fits;
}

void copy_room_give(struct copy_room *room, const struct copy_claim *claim)
{
    struct copy_claim **at = &room->claims;

    pthread_mutex_lock(&room->mutex);
    while (*at != claim)
        at = &(*at)->next;
    *at = claim->next;
    pthread_mutex_unlock(&room->mutex);
}
