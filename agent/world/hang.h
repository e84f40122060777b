/*
 * Every rank of a world stands still: which one holds the others up? Pure.
 */
#ifndef AGENT_HANG_H
#define AGENT_HANG_H

#include <stdbool.h>
#include <stdint.h>

/* What the progress page of a rank says. */
struct hang_rank {
    uint64_t n_collectives; /* begun so far */
    bool waits;             /* it is in one */
    int64_t still_since_ns;
};

/**
 * Is `a` to blame rather than `b`? One that is in fewer collectives has not come to where the other waits;
 * among equals, one that is not waiting in a collective; then the one that stood still first. False for
 * equals.
 */
bool hang_is_blamed_before(const struct hang_rank *a, const struct hang_rank *b);

#endif
