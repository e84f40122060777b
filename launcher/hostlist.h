/*
 * Reads Slurm's lists of hosts: "n[03-05,7],m1" stands for n03, n04, n05, n7 and m1. A name may have brackets
 * at any place, and several: "r[1-2]n[5,7]" stands for r1n5, r1n7, r2n5 and r2n7. Pure.
 */
#ifndef LAUNCHER_HOSTLIST_H
#define LAUNCHER_HOSTLIST_H

#include <stdbool.h>

enum { HOSTLIST_NAME_BYTES = 256, HOSTLIST_MOST = 65536 };

/** Returns the number of hosts in a list; 0: it is malformed, or names more than HOSTLIST_MOST. */
int hostlist_count(const char *list);

/**
 * Writes the name of host number `index`, counted from 0. Returns false and writes an empty name in three
 * cases: the list is malformed, it has no such host, or the name is too long.
 */
bool hostlist_name(const char *list, int index, char out[HOSTLIST_NAME_BYTES]);

#endif
