/*
 * What a rank's progress page says of a hang. Pure: the page is memory that the worker may change at any
 * time, and may have filled with anything.
 */
#ifndef AGENT_HANG_READ_H
#define AGENT_HANG_READ_H

#include "agent/record/hang_rank.h"

/**
 * Fills in what the page shows: pass, step, waits, layer, the collective and its peer, groups. The
 * other members stay as they are.
 *
 *   page  NULL, or one that the worker has not touched: the rank is starting
 */
void hang_rank_read(struct hang_rank *row, struct fsdp_progress *page);

/**
 * Returns a number that changes with each sign of life on the page. 0: the worker has not opened its link.
 */
uint64_t hang_signs(const struct fsdp_progress *page);

#endif
