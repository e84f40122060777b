/*
 * The writing end of the flight recorder (<fsdp/link.h>): every collective is noted when it begins and when it ends,
 * in memory that the agent holds too. A note is a few stores; nothing is allocated and nothing can fail.
 */
#ifndef COMM_FLIGHT_H
#define COMM_FLIGHT_H

#include <fsdp/link.h>

struct flight_note {
    const char *group, *kind;
    const char *dtype, *op; /* NULL: it has none */
    uint64_t sequence, size_bytes;
    int root; /* -1: it has none */
};

/** Any thread. The entry is for flight_end(), and valid until 255 more have begun. */
struct fsdp_flight_entry *flight_begin(struct fsdp_progress *page, const struct flight_note *note,
                                       uint64_t now_ns);
void flight_end(struct fsdp_flight_entry *entry, uint64_t now_ns);

#endif
