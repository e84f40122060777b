/*
 * Row operations on bfloat16 tensors. Each is the float32 kernel on a piece of the tensor that is widened into a small
 * buffer, which stays in the nearest cache, and rounded once on its way out: memory moves half the bytes, and the
 * arithmetic is float32's. How the work is cut over threads shows in no bit.
 */
#include "shard_runtime/numerics/rows_bf16.h"

#include <string.h>

#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

enum {
    TILE = 2048,     /* elements of one operand at a time */
    TILE_COLS = 256, /* of a sum over rows */
    TILE_ROWS = 32,
};

/* --- elementwise --- */

/* One of the two kernels is there: of x, or of x and y. */
struct work {
    const struct row_kernels *kernels;
    void (*of_one)(const float *x, float *out, size_t n);
    void (*of_two)(const float *x, const float *y, float *out, size_t n);
    const uint16_t *x, *y;
    uint16_t *out;
};

static void elementwise_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;
    float x[TILE], y[TILE];

    for (size_t i = begin; i < end; i += TILE) {
        const size_t n = end - i < TILE ? end - i : TILE;

        w->kernels->from_bf16(w->x + i, x, n);
        if (w->of_one != NULL) {
            w->of_one(x, x, n);
        } else {
            w->kernels->from_bf16(w->y + i, y, n);
            w->of_two(x, y, x, n);
        }
        w->kernels->to_bf16(x, w->out + i, n);
    }
}

static void elementwise(struct numerics *numerics, struct work w, size_t n_elems)
{
    w.kernels = kernels_of(numerics);
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, elementwise_piece, &w);
}

static void add(struct numerics *numerics, struct device_stream *stream, const uint16_t *a, const uint16_t *b,
                uint16_t *out, size_t n_elems)
{
    (void)stream;
    elementwise(numerics, (struct work){ .of_two = kernels_of(numerics)->add, .x = a, .y = b, .out = out },
                n_elems);
}

static void gelu(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, uint16_t *y,
                 size_t n_elems)
{
    (void)stream;
    elementwise(numerics, (struct work){ .of_one = kernels_of(numerics)->gelu, .x = x, .out = y }, n_elems);
}

static void gelu_backward(struct numerics *numerics, struct device_stream *stream, const uint16_t *dy,
                          const uint16_t *x, uint16_t *dx, size_t n_elems)
{
    (void)stream;
    elementwise(numerics,
                (struct work){ .of_two = kernels_of(numerics)->gelu_backward, .x = dy, .y = x, .out = dx },
                n_elems);
}

static void gelu_tanh(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, uint16_t *y,
                      size_t n_elems)
{
    (void)stream;
    elementwise(numerics, (struct work){ .of_one = kernels_of(numerics)->gelu_tanh, .x = x, .out = y },
                n_elems);
}

static void gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const uint16_t *dy,
                               const uint16_t *x, uint16_t *dx, size_t n_elems)
{
    (void)stream;
    elementwise(
        numerics,
        (struct work){ .of_two = kernels_of(numerics)->gelu_tanh_backward, .x = dy, .y = x, .out = dx },
        n_elems);
}

/* --- sums over rows --- */

struct sum_work {
    const struct row_kernels *kernels;
    const uint16_t *x;
    void *out;
    enum fsdp_dtype dtype;
    size_t rows, cols;
    bool accumulate;
};

static void load_sums(const struct sum_work *w, float *sums, size_t j, size_t n)
{
    if (!w->accumulate)
        memset(sums, 0, n * sizeof *sums);
    else if (w->dtype == FSDP_F32)
        memcpy(sums, (const float *)w->out + j, n * sizeof *sums);
    else
        w->kernels->from_bf16((const uint16_t *)w->out + j, sums, n);
}

static void store_sums(const struct sum_work *w, const float *sums, size_t j, size_t n)
{
    if (w->dtype == FSDP_F32)
        memcpy((float *)w->out + j, sums, n * sizeof *sums);
    else
        w->kernels->to_bf16(sums, (uint16_t *)w->out + j, n);
}

/* Columns begin .. end - 1; a column's order of additions is the same wherever it is cut. */
static void column_sum_piece(void *context, size_t begin, size_t end)
{
    const struct sum_work *w = context;
    float tile[TILE_ROWS * TILE_COLS], sums[TILE_COLS];

    for (size_t j = begin; j < end; j += TILE_COLS) {
        const size_t n = end - j < TILE_COLS ? end - j : TILE_COLS;

        load_sums(w, sums, j, n);
        for (size_t i = 0; i < w->rows; i += TILE_ROWS) {
            const size_t rows = w->rows - i < TILE_ROWS ? w->rows - i : TILE_ROWS;

            for (size_t r = 0; r < rows; r++)
                w->kernels->from_bf16(w->x + (i + r) * w->cols + j, tile + r * TILE_COLS, n);
            w->kernels->column_sum(tile, TILE_COLS, sums, rows, n, true);
        }
        store_sums(w, sums, j, n);
    }
}

