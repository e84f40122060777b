/* Softmax, embedding and loss, divided among the threads. */
#include <assert.h>
#include <string.h>

#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

/*
 * Calls `piece` on the rows of all (seq, seq) matrices, in ranges of whole heads. With a causal mask the
 * first rows of a head have fewer keys than its last, so halves of a head would be unequal work.
 */
static void each_score_row(const struct numerics *numerics, const struct attention_desc *d,
                           parallel_piece *piece, void *work)
{
    const size_t grain = row_grain(d->seq);

    parallel_for(numerics->threads, d->batch * d->heads * d->seq, d->seq >= grain ? d->seq : grain, piece,
                 work);
}

struct softmax_work {
    const struct row_kernels *kernels;
    const struct numerics_softmax *run;
};

static void softmax_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_work *w = context;
    const struct numerics_softmax *run = w->run;
    const size_t seq = run->shape->seq, step = run->dtype == FSDP_F32 ? end - begin : 1;

    for (size_t i = begin; i < end; i += step) {
        w->kernels->softmax(run->scores, run->dropped, i, i + step, seq, run->shape->causal, run->dropout);
        floats_back(w->kernels, run->dtype, run->p, i * seq, seq, run->scores + i * seq);
    }
}

void rows_softmax(struct numerics *numerics, struct device_stream *stream, const struct numerics_softmax *run)
{
    struct softmax_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    assert(run->dropped != NULL || !dropout_is_on(run->dropout));
    assert(run->dtype != FSDP_F32 || run->p == run->scores);
    each_score_row(numerics, run->shape, softmax_piece, &w);
}

struct softmax_backward_work {
    const struct row_kernels *kernels;
    const struct numerics_softmax_backward *run;
};

static void softmax_backward_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_backward_work *w = context;
    const struct numerics_softmax_backward *run = w->run;

    w->kernels->softmax_backward(run->p, run->dp, run->ds, begin, end, run->shape->seq, run->shape->causal,
                                 run->dropout);
}

/* The kernel is given only the keys that a query sees: the others are not part of its row. */
static void softmax_backward_bf16_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_backward_work *w = context;
    const struct numerics_softmax_backward *run = w->run;
    const size_t seq = run->shape->seq;
    float buffer[NUMERICS_BF16_MAX_COLS];

    for (size_t i = begin; i < end; i++) {
        const size_t n = attention_keys(run->shape, i % seq);
        const float *p = floats_in(w->kernels, run->dtype, run->p, i * seq, n, buffer);
        float *ds = run->dp + i * seq;

        w->kernels->softmax_backward(p, ds, ds, 0, 1, n, false, NULL);
        floats_back(w->kernels, run->dtype, run->ds, i * seq, n, ds);
        memset((uint16_t *)run->ds + i * seq + n, 0, (seq - n) * sizeof(uint16_t));
    }
}

void rows_softmax_backward(struct numerics *numerics, struct device_stream *stream,
                           const struct numerics_softmax_backward *run)
{
    struct softmax_backward_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    each_score_row(numerics, run->shape,
                   run->dtype == FSDP_F32 ? softmax_backward_piece : softmax_backward_bf16_piece, &w);
}

struct embedding_work {
    const struct row_kernels *kernels;
    const struct numerics_embedding *run;
};

static void embedding_piece(void *context, size_t begin, size_t end)
{
    const struct embedding_work *w = context;
    const struct numerics_embedding *run = w->run;

    for (size_t i = begin; i < end; i++) {
        const float *value = run->table + (size_t)run->tokens[i] * run->cols;
        float *out = run->out + i * run->cols;

        if (run->positions != NULL)
            w->kernels->add(value, run->positions + i % run->seq * run->cols, out, run->cols);
        else
            memcpy(out, value, run->cols * sizeof *out);
    }
}

void rows_embedding(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_embedding *run)
{
    struct embedding_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    parallel_for(numerics->threads, run->rows, row_grain(run->cols), embedding_piece, &w);
}

struct embedding_backward_work {
    const struct row_kernels *kernels;
    const struct numerics_embedding_backward *run;
};

/*
 * Adds columns `begin` to `end` - 1 of every row, in row order. So two rows with the same token are added by
 * the same thread.
 */
static void dtable_piece(void *context, size_t begin, size_t end)
{
    const struct embedding_backward_work *w = context;
    const struct numerics_embedding_backward *run = w->run;

    for (size_t i = 0; i < run->rows; i++) {
        float *sum = run->dtable + (size_t)run->tokens[i] * run->cols + begin;

        w->kernels->add(sum, run->dout + i * run->cols + begin, sum, end - begin);
    }
}

/* Adds positions `begin` to `end` - 1. Each position is the sum of every seq-th row. */
static void dpositions_piece(void *context, size_t begin, size_t end)
{
    const struct embedding_backward_work *w = context;
    const struct numerics_embedding_backward *run = w->run;

    for (size_t t = begin; t < end && t < run->rows; t++)
        w->kernels->column_sum(run->dout + t * run->cols, run->seq * run->cols,
                               run->dpositions + t * run->cols, (run->rows - t - 1) / run->seq + 1, run->cols,
                               true);
}

void rows_embedding_backward(struct numerics *numerics, struct device_stream *stream,
                             const struct numerics_embedding_backward *run)
{
    struct embedding_backward_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    if (run->dtable != NULL)
        parallel_for(numerics->threads, run->cols, 64, dtable_piece, &w);
    if (run->dpositions != NULL)
        parallel_for(numerics->threads, run->seq, 1, dpositions_piece, &w);
}

struct loss_work {
    const struct row_kernels *kernels;
    const struct numerics_cross_entropy *run;
    double losses[MAX_CHUNKS];
    uint64_t counts[MAX_CHUNKS];
};

static void loss_row(struct loss_work *w, size_t row, size_t chunk)
{
    const struct numerics_cross_entropy *run = w->run;
    const float *logits = (const float *)run->logits + row * run->row_stride;
    float *out = run->dlogits == NULL ? NULL : (float *)run->dlogits + row * run->row_stride;
    const int32_t target = run->targets[row];

    if (target == NUMERICS_IGNORED_TARGET) {
        if (out != NULL)
            memset(out, 0, run->vocab * sizeof *out);
        return;
    }
    assert(target >= 0 && (size_t)target < run->vocab);
    w->losses[chunk] += w->kernels->cross_entropy(logits, (size_t)target, out, run->vocab, run->scale);
    w->counts[chunk]++;
}

static void loss_piece(void *context, size_t begin, size_t end)
{
    struct loss_work *w = context;
    const size_t rows = w->run->rows;

    for (size_t chunk = begin; chunk < end; chunk++)
        for (size_t row = chunk * chunk_rows(rows); row < chunk_end(rows, chunk); row++)
            loss_row(w, row, chunk);
}

void rows_cross_entropy(struct numerics *numerics, struct device_stream *stream,
                        const struct numerics_cross_entropy *run)
{
    struct loss_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    parallel_for(numerics->threads, chunk_count(run->rows),
                 run->rows * run->vocab > GRAIN_ELEMS ? 1 : MAX_CHUNKS, loss_piece, &w);
    for (size_t chunk = 0; chunk < chunk_count(run->rows); chunk++) {
        *run->loss_sum += w.losses[chunk];
        *run->n_targets += w.counts[chunk];
    }
}
