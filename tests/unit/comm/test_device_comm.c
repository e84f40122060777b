/*
 * A group for device memory around one over host memory. If a collective of the device failed, the members
 * that wait in the group over host memory are told all the same.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/device_comm.h"

static int n_told;

static void tell(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    (void)comm;
    cr_expect_eq(status, FSDP_ERR_NOMEM);
    cr_expect_str_eq(words, "no memory");
    n_told++;
}

static void close_nothing(struct fsdp_comm *comm)
{
    (void)comm;
}

Test(device_comm, that_is_broken_tells_the_group_that_it_wraps_once)
{
    static const struct comm_ops ops = { .name = "told", .close = close_nothing, .fail = tell };
    struct fsdp_comm *host = calloc(1, sizeof *host), *comm;
    struct device device = { 0 };
    struct device_comms comms = { .device = &device };
    struct fsdp_err err = { 0 };

    *host = (struct fsdp_comm){ .ops = &ops, .size = 2, .name = "world" };
    cr_assert_eq(device_comm_wrap(&comm, host, &comms, &err), FSDP_OK, "%s", err.message);
    fsdp_fail(&comm->broken, FSDP_ERR_IO, "a collective of the device");
    cr_expect(!comm_is_broken(host));
    for (int i = 0; i < 3; i++)
        comm_fail(comm, FSDP_ERR_NOMEM, "no memory");
    cr_expect_eq(n_told, 1);
    cr_expect(comm_is_broken(host));
    cr_expect_str_eq(comm->broken.message, "a collective of the device", "the first failure stays");
    fsdp_comm_destroy(comm);
    device_comms_fini(&comms);
}
