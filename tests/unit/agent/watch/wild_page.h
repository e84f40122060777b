/* A progress page with arbitrary contents, as a broken worker may leave it. */
#ifndef UNIT_AGENT_WILD_PAGE_H
#define UNIT_AGENT_WILD_PAGE_H

#include <fsdp/link.h>

/** Fills the page with the next bytes that follow from *state. */
static inline void wild_page_fill(struct fsdp_progress *page, uint64_t *state)
{
    unsigned char *bytes = (unsigned char *)page;

    for (size_t i = 0; i < FSDP_PROGRESS_BYTES; i++) {
        *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
        bytes[i] = (unsigned char)*state;
    }
}

#endif
