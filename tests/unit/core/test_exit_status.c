#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/core/exit_status.h"

/*
 * docs/operations.md: 2 usage, 66 input, 70 a bug, 71 a GPU, 1 training that diverged, 74 I/O or memory,
 * 75 a peer, 78 a setting.
 */
Test(exit_status, every_status_has_the_exit_code_that_is_documented)
{
    static const int documented[FSDP_STATUS_COUNT] = {
        [FSDP_ERR_ARG] = 70,    [FSDP_ERR_NOMEM] = 74,    [FSDP_ERR_IO] = 74,     [FSDP_ERR_NOT_FOUND] = 66,
        [FSDP_ERR_FORMAT] = 66, [FSDP_ERR_MISMATCH] = 66, [FSDP_ERR_CONFIG] = 78, [FSDP_ERR_UNSUPPORTED] = 78,
        [FSDP_ERR_PEER] = 75,   [FSDP_ERR_BUSY] = 78,     [FSDP_ERR_DEVICE] = 71, [FSDP_ERR_NOT_FINITE] = 1
    };

    for (int i = 0; i < FSDP_STATUS_COUNT; i++)
        cr_expect(eq(int, exit_status_of((enum fsdp_status)i), documented[i]), "%s",
                  fsdp_status_name((enum fsdp_status)i));
    cr_expect(eq(int, exit_status_of((enum fsdp_status)99), 70), "a value that is no status is a bug");
    cr_expect(eq(int, exit_status_of_request(FSDP_ERR_CONFIG), 2), "of a command line it is its usage");
    cr_expect(eq(int, exit_status_of_request(FSDP_ERR_BUSY), 78), "every other status is as elsewhere");
}
