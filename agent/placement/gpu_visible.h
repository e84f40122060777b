/*
 * Which devices a list like CUDA_VISIBLE_DEVICES leaves, and in which order. Pure.
 *
 *   the list is taken up to its first entry that is no device; "-1" and the empty list hide all
 *   the first entry says what the list is of: indices, or names ("GPU-...", "MIG-...") of which a part that no other
 *   device begins with is enough; an entry of another kind ends it
 *   an index is read as strtoul() would: " 2", "+2" and "2nd" are all 2
 *   the same device twice hides all
 *
 * As PyTorch 2.15 reads it (its torch.cuda module) without a driver at hand.
 */
#ifndef AGENT_GPU_VISIBLE_H
#define AGENT_GPU_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

/** Is the list one of names, of MIG devices? A NULL list is neither. */
bool gpu_visible_names(const char *list);
bool gpu_visible_migs(const char *list);

/**
 * Pick from `n` devices.
 *   variable  what the list stands in, for the words
 *   list      NULL: it is not set, all are visible
 *   names     names[i] of device i; read only for a list of names; NULL or "": it has none
 *   picked    (room) their indices, in the order of the list
 *   why       why none is left, or where the list was cut; "" otherwise
 * Returns how many.
 */
int gpu_visible_pick(const char *variable, const char *list, const char *const *names, int n, int *picked,
                     int room, char *why, size_t why_bytes);

#endif
