/*
 * The writing end of the flight recorder (<fsdp/link.h>). Every collective is noted when it begins and when
 * it ends, on the progress page, which the agent maps too. A note is a few stores: nothing is allocated, and
 * nothing can fail.
 */
#ifndef COMM_FLIGHT_H
#define COMM_FLIGHT_H

#include <fsdp/link.h>

struct flight_note {
    const char *kind;
    const char *dtype, *op;        /* NULL: the collective has none */
    uint64_t sequence, size_bytes; /* as in struct comm_call */
    int root;                      /* -1: it has none */
    uint32_t group, place;         /* numbers on the progress page; 0: none */
};

/* The members of a group, for flight_add_group(). */
struct flight_group {
    const char *name;
    int size, first, stride; /* as in struct fsdp_progress_group */
};

/**
 * Adds a group to the progress page, before its first collective. Returns its number there, which is also the
 * number of the last entry if no other is free. Thread: one at a time.
 */
uint32_t flight_add_group(struct fsdp_progress *page, const struct flight_group *group);

/**
 * Adds the name of a layer or unit to the progress page, unless it is there. The front of a long name is cut
 * off. Returns its number there, for struct fsdp_progress_thread; 0: there is no room. Thread: one at a time.
 */
uint32_t flight_add_place(struct fsdp_progress *page, const char *name);

/**
 * Notes that a collective begins, at `now_ns` (CLOCK_MONOTONIC): in the recorder, and in its group's entry.
 * Strings are copied, cut to fit. Returns the recorder's entry, for flight_end(). It is valid until 255 more
 * collectives have begun. Thread: any.
 */
struct fsdp_flight_entry *flight_begin(struct fsdp_progress *page, const struct flight_note *note,
                                       uint64_t now_ns);
/** Notes that the collective of `entry` has ended, there and in its group's entry. Thread: any. */
void flight_end(struct fsdp_progress *page, struct fsdp_flight_entry *entry, uint64_t now_ns);

/** Adds time to what the computing thread has spent on `what`. Thread: the one that computes. */
void flight_spend(struct fsdp_progress *page, enum fsdp_spent what, uint64_t ns);
/** Keeps what was spent up to the end of `step`, for the agent. Thread: the one that computes. */
void flight_end_step(struct fsdp_progress *page, uint64_t step, uint64_t now_ns);

#endif
