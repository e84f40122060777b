#include "shard_runtime/device/cpu_name.h"

#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>

/* Intel's manual, volume 2A, CPUID: leaves 80000002H to 80000004H hold 16 bytes of the brand each. */
enum { BRAND_LEAF = 0x80000002u, BRAND_LEAVES = 3, LEAF_BYTES = 16 };

static void read_brand(char brand[BRAND_LEAVES * LEAF_BYTES + 1])
{
    memset(brand, 0, BRAND_LEAVES * LEAF_BYTES + 1);
    for (unsigned i = 0; i < BRAND_LEAVES; i++) {
        unsigned words[4];

        if (__get_cpuid(BRAND_LEAF + i, &words[0], &words[1], &words[2], &words[3]) == 0)
            return;
        memcpy(brand + (size_t)i * LEAF_BYTES, words, sizeof words);
    }
}

void cpu_name(char *buffer, size_t size)
{
    unsigned a = 0, b, c, d, family, model;
    char brand[BRAND_LEAVES * LEAF_BYTES + 1], *end;
    const char *begin = brand;

    read_brand(brand);
    while (*begin == ' ')
        begin++;
    end = brand + strlen(brand);
    while (end > begin && end[-1] == ' ')
        *--end = '\0';
    (void)__get_cpuid(1, &a, &b, &c, &d);
    family = a >> 8 & 0xf;
    model = a >> 4 & 0xf;
    if (family == 6 || family == 15)
        model += (a >> 16 & 0xf) << 4;
    if (family == 15)
        family += a >> 20 & 0xff;
    (void)snprintf(buffer, size, "%s%s(%u-%u-%u)", begin, begin == end ? "" : " ", family, model, a & 0xf);
}
#else
#include <sys/utsname.h>

void cpu_name(char *buffer, size_t size)
{
    struct utsname system;

    (void)snprintf(buffer, size, "%s", uname(&system) == 0 ? system.machine : "");
}
#endif
