/* LayerNorm and RMSNorm, attention, embedding and loss, cut over the threads. */
#include <assert.h>
#include <string.h>

#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

/* --- LayerNorm, and without a mean RMSNorm --- */

struct norm_work {
    const struct row_kernels *kernels;
    const float *x, *weight, *bias, *dy;
    float *y, *mean, *rstd, *dx;
    size_t rows, cols;
    float eps;
    bool accumulate_dx;
    double *
        partial; /* a chunk: dweight, dbias (nobody's without a mean), and 2 * cols floats of work, all in 3 * cols doubles */
};

static void layer_norm_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;
    const size_t at = begin * w->cols;

    if (w->mean == NULL)
        w->kernels->rms_norm(w->x + at, w->weight, w->y + at, w->rstd + begin, end - begin, w->cols, w->eps);
    else
        w->kernels->layer_norm(w->x + at, w->weight, w->bias, w->y + at, w->mean + begin, w->rstd + begin,
                               end - begin, w->cols, w->eps);
}

void rows_layer_norm(struct numerics *numerics, struct device_stream *stream, const float *x,
                     const float *weight, const float *bias, float *y, float *mean, float *rstd, size_t rows,
                     size_t cols, float eps)
{
    struct norm_work w = { .kernels = kernels_of(numerics),
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .y = y,
                           .mean = mean,
                           .rstd = rstd,
                           .rows = rows,
                           .cols = cols,
                           .eps = eps };

    (void)stream;
    parallel_for(numerics->threads, rows, row_grain(cols), layer_norm_piece, &w);
}

static void layer_norm_backward_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;

    for (size_t chunk = begin; chunk < end; chunk++) {
        const size_t first = chunk * chunk_rows(w->rows), n = chunk_end(w->rows, chunk) - first;
        double *partial = w->partial + chunk * 3 * w->cols;
        const float *dy = w->dy + first * w->cols, *x = w->x + first * w->cols;
        float *dx = w->dx + first * w->cols, *run = (void *)(partial + 2 * w->cols);

        if (w->mean == NULL)
            w->kernels->rms_norm_backward(dy, x, w->weight, w->rstd + first, dx, w->accumulate_dx, partial,
                                          run, n, w->cols);
        else
            w->kernels->layer_norm_backward(dy, x, w->weight, w->mean + first, w->rstd + first, dx,
                                            w->accumulate_dx, partial, partial + w->cols, run, n, w->cols);
    }
}

static void add_partials(const struct norm_work *w, size_t offset, float *out, bool accumulate)
{
    for (size_t j = 0; j < w->cols; j++) {
        double sum = accumulate ? (double)out[j] : 0;

        for (size_t chunk = 0; chunk < chunk_count(w->rows); chunk++)
            sum += w->partial[(chunk * 3 + offset) * w->cols + j];
        out[j] = (float)sum;
    }
}

void rows_layer_norm_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                              const float *x, const float *weight, const float *mean, const float *rstd,
                              float *dx, bool accumulate_dx, float *dweight, float *dbias,
                              bool accumulate_params, void *scratch, size_t rows, size_t cols)
{
    struct norm_work w = { .kernels = kernels_of(numerics),
                           .x = x,
                           .weight = weight,
                           .dy = dy,
                           .mean = (float *)(uintptr_t)mean,
                           .rstd = (float *)(uintptr_t)rstd,
                           .dx = dx,
                           .rows = rows,
                           .cols = cols,
                           .accumulate_dx = accumulate_dx,
                           .partial = scratch };
    const size_t enough =
        rows * cols > GRAIN_ELEMS ? 1 : MAX_CHUNKS; /* chunks that a second thread is woken for */

    (void)stream;
    parallel_for(numerics->threads, chunk_count(rows), enough, layer_norm_backward_piece, &w);
    add_partials(&w, 0, dweight, accumulate_params);
    if (mean != NULL)
        add_partials(&w, 1, dbias, accumulate_params);
}

size_t rows_layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols)
{
    (void)numerics;
    return chunk_count(rows) * 3 * cols * sizeof(double);
}

/* --- attention --- */

struct softmax_work {
    const struct row_kernels *kernels;
    float *scores, *dropped;
    const float *p, *dp;
    float *ds;
    const struct attention_desc *desc;
    const struct dropout *dropout;
};

static void softmax_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_work *w = context;

    w->kernels->softmax(w->scores, w->dropped, begin, end, w->desc->seq, w->desc->causal, w->dropout);
}

void rows_softmax(struct numerics *numerics, struct device_stream *stream, float *scores, float *dropped,
                  const struct attention_desc *desc, const struct dropout *dropout)
{
    struct softmax_work w = { .kernels = kernels_of(numerics),
                              .scores = scores,
                              .dropped = dropped,
                              .desc = desc,
                              .dropout = dropout };

    (void)stream;
    assert(dropped != NULL || !dropout_is_on(dropout));
    /* Whole heads: a causal head's first rows are shorter than its last. */
    parallel_for(numerics->threads, desc->batch * desc->heads * desc->seq,
                 desc->seq >= row_grain(desc->seq) ? desc->seq : row_grain(desc->seq), softmax_piece, &w);
}

static void softmax_backward_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_work *w = context;

    w->kernels->softmax_backward(w->p, w->dp, w->ds, begin, end, w->desc->seq, w->desc->causal, w->dropout);
}

