/* The bytes of snapshots: what is filled is loaded again, and is the file that a save would have written. */
#include "shard_runtime/checkpoint/snapshot.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/shardfile/manifest.h"
#include "tests/unit/agent/scratch.h"
#include "tests/unit/checkpoint/state.h"

enum { D = 23, GENERATION = 2 };

static struct state_shard state;
static struct snapshot *snapshot;
static int segment = -1;

static struct shards_save save_at(int64_t step)
{
    return (struct shards_save){ step, GENERATION, state.W, state.rank };
}

static char *head_at(int64_t step, size_t *length)
{
    const struct checkpoint_state words = state_head(step);
    char *head;

    cr_assert_eq(
        checkpoint_head(&words, GENERATION, state.W, state.tensors, STATE_TENSORS, &head, length, NULL),
        FSDP_OK);
    return head;
}

/* Opens the segment for the state, as each start of a worker does. */
static void open_segment(void)
{
    struct snapshot_need need;
    size_t length;
    char *head = head_at(0, &length);

    cr_assert_eq(snapshot_measure(&need, state.tensors, STATE_TENSORS, state.W, state.rank, length, NULL),
                 FSDP_OK);
    cr_assert_eq(snapshot_open(&snapshot, dup(segment), &need, NULL), FSDP_OK);
    free(head);
}

static void begin(int W, int rank)
{
    state_init(&state, D, W, rank);
    segment = memfd_create("segment", MFD_CLOEXEC);
    cr_assert(segment >= 0);
    open_segment();
}

static void end(void)
{
    snapshot_close(snapshot);
    close(segment);
    state_free(&state);
}

static struct snapshot_filled fill(int64_t step, int busy)
{
    const struct shards_save save = save_at(step);
    struct snapshot_filled filled;
    size_t length;
    char *head = head_at(step, &length);

    state_fill(&state, step);
    cr_assert_eq(
        snapshot_fill(snapshot, &save, state.tensors, STATE_TENSORS, head, length, busy, &filled, NULL),
        FSDP_OK);
    free(head);
    return filled;
}

static enum fsdp_status load(int64_t step)
{
    const struct shards_save save = save_at(step);
    struct manifest manifest;
    enum fsdp_status status;

    state_wipe(&state);
    status = snapshot_load(snapshot, &save, state.tensors, STATE_TENSORS, &manifest, NULL);
    if (status != FSDP_OK)
        return status;
    cr_expect_eq(manifest.step, (uint64_t)step);
    cr_expect_eq(manifest.cursor, state_head(step).cursor);
    cr_expect_eq(manifest.seed, state_head(step).seed);
    manifest_free(&manifest);
    return state_is(&state, step) ? FSDP_OK : FSDP_ERR_FORMAT;
}

Test(snapshot_bytes, the_two_newest_come_back_at_any_world_size)
{
    for (int W = 1; W <= 8; W = W < 3 ? W + 1 : W + 5)
        for (int rank = 0; rank < W; rank++) {
            begin(W, rank);
            fill(5, -1);
            fill(6, -1);
            fill(7, -1);
            cr_expect_eq(load(7), FSDP_OK, "rank %d of %d", rank, W);
            cr_expect_eq(load(6), FSDP_OK);
            cr_expect_eq(load(5), FSDP_ERR_NOT_FOUND);
            end();
        }
}

Test(snapshot_bytes, a_process_that_is_started_again_finds_them)
{
    begin(2, 1);
    fill(99, -1);
    snapshot_close(snapshot);
    open_segment();
    cr_expect(snapshot_has(snapshot, 99));
    cr_expect_eq(load(99), FSDP_OK);
    snapshot_go_back(snapshot, -1);
    cr_expect_eq(load(99), FSDP_ERR_NOT_FOUND);
    end();
}

Test(snapshot_bytes, tensors_that_other_ranks_save_come_back_too)
{
    begin(1, 0);
    snapshot_close(snapshot);
    state.tensors[0].saved_elsewhere = state.tensors[3].saved_elsewhere = true;
    open_segment();
    fill(3, -1);
    fill(4, -1);
    cr_expect_eq(load(3), FSDP_OK);
    cr_expect_eq(load(4), FSDP_OK);
    end();
}

