/*
 * A plan's layout as text: one line a parameter, with its unit, how it is cut, and the rows of rank 0 and of every rank. Pure.
 */
#ifndef SHARD_LAYOUT_TEXT_H
#define SHARD_LAYOUT_TEXT_H

#include "shard_runtime/plan/plan.h"

/** Of a plan whose groups are formed. To be freed; NULL: out of memory. */
char *layout_text(const struct plan *plan);

#endif
