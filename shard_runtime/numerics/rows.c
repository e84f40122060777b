/*
 * Products of a thread's range with the others' are needed in three places only: the parameters' gradients of
 * LayerNorm, the loss, and the sum of squares. There the rows are cut into a number of chunks that their count
 * decides, each summed in double by itself, and the chunks are added in order: the threads do not show.
 */
#include "shard_runtime/numerics/rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"

enum {
    GRAIN_ELEMS = 8192, /* what a second thread is woken for: about 2 us of work */
    MAX_CHUNKS = 32,
};

static bool cpu_has(const char *isa)
{
#if defined(__x86_64__)
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return strcmp(isa, "base") == 0;
}

enum fsdp_status rows_init(struct rows *rows, struct fsdp_err *err)
{
    static const struct row_kernels *const sets[] = {
#if defined(__x86_64__)
        &row_kernels_avx512,
        &row_kernels_avx2,
#endif
        &row_kernels_base,
    };
    const char *wanted = getenv("FSDP_ISA");

    if (wanted != NULL && wanted[0] == '\0')
        wanted = NULL;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (!cpu_has(sets[i]->isa) || (wanted != NULL && strcmp(wanted, sets[i]->isa) != 0))
            continue;
        rows->kernels = sets[i];
        return FSDP_OK;
    }
    return fsdp_fail(err, FSDP_ERR_CONFIG, "FSDP_ISA=%s: this CPU and build have no such instruction set", wanted);
}

static const struct row_kernels *kernels_of(const struct numerics *numerics)
{
    return ((const struct rows *)numerics->state)->kernels;
}

/* Rows that make a grain. */
static size_t row_grain(size_t cols)
{
    return cols >= GRAIN_ELEMS ? 1 : GRAIN_ELEMS / (cols > 0 ? cols : 1);
}

/* Chunks of equal size, but the last: how many rows each has. At most MAX_CHUNKS of them. */
static size_t chunk_rows(size_t rows)
{
    return rows / MAX_CHUNKS + (rows % MAX_CHUNKS != 0);
}

static size_t chunk_count(size_t rows)
{
    return rows == 0 ? 0 : (rows - 1) / chunk_rows(rows) + 1;
}

static size_t chunk_end(size_t rows, size_t chunk)
{
    const size_t end = (chunk + 1) * chunk_rows(rows);

    return end < rows ? end : rows;
}

/* --- elementwise ---------------------------------------------------------------------------------------------- */

/* One context for all that takes rows of floats; each function uses what it needs. */
struct work {
    const struct row_kernels *kernels;
    const float *a, *b;
    float *out;
    size_t rows, cols;
    bool accumulate;
    const struct dropout *dropout;
};

static void add_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->add(w->a + begin, w->b + begin, w->out + begin, end - begin);
}

void rows_add(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b, float *out,
              size_t n_elems)
{
    struct work w = { .kernels = kernels_of(numerics), .a = a, .b = b, .out = out };

    (void)stream;
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, add_piece, &w);
}

static void gelu_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->gelu(w->a + begin, w->out + begin, end - begin);
}

void rows_gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y, size_t n_elems)
{
    struct work w = { .kernels = kernels_of(numerics), .a = x, .out = y };

    (void)stream;
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, gelu_piece, &w);
}

static void gelu_backward_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->gelu_backward(w->a + begin, w->b + begin, w->out + begin, end - begin);
}

void rows_gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy, const float *x,
                        float *dx, size_t n_elems)
{
    struct work w = { .kernels = kernels_of(numerics), .a = dy, .b = x, .out = dx };

    (void)stream;
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, gelu_backward_piece, &w);
}

static void dropout_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->dropout(w->a + begin * w->cols, w->out + begin * w->cols, end - begin, w->cols, w->dropout,
                        w->dropout->first_row + begin, w->accumulate);
}

void rows_dropout(struct numerics *numerics, struct device_stream *stream, const float *x, float *out, size_t rows,
                  size_t cols, const struct dropout *dropout, bool accumulate)
{
    struct work w = { .kernels = kernels_of(numerics), .a = x, .out = out, .rows = rows, .cols = cols,
                      .accumulate = accumulate, .dropout = dropout };

    if (dropout_is_on(dropout))
        parallel_for(numerics->threads, rows, row_grain(cols), dropout_piece, &w);
    else if (accumulate)
        rows_add(numerics, stream, out, x, out, rows * cols);
    else if (out != x)
        memcpy(out, x, rows * cols * sizeof *x);
}

