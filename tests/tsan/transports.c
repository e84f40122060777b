/*
 * Links libfsdp.
 *
 * Steps in which a rank's second thread gathers and reduces over real transports, shared memory, TCP and
 * both, between real processes, under the thread sanitizer. Between processes it sees no order and no race.
 * What it watches are the two threads of each rank, and the buffers that they and a back end share. A rank
 * that raced ends with the sanitizer's status.
 */
#include "tests/support/workers/slow_steps.h"

static const struct slow_way ways[] = {
    { .name = "inline", .inlined = true },
    { .name = "a second thread" },
    { .name = "gathers that come late", .slow = SLOW_GATHER },
    { .name = "reductions that come late", .slow = SLOW_REDUCE },
    { .name = "reductions of their own", .own_reduces = true, .lists = true },
    { .name = "reshard to 2", .reshard_size = 2 },
    { .name = "2 copies", .hybrid = true },
    { .name = "2 copies that come late", .hybrid = true, .slow = SLOW_ALL },
};

int main(void)
{
    static const int worlds[][2] = { { 2, 1 }, { 4, 1 }, { 2, 2 }, { 4, 2 } };
    int worst = 0;

    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const int status = run_world(worlds[i][0], worlds[i][1], 3, ways, sizeof ways / sizeof *ways);

        worst = status > worst ? status : worst;
    }
    return worst;
}
