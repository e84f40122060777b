/*
 * Memory for copies of snapshots that arrive at the same time. All look at the same free memory, and a copy
 * takes its memory only while its bytes arrive. So each copy is promised its memory before. Memory that was
 * promised to the others, and that they have not taken yet, does not count as free.
 *
 * Thread: any.
 */
#ifndef AGENT_COPY_ROOM_H
#define AGENT_COPY_ROOM_H

#include <pthread.h>

#include "agent/snapshot/copy_image.h"

/* A copy that is coming. The caller's, until copy_room_give(). */
struct copy_claim {
    struct copy_claim *next;
    const struct copy_segment *segment;
    const struct copy_offer *offer;
};

struct copy_room {
    const char *root; /* as memory_room() wants it */
    pthread_mutex_t mutex;
    struct copy_claim *claims;
};

/**
 * Promises the memory that receiving `offer` into `segment` takes. Returns false, and promises nothing, if it
 * is not there: an eighth of the free memory is left for others, as a worker leaves it (state/saver.c). Both
 * are borrowed until copy_room_give().
 */
bool copy_room_take(struct copy_room *room, struct copy_claim *claim, const struct copy_segment *segment,
                    const struct copy_offer *offer);

/** Ends the claim: the copy has arrived, or will not arrive. */
void copy_room_give(struct copy_room *room, const struct copy_claim *claim);

#endif
