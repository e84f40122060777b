/* The first cause of deaths that are known all at once. */
#ifndef UNIT_AGENT_FIND_CAUSE_H
#define UNIT_AGENT_FIND_CAUSE_H

#include <stddef.h>

#include "agent/record/first_cause.h"

/* Returns its index, or -1 if none of them failed. */
static inline int find_cause(const struct death *deaths, size_t n)
{
    int cause = -1;

    for (size_t i = 0; i < n; i++)
        if (first_cause_is_better(&deaths[i], cause < 0 ? NULL : &deaths[cause]))
            cause = (int)i;
    return cause;
}

#endif
