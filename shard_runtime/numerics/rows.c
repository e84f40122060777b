/* The choice of the instruction set; element-wise operations and sums over rows, cut over the threads. */
#include "shard_runtime/numerics/rows.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

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
    return fsdp_fail(err, FSDP_ERR_CONFIG, "FSDP_ISA=%s: this CPU and build have no such instruction set",
                     wanted);
}

/* A function of the elements of one tensor or of two. Exactly one of `of_one` and `of_two` is set. */
struct elementwise {
    const struct row_kernels *kernels;
    void (*of_one)(const float *x, float *out, size_t n);
    void (*of_two)(const float *x, const float *y, float *out, size_t n);
    enum fsdp_dtype dtype;
    const void *x, *y;
    void *out;
};

enum { TILE = 2048 }; /* elements of a bfloat16 tensor that are widened at a time */

static void elementwise_piece(void *context, size_t begin, size_t end)
{
    const struct elementwise *e = context;
    const size_t step = e->dtype == FSDP_F32 ? end - begin : TILE;
    float tile[TILE], other[TILE];

    for (size_t i = begin; i < end; i += step) {
        const size_t n = end - i < step ? end - i : step;
        const float *x = floats_in(e->kernels, e->dtype, e->x, i, n, tile);
        float *out = floats_out(e->dtype, e->out, i, tile);

        if (e->of_one != NULL)
            e->of_one(x, out, n);
        else
            e->of_two(x, floats_in(e->kernels, e->dtype, e->y, i, n, other), out, n);
        floats_back(e->kernels, e->dtype, e->out, i, n, tile);
    }
}

static void elementwise(struct numerics *numerics, struct elementwise e, size_t n_elems)
{
    e.kernels = kernels_of(numerics);
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, elementwise_piece, &e);
}

void rows_add(struct numerics *numerics, struct device_stream *stream, const struct numerics_add *run)
{
    const struct elementwise e = {
        .of_two = kernels_of(numerics)->add, .dtype = run->dtype, .x = run->a, .y = run->b, .out = run->out
    };

    (void)stream;
    elementwise(numerics, e, run->n_elems);
}

void rows_activation(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_activation *run)
{
    const struct elementwise e = { .of_one = kernels_of(numerics)->activations[run->function].forward,
                                   .dtype = run->dtype,
                                   .x = run->x,
                                   .out = run->y };

    (void)stream;
    elementwise(numerics, e, run->n_elems);
}

void rows_activation_backward(struct numerics *numerics, struct device_stream *stream,
                              const struct numerics_activation_backward *run)
{
    const struct elementwise e = { .of_two = kernels_of(numerics)->activations[run->function].backward,
                                   .dtype = run->dtype,
                                   .x = run->dy,
                                   .y = run->x,
                                   .out = run->dx };

    (void)stream;
    elementwise(numerics, e, run->n_elems);
}

struct dropout_work {
    const struct row_kernels *kernels;
    const struct numerics_dropout *run;
};

static void dropout_piece(void *context, size_t begin, size_t end)
{
    const struct dropout_work *w = context;
    const struct numerics_dropout *run = w->run;

    w->kernels->dropout(run->x + begin * run->cols, run->out + begin * run->cols, end - begin, run->cols,
                        run->mask, run->mask->first_row + begin, run->accumulate);
}

void rows_dropout(struct numerics *numerics, struct device_stream *stream, const struct numerics_dropout *run)
{
    const size_t n_elems = run->rows * run->cols;
    struct dropout_work w = { .kernels = kernels_of(numerics), .run = run };

    if (dropout_is_on(run->mask))
        parallel_for(numerics->threads, run->rows, row_grain(run->cols), dropout_piece, &w);
    else if (run->accumulate)
        rows_add(numerics, stream,
                 &(struct numerics_add){ .a = run->out, .b = run->x, .out = run->out, .n_elems = n_elems });
    else if (run->out != run->x)
        memcpy(run->out, run->x, n_elems * sizeof *run->x);
}

/* Sums over rows. Threads divide the columns, so that each thread computes whole sums. */
struct sum_work {
    const struct row_kernels *kernels;
    const struct numerics_column_sum *run;
};

/* the part of a bfloat16 tensor that is widened at a time */
enum { SUM_TILE_ROWS = 32, SUM_TILE_COLS = 256 };

static void column_sum_piece(void *context, size_t begin, size_t end)
{
    const struct sum_work *w = context;
    const struct numerics_column_sum *run = w->run;

    w->kernels->column_sum((const float *)run->x + begin, run->cols, (float *)run->out + begin, run->rows,
                           end - begin, run->accumulate);
}

/* The order in which a column is added does not depend on where the columns are cut. */
static void column_sum_bf16_piece(void *context, size_t begin, size_t end)
{
    const struct sum_work *w = context;
    const struct numerics_column_sum *run = w->run;
    float tile[SUM_TILE_ROWS * SUM_TILE_COLS], buffer[SUM_TILE_COLS];

    for (size_t j = begin; j < end; j += SUM_TILE_COLS) {
        const size_t n = end - j < SUM_TILE_COLS ? end - j : SUM_TILE_COLS;
        float *sums = floats_out(run->out_dtype, run->out, j, buffer);

        if (!run->accumulate)
            memset(sums, 0, n * sizeof *sums);
        else
            (void)floats_in(w->kernels, run->out_dtype, run->out, j, n, buffer);
        for (size_t i = 0; i < run->rows; i += SUM_TILE_ROWS) {
            const size_t rows = run->rows - i < SUM_TILE_ROWS ? run->rows - i : SUM_TILE_ROWS;

            for (size_t r = 0; r < rows; r++)
                w->kernels->from_bf16((const uint16_t *)run->x + (i + r) * run->cols + j,
                                      tile + r * SUM_TILE_COLS, n);
            w->kernels->column_sum(tile, SUM_TILE_COLS, sums, rows, n, true);
        }
        floats_back(w->kernels, run->out_dtype, run->out, j, n, buffer);
    }
}

void rows_column_sum(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_column_sum *run)
{
    struct sum_work w = { .kernels = kernels_of(numerics), .run = run };
    /* A thread gets at least a cache line of columns; small sums stay on one thread. */
    const size_t line = 64 / fsdp_dtype_size(run->dtype);
    const size_t grain = run->rows >= GRAIN_ELEMS / 16 ? line : run->cols;

    (void)stream;
    parallel_for(numerics->threads, run->cols, grain > 0 ? grain : 1,
                 run->dtype == FSDP_F32 ? column_sum_piece : column_sum_bf16_piece, &w);
}
