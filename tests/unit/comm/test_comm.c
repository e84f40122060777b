/*
 * What the public calls do before and after the back end: arguments, the progress page, members that cannot
 * be.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"

static struct fsdp_err err;
static struct link *link;

static struct fsdp_comm *comm;

static void begin(void)
{
    unsetenv(FSDP_LINK_FD_ENV);
    cr_assert_eq(link_open(&link, &err), FSDP_OK);
    cr_assert_eq(comm_create(&comm, &(struct comm_config){ .name = "world", .link = link, .size = 1 }, &err),
                 FSDP_OK, "%s", err.message);
}

static void end(void)
{
    fsdp_comm_destroy(comm);
    link_close(link);
}

TestSuite(comm, .init = begin, .fini = end);

Test(comm, calls_are_counted_on_the_progress_page_and_the_phase_returns)
{
    struct fsdp_progress *page = link_progress(link);

    atomic_store(&page->phase, FSDP_PHASE_BACKWARD);
    cr_assert_eq(fsdp_barrier(comm, &err), FSDP_OK);
    cr_assert_eq(fsdp_barrier(comm, &err), FSDP_OK);

    cr_assert_eq(atomic_load(&page->collective_seq), 2);
    cr_assert_eq(atomic_load(&page->phase), FSDP_PHASE_BACKWARD);
    cr_assert_str_eq(page->groups[0].name, "world");
    cr_assert(page->groups[0].size == 1 && page->groups[0].begun == 2 && page->groups[0].ended == 2);
    cr_assert_eq(page->threads[0].group, 0);
    cr_assert_gt(atomic_load(&page->beat_ns), 0);
}

Test(comm, broken_arguments_are_refused_and_do_not_stick)
{
    float a[8] = { 0 };

    cr_assert_eq(fsdp_all_gather(NULL, a, a, 1, FSDP_F32, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_gather(comm, NULL, a, 1, FSDP_F32, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_gather(comm, a, NULL, 1, FSDP_F32, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_gather(comm, a, a + 1, 4, FSDP_F32, NULL, &err), FSDP_ERR_ARG, "overlap");
    cr_assert_eq(fsdp_all_gather(comm, a, a + 4, SIZE_MAX / 2, FSDP_F32, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_gather(comm, a, a, 1, FSDP_DTYPE_COUNT, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_reduce_scatter(comm, a, a + 1, 4, FSDP_F32, FSDP_SUM, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_reduce_scatter(comm, a, a, 1, FSDP_I64, FSDP_SUM, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_reduce_scatter(comm, a, a, 1, FSDP_F32, (enum fsdp_reduce_op)3, NULL, &err),
                 FSDP_ERR_ARG);
    cr_assert(!comm_scales(comm));
    cr_assert_eq(comm_reduce_scatter_scaled(comm, a, a, 1, FSDP_F32, 0.5f, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_reduce(comm, a, 1, FSDP_U8, FSDP_SUM, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_reduce(comm, a, 1, FSDP_I64, FSDP_MEAN, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_reduce(comm, NULL, 1, FSDP_F32, FSDP_SUM, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_reduce(comm, a, SIZE_MAX, FSDP_F32, FSDP_SUM, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_broadcast(comm, a, 1, 1, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_broadcast(comm, a, 1, -1, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_barrier(NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(fsdp_all_gather(comm, NULL, NULL, 0, FSDP_F32, NULL, &err), FSDP_OK, "nothing is legal");
    cr_assert_eq(fsdp_barrier(comm, &err), FSDP_OK, "nothing stuck");
}

Test(comm, a_group_that_cannot_be_is_refused)
{
    static const int wrong[] = { 1 };
    struct fsdp_comm *other = (struct fsdp_comm *)1;
    const struct comm_config bad[] = {
        { .name = NULL, .link = link, .size = 1 },
        { .name = "", .link = link, .size = 1 },
        { .name = "a/b", .link = link, .size = 1 },
        { .name = "a_name_that_is_longer_than_the_forty_seven_bytes_it_may_have", .link = link, .size = 1 },
        { .name = "a", .link = NULL, .size = 1 },
        { .name = "a", .link = link, .size = 0 },
        { .name = "a", .link = link, .size = 2 },
        { .name = "a", .link = link, .size = 1, .rank = 1 },
        { .name = "a", .link = link, .size = 1, .rank = -1 },
        { .name = "a", .link = link, .size = 1, .ranks = wrong },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(comm_create(&other, &bad[i], &err), FSDP_ERR_ARG, "case %zu", i);
        cr_assert_null(other);
    }
    fsdp_comm_destroy(NULL);
}
