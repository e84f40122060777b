/* Memory that the code under test must not look at: whoever does is killed by a signal. */
#ifndef UNIT_AGENT_FORBID_H
#define UNIT_AGENT_FORBID_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Forbid, or allow again, the whole pages between these two addresses. */
static inline void forbid(const void *from, const void *to, bool forbidden)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)from + page - 1) & ~(page - 1), last = (uintptr_t)to & ~(page - 1);

    if (first < last)
        cr_assert(mprotect((void *)first, last - first, forbidden ? PROT_NONE : PROT_READ | PROT_WRITE) == 0);
}

#endif
