#include "agent/world/hang.h"

bool hang_is_blamed_before(const struct hang_rank *a, const struct hang_rank *b)
{
    if (a->n_collectives != b->n_collectives)
        return a->n_collectives < b->n_collectives;
    if (a->waits != b->waits)
        return b->waits;
    return a->still_since_ns < b->still_since_ns;
}