static void column_sum(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, void *out,
                       enum fsdp_dtype dtype, size_t rows, size_t cols, bool accumulate)
{
    struct sum_work w = { .kernels = kernels_of(numerics),
                          .x = x,
                          .out = out,
                          .dtype = dtype,
                          .rows = rows,
                          .cols = cols,
                          .accumulate = accumulate };
    const size_t grain = rows >= GRAIN_ELEMS / 16 ? 32 : cols; /* a cache line of columns at the least */

    (void)stream;
    parallel_for(numerics->threads, cols, grain > 0 ? grain : 1, column_sum_piece, &w);
}

/* --- LayerNorm, and without a mean RMSNorm --- */

enum { NORM_ROWS = 8 };

struct norm_work {
    const struct row_kernels *kernels;
    const uint16_t *x, *weight, *bias, *dy;
    uint16_t *y, *dx;
    float *mean, *rstd;
    size_t rows, cols;
    float eps;
    bool accumulate_dx;
    char *scratch;
};

static void layer_norm_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;
    float x[NUMERICS_BF16_MAX_COLS], weight[NUMERICS_BF16_MAX_COLS], bias[NUMERICS_BF16_MAX_COLS];

    w->kernels->from_bf16(w->weight, weight, w->cols);
    if (w->bias != NULL)
        w->kernels->from_bf16(w->bias, bias, w->cols);
    for (size_t i = begin; i < end; i++) {
        float y[NUMERICS_BF16_MAX_COLS];

        w->kernels->from_bf16(w->x + i * w->cols, x, w->cols);
        if (w->mean == NULL)
            w->kernels->rms_norm(x, weight, y, w->rstd + i, 1, w->cols, w->eps);
        else
            w->kernels->layer_norm(x, weight, bias, y, w->mean + i, w->rstd + i, 1, w->cols, w->eps);
        w->kernels->to_bf16(y, w->y + i * w->cols, w->cols);
    }
}

static void layer_norm(struct numerics *numerics, struct device_stream *stream, const uint16_t *x,
                       const uint16_t *weight, const uint16_t *bias, uint16_t *y, float *mean, float *rstd,
                       size_t rows, size_t cols, float eps)
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

/* What a chunk of rows works in: its sums of dweight and dbias, those of NORM_ROWS rows, and these rows widened. */
struct norm_scratch {
    double *dweight, *dbias, *some_dweight, *some_dbias;
    float *run, *weight, *dy, *x, *dx;
};

static size_t chunk_bytes(size_t cols)
{
    return (cols * (4 * sizeof(double) + (3 + 3 * NORM_ROWS) * sizeof(float)) + 63) / 64 * 64;
}

static struct norm_scratch scratch_of(const struct norm_work *w, size_t chunk)
{
    double *at = (double *)(void *)(w->scratch + chunk * chunk_bytes(w->cols));
    struct norm_scratch s = {
        .dweight = at, .dbias = at + w->cols, .some_dweight = at + 2 * w->cols, .some_dbias = at + 3 * w->cols
    };
    float *floats = (float *)(void *)(at + 4 * w->cols);

    s.run = floats;
    s.weight = floats + 2 * w->cols;
    s.dy = floats + 3 * w->cols;
    s.x = s.dy + NORM_ROWS * w->cols;
    s.dx = s.x + NORM_ROWS * w->cols;
    return s;
}

/* The backward of rows from `i` on, which were widened: dx, and their sums. */
static void norm_some(const struct norm_work *w, const struct norm_scratch *s, size_t i, size_t rows)
{
    if (w->mean == NULL)
        w->kernels->rms_norm_backward(s->dy, s->x, s->weight, w->rstd + i, s->dx, w->accumulate_dx,
                                      s->some_dweight, s->run, rows, w->cols);
    else
        w->kernels->layer_norm_backward(s->dy, s->x, s->weight, w->mean + i, w->rstd + i, s->dx,
                                        w->accumulate_dx, s->some_dweight, s->some_dbias, s->run, rows,
                                        w->cols);
}

static void norm_chunk(const struct norm_work *w, const struct norm_scratch *s, size_t first, size_t end)
{
    const size_t n_sums = w->mean == NULL ? w->cols : 2 * w->cols; /* dweight's, and dbias's behind them */

    memset(s->dweight, 0, n_sums * sizeof *s->dweight);
    w->kernels->from_bf16(w->weight, s->weight, w->cols);
    for (size_t i = first; i < end; i += NORM_ROWS) {
        const size_t rows = end - i < NORM_ROWS ? end - i : NORM_ROWS, n = rows * w->cols, at = i * w->cols;

        w->kernels->from_bf16(w->dy + at, s->dy, n);
        w->kernels->from_bf16(w->x + at, s->x, n);
        if (w->accumulate_dx)
            w->kernels->from_bf16(w->dx + at, s->dx, n);
        norm_some(w, s, i, rows);
        if (w->dx != NULL)
            w->kernels->to_bf16(s->dx, w->dx + at, n);
        for (size_t j = 0; j < n_sums; j++)
            s->dweight[j] += s->some_dweight[j];
    }
}

