/* What readers tell each other of the files, and what is made of words that are none. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/contents.h"
#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/memory_io.h"

enum { W = 3, D = 13 };
static const char step_path[] = "c/step-00000007";
static struct memory_io io;
static struct fsdp_err err;
static struct contents contents; /* of reader 0 */
static uint64_t *words;          /* of all readers */
static size_t stride;

/* The words of all readers: each has the room of reader 0, which has the most rows. */
static void begin(void)
{
    memory_io_init(&io);
    cr_assert_eq(state_save(&io.base, "c", 7, 0, D, W, &err), FSDP_OK, "%s", err.message);
    for (uint32_t reader = 0; reader < W; reader++) {
        struct contents share;
        uint64_t *packed;
        size_t n;

        cr_assert_eq(contents_read_share(&io.base, step_path, reader, W, &share, &err), FSDP_OK, "%s",
                     err.message);
        cr_assert_eq(contents_pack(&share, &packed, &n, &err), FSDP_OK);
        if (reader == 0) {
            stride = n;
            words = calloc(W, n * sizeof *words);
            contents = share;
        } else {
            contents_free(&share);
        }
        cr_assert(n <= stride && words != NULL);
        memcpy(words + reader * stride, packed, n * sizeof *words);
        free(packed);
    }
}

static void end(void)
{
    free(words);
    contents_free(&contents);
    cr_expect_eq(io.n_open, 0);
    memory_io_fini(&io);
}

TestSuite(contents_share, .init = begin, .fini = end, .timeout = 300);

static enum fsdp_status unpack(void)
{
    enum fsdp_status status = contents_unpack(&contents, words, stride, W, &err);

    if (status == FSDP_OK)
        status = contents_prove(&contents, &err);
    free(contents.starts);
    contents.starts = NULL;
    return status;
}

Test(contents_share, all_shares_together_are_what_one_reader_finds)
{
    struct contents whole;

    cr_assert_eq(contents_read(&io.base, step_path, &whole, &err), FSDP_OK, "%s", err.message);
    cr_assert_eq(unpack(), FSDP_OK, "%s", err.message);
    cr_assert_eq(contents.n_pieces, whole.n_pieces);
    for (size_t i = 0; i < whole.n_pieces; i++)
        cr_expect(contents.pieces[i].tensor == whole.pieces[i].tensor &&
                      contents.pieces[i].file == whole.pieces[i].file &&
                      contents.pieces[i].offset == whole.pieces[i].offset &&
                      memcmp(&contents.pieces[i].box, &whole.pieces[i].box, sizeof whole.pieces[i].box) == 0,
                  "piece %zu", i);
    contents_free(&whole);
}

Test(contents_share, a_reader_of_another_manifest_is_told_apart)
{
    words[2 * stride + 1] ^= 1;
    cr_expect_eq(unpack(), FSDP_ERR_MISMATCH);
    cr_expect_not_null(strstr(err.message, "ranks 0 and 2 found different checkpoints of step 7"), "%s",
                       err.message);
}

/* Any bit of any word: it is refused, or what it says is no more than another place in a file. */
Test(contents_share, damaged_words_are_refused)
{
    size_t n_refused = 0;

    for (size_t at = 0; at < (size_t)W * stride; at++)
        for (int bit = 0; bit < 64; bit += 7) {
            words[at] ^= 1ull << bit;
            n_refused += unpack() != FSDP_OK;
            words[at] ^= 1ull << bit;
        }
    cr_expect_gt(n_refused, stride);
    words[stride] = stride + 1;
    cr_expect_eq(unpack(), FSDP_ERR_FORMAT, "more words than there is room");
    words[stride] = 0;
    cr_expect_eq(unpack(), FSDP_ERR_FORMAT, "fewer than the head has");
    words[stride] = 3;
    cr_expect_eq(unpack(), FSDP_ERR_FORMAT, "no pieces: rows are in no file");
}