Test(snapshot_bytes, another_state_has_none)
{
    begin(2, 0);
    fill(3, -1);
    snapshot_close(snapshot);
    state_free(&state);
    state_init(&state, D + 2, 2, 0);
    open_segment();
    cr_expect_not(snapshot_has(snapshot, 3));
    end();
}

/* As the agent copies it: byte for byte what the rank itself would have written, with the same checksum. */
Test(snapshot_bytes, a_slot_is_the_file_that_a_save_writes)
{
    for (int rank = 0; rank < 3; rank++) {
        const struct checkpoint_state words = state_head(8);
        struct safetensors_written written;
        struct fsdp_snapshot_head head;
        struct checkpoint_part part;
        struct snapshot_filled filled;
        const struct fsdp_snapshot_slot *slot;
        char folder[256], path[512], *own, *copy;
        size_t own_bytes, copy_bytes;

        scratch_make();
        begin(3, rank);
        filled = fill(8, -1);
        slot = &head.slots[filled.slot];
        cr_assert_eq(pread(segment, &head, sizeof head, 0), (ssize_t)sizeof head);
        cr_assert_eq(checkpoint_write_part(&io_posix, scratch, "part", &words, GENERATION, 3, rank,
                                           state.tensors, STATE_TENSORS, &part, NULL),
                     FSDP_OK);
        snprintf(folder, sizeof folder, "%s/part/%s", scratch, part.file);
        snprintf(path, sizeof path, "%s/copy", scratch);
        cr_assert_eq(slot->size_bytes, part.size_bytes);
        cr_assert_eq(
            safetensors_copy(&io_posix, path, segment, slot->offset, slot->size_bytes, NULL, &written, NULL),
            FSDP_OK);
        cr_expect_eq(written.size_bytes, part.size_bytes);
        cr_expect_arr_eq(written.checksum, part.checksum, sizeof part.checksum);
        cr_assert_eq(io_read_file(&io_posix, folder, 1 << 20, &own, &own_bytes, NULL), FSDP_OK);
        cr_assert_eq(io_read_file(&io_posix, path, 1 << 20, &copy, &copy_bytes, NULL), FSDP_OK);
        cr_assert_eq(own_bytes, copy_bytes);
        cr_expect_arr_eq(own, copy, own_bytes);
        free(own);
        free(copy);
        end();
        scratch_remove();
    }
}

Test(snapshot_bytes, an_image_that_is_cut_short_is_no_file)
{
    struct safetensors_written written;
    struct fsdp_snapshot_head head;
    struct snapshot_filled filled;
    char path[512];

    scratch_make();
    begin(1, 0);
    filled = fill(8, -1);
    cr_assert_eq(pread(segment, &head, sizeof head, 0), (ssize_t)sizeof head);
    snprintf(path, sizeof path, "%s/copy", scratch);
    cr_assert_eq(
        ftruncate(segment, (off_t)(head.slots[filled.slot].offset + head.slots[filled.slot].size_bytes - 1)),
        0);
    cr_expect_eq(safetensors_copy(&io_posix, path, segment, head.slots[filled.slot].offset,
                                  head.slots[filled.slot].size_bytes, NULL, &written, NULL),
                 FSDP_ERR_FORMAT);
    cr_expect(access(path, F_OK) < 0, "nothing is left");
    cr_expect_eq(
        safetensors_copy(&io_posix, path, segment, head.slots[filled.slot].offset, 7, NULL, &written, NULL),
        FSDP_ERR_FORMAT);
    cr_expect_eq(
        safetensors_copy(&io_posix, path, segment, head.slots[filled.slot].offset, 100, NULL, &written, NULL),
        FSDP_ERR_FORMAT, "the header is longer");
    end();
    scratch_remove();
}

Test(snapshot_bytes, a_shorter_segment_misses_memory)
{
    struct snapshot_need need;

    begin(1, 0);
    cr_assert_eq(snapshot_measure(&need, state.tensors, STATE_TENSORS, 1, 0, 100, NULL), FSDP_OK);
    cr_expect_gt(snapshot_missing_bytes(segment, &need), 0);
    fill(1, -1);
    fill(2, -1);
    cr_expect_lt(snapshot_missing_bytes(segment, &need), need.slot_bytes * 2);
    end();
}