/* --- sums over rows: the columns are cut, so that each thread has whole sums ----------------------------------- */

static void column_sum_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->column_sum(w->a + begin, w->cols, w->out + begin, w->rows, end - begin, w->accumulate);
}

void rows_column_sum(struct numerics *numerics, struct device_stream *stream, const float *x, float *out, size_t rows,
                     size_t cols, bool accumulate)
{
    struct work w = { .kernels = kernels_of(numerics), .a = x, .out = out, .rows = rows, .cols = cols,
                      .accumulate = accumulate };
    /* A cache line of columns is the least a thread may have; small sums stay on one thread. */
    const size_t grain = rows >= GRAIN_ELEMS / 16 ? 16 : cols;

    (void)stream;
    parallel_for(numerics->threads, cols, grain > 0 ? grain : 1, column_sum_piece, &w);
}

/* --- LayerNorm -------------------------------------------------------------------------------------------------- */

struct norm_work {
    const struct row_kernels *kernels;
    const float *x, *weight, *bias, *dy;
    float *y, *mean, *rstd, *dx;
    size_t rows, cols;
    float eps;
    bool accumulate_dx;
    double *partial; /* a chunk: dweight, dbias, and 2 * cols floats of work, all in 3 * cols doubles */
};

static void layer_norm_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;
    const size_t at = begin * w->cols;

    w->kernels->layer_norm(w->x + at, w->weight, w->bias, w->y + at, w->mean + begin, w->rstd + begin, end - begin,
                           w->cols, w->eps);
}

void rows_layer_norm(struct numerics *numerics, struct device_stream *stream, const float *x, const float *weight,
                     const float *bias, float *y, float *mean, float *rstd, size_t rows, size_t cols, float eps)
{
    struct norm_work w = { .kernels = kernels_of(numerics), .x = x, .weight = weight, .bias = bias, .y = y,
                           .mean = mean, .rstd = rstd, .rows = rows, .cols = cols, .eps = eps };

    (void)stream;
    parallel_for(numerics->threads, rows, row_grain(cols), layer_norm_piece, &w);
}

static void layer_norm_backward_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;

    for (size_t chunk = begin; chunk < end; chunk++) {
        const size_t first = chunk * chunk_rows(w->rows), n = chunk_end(w->rows, chunk) - first;
        double *partial = w->partial + chunk * 3 * w->cols;

        w->kernels->layer_norm_backward(w->dy + first * w->cols, w->x + first * w->cols, w->weight, w->mean + first,
                                        w->rstd + first, w->dx + first * w->cols, w->accumulate_dx, partial,
                                        partial + w->cols, (float *)(partial + 2 * w->cols), n, w->cols);
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

void rows_layer_norm_backward(struct numerics *numerics, struct device_stream *stream, const float *dy, const float *x,
                              const float *weight, const float *mean, const float *rstd, float *dx, bool accumulate_dx,
                              float *dweight, float *dbias, bool accumulate_params, void *scratch, size_t rows,
                              size_t cols)
{
    struct norm_work w = { .kernels = kernels_of(numerics), .x = x, .weight = weight, .dy = dy,
                           .mean = (float *)(uintptr_t)mean, .rstd = (float *)(uintptr_t)rstd, .dx = dx, .rows = rows,
                           .cols = cols, .accumulate_dx = accumulate_dx, .partial = scratch };
    const size_t enough = rows * cols > GRAIN_ELEMS ? 1 : MAX_CHUNKS; /* chunks that a second thread is woken for */

    (void)stream;
    parallel_for(numerics->threads, chunk_count(rows), enough, layer_norm_backward_piece, &w);
    add_partials(&w, 0, dweight, accumulate_params);
    add_partials(&w, 1, dbias, accumulate_params);
}

size_t rows_layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols)
{
    (void)numerics;
    return chunk_count(rows) * 3 * cols * sizeof(double);
}

