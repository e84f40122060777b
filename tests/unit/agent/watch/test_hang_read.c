#include "agent/watch/hang_read.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/flight.h"
#include "tests/unit/agent/watch/wild_page.h"

static struct fsdp_progress *page;
static struct hang_rank row;
static uint32_t group;

static void new_page(void)
{
    page = aligned_alloc(4096, FSDP_PROGRESS_BYTES);
    memset(page, 0, FSDP_PROGRESS_BYTES);
    group = flight_add_group(page, &(struct flight_group){ "dp.1.2", 3, 2, 4 });
    page->threads[0].place = flight_add_place(page, "layers.5");
    page->threads[1].place = flight_add_place(page, "layers.6");
    page->pass = FSDP_PHASE_BACKWARD;
    page->beat_ns = 1;
}

static void free_page(void)
{
    free(page);
}

TestSuite(hang_read, .init = new_page, .fini = free_page);

/* Begins a collective on a thread; peer: the number in the group of the member that is missed. */
static struct fsdp_flight_entry *begin(int thread, uint64_t sequence, int peer)
{
    const struct flight_note note = {
        .kind = "all_gather", .sequence = sequence, .size_bytes = 64, .root = -1, .group = group
    };

    page->threads[thread].group = group;
    page->threads[thread].peer = peer;
    page->threads[thread].n_missing = 2;
    return flight_begin(page, &note, 1);
}

Test(hang_read, a_rank_in_a_collective_shows_which_and_whom_it_misses)
{
    begin(0, 7, 2);
    hang_rank_read(&row, page);

    cr_assert(row.group == 0 && row.sequence == 7 && row.size_bytes == 64 && !row.queued);
    cr_assert_str_eq(row.groups[0].name, "dp.1.2");
    cr_assert_str_eq(row.kind, "all_gather");
    cr_assert(row.peer == 10 && row.n_missing == 2, "rank %d", row.peer);
    cr_assert_str_eq(row.layer, "layers.5");
    cr_assert_eq(hang_rank_phase(&row), FSDP_PHASE_COLLECTIVE);
}

Test(hang_read, a_second_thread_in_a_collective_is_waited_for_only_if_the_first_says_so)
{
    begin(1, 7, -1);
    page->phase = FSDP_PHASE_COLLECTIVE;
    hang_rank_read(&row, page);
    cr_expect(row.group == -1 && row.n_groups == 1);
    cr_expect_str_eq(row.layer, "layers.5");
    cr_expect_eq(hang_rank_phase(&row), FSDP_PHASE_BACKWARD, "it computes");

    page->threads[0].group = FSDP_WAITS_FOR_OTHER_THREAD;
    hang_rank_read(&row, page);
    cr_expect(row.group == 0 && row.sequence == 7);
    cr_expect_str_eq(row.layer, "layers.6");
}

Test(hang_read, a_collective_on_a_gpu_is_the_oldest_that_is_not_done)
{
    struct fsdp_flight_entry *done = begin(0, 7, -1);

    begin(0, 8, -1);
    begin(0, 9, -1);
    flight_end(page, done, 2);
    page->threads[0].group = 0;
    hang_rank_read(&row, page);

    cr_assert(row.queued && row.group == 0 && row.sequence == 8 && row.groups[0].begun == 9);
    cr_assert_eq(hang_rank_phase(&row), FSDP_PHASE_BACKWARD);
}

Test(hang_read, a_worker_that_has_not_opened_its_link_is_starting)
{
    page->beat_ns = 0;
    hang_rank_read(&row, page);
    cr_expect(row.pass == FSDP_PHASE_START && row.group == -1 && row.n_groups == 0 && row.step == -1);
    hang_rank_read(&row, NULL);
    cr_expect(row.pass == FSDP_PHASE_START && hang_signs(NULL) == 0);
}

Test(hang_read, whatever_the_page_holds_stays_within_its_limits)
{
    uint64_t state = 88172645463325252;

    for (int round = 0; round < 50; round++) {
        wild_page_fill(page, &state);
        page->threads[0].group = (uint32_t)(round % 20);
        page->threads[0].place = (uint32_t)round * 60;
        page->n_collectives = (uint64_t)round;
        memset(&row, 0, sizeof row);
        hang_rank_read(&row, page);

        cr_assert(row.n_groups <= FSDP_GROUPS && row.group < row.n_groups && row.peer >= -1 &&
                  row.step >= -1);
        cr_assert(row.pass >= 0 && row.pass <= FSDP_PHASE_OPEN && row.n_missing >= 0);
        cr_assert(memchr(row.layer, '\0', sizeof row.layer) != NULL && strspn(row.layer, "\n\x1b") == 0);
        for (int g = 0; g < row.n_groups; g++)
            cr_assert_not_null(memchr(row.groups[g].name, '\0', sizeof row.groups[g].name));
    }
}
