#include "agent/os/cpu_mask.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_WORDS = CPU_MASK_CPUS / CPU_MASK_WORD_BITS };

void cpu_mask_add(struct cpu_mask *mask, int cpu)
{
    if (cpu >= 0 && cpu < CPU_MASK_CPUS)
        mask->words[cpu / CPU_MASK_WORD_BITS] |= 1UL << cpu % CPU_MASK_WORD_BITS;
}

bool cpu_mask_has(const struct cpu_mask *mask, int cpu)
{
    return cpu >= 0 && cpu < CPU_MASK_CPUS &&
           (mask->words[cpu / CPU_MASK_WORD_BITS] >> cpu % CPU_MASK_WORD_BITS & 1) != 0;
}

int cpu_mask_count(const struct cpu_mask *mask)
{
    int count = 0;

    for (int i = 0; i < N_WORDS; i++)
        count += __builtin_popcountl(mask->words[i]);
    return count;
}

int cpu_mask_next(const struct cpu_mask *mask, int cpu)
{
    for (cpu++; cpu < CPU_MASK_CPUS; cpu++) {
        unsigned long rest = mask->words[cpu / CPU_MASK_WORD_BITS] >> cpu % CPU_MASK_WORD_BITS;

        if (rest != 0)
            return cpu + __builtin_ctzl(rest);
        cpu |= CPU_MASK_WORD_BITS - 1; /* skip to the last CPU of this word */
    }
    return -1;
}

/*
 * Reads the number at *text and advances *text past it. Returns -1 if there is no number, or it is too large
 * for a CPU.
 */
static int take_cpu(const char **text)
{
    char *end;
    long value;

    if (!isdigit((unsigned char)**text))
        return -1;
    value = strtol(*text, &end, 10);
    *text = end;
    return value < CPU_MASK_CPUS ? (int)value : -1;
}

bool cpu_mask_read(struct cpu_mask *mask, const char *list)
{
    const char *at = list;

    memset(mask, 0, sizeof *mask);
    if (at[strspn(at, " \n")] == '\0')
        return true;
    for (;;) {
        int first = take_cpu(&at), last = first;

        if (*at == '-') {
            at++;
            last = take_cpu(&at);
        }
        if (first < 0 || last < first)
            break;
        for (int cpu = first; cpu <= last; cpu++)
            cpu_mask_add(mask, cpu);
        if (*at == ',') {
            at++;
            continue;
        }
        if (at[strspn(at, " \n")] == '\0')
            return true;
        break;
    }
    memset(mask, 0, sizeof *mask);
    return false;
}

char *cpu_mask_text(const struct cpu_mask *mask, char out[CPU_MASK_TEXT_BYTES])
{
    size_t used = 0;

    out[0] = '\0';
    for (int first = cpu_mask_next(mask, -1); first >= 0;) {
        char piece[40];
        int last = first, n;

        while (cpu_mask_has(mask, last + 1))
            last++;
        n = last == first ? snprintf(piece, sizeof piece, "%s%d", used > 0 ? "," : "", first)
                          : snprintf(piece, sizeof piece, "%s%d-%d", used > 0 ? "," : "", first, last);
        if (used + (size_t)n + sizeof "..." > CPU_MASK_TEXT_BYTES) {
            memcpy(out + used, "...", sizeof "...");
            break;
        }
        memcpy(out + used, piece, (size_t)n + 1);
        used += (size_t)n;
        first = cpu_mask_next(mask, last);
    }
    return out;
}
