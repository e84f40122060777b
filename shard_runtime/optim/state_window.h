/*
 * How optimizer state that is kept in a file is cut into chunks. Pure: this computes places and touches no
 * file.
 *
 * The rows of all tensors of a rank follow each other in one line of elements, and the line is cut into
 * chunks. In the file, and in memory while a chunk is updated, the states of a chunk follow each other. Each
 * state is padded to whole blocks. So a chunk is one range of bytes to read and to write, and O_DIRECT
 * accepts it.
 *
 *   elements   | tensor 0 | tensor 1      | tensor 2 |      of a line
 *   chunks     | 0      | 1      | 2      | 3   |           of chunk_elems each, the last of what is left
 *   chunk 1    | state 0, padded | state 1, padded |        at 1 * slot_bytes of the file
 */
#ifndef OPTIM_STATE_WINDOW_H
#define OPTIM_STATE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STATE_BLOCK_BYTES = 4096, /* of O_DIRECT: memory, offset and length */
    STATE_BLOCK_ELEMS = STATE_BLOCK_BYTES / (int)sizeof(float),
    STATE_SLOTS = 3,               /* one is read, one updated, one written */
    STATE_WINDOW_BYTES = 24 << 20, /* of all slots, unless said otherwise */
};

/** How one rank's state is cut. */
struct state_window {
    size_t n_elems; /* of all tensors */
    int n_states;
    size_t chunk_elems; /* whole blocks */
    size_t n_chunks;
    size_t slot_bytes;   /* of a chunk in memory */
    int n_slots;         /* STATE_SLOTS, or fewer where there are fewer chunks */
    size_t memory_bytes; /* of all slots */
    uint64_t file_bytes;
};

/**
 * Cut `n_elems` elements so that all slots take at most `window_bytes` of memory (0: STATE_WINDOW_BYTES). The
 * least is one block for each state and slot, even if that is more. Without elements or without states every
 * field is 0.
 */
struct state_window state_window_make(size_t n_elems, int n_states, size_t window_bytes);

/** One chunk of the line. */
struct state_chunk {
    size_t first, n_elems; /* of the line */
    size_t stride;         /* elements from one state to the next: n_elems in whole blocks */
    uint64_t offset;       /* in the file */
    size_t size_bytes;
};
/** Returns chunk number `index`, which is below n_chunks. */
struct state_chunk state_window_chunk(const struct state_window *window, size_t index);

/** A part of a tensor in a chunk. */
struct state_piece {
    int tensor;
    size_t first, n_elems; /* of the tensor */
    size_t at;             /* in the chunk, in elements */
};
/**
 * Sets *piece to the next piece of the chunk. Before the first call *piece is all zeros; each later call gets
 * the piece that the call before it has written. Tensor i begins at place starts[i] of the line, and
 * starts[n_tensors] is the end of the line. Returns false, with *piece unchanged, if no piece is left.
 */
bool state_chunk_next(const struct state_chunk *chunk, const size_t *starts, struct state_piece *piece);

/** Elements of one state that follow each other in the file. */
struct state_span {
    uint64_t offset; /* of the first, in bytes */
    size_t n_elems;
};
/**
 * Find where `n_elems` elements of state number `state`, from element `first` of the line on, are in the
 * file. Returns as many of them as follow each other there; n_elems is at least 1.
 */
struct state_span state_window_span(const struct state_window *window, int state, size_t first,
                                    size_t n_elems);

#endif
