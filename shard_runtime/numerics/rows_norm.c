/*
 * LayerNorm and RMSNorm, and a residual sum with its norm, cut over the threads. How the work is cut changes
 * no bit.
 */
#include <string.h>

#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

struct norm_work {
    const struct row_kernels *kernels;
    const struct numerics_norm *run;
};

static void norm_piece(void *context, size_t begin, size_t end)
{
    const struct norm_work *w = context;
    const struct numerics_norm *run = w->run;
    const size_t step = run->dtype == FSDP_F32 ? end - begin : 1, n = step * run->cols;
    float x[NUMERICS_BF16_MAX_COLS], y[NUMERICS_BF16_MAX_COLS];
    float weight[NUMERICS_BF16_MAX_COLS], bias[NUMERICS_BF16_MAX_COLS];
    struct numerics_norm part = *run;

    part.weight = floats_in(w->kernels, run->dtype, run->weight, 0, run->cols, weight);
    if (run->bias != NULL)
        part.bias = floats_in(w->kernels, run->dtype, run->bias, 0, run->cols, bias);
    part.rows = step;
    for (size_t i = begin; i < end; i += step) {
        part.x = floats_in(w->kernels, run->dtype, run->x, i * run->cols, n, x);
        part.y = floats_out(run->dtype, run->y, i * run->cols, y);
        part.mean = run->mean == NULL ? NULL : run->mean + i;
        part.rstd = run->rstd + i;
        w->kernels->norm(&part);
        floats_back(w->kernels, run->dtype, run->y, i * run->cols, n, y);
    }
}

void rows_norm(struct numerics *numerics, struct device_stream *stream, const struct numerics_norm *run)
{
    struct norm_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    parallel_for(numerics->threads, run->rows, row_grain(run->cols), norm_piece, &w);
}

struct backward_work {
    const struct row_kernels *kernels;
    const struct numerics_norm_backward *run;
};

/*
 * The memory that the computation of one chunk of rows uses. float32: dweight and dbias of the chunk, which
 * the kernel writes, and its work. bfloat16: the kernel is given NORM_ROWS widened rows at a time, writes
 * their sums to some_dweight and some_dbias, and these are added to the chunk's.
 */
struct chunk {
    double *dweight, *dbias, *some_dweight, *some_dbias;
    float *work, *weight, *dy, *x, *dx;
};

enum { NORM_ROWS = 8 };

static size_t chunk_bytes(enum fsdp_dtype dtype, size_t cols)
{
    if (dtype == FSDP_F32)
        return 3 * cols * sizeof(double);
    return (cols * (4 * sizeof(double) + (3 + 3 * NORM_ROWS) * sizeof(float)) + 63) / 64 * 64;
}

static struct chunk chunk_of(const struct numerics_norm_backward *run, size_t index)
{
    const size_t cols = run->cols;
    double *at = (double *)(void *)((char *)run->scratch + index * chunk_bytes(run->dtype, cols));
    struct chunk c = { .dweight = at, .dbias = at + cols };

    if (run->dtype == FSDP_F32) {
        c.some_dweight = c.dweight;
        c.some_dbias = c.dbias;
        c.work = (float *)(void *)(at + 2 * cols);
        return c;
    }
    c.some_dweight = at + 2 * cols;
    c.some_dbias = at + 3 * cols;
    c.work = (float *)(void *)(at + 4 * cols);
    c.weight = c.work + 2 * cols;
    c.dy = c.weight + cols;
    c.x = c.dy + NORM_ROWS * cols;
    c.dx = c.x + NORM_ROWS * cols;
    return c;
}

/*
 * Computes rows `first` to `end` - 1 of a chunk: their dx, and their part of the chunk's sums dweight and
 * dbias.
 */
static void backward_chunk(const struct backward_work *w, const struct chunk *c, size_t first, size_t end)
{
    const struct numerics_norm_backward *run = w->run;
    const bool wide = run->dtype == FSDP_F32;
    const size_t cols = run->cols, step = wide ? end - first : NORM_ROWS;
    const size_t n_sums = run->mean == NULL ? cols : 2 * cols; /* dbias follows dweight */
    struct numerics_norm_backward part = *run;

    part.weight = floats_in(w->kernels, run->dtype, run->weight, 0, cols, c->weight);
    if (!wide)
        memset(c->dweight, 0, n_sums * sizeof *c->dweight);
    for (size_t i = first; i < end; i += step) {
        const size_t at = i * cols;
        size_t n;

        part.rows = end - i < step ? end - i : step;
        n = part.rows * cols;
        part.dy = floats_in(w->kernels, run->dtype, run->dy, at, n, c->dy);
        part.x = floats_in(w->kernels, run->dtype, run->x, at, n, c->x);
        part.mean = run->mean == NULL ? NULL : run->mean + i;
        part.rstd = run->rstd + i;
        if (run->dx != NULL) {
            part.dx = floats_out(run->dtype, run->dx, at, c->dx);
            if (run->accumulate_dx)
                (void)floats_in(w->kernels, run->dtype, run->dx, at, n, c->dx);
        }
        w->kernels->norm_backward(&part, c->some_dweight, c->some_dbias, c->work);
        if (run->dx != NULL)
            floats_back(w->kernels, run->dtype, run->dx, at, n, c->dx);
        for (size_t j = 0; !wide && j < n_sums; j++)
            c->dweight[j] += c->some_dweight[j];
    }
}

