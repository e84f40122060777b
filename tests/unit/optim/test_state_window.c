/*
 * How state in a file is cut, over a grid of sizes. Every element of every state has one place of its own.
 * The pieces of the chunks go through all tensors once, in order.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/optim/state_window.h"

enum { MAX_TENSORS = 6 };

static const size_t sizes[][MAX_TENSORS] = {
    { 1 },
    { 1023, 1 },
    { 1024 },
    { 1025, 3, 7 },
    { 0, 5, 0, 0, 4096, 0 },
    { 3000, 1, 1, 1, 2999, 12345 },
    { 100000 },
    { 7, 65536, 0, 13, 5000, 1 },
};
static const size_t windows[] = { 1, 4096, 12288, 24576, 60000, 1 << 20, 0 };

static void make_starts(const size_t *n_elems, size_t starts[MAX_TENSORS + 1])
{
    starts[0] = 0;
    for (int i = 0; i < MAX_TENSORS; i++)
        starts[i + 1] = starts[i] + n_elems[i];
}

/* Mark the bytes of a piece's elements in the file; each once. */
static void mark(const struct state_window *window, const struct state_chunk *chunk,
                 const struct state_piece *piece, unsigned char *taken)
{
    for (int s = 0; s < window->n_states; s++)
        for (size_t e = 0; e < piece->n_elems; e++) {
            const uint64_t at = chunk->offset / sizeof(float) + (size_t)s * chunk->stride + piece->at + e;

            cr_assert(at < window->file_bytes / sizeof(float));
            cr_assert_eq(taken[at], 0);
            taken[at] = 1;
        }
}

static void check_pieces(const struct state_window *window, const size_t *starts)
{
    unsigned char *taken = calloc(1, window->file_bytes / sizeof(float));
    size_t seen = 0;

    for (size_t c = 0; c < window->n_chunks; c++) {
        const struct state_chunk chunk = state_window_chunk(window, c);
        struct state_piece piece = { 0 };

        cr_assert(chunk.offset % STATE_BLOCK_BYTES == 0 && chunk.size_bytes % STATE_BLOCK_BYTES == 0);
        cr_assert(chunk.size_bytes <= window->slot_bytes && chunk.n_elems > 0);
        while (state_chunk_next(&chunk, starts, &piece)) {
            cr_assert(piece.n_elems > 0 && piece.at + piece.n_elems <= chunk.n_elems);
            cr_assert_eq(starts[piece.tensor] + piece.first, seen, "in order, none left out");
            cr_assert(piece.first + piece.n_elems <= starts[piece.tensor + 1] - starts[piece.tensor]);
            mark(window, &chunk, &piece, taken);
            seen += piece.n_elems;
        }
    }
    cr_assert_eq(seen, window->n_elems);
    free(taken);
}

/* Spans give the place that the pieces have. */
static void check_spans(const struct state_window *window)
{
    for (int s = 0; s < window->n_states; s++)
        for (size_t first = 0; first < window->n_elems;) {
            const struct state_span span = state_window_span(window, s, first, window->n_elems - first);
            const struct state_chunk chunk = state_window_chunk(window, first / window->chunk_elems);

            cr_assert(span.n_elems > 0 && first + span.n_elems <= chunk.first + chunk.n_elems);
            cr_assert_eq(span.offset,
                         chunk.offset + ((size_t)s * chunk.stride + first - chunk.first) * sizeof(float));
            cr_assert_eq(state_window_span(window, s, first, 1).n_elems, 1);
            first += span.n_elems > 100 ? span.n_elems - 99 : span.n_elems; /* from the middle as well */
        }
}

Test(state_window, every_element_of_every_state_has_a_place_of_its_own)
{
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
            for (int n_states = 1; n_states <= 2; n_states++) {
                size_t starts[MAX_TENSORS + 1];
                struct state_window window;

                make_starts(sizes[k], starts);
                window = state_window_make(starts[MAX_TENSORS], n_states, windows[w]);
                check_pieces(&window, starts);
                check_spans(&window);
            }
}

Test(state_window, memory_is_what_was_allowed_or_a_block_a_state_and_slot)
{
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int n_states = 1; n_states <= 2; n_states++) {
            const size_t least = (size_t)STATE_SLOTS * STATE_BLOCK_BYTES * (size_t)n_states;
            const size_t allowed = windows[w] == 0 ? STATE_WINDOW_BYTES : windows[w];
            const struct state_window window = state_window_make((size_t)10 << 20, n_states, windows[w]);

            cr_expect(window.memory_bytes <= (allowed > least ? allowed : least));
            cr_expect_eq(window.memory_bytes, window.slot_bytes * STATE_SLOTS);
            cr_expect_eq(window.file_bytes, ((uint64_t)40 << 20) * (unsigned)n_states,
                         "whole blocks: no waste");
        }
}

Test(state_window, a_small_state_has_a_small_window)
{
    const struct state_window window = state_window_make(100, 2, 0);

    cr_expect(window.n_chunks == 1 && window.n_slots == 1 && window.memory_bytes == 2 * STATE_BLOCK_BYTES);
}

Test(state_window, nothing_takes_nothing)
{
    const struct state_window none = state_window_make(0, 2, 0), plain = state_window_make(100, 0, 0);

    cr_expect(none.n_chunks == 0 && none.memory_bytes == 0 && none.file_bytes == 0);
    cr_expect(plain.n_chunks == 0 && plain.memory_bytes == 0 && plain.file_bytes == 0);
}