/* --- attention -------------------------------------------------------------------------------------------------- */

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
    struct softmax_work w = { .kernels = kernels_of(numerics), .scores = scores, .dropped = dropped, .desc = desc,
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

void rows_softmax_backward(struct numerics *numerics, struct device_stream *stream, const float *p, const float *dp,
                           float *ds, const struct attention_desc *desc, const struct dropout *dropout)
{
    struct softmax_work w = { .kernels = kernels_of(numerics), .p = p, .dp = dp, .ds = ds, .desc = desc,
                              .dropout = dropout };

    (void)stream;
    parallel_for(numerics->threads, desc->batch * desc->heads * desc->seq,
                 desc->seq >= row_grain(desc->seq) ? desc->seq : row_grain(desc->seq), softmax_backward_piece, &w);
}

/* --- embedding -------------------------------------------------------------------------------------------------- */

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

void rows_embedding(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens, const float *table,
                    const float *positions, float *out, size_t rows, size_t cols, size_t seq)
{
    struct embedding_work w = { .kernels = kernels_of(numerics), .tokens = tokens, .table = table,
                                .positions = positions, .out = out, .rows = rows, .cols = cols, .seq = seq };

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
                             const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols, size_t seq)
{
    struct embedding_work w = { .kernels = kernels_of(numerics), .tokens = tokens, .dout = dout, .dtable = dtable,
                                .dpositions = dpositions, .rows = rows, .cols = cols, .seq = seq };

    (void)stream;
    if (dtable != NULL)
        parallel_for(numerics->threads, cols, 64, dtable_piece, &w);
    if (dpositions != NULL)
        parallel_for(numerics->threads, seq, 1, dpositions_piece, &w);
}

/* --- loss ------------------------------------------------------------------------------------------------------- */

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
    w->losses[chunk] += w->kernels->cross_entropy(w->logits + row * w->vocab, (size_t)target, out, w->vocab, w->scale);
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
    struct loss_work w = { .kernels = kernels_of(numerics), .logits = logits, .targets = targets, .dlogits = dlogits,
                           .rows = rows, .vocab = vocab, .scale = scale };

    (void)stream;
    parallel_for(numerics->threads, chunk_count(rows), rows * vocab > GRAIN_ELEMS ? 1 : MAX_CHUNKS, loss_piece, &w);
    for (size_t chunk = 0; chunk < chunk_count(rows); chunk++) {
        *loss_sum += w.losses[chunk];
        *n_targets += w.counts[chunk];
    }
}

/* --- optimizers and norms --------------------------------------------------------------------------------------- */

struct update_work {
    const struct row_kernels *kernels;
    float *param, *m, *v;
    const float *grad;
    const struct adamw *adamw;
    const struct sgd *sgd;
    float grad_scale;
    uint64_t step;
};

static void adamw_piece(void *context, size_t begin, size_t end)
{
    const struct update_work *w = context;

    w->kernels->adamw(w->param + begin, w->grad + begin, w->m + begin, w->v + begin, end - begin, w->adamw,
                      w->grad_scale, w->step);
}

void rows_adamw(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad, float *m,
                float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step)
{
    struct update_work w = { .kernels = kernels_of(numerics), .param = param, .m = m, .v = v, .grad = grad, .adamw = h,
                             .grad_scale = grad_scale, .step = step };

    (void)stream;
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, adamw_piece, &w);
}

static void sgd_piece(void *context, size_t begin, size_t end)
{
    const struct update_work *w = context;

    w->kernels->sgd(w->param + begin, w->grad + begin, w->m == NULL ? NULL : w->m + begin, end - begin, w->sgd,
                    w->grad_scale, w->step);
}

void rows_sgd(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad, float *buf,
              size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step)
{
    struct update_work w = { .kernels = kernels_of(numerics), .param = param, .m = buf, .grad = grad, .sgd = h,
                             .grad_scale = grad_scale, .step = step };

    (void)stream;
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, sgd_piece, &w);
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

double rows_sum_squares(struct numerics *numerics, struct device_stream *stream, const float *x, size_t n_elems)
{
    struct squares_work w = { .kernels = kernels_of(numerics), .x = x, .n = n_elems };
    double sum = 0;

    (void)stream;
    parallel_for(numerics->threads, chunk_count(n_elems), n_elems > 2 * GRAIN_ELEMS ? 1 : MAX_CHUNKS, squares_piece, &w);
    for (size_t chunk = 0; chunk < chunk_count(n_elems); chunk++)
        sum += w.sums[chunk];
    return sum;
}
