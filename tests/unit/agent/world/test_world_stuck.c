#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/world/world_impl.h"

/* What PyTorch 2.15 makes of the variable (_resolve_uninterruptible_state_timeout). */
Test(world_stuck, the_limit_is_read_as_by_pytorch)
{
    static const struct {
        const char *text;
        int64_t limit_ns;
    } cases[] = {
        { "=1", 1000000000 },
        { "=0.5", 500000000 },
        { "= 2.5 ", 2500000000 },
        { "=1e1", 10000000000 },
        { "=0", 0 },
        { "=-3", 0 },
        { "=", 0 },
        { "=soon", 0 },
        { "=5s", 0 },
        { "=nan", 0 },
        { "=inf", 0 },
        { "=-inf", 0 },
        { "_AND_MORE=1", 0 },
    };
    char variable[256], *environment[] = { variable, NULL };

    environ = environment;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(variable, sizeof variable, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT%s", cases[i].text);
        cr_expect(eq(i64, world_stuck_limit_ns(), cases[i].limit_ns), "%s", variable);
    }
    environment[0] = NULL;
    cr_expect(eq(i64, world_stuck_limit_ns(), 0));
}
