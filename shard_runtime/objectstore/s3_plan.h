/*
 * Numbers of the protocol: how large the parts of an upload are, and how a request is tried again. Pure.
 */
#ifndef OBJECTSTORE_S3_PLAN_H
#define OBJECTSTORE_S3_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    S3_PARTS_MAX = 10000,     /* of an upload */
    S3_PART_BYTES = 16 << 20, /* S3 takes parts from 5 MiB on, except the last one */
};

/** How often a request is tried, and for how long each try may be silent. */
struct s3_patience {
    int tries;
    /* The pause before the second try is at most pause_ms. Each next one is twice that, up to the longest. */
    int64_t pause_ms, longest_pause_ms;
    /* within this time a connection must be made; and for no longer may no byte come or go */
    int64_t connect_ms, silent_ms;
};

/** About a minute and a half at most if nothing answers, and 7 s if every try fails at once. */
extern const struct s3_patience s3_patience_default;

/** Returns how large the parts of an object of `size_bytes` are: a multiple of 1 MiB; 0: it is too large. */
uint64_t s3_part_bytes(uint64_t size_bytes);

/**
 * Returns how long to wait before try number `try`, counted from 1. `random` spreads the ranks, which fail at
 * the same time: the pause is between half of what the patience says and all of it.
 */
int64_t s3_pause_ms(const struct s3_patience *patience, int try, uint32_t random);

/**
 * Returns whether a request may succeed if it is sent again after this HTTP status. Status 0 means that no
 * answer came.
 */
bool s3_is_passing(long http_status);

#endif
