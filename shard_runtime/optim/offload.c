#include "shard_runtime/optim/offload.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/overlap.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/optim/state_file.h"
#include "shard_runtime/optim/state_window.h"

enum { MAX_STATES = 2, MAX_UNDER_WAY = 8 /* MAX_UNDER_WAY: at most two reads and two writes */ };

struct offload {
    struct device *device;
    struct state_window window;
    /*
     * (tensors + 1) number of each tensor's first element, if the elements of all tensors are counted in a
     * row
     */
    size_t *starts;
    int n_tensors;
    char *slots;
    struct state_file file;
    struct overlap *mover; /* the second thread */
    int *visits;           /* the chunks of this run, in order: chunk number p uses slot p % n_slots */
    struct rows_store store;
};

static char *slot_of(const struct offload *offload, int visit)
{
    return offload->slots + (size_t)(visit % offload->window.n_slots) * offload->window.slot_bytes;
}

/*
 * Runs on the second thread: entry 2p reads the chunk of visit p into its slot, entry 2p + 1 writes it back.
 */

static enum fsdp_status move(void *user, int entry, struct fsdp_err *err)
{
    struct offload *offload = user;
    const int visit = entry / 2;
    const struct state_chunk chunk = state_window_chunk(&offload->window, (size_t)offload->visits[visit]);
    char *slot = slot_of(offload, visit);

    return entry % 2 == 0 ? state_file_read(&offload->file, slot, chunk.size_bytes, chunk.offset, err)
                          : state_file_write(&offload->file, slot, chunk.size_bytes, chunk.offset, err);
}

/* A run: updates of all chunks */

static enum fsdp_status update_chunk(struct offload *offload, int visit,
                                     const struct offload_visitor *visitor, struct fsdp_err *err)
{
    const struct state_chunk chunk = state_window_chunk(&offload->window, (size_t)offload->visits[visit]);
    float *slot = (float *)(void *)slot_of(offload, visit);
    struct state_piece piece = { 0 };

    while (state_chunk_next(&chunk, offload->starts, &piece)) {
        float *state[MAX_STATES] = { NULL };

        for (int s = 0; s < offload->window.n_states; s++)
            state[s] = slot + (size_t)s * chunk.stride + piece.at;
        if (visitor->wants(visitor->user, piece.tensor))
            OK_OR_RETURN(
                visitor->update(visitor->user, piece.tensor, piece.first, piece.n_elems, state, err));
    }
    return FSDP_OK;
}

static bool wants_chunk(const struct offload *offload, size_t index, const struct offload_visitor *visitor)
{
    const struct state_chunk chunk = state_window_chunk(&offload->window, index);
    struct state_piece piece = { 0 };

    while (state_chunk_next(&chunk, offload->starts, &piece))
        if (visitor->wants(visitor->user, piece.tensor))
            return true;
    return false;
}

enum fsdp_status offload_run(struct offload *offload, const struct offload_visitor *visitor,
                             struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK, moved;
    struct fsdp_err moved_err = { 0 };
    int n = 0;

    for (size_t c = 0; c < offload->window.n_chunks; c++)
        if (wants_chunk(offload, c, visitor))
            offload->visits[n++] = (int)c;
    if (n == 0)
        return FSDP_OK;
    overlap_give(offload->mover, move, offload, 0);
    for (int p = 0; p < n && status == FSDP_OK; p++) {
        /*
         * Chunk p + 1 uses the slot of p - 2. The write of p - 2 was given to the thread before, and the
         * thread keeps the order.
         */
        if (p + 1 < n)
            overlap_give(offload->mover, move, offload, 2 * (p + 1));
        status = overlap_wait(offload->mover, 2 * p, err);
        if (status == FSDP_OK)
            status = update_chunk(offload, p, visitor, err);
        if (status == FSDP_OK)
            overlap_give(offload->mover, move, offload, 2 * p + 1);
    }
    moved = overlap_finish(offload->mover, &moved_err);
    return status == FSDP_OK && moved != FSDP_OK ? fsdp_fail(err, moved, "%s", moved_err.message) : status;
}

/* How a checkpoint reads and writes any range of the state: through a slot, while no update runs. */

struct range {
    uint64_t begin;          /* offset in the file; the range consists of the whole blocks around a span */
    size_t size_bytes, lead; /* lead: bytes before the span's first */
};

static struct range blocks_around(const struct state_span *span)
{
    const uint64_t begin = span->offset / STATE_BLOCK_BYTES * STATE_BLOCK_BYTES;
    const uint64_t end = span->offset + span->n_elems * sizeof(float);
    const uint64_t blocks = (end - begin + STATE_BLOCK_BYTES - 1) / STATE_BLOCK_BYTES;

    return (struct range){ begin, (size_t)blocks * STATE_BLOCK_BYTES, (size_t)(span->offset - begin) };
}

/*
 * Finds where elements of a state are in the file: from element `first` on, as many of the n_elems as follow
 * each other there. `index` is the number of the state in offload_store().
 */
static struct state_span find_span(const struct offload *offload, size_t index, size_t first, size_t n_elems)
{
    const size_t n_states = (size_t)offload->window.n_states;

