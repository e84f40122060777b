/* Optimizers and norms of lists of tensors, one tensor after the other, each cut over the threads. */
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/ref.h"
#include "shard_runtime/numerics/rows_cut.h"

/* One tensor of the list. One of `adamw` and `sgd` is set. */
struct update_work {
    const struct row_kernels *kernels;
    const struct numerics_adamw *adamw;
    const struct numerics_sgd *sgd;
    const struct numerics_update *update;
};

static void update_piece(void *context, size_t begin, size_t end)
{
    const struct update_work *w = context;

    if (w->adamw != NULL)
        w->kernels->adamw(w->adamw, w->update, begin, end);
    else
        w->kernels->sgd(w->sgd, w->update, begin, end);
}

static void update_all(const struct numerics *numerics, struct update_work w,
                       const struct numerics_update *updates, size_t n_updates)
{
    w.kernels = kernels_of(numerics);
    for (size_t i = 0; i < n_updates; i++) {
        w.update = &updates[i];
        parallel_for(numerics->threads, updates[i].n_elems, GRAIN_ELEMS, update_piece, &w);
    }
}

void rows_adamw(struct numerics *numerics, struct device_stream *stream, const struct numerics_adamw *run)
{
    (void)stream;
    update_all(numerics, (struct update_work){ .adamw = run }, run->updates, run->n_updates);
}

void rows_sgd(struct numerics *numerics, struct device_stream *stream, const struct numerics_sgd *run)
{
    (void)stream;
    update_all(numerics, (struct update_work){ .sgd = run }, run->updates, run->n_updates);
}

struct squares_work {
    const struct row_kernels *kernels;
    const float *x;
    size_t n;
    double sums[MAX_CHUNKS];
};

static void squares_piece(void *context, size_t begin, size_t end)
{
    struct squares_work *w = context;

    for (size_t chunk = begin; chunk < end; chunk++) {
        const size_t first = chunk * chunk_rows(w->n);

        w->sums[chunk] = w->kernels->sum_squares(w->x + first, chunk_end(w->n, chunk) - first);
    }
}

static double sum_squares(const struct numerics *numerics, const float *x, size_t n_elems)
{
    struct squares_work w = { .kernels = kernels_of(numerics), .x = x, .n = n_elems };
    double sum = 0;

    parallel_for(numerics->threads, chunk_count(n_elems), n_elems > 2 * GRAIN_ELEMS ? 1 : MAX_CHUNKS,
                 squares_piece, &w);
    for (size_t chunk = 0; chunk < chunk_count(n_elems); chunk++)
        sum += w.sums[chunk];
    return sum;
}

void rows_sum_powers(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_sum_powers *run)
{
    /* rare: a job clips by another norm than the 2-norm, and the slow loops of `ref` serve */
    if (run->p != 2) {
        ref_sum_powers(numerics, stream, run);
        return;
    }
    for (size_t i = 0; i < run->n_spans; i++)
        run->sums[i] = sum_squares(numerics, run->spans[i].data, run->spans[i].n_elems);
}
