/* The choice of the instruction set; elementwise operations, sums and optimizers, cut over the threads. */
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

/* --- elementwise --- */

/* One of the two kernels is there: of x, or of x and y. */
struct elementwise {
    void (*of_one)(const float *x, float *out, size_t n);
    void (*of_two)(const float *x, const float *y, float *out, size_t n);
    const float *x, *y;
    float *out;
};

static void elementwise_piece(void *context, size_t begin, size_t end)
{
    const struct elementwise *e = context;

    if (e->of_one != NULL)
        e->of_one(e->x + begin, e->out + begin, end - begin);
    else
        e->of_two(e->x + begin, e->y + begin, e->out + begin, end - begin);
}

static void elementwise(struct numerics *numerics, struct elementwise e, size_t n_elems)
{
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, elementwise_piece, &e);
}

void rows_add(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b,
              float *out, size_t n_elems)
{
    (void)stream;
    elementwise(numerics,
                (struct elementwise){ .of_two = kernels_of(numerics)->add, .x = a, .y = b, .out = out },
                n_elems);
}

void rows_gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
               size_t n_elems)
{
    (void)stream;
    elementwise(numerics, (struct elementwise){ .of_one = kernels_of(numerics)->gelu, .x = x, .out = y },
                n_elems);
}

void rows_gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                        const float *x, float *dx, size_t n_elems)
{
    (void)stream;
    elementwise(
        numerics,
        (struct elementwise){ .of_two = kernels_of(numerics)->gelu_backward, .x = dy, .y = x, .out = dx },
        n_elems);
}

void rows_gelu_tanh(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                    size_t n_elems)
{
    (void)stream;
    elementwise(numerics, (struct elementwise){ .of_one = kernels_of(numerics)->gelu_tanh, .x = x, .out = y },
                n_elems);
}

void rows_gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                             const float *x, float *dx, size_t n_elems)
{
    (void)stream;
    elementwise(numerics,
                (struct elementwise){
                    .of_two = kernels_of(numerics)->gelu_tanh_backward, .x = dy, .y = x, .out = dx },
                n_elems);
}

/* --- rows --- */

struct work {
    const struct row_kernels *kernels;
    const float *a;
    float *out;
    size_t rows, cols;
    bool accumulate;
    const struct dropout *dropout;
};

static void dropout_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->dropout(w->a + begin * w->cols, w->out + begin * w->cols, end - begin, w->cols, w->dropout,
                        w->dropout->first_row + begin, w->accumulate);
}

void rows_dropout(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                  size_t rows, size_t cols, const struct dropout *dropout, bool accumulate)
{
    struct work w = { .kernels = kernels_of(numerics),
                      .a = x,
                      .out = out,
                      .rows = rows,
                      .cols = cols,
                      .accumulate = accumulate,
                      .dropout = dropout };

    if (dropout_is_on(dropout))
        parallel_for(numerics->threads, rows, row_grain(cols), dropout_piece, &w);
    else if (accumulate)
        rows_add(numerics, stream, out, x, out, rows * cols);
    else if (out != x)
        memcpy(out, x, rows * cols * sizeof *x);
}

/* --- sums over rows: the columns are cut, so that each thread has whole sums --- */

static void column_sum_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;

    w->kernels->column_sum(w->a + begin, w->cols, w->out + begin, w->rows, end - begin, w->accumulate);
}

void rows_column_sum(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                     size_t rows, size_t cols, bool accumulate)
{
    struct work w = { .kernels = kernels_of(numerics),
                      .a = x,
                      .out = out,
                      .rows = rows,
                      .cols = cols,
                      .accumulate = accumulate };
    /* A cache line of columns is the least a thread may have; small sums stay on one thread. */
    const size_t grain = rows >= GRAIN_ELEMS / 16 ? 16 : cols;

    (void)stream;
    parallel_for(numerics->threads, cols, grain > 0 ? grain : 1, column_sum_piece, &w);
}

/* --- optimizers and norms --- */

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

void rows_adamw(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
                float *m, float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step)
{
    struct update_work w = { .kernels = kernels_of(numerics),
                             .param = param,
                             .m = m,
                             .v = v,
                             .grad = grad,
                             .adamw = h,
                             .grad_scale = grad_scale,
                             .step = step };

    (void)stream;
    parallel_for(numerics->threads, n_elems, GRAIN_ELEMS, adamw_piece, &w);
}

static void sgd_piece(void *context, size_t begin, size_t end)
{
    const struct update_work *w = context;

    w->kernels->sgd(w->param + begin, w->grad + begin, w->m == NULL ? NULL : w->m + begin, end - begin,
                    w->sgd, w->grad_scale, w->step);
}

void rows_sgd(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
              float *buf, size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step)
{
    struct update_work w = { .kernels = kernels_of(numerics),
                             .param = param,
                             .m = buf,
                             .grad = grad,
                             .sgd = h,
                             .grad_scale = grad_scale,
                             .step = step };

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

double rows_sum_squares(struct numerics *numerics, struct device_stream *stream, const float *x,
                        size_t n_elems)
{
    struct squares_work w = { .kernels = kernels_of(numerics), .x = x, .n = n_elems };
    double sum = 0;

    (void)stream;
    parallel_for(numerics->threads, chunk_count(n_elems), n_elems > 2 * GRAIN_ELEMS ? 1 : MAX_CHUNKS,
                 squares_piece, &w);
    for (size_t chunk = 0; chunk < chunk_count(n_elems); chunk++)
        sum += w.sums[chunk];
    return sum;
}