    return state_window_span(&offload->window, (int)(index % n_states),
                             offload->starts[index / n_states] + first, n_elems);
}

/*
 * Bytes of a state that are contiguous in the file. `range` is the whole blocks around them; `skip` is how
 * many bytes of its first element precede the wanted ones.
 */
struct stretch {
    struct range range;
    size_t skip, n_bytes;
};

/*
 * Finds how many of the `left` bytes from `at` on are contiguous in the file. A caller's buffer may begin and
 * end within an element.
 */
static struct stretch find_stretch(const struct offload *offload, size_t index, uint64_t at, size_t left)
{
    const size_t skip = (size_t)(at % sizeof(float));
    const struct state_span span = find_span(offload, index, (size_t)(at / sizeof(float)),
                                             (skip + left + sizeof(float) - 1) / sizeof(float));
    const size_t there = span.n_elems * sizeof(float) - skip;

    return (struct stretch){ .range = blocks_around(&span),
                             .skip = skip,
                             .n_bytes = there < left ? there : left };
}

static enum fsdp_status read_rows(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                  struct fsdp_err *err)
{
    struct offload *offload = user;

    for (size_t done = 0; done < size_bytes;) {
        const struct stretch stretch = find_stretch(offload, index, offset + done, size_bytes - done);
        const struct range range = stretch.range;

        OK_OR_RETURN(state_file_read(&offload->file, offload->slots, range.size_bytes, range.begin, err));
        memcpy((char *)bytes + done, offload->slots + range.lead + stretch.skip, stretch.n_bytes);
        done += stretch.n_bytes;
    }
    return FSDP_OK;
}

static enum fsdp_status write_rows(void *user, size_t index, uint64_t offset, const void *bytes,
                                   size_t size_bytes, struct fsdp_err *err)
{
    struct offload *offload = user;

    for (size_t done = 0; done < size_bytes;) {
        const struct stretch stretch = find_stretch(offload, index, offset + done, size_bytes - done);
        const struct range range = stretch.range;

        OK_OR_RETURN(state_file_read(&offload->file, offload->slots, range.size_bytes, range.begin, err));
        memcpy(offload->slots + range.lead + stretch.skip, (const char *)bytes + done, stretch.n_bytes);
        OK_OR_RETURN(state_file_write(&offload->file, offload->slots, range.size_bytes, range.begin, err));
        done += stretch.n_bytes;
    }
    return FSDP_OK;
}

/* Creating and destroying */

static enum fsdp_status make(struct offload *offload, const size_t *n_elems, int n_states,
                             const struct offload_options *options, struct fsdp_err *err)
{
    void *memory = NULL;

    offload->starts = alloc_array((size_t)offload->n_tensors + 1, sizeof *offload->starts);
    if (offload->starts == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "offloaded state: out of memory");
    for (int i = 0; i < offload->n_tensors; i++)
        offload->starts[i + 1] = offload->starts[i] + n_elems[i];
    offload->window = state_window_make(offload->starts[offload->n_tensors], n_states, options->window_bytes);
    if (offload->window.n_chunks == 0)
        return FSDP_OK; /* no file, no thread */
    if (offload->window.n_chunks > INT_MAX / 4)
        return fsdp_fail(err, FSDP_ERR_ARG, "offloaded state: a window of %zu bytes is too small",
                         options->window_bytes);
    offload->visits = alloc_array(offload->window.n_chunks, sizeof *offload->visits);
    if (offload->visits == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "offloaded state: out of memory");
    OK_OR_RETURN(offload->device->ops->alloc(offload->device, offload->window.memory_bytes, &memory, err));
    offload->slots = memory;
    OK_OR_RETURN(state_file_open(&offload->file, options->io, options->directory, options->rank,
                                 offload->window.file_bytes, err));
    return overlap_create(&offload->mover, MAX_UNDER_WAY, NULL, err);
}

enum fsdp_status offload_create(struct offload **out, struct device *device, const size_t *n_elems,
                                int n_tensors, int n_states, const struct offload_options *options,
                                struct fsdp_err *err)
{
    struct offload *offload = alloc_array(1, sizeof *offload);
    enum fsdp_status status;

    *out = NULL;
    if (offload == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "offloaded state: out of memory");
    offload->device = device;
    offload->n_tensors = n_tensors;
    offload->file.fd = -1;
    offload->store = (struct rows_store){ .user = offload, .read = read_rows, .write = write_rows };
    status = make(offload, n_elems, n_states, options, err);
    if (status != FSDP_OK) {
        offload_destroy(offload);
        return status;
    }
    *out = offload;
    return FSDP_OK;
}

void offload_destroy(struct offload *offload)
{
    if (offload == NULL)
        return;
    overlap_destroy(offload->mover);
    state_file_close(&offload->file);
    if (offload->slots != NULL)
        offload->device->ops->free(offload->device, offload->slots, offload->window.memory_bytes);
    free(offload->visits);
    free(offload->starts);
    free(offload);
}

const struct rows_store *offload_store(const struct offload *offload)
{
    return &offload->store;
}

size_t offload_memory_bytes(const struct offload *offload)
{
    return offload->window.memory_bytes;
}

uint64_t offload_file_bytes(const struct offload *offload)
{
    return offload->window.file_bytes;
}
