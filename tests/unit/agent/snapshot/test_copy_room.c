/* Copies that come at the same time look at the same free memory. */
#include "agent/snapshot/copy_room.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/agent/scratch.h"

enum { SLOT_BYTES = 1 << 20 };

static struct copy_segment segments[2];
static struct copy_offer offer;
static struct copy_room room;
static uint64_t need; /* of one segment */

/* The host has so much, and an eighth of it is for others. */
static void set_free(uint64_t bytes)
{
    FILE *file = fopen(scratch_path("proc/meminfo"), "w");

    cr_assert_not_null(file);
    fprintf(file, "MemAvailable: %llu kB\n", (unsigned long long)(bytes / 7 * 8 / 1024 + 8));
    fclose(file);
}

static void set_up(void)
{
    scratch_make();
    cr_assert_eq(mkdir(scratch_path("proc"), 0700), 0);
    room = (struct copy_room){ .root = scratch, .mutex = PTHREAD_MUTEX_INITIALIZER };
    offer = (struct copy_offer){ .capacity = SLOT_BYTES };
    need = snapshot_segment_bytes(SLOT_BYTES);
    for (int i = 0; i < 2; i++) {
        segments[i].fd = memfd_create("test", MFD_CLOEXEC);
        cr_assert_geq(segments[i].fd, 0);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++)
        close(segments[i].fd);
    scratch_remove();
}

TestSuite(copy_room, .init = set_up, .fini = tear_down);

Test(copy_room, two_copies_are_not_promised_the_same_memory)
{
    struct copy_claim one, two;

    set_free(need + need / 2);
    cr_expect(copy_room_take(&room, &one, &segments[0], &offer));
    cr_expect_not(copy_room_take(&room, &two, &segments[1], &offer));
    copy_room_give(&room, &one);
    cr_expect(copy_room_take(&room, &two, &segments[1], &offer), "the first one comes no more");
    copy_room_give(&room, &two);
    set_free(2 * need);
    cr_expect(copy_room_take(&room, &one, &segments[0], &offer));
    cr_expect(copy_room_take(&room, &two, &segments[1], &offer));
}

Test(copy_room, what_has_come_already_counts_once)
{
    struct copy_claim one, two;

    set_free(2 * need);
    cr_expect(copy_room_take(&room, &one, &segments[0], &offer));
    cr_assert_eq(fallocate(segments[0].fd, 0, 0, (off_t)need), 0);
    set_free(need);
    cr_expect(copy_room_take(&room, &two, &segments[1], &offer));
}

Test(copy_room, a_segment_that_has_its_memory_needs_no_more)
{
    struct copy_claim one, two;

    cr_assert_eq(fallocate(segments[0].fd, 0, 0, (off_t)need), 0);
    set_free(0);
    cr_expect(copy_room_take(&room, &one, &segments[0], &offer));
    cr_expect_not(copy_room_take(&room, &two, &segments[1], &offer));
}
