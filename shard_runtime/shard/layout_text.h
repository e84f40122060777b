/*
 * A plan's layout as text. Each parameter has one line: its unit, how it is cut, and the rows of rank 0 and
 * of every other rank. Pure.
 */
#ifndef SHARD_LAYOUT_TEXT_H
#define SHARD_LAYOUT_TEXT_H

#include "shard_runtime/plan/plan.h"

/** Returns the text for a plan whose groups are formed. The caller frees it; NULL: out of memory. */
char *layout_text(const struct plan *plan);

#endif
