/*
 * Memory for copies that come at the same time. Each looks at the same free memory, and takes it only while
 * its bytes come. So a copy is promised its memory before, and what the others were promised and have not
 * taken yet is not free.
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

/** The copy is there, or comes no more. */
void copy_room_give(struct copy_room *room, const struct copy_claim *claim);

#endif
