/*
 * A set of CPUs, as large as Linux allows, and the kernel's notation for it: "0-3,8". Pure.
 */
#ifndef AGENT_CPU_MASK_H
#define AGENT_CPU_MASK_H

#include <stdbool.h>

enum {
    CPU_MASK_CPUS = 8192, /* the largest CONFIG_NR_CPUS */
    CPU_MASK_WORD_BITS = 8 * sizeof(unsigned long),
    CPU_MASK_TEXT_BYTES = 160,
};

struct cpu_mask {
    unsigned long words[CPU_MASK_CPUS / CPU_MASK_WORD_BITS]; /* laid out as for sched_setaffinity() */
};

/**
 * Two functions: add a CPU to the set, and ask whether it is in the set. A number that no CPU can have is in
 * no set; adding it changes nothing.
 */
void cpu_mask_add(struct cpu_mask *mask, int cpu);
bool cpu_mask_has(const struct cpu_mask *mask, int cpu);
int cpu_mask_count(const struct cpu_mask *mask);
/** The lowest CPU of the set above `cpu`, or -1. With -1 as `cpu` it is the first one. */
int cpu_mask_next(const struct cpu_mask *mask, int cpu);

/**
 * Read a list such as "0-3,8\n". The empty list is the empty set. False, with the empty set: it is no list.
 */
bool cpu_mask_read(struct cpu_mask *mask, const char *list);

/** Write the set as such a list. A list that is too long ends with "...". Returns `out`. */
char *cpu_mask_text(const struct cpu_mask *mask, char out[CPU_MASK_TEXT_BYTES]);

#endif
