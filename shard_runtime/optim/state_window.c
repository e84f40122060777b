#include "shard_runtime/optim/state_window.h"

#include "shard_runtime/core/checked.h"

struct state_window state_window_make(size_t n_elems, int n_states, size_t window_bytes)
{
    struct state_window window = { .n_elems = n_elems, .n_states = n_states };
    struct state_chunk last;
    size_t blocks;

    if (n_elems == 0 || n_states == 0)
        return (struct state_window){ 0 };
    blocks = (window_bytes == 0 ? (size_t)STATE_WINDOW_BYTES : window_bytes) / STATE_SLOTS /
             (size_t)n_states / STATE_BLOCK_BYTES;
    window.chunk_elems = (blocks > 0 ? blocks : 1) * STATE_BLOCK_ELEMS;
    if (window.chunk_elems > round_up(n_elems, STATE_BLOCK_ELEMS))
        window.chunk_elems = round_up(n_elems, STATE_BLOCK_ELEMS);
    window.n_chunks = (n_elems + window.chunk_elems - 1) / window.chunk_elems;
    window.slot_bytes = window.chunk_elems * (size_t)n_states * sizeof(float);
    window.n_slots = window.n_chunks < STATE_SLOTS ? (int)window.n_chunks : STATE_SLOTS;
    window.memory_bytes = window.slot_bytes * (size_t)window.n_slots;
    last = state_window_chunk(&window, window.n_chunks - 1);
    window.file_bytes = last.offset + last.size_bytes;
    return window;
}

struct state_chunk state_window_chunk(const struct state_window *window, size_t index)
{
    struct state_chunk chunk = { .first = index * window->chunk_elems,
                                 .offset = (uint64_t)index * window->slot_bytes };
    const size_t left = window->n_elems - chunk.first;

    chunk.n_elems = left < window->chunk_elems ? left : window->chunk_elems;
    chunk.stride = round_up(chunk.n_elems, STATE_BLOCK_ELEMS);
    chunk.size_bytes = chunk.stride * (size_t)window->n_states * sizeof(float);
    return chunk;
}

bool state_chunk_next(const struct state_chunk *chunk, const size_t *starts, struct state_piece *piece)
{
    const size_t at = piece->at + piece->n_elems, place = chunk->first + at;
    const size_t chunk_end = chunk->first + chunk->n_elems;
    int tensor = piece->tensor;
    size_t end;

    if (at == chunk->n_elems)
        return false;
    /* skips tensors that are done, and tensors without rows on this rank */
    while (starts[tensor + 1] <= place)
        tensor++;
    end = starts[tensor + 1] < chunk_end ? starts[tensor + 1] : chunk_end;
    *piece = (struct state_piece){
        .tensor = tensor, .first = place - starts[tensor], .n_elems = end - place, .at = at
    };
    return true;
}

struct state_span state_window_span(const struct state_window *window, int state, size_t first,
                                    size_t n_elems)
{
    const struct state_chunk chunk = state_window_chunk(window, first / window->chunk_elems);
    const size_t within = first - chunk.first, left = chunk.n_elems - within;

    return (struct state_span){
        .offset = chunk.offset + ((uint64_t)state * chunk.stride + within) * sizeof(float),
        .n_elems = n_elems < left ? n_elems : left,
    };
}