void rows_softmax_backward(struct numerics *numerics, struct device_stream *stream, const float *p,
                           const float *dp, float *ds, const struct attention_desc *desc,
                           const struct dropout *dropout)
{
    struct softmax_work w = {
        .kernels = kernels_of(numerics), .p = p, .dp = dp, .ds = ds, .desc = desc, .dropout = dropout
    };

    (void)stream;
    parallel_for(numerics->threads, desc->batch * desc->heads * desc->seq,
                 desc->seq >= row_grain(desc->seq) ? desc->seq : row_grain(desc->seq), softmax_backward_piece,
                 &w);
}

/* --- embedding --- */

struct embedding_work {
    const struct row_kernels *kernels;
    const int32_t *tokens;
    const float *table, *positions, *dout;
    float *out, *dtable, *dpositions;
    size_t rows, cols, seq;
};

static void embedding_piece(void *context, size_t begin, size_t end)
{
    const struct embedding_work *w = context;

    for (size_t i = begin; i < end; i++) {
        const float *value = w->table + (size_t)w->tokens[i] * w->cols;
        float *out = w->out + i * w->cols;

        if (w->positions != NULL)
            w->kernels->add(value, w->positions + i % w->seq * w->cols, out, w->cols);
        else
            memcpy(out, value, w->cols * sizeof *out);
    }
}

void rows_embedding(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                    const float *table, const float *positions, float *out, size_t rows, size_t cols,
                    size_t seq)
{
    struct embedding_work w = { .kernels = kernels_of(numerics),
                                .tokens = tokens,
                                .table = table,
                                .positions = positions,
                                .out = out,
                                .rows = rows,
                                .cols = cols,
                                .seq = seq };

    (void)stream;
    parallel_for(numerics->threads, rows, row_grain(cols), embedding_piece, &w);
}

/* Columns begin .. end - 1 of every row, in row order: two rows of one token meet on one thread. */
static void dtable_piece(void *context, size_t begin, size_t end)
{
    const struct embedding_work *w = context;

    for (size_t i = 0; i < w->rows; i++) {
        float *sum = w->dtable + (size_t)w->tokens[i] * w->cols + begin;

        w->kernels->add(sum, w->dout + i * w->cols + begin, sum, end - begin);
    }
}

/* Positions begin .. end - 1: each the sum of every seq-th row. */
static void dpositions_piece(void *context, size_t begin, size_t end)
{
    const struct embedding_work *w = context;

    for (size_t t = begin; t < end && t < w->rows; t++)
        w->kernels->column_sum(w->dout + t * w->cols, w->seq * w->cols, w->dpositions + t * w->cols,
                               (w->rows - t - 1) / w->seq + 1, w->cols, true);
}

void rows_embedding_backward(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                             const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols,
                             size_t seq)
{
    struct embedding_work w = { .kernels = kernels_of(numerics),
                                .tokens = tokens,
                                .dout = dout,
                                .dtable = dtable,
                                .dpositions = dpositions,
                                .rows = rows,
                                .cols = cols,
                                .seq = seq };

    (void)stream;
    if (dtable != NULL)
        parallel_for(numerics->threads, cols, 64, dtable_piece, &w);
    if (dpositions != NULL)
        parallel_for(numerics->threads, seq, 1, dpositions_piece, &w);
}

/* --- loss --- */

enum { IGNORED = -100 }; /* torch.nn.functional.cross_entropy's ignore_index */

struct loss_work {
    const struct row_kernels *kernels;
    const float *logits;
    const int32_t *targets;
    float *dlogits;
    size_t rows, vocab;
    float scale;
    double losses[MAX_CHUNKS];
    uint64_t counts[MAX_CHUNKS];
};

static void loss_row(struct loss_work *w, size_t row, size_t chunk)
{
    float *out = w->dlogits == NULL ? NULL : w->dlogits + row * w->vocab;
    const int32_t target = w->targets[row];

    if (target == IGNORED) {
        if (out != NULL)
            memset(out, 0, w->vocab * sizeof *out);
        return;
    }
    assert(target >= 0 && (size_t)target < w->vocab);
    w->losses[chunk] +=
        w->kernels->cross_entropy(w->logits + row * w->vocab, (size_t)target, out, w->vocab, w->scale);
    w->counts[chunk]++;
}

static void loss_piece(void *context, size_t begin, size_t end)
{
    struct loss_work *w = context;

    for (size_t chunk = begin; chunk < end; chunk++)
        for (size_t row = chunk * chunk_rows(w->rows); row < chunk_end(w->rows, chunk); row++)
            loss_row(w, row, chunk);
}

void rows_cross_entropy(struct numerics *numerics, struct device_stream *stream, const float *logits,
                        const int32_t *targets, float *dlogits, size_t rows, size_t vocab, float scale,
                        double *loss_sum, uint64_t *n_targets)
{
    struct loss_work w = { .kernels = kernels_of(numerics),
                           .logits = logits,
                           .targets = targets,
                           .dlogits = dlogits,
                           .rows = rows,
                           .vocab = vocab,
                           .scale = scale };

    (void)stream;
    parallel_for(numerics->threads, chunk_count(rows), rows * vocab > GRAIN_ELEMS ? 1 : MAX_CHUNKS,
                 loss_piece, &w);
    for (size_t chunk = 0; chunk < chunk_count(rows); chunk++) {
        *loss_sum += w.losses[chunk];
        *n_targets += w.counts[chunk];
    }
}
