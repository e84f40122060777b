/*
 * Links libfsdp.
 *
 * A rank that computes without waiting for what its second thread gathers over shared memory: the sanitizer
 * sees it. The child's report is what is looked for, and its status that of this program.
 */
#include "tests/support/workers/slow_steps.h"

int main(void)
{
    static const struct slow_way way = { .name = "no waits", .slow = SLOW_GATHER, .misses_waits = true };

    return run_world(2, 1, 100, &way, 1);
}