static void layer_norm_backward_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;

    for (size_t chunk = begin; chunk < end; chunk++) {
        const struct norm_scratch s = scratch_of(w, chunk);

        norm_chunk(w, &s, chunk * chunk_rows(w->rows), chunk_end(w->rows, chunk));
    }
}

/* The chunks' sums in order; `which` 0: dweight, 1: dbias. */
static void add_chunks(const struct norm_work *w, size_t which, void *out, enum fsdp_dtype dtype,
                       bool accumulate)
{
    for (size_t j = 0; j < w->cols && out != NULL; j++) {
        uint16_t *narrow = (uint16_t *)out + j;
        float *wide = (float *)out + j, before = 0;
        double sum = 0;

        if (accumulate && dtype == FSDP_F32)
            before = *wide;
        else if (accumulate)
            w->kernels->from_bf16(narrow, &before, 1);
        for (size_t chunk = 0; chunk < chunk_count(w->rows); chunk++)
            sum += scratch_of(w, chunk).dweight[which * w->cols + j];
        before = (float)((double)before + sum);
        if (dtype == FSDP_F32)
            *wide = before;
        else
            w->kernels->to_bf16(&before, narrow, 1);
    }
}

static void layer_norm_backward(struct numerics *numerics, struct device_stream *stream,
                                const struct numerics_bf16_norm *norm, void *scratch, size_t rows,
                                size_t cols)
{
    struct norm_work w = { .kernels = kernels_of(numerics),
                           .x = norm->x,
                           .weight = norm->weight,
                           .dy = norm->dy,
                           .mean = (float *)(uintptr_t)norm->mean,
                           .rstd = (float *)(uintptr_t)norm->rstd,
                           .dx = norm->dx,
                           .rows = rows,
                           .cols = cols,
                           .accumulate_dx = norm->accumulate_dx,
                           .scratch = scratch };

    (void)stream;
    parallel_for(numerics->threads, chunk_count(rows), rows * cols > GRAIN_ELEMS ? 1 : MAX_CHUNKS,
                 layer_norm_backward_piece, &w);
    add_chunks(&w, 0, norm->dweight, norm->dweight_dtype, norm->accumulate_dweight);
    add_chunks(&w, 1, norm->dbias, norm->dbias_dtype, norm->accumulate_dbias);
}

static size_t layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols)
{
    (void)numerics;
    return chunk_count(rows) * chunk_bytes(cols);
}

/* --- attention --- */

struct softmax_work {
    const struct row_kernels *kernels;
    float *scores;
    uint16_t *p;
    size_t seq;
    bool causal;
};

static void softmax_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_work *w = context;

    for (size_t i = begin; i < end; i++) {
        w->kernels->softmax(w->scores, NULL, i, i + 1, w->seq, w->causal, NULL);
        w->kernels->to_bf16(w->scores + i * w->seq, w->p + i * w->seq, w->seq);
    }
}

static void softmax(struct numerics *numerics, struct device_stream *stream, float *scores, uint16_t *p,
                    const struct attention_desc *desc)
{
    struct softmax_work w = {
        .kernels = kernels_of(numerics), .scores = scores, .p = p, .seq = desc->seq, .causal = desc->causal
    };

    (void)stream;
    parallel_for(numerics->threads, desc->batch * desc->heads * desc->seq,
                 desc->seq >= row_grain(desc->seq) ? desc->seq : row_grain(desc->seq), softmax_piece, &w);
}

/* What a causal query does not see is no part of its row: the kernel is given the row without it. */
static void softmax_backward_piece(void *context, size_t begin, size_t end)
{
    const struct softmax_work *w = context;

    for (size_t i = begin; i < end; i++) {
        const size_t n = w->causal ? i % w->seq + 1 : w->seq;
        float p[NUMERICS_BF16_MAX_COLS], *ds = w->scores + i * w->seq;

        w->kernels->from_bf16(w->p + i * w->seq, p, n);
        w->kernels->softmax_backward(p, ds, ds, 0, 1, n, false, NULL);
        w->kernels->to_bf16(ds, w->p + i * w->seq, n);
        memset(w->p + i * w->seq + n, 0, (w->seq - n) * sizeof *w->p);
    }
}

static void softmax_backward(struct numerics *numerics, struct device_stream *stream, uint16_t *p_ds,
                             float *dp, const struct attention_desc *desc)
{
    struct softmax_work w = {
        .kernels = kernels_of(numerics), .scores = dp, .p = p_ds, .seq = desc->seq, .causal = desc->causal
    };

    (void)stream;
    parallel_for(numerics->threads, desc->batch * desc->heads * desc->seq,
                 desc->seq >= row_grain(desc->seq) ? desc->seq : row_grain(desc->seq), softmax_backward_piece,
                 &w);
}

const struct numerics_bf16 rows_bf16 = {
    .add = add,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .gelu_tanh = gelu_tanh,
    .gelu_tanh_backward = gelu_tanh_backward,
    .column_sum = column_sum,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .layer_norm_scratch = layer_norm_scratch,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
};
