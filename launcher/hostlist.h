/*
 * Slurm's lists of hosts: "n[03-05,7],m1" stands for n03, n04, n05, n7 and m1. Brackets may stand anywhere in
 * a name, and more than once: "r[1-2]n[5,7]" is r1n5, r1n7, r2n5 and r2n7. Pure.
 */
#ifndef LAUNCHER_HOSTLIST_H
#define LAUNCHER_HOSTLIST_H

#include <stdbool.h>

enum { HOSTLIST_NAME_BYTES = 256, HOSTLIST_MOST = 65536 };

/** Return the number of hosts of a list; 0: it is malformed, or names more than HOSTLIST_MOST. */
int hostlist_count(const char *list);

/**
 * Write the name of the host with this index; the first one has 0. Returns false, and an empty name, if the
 * list is malformed, has no such host, or if the name is too long.
 */
bool hostlist_name(const char *list, int index, char out[HOSTLIST_NAME_BYTES]);

#endif
