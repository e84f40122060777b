#include "agent/os/deadlines.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 20];

static void read_manual(const char *path)
{
    FILE *file = fopen(path, "r");

    cr_assert_not_null(file, "%s", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
}

static bool has(const char *format, int seconds)
{
    char words[128];

    snprintf(words, sizeof words, format, seconds);
    return strstr(text, words) != NULL;
}

/* Who supervises fsdprun (systemd) has to wait at least as long as its guard does. */
Test(deadlines, the_manuals_name_the_time_after_the_grace)
{
    const int seconds = (GUARD_SLACK_MS + 2 * LEASE_END_MS(LEASE_MS) + 999) / 1000;

    read_manual("docs/operations.md");
    cr_expect(has("Their sum is %d seconds", seconds), "operations.md: %d", seconds);
    cr_expect(has("make `TimeoutStopSec` %d seconds longer than", seconds), "operations.md: %d", seconds);
    read_manual("docs/man/fsdp-agent.8");
    cr_expect(has(".B TimeoutStopSec\n%d seconds longer than", seconds), "fsdp-agent.8: %d", seconds);
}