static void norm_backward_piece(void *context, size_t begin, size_t end)
{
    const struct backward_work *w = context;

    for (size_t index = begin; index < end; index++) {
        const struct chunk c = chunk_of(w->run, index);

        backward_chunk(w, &c, index * chunk_rows(w->run->rows), chunk_end(w->run->rows, index));
    }
}

/*
 * Adds up the chunks' sums in order; `which` is 0 for dweight and 1 for dbias. `out` NULL: that gradient is
 * not wanted.
 */
static void add_chunks(const struct backward_work *w, size_t which, void *out, enum fsdp_dtype dtype,
                       bool accumulate)
{
    const struct numerics_norm_backward *run = w->run;
    const double *sums = chunk_of(run, 0).dweight + which * run->cols;
    const size_t stride = chunk_bytes(run->dtype, run->cols) / sizeof *sums, n = chunk_count(run->rows);
    const bool wide = run->dtype == FSDP_F32;

    for (size_t j = 0; out != NULL && j < run->cols; j++) {
        float buffer, *result = floats_out(dtype, out, j, &buffer);
        const double before = accumulate ? (double)*floats_in(w->kernels, dtype, out, j, 1, &buffer) : 0;
        double sum = wide ? before : 0;

        for (size_t index = 0; index < n; index++)
            sum += sums[index * stride + j];
        *result = (float)(wide ? sum : before + sum);
        floats_back(w->kernels, dtype, out, j, 1, &buffer);
    }
}

void rows_norm_backward(struct numerics *numerics, struct device_stream *stream,
                        const struct numerics_norm_backward *run)
{
    struct backward_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    /* if all is at most a grain of work, the caller's thread computes all chunks */
    parallel_for(numerics->threads, chunk_count(run->rows),
                 run->rows * run->cols > GRAIN_ELEMS ? 1 : MAX_CHUNKS, norm_backward_piece, &w);
    add_chunks(&w, 0, run->dweight, run->dweight_dtype, run->accumulate_dweight);
    add_chunks(&w, 1, run->dbias, run->dbias_dtype, run->accumulate_dbias);
}

size_t rows_norm_scratch(struct numerics *numerics, enum fsdp_dtype dtype, size_t rows, size_t cols)
{
    (void)numerics;
    return chunk_count(rows) * chunk_bytes(dtype, cols);
}

struct add_norm_work {
    const struct row_kernels *kernels;
    const struct numerics_add_norm *run;
};

/* x = a + dropout(b) for row i, with the bits of rows_dropout() and rows_add(). */
static void sum_row(const struct add_norm_work *w, const float *a, const float *b, float *x, size_t i)
{
    const struct dropout *dropout = w->run->dropout;
    const size_t cols = w->run->cols;

    if (!dropout_is_on(dropout)) {
        w->kernels->add(a, b, x, cols);
        return;
    }
    w->kernels->dropout(b, x, 1, cols, dropout, dropout->first_row + i, x == a);
    if (x != a)
        w->kernels->add(x, a, x, cols);
}

/* Handles one row at a time: its sum is still in the nearest cache when the row is normalised. */
static void add_norm_piece(void *context, size_t begin, size_t end)
{
    const struct add_norm_work *w = context;
    const struct numerics_add_norm *run = w->run;
    const size_t cols = run->cols;
    float x[NUMERICS_BF16_MAX_COLS], y[NUMERICS_BF16_MAX_COLS];
    float weight[NUMERICS_BF16_MAX_COLS], bias[NUMERICS_BF16_MAX_COLS];
    struct numerics_norm part = { .rows = 1, .cols = cols, .eps = run->eps };

    part.weight = floats_in(w->kernels, run->dtype, run->weight, 0, cols, weight);
    if (run->bias != NULL)
        part.bias = floats_in(w->kernels, run->dtype, run->bias, 0, cols, bias);
    for (size_t i = begin; i < end; i++) {
        const float *a = floats_in(w->kernels, run->dtype, run->a, i * cols, cols, x);
        const float *b = floats_in(w->kernels, run->dtype, run->b, i * cols, cols, y);
        float *sum = floats_out(run->dtype, run->x, i * cols, x);

        sum_row(w, a, b, sum, i);
        /* The sum is rounded before it is normalised, because other operations read it rounded. */
        floats_back(w->kernels, run->dtype, run->x, i * cols, cols, x);
        part.x = floats_in(w->kernels, run->dtype, run->x, i * cols, cols, x);
        part.y = floats_out(run->dtype, run->y, i * cols, y);
        part.mean = run->mean == NULL ? NULL : run->mean + i;
        part.rstd = run->rstd + i;
        w->kernels->norm(&part);
        floats_back(w->kernels, run->dtype, run->y, i * cols, cols, y);
    }
}

void rows_add_norm(struct numerics *numerics, struct device_stream *stream,
                   const struct numerics_add_norm *run)
{
    struct add_norm_work w = { .kernels = kernels_of(numerics), .run = run };

    (void)stream;
    parallel_for(numerics->threads, run->rows, row_grain(run->cols), add_norm_piece, &w);
}
