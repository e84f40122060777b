/*
 * Delays of 100 ms change no bit, between real processes and over real transports; links libfsdp.
 *
 *   delays run W NODES    each of the five places, and modes of resharding and prefetching slow at all of
 *                         them
 *
 * Exit 0 if all ranks had the same losses, norms and weights in every way; else 1, with words on stderr.
 */
#include "tests/support/workers/slow_steps.h"

enum { DELAY_MS = 100 };

static const struct slow_way ways[] = {
    { .name = "as it is", .inlined = true },
    { .name = "before gathers", .slow = SLOW_GATHER },
    { .name = "before reductions", .slow = SLOW_REDUCE },
    { .name = "after forward", .slow = SLOW_AFTER_FORWARD },
    { .name = "before the optimizer", .slow = SLOW_BEFORE_OPTIMIZER },
    { .name = "everywhere", .slow = SLOW_ALL },
    { .name = "everywhere, inline", .slow = SLOW_ALL, .inlined = true },
    { .name = "reshard true", .slow = SLOW_ALL, .reshard = FSDP_RESHARD_TRUE },
    { .name = "reshard false", .slow = SLOW_ALL, .reshard = FSDP_RESHARD_FALSE },
    { .name = "reshard to 2", .slow = SLOW_ALL, .reshard_size = 2 },
    { .name = "explicit prefetch", .slow = SLOW_ALL, .lists = true },
    { .name = "reductions of their own", .slow = SLOW_ALL, .own_reduces = true },
    { .name = "2 copies", .hybrid = true, .inlined = true },
    { .name = "2 copies, before gathers", .hybrid = true, .slow = SLOW_GATHER },
    { .name = "2 copies, before reductions", .hybrid = true, .slow = SLOW_REDUCE },
    { .name = "2 copies, after forward", .hybrid = true, .slow = SLOW_AFTER_FORWARD },
    { .name = "2 copies, before the optimizer", .hybrid = true, .slow = SLOW_BEFORE_OPTIMIZER },
    { .name = "2 copies, everywhere", .hybrid = true, .slow = SLOW_ALL },
    { .name = "2 copies, reshard true", .hybrid = true, .slow = SLOW_ALL, .reshard = FSDP_RESHARD_TRUE },
    { .name = "2 copies, explicit prefetch", .hybrid = true, .slow = SLOW_ALL, .lists = true },
};

int main(int argc, char **argv)
{
    if (!read_want(argc, argv) || strcmp(argv[1], "run") != 0)
        return 2;
    return run_world(want.W, want.n_nodes, DELAY_MS, ways, sizeof ways / sizeof *ways) != 0;
}
