/*
 * A set of CPUs, as many as Linux knows, and the way the kernel writes one: "0-3,8". Pure.
 */
#ifndef AGENT_CPU_MASK_H
#define AGENT_CPU_MASK_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CPU_MASK_CPUS = 8192, /* the most that a kernel can be built for */
    CPU_MASK_WORD_BITS = 8 * sizeof(unsigned long),
    CPU_MASK_TEXT_BYTES = 160,
};

struct cpu_mask {
    unsigned long words[CPU_MASK_CPUS / CPU_MASK_WORD_BITS]; /* the layout of sched_setaffinity() */
};

/** Numbers that are no CPU's are in no set, and adding one changes nothing. */
void cpu_mask_add(struct cpu_mask *mask, int cpu);
bool cpu_mask_has(const struct cpu_mask *mask, int cpu);
int cpu_mask_count(const struct cpu_mask *mask);
/** The lowest one above `cpu`; -1 when there is none. From -1 it is the first. */
int cpu_mask_next(const struct cpu_mask *mask, int cpu);
/** Leave what is in both. */
void cpu_mask_and(struct cpu_mask *mask, const struct cpu_mask *other);

/** Read "0-3,8\n"; the empty list is the empty set. False, and the empty set, for what is no list. */
bool cpu_mask_read(struct cpu_mask *mask, const char *list);

/** Write it the same way; cut with "..." where it is too long. Returns `out`. */
char *cpu_mask_text(const struct cpu_mask *mask, char out[CPU_MASK_TEXT_BYTES]);

#endif
