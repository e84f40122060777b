/*
 * Which devices a list such as CUDA_VISIBLE_DEVICES leaves visible, and in which order. Pure. The rules are
 * those of torch.cuda in PyTorch 2.15 without a driver:
 *   1. The list is used up to its first entry that is no device. "-1" and the empty list hide all devices.
 *   2. The first entry decides the kind of the list: indices, or names ("GPU-...", "MIG-..."). An entry of
 *      another kind ends the list.
 *   3. A prefix of a name is enough if only one device has it.
 *   4. An index is read as by strtoul(): " 2", "+2" and "2nd" are all 2.
 *   5. A device that is named twice hides all devices.
 */
#ifndef AGENT_GPU_VISIBLE_H
#define AGENT_GPU_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

/** Is it a list of names? Of MIG devices? False for a NULL list. */
bool gpu_visible_names(const char *list);
bool gpu_visible_migs(const char *list);

/**
 * Pick the visible ones of `n` devices. Returns how many.
 *   variable  the name of the variable, for `why`
 *   list      its value; NULL: it is not set, and all devices are visible
 *   names     (n) names of the devices, used only for a list of names; NULL or "": the device has none
 *   picked    (room) receives their indices, in the order of the list
 *   why       receives the reason why none is left, or where the list ended early; else ""
 */
int gpu_visible_pick(const char *variable, const char *list, const char *const *names, int n, int *picked,
                     int room, char *why, size_t why_bytes);

#endif
