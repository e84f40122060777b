/*
 * Linked with libfsdp. The time of each product of a model's linear layers on a GPU, and the ways to make
 * them.
 *
 *   product_time MODEL     124m or 1558m of GPT-2, 7b of Llama: rows and shapes as the bench has them
 *
 * With and without an epilogue: the gradient of a bias by BGRAD or by a column sum, GELU and its backward.
 * The head as it is, with rows padded to a multiple of 64, and with a padded vocabulary. The table is that of
 * FSDP_CUDA_PROFILE, on stderr. Lines on stdout: "ok", or "skip" for a way that cuBLASLt refuses: training
 * takes the other one then. FSDP_TEST_EMULATED_GPU: little shapes under the same names, whose times mean
 * nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "tests/support/oracles/cuda_row/row.h"

enum { RUNS = 10, MAX_CASES = 96, FIRST_ELEMS = 1 << 20 };

struct model {
    const char *name;
    size_t rows, dim, wide, vocab, padded;
    bool gpt2; /* weights are (in, out), with biases and GELU; else (out, in) alone */
};

static const struct model models[] = { { "124m", 32768, 768, 3072, 50257, 50304, true },
                                       { "1558m", 4096, 1600, 6400, 50257, 50304, true },
                                       { "7b", 4096, 4096, 11008, 32000, 32000, false } };

/* What a kernel of ours does after the product, if the product leaves no second output. */
enum after { NOTHING, SUM_OF_DY, GELU, GELU_BACKWARD_AND_SUM };

struct piece {
    char name[96];
    struct matmul_desc desc;
    enum after after;
    struct matmul *matmul;
    bool refused;
};

static struct piece pieces[MAX_CASES];
static int n_pieces;
static char *factors[2], *result, *beside, *small; /* beside: what goes into a GELU; small: biases and sums */

/* the list */

static struct piece *add(const struct model *model, const char *layer, const char *what,
                         struct matmul_desc desc)
{
    struct piece *piece = &pieces[n_pieces++];

    if (n_pieces > MAX_CASES)
        abort();
    *piece = (struct piece){ .desc = desc };
    snprintf(piece->name, sizeof piece->name, "%s %s: %s", model->name, layer, what);
    return piece;
}

/* y = x W; `ld` is the length of a row of y, and of dy below. */
static struct matmul_desc forward_of(size_t rows, size_t in, size_t out, size_t ld, bool in_out)
{
    struct matmul_desc d = op_product(rows, out, in, false, !in_out);

    d.dtype = d.c_dtype = FSDP_BF16;
    d.c.row_stride = ld;
    return d;
}

static struct matmul_desc input_of(size_t rows, size_t in, size_t out, size_t ld, bool in_out)
{
    struct matmul_desc d = op_product(rows, in, out, false, in_out);

    d.dtype = d.c_dtype = FSDP_BF16;
    d.a.row_stride = ld;
    return d;
}

/* x^T dy where the weight is (in, out), else dy^T x. */
static struct matmul_desc weight_of(size_t rows, size_t in, size_t out, size_t ld, bool in_out)
{
    struct matmul_desc d =
        in_out ? op_product(in, out, rows, true, false) : op_product(out, in, rows, true, false);

    d.dtype = d.c_dtype = FSDP_BF16;
    *(in_out ? &d.b.row_stride : &d.a.col_stride) = ld;
    return d;
}

/* The gradient of the weight, and of the bias in either way. */
static void add_weights(const struct model *model, const char *layer, size_t in, size_t out,
                        enum fsdp_dtype dtype, enum fsdp_dtype into)
{
    const char *kind = dtype == FSDP_F32  ? "float32 weight gradient"
                       : into == FSDP_F32 ? "weight gradient to float32"
                                          : "weight gradient";
    struct matmul_desc desc = weight_of(model->rows, in, out, out, model->gpt2);
    char what[64];

    desc.dtype = dtype;
    desc.c_dtype = into;
    if (!model->gpt2) {
        add(model, layer, kind, desc);
        return;
    }
    snprintf(what, sizeof what, "%s, bias by column sum", kind);
    add(model, layer, what, desc)->after = SUM_OF_DY;
    desc.beside = MATMUL_SUMS_OF_B;
    snprintf(what, sizeof what, "%s, bias by BGRAD", kind);
    add(model, layer, what, desc);
}

static void add_forward(const struct model *model, const char *layer, size_t in, size_t out, bool gelu)
{
    struct matmul_desc desc = forward_of(model->rows, in, out, out, model->gpt2);

    desc.bias = model->gpt2;
    if (!gelu) {
        add(model, layer, "forward", desc);
        return;
    }
    add(model, layer, "forward, GELU apart", desc)->after = GELU;
    desc.beside = MATMUL_BEFORE_GELU;
    add(model, layer, "forward, GELU beside", desc);
}

static void add_input(const struct model *model, const char *layer, size_t in, size_t out, bool gelu)
{
    struct matmul_desc desc = input_of(model->rows, in, out, out, model->gpt2);

    if (!gelu) {
        add(model, layer, "input gradient", desc);
        return;
    }
    add(model, layer, "input gradient, GELU and bias apart", desc)->after = GELU_BACKWARD_AND_SUM;
    desc.beside = MATMUL_GELU_BACKWARD;
    add(model, layer, "input gradient, GELU beside", desc);
    desc.beside = MATMUL_GELU_BACKWARD_SUMS;
    add(model, layer, "input gradient, GELU and bias beside", desc);
}

static void add_linear(const struct model *model, const char *layer, size_t in, size_t out, bool gelu_behind,
                       bool gelu_before)
{
    add_forward(model, layer, in, out, model->gpt2 && gelu_behind);
    add_input(model, layer, in, out, model->gpt2 && gelu_before);
    add_weights(model, layer, in, out, FSDP_BF16, FSDP_BF16);
    add_weights(model, layer, in, out, FSDP_BF16, FSDP_F32);
    if (strcmp(model->name, "124m") == 0)
        add_weights(model, layer, in, out, FSDP_F32, FSDP_F32);
}

/* The head's weight is (vocab, dim), tied to the embedding, and has no bias. */
static void add_head(const struct model *model, size_t vocab, size_t ld)
{
    struct matmul_desc wide = forward_of(model->rows, model->dim, vocab, ld, false);
    char layer[64];

    snprintf(layer, sizeof layer, "head of %zu, rows of %zu", vocab, ld);
    add(model, layer, "forward", wide);
    wide.c_dtype = FSDP_F32;
    add(model, layer, "forward to float32", wide);
    add(model, layer, "input gradient", input_of(model->rows, model->dim, vocab, ld, false));
    add(model, layer, "weight gradient", weight_of(model->rows, model->dim, vocab, ld, false));
}

static void list(const struct model *model)
{
    if (model->gpt2) {
        add_linear(model, "c_attn", model->dim, 3 * model->dim, false, false);
        add_linear(model, "c_proj", model->dim, model->dim, false, false);
        add_linear(model, "mlp.c_fc", model->dim, model->wide, true, false);
        add_linear(model, "mlp.c_proj", model->wide, model->dim, false, true);
    } else {
        add_linear(model, "wq", model->dim, model->dim, false, false);
        add_linear(model, "w1", model->dim, model->wide, false, false);
        add_linear(model, "w2", model->wide, model->dim, false, false);
    }
    add_head(model, model->vocab, model->vocab);
    if (model->padded != model->vocab) {
        add_head(model, model->vocab, model->padded);
        add_head(model, model->padded, model->padded);
    }
}

/* memory */

/* The last element of a view is the last byte that is used. */
static size_t bytes_of(const struct matmul_view *view, size_t rows, size_t cols, enum fsdp_dtype dtype)
{
    return ((rows - 1) * view->row_stride + (cols - 1) * view->col_stride + 1) * fsdp_dtype_size(dtype);
}

static void *alloc(size_t size_bytes)
{
    void *memory;

    require(device.ops->alloc(&device, size_bytes, &memory, &err));
    return memory;
}

/* Random numbers: a GPU that multiplies zeros is faster than it is. As float32 the pairs of them are numbers
 * of that size too. */
static char *fill(size_t size_bytes)
{
    const size_t first = FIRST_ELEMS * sizeof(uint16_t);
    float *numbers = malloc(FIRST_ELEMS * sizeof *numbers);
    uint16_t *narrow = malloc(first);
    char *memory = alloc(size_bytes < first ? first : size_bytes);

    rng_fill_normal(7, 0, numbers, FIRST_ELEMS, 1.0f);
    for (size_t i = 0; i < FIRST_ELEMS; i++)
        narrow[i] = bf16_of_f32(numbers[i]);
    device.ops->copy(stream, memory, narrow, first, DEVICE_COPY_TO);
    for (size_t done = first, n; done < size_bytes; done += n) {
        n = size_bytes - done < done ? size_bytes - done : done;
        device.ops->copy(stream, memory + done, memory, n, DEVICE_COPY_WITHIN);
    }
    require(device.ops->synchronize(stream, &err));
    free(numbers), free(narrow);
    return memory;
}

static void grow(size_t *most, size_t size_bytes)
{
    *most = size_bytes > *most ? size_bytes : *most;
}

static void make_memory(const struct model *model)
{
    size_t of_factors[2] = { 0 }, of_result = 0, of_small = 0;

    for (int i = 0; i < n_pieces; i++) {
        const struct matmul_desc *d = &pieces[i].desc;

        grow(&of_factors[0], bytes_of(&d->a, d->m, d->k, d->dtype));
        grow(&of_factors[1], bytes_of(&d->b, d->k, d->n, d->dtype));
        grow(&of_result, bytes_of(&d->c, d->m, d->n, d->c_dtype));
        grow(&of_small, d->n * sizeof(float)); /* dy has as many columns, where its sums are wanted */
    }
    factors[0] = fill(of_factors[0]);
    factors[1] = fill(of_factors[1]);
    result = alloc(of_result);
    beside = fill(model->rows * model->wide * sizeof(uint16_t));
    small = alloc(of_small);
}

/* runs */

static void run_after(const struct piece *piece)
{
    const struct matmul_desc *d = &piece->desc;

    switch (piece->after) {
    case NOTHING:
        break;
    case SUM_OF_DY:
        op_column_sum(&cuda, stream, d->dtype, factors[1], d->c_dtype, small, d->k, d->n, false);
        break;
    case GELU:
        op_activation(&cuda, stream, FSDP_BF16, NUMERICS_GELU_TANH, result, beside, d->m * d->n);
        break;
    case GELU_BACKWARD_AND_SUM:
        op_activation_backward(&cuda, stream, FSDP_BF16, NUMERICS_GELU_TANH, result, beside, result,
                               d->m * d->n);
        op_column_sum(&cuda, stream, FSDP_BF16, result, FSDP_BF16, small, d->m, d->n, false);
        break;
    }
}

static enum fsdp_status run_product(const struct piece *piece)
{
    const struct matmul_desc *d = &piece->desc;
    const bool back = d->beside == MATMUL_GELU_BACKWARD || d->beside == MATMUL_GELU_BACKWARD_SUMS;
    const void *bias = d->bias ? small : back ? beside : NULL;
    void *left = d->beside == MATMUL_BEFORE_GELU ? beside : d->beside != MATMUL_GELU_BACKWARD ? small : NULL;

    if (d->beside == MATMUL_NOTHING)
        return cuda.ops->matmul_run(piece->matmul, stream, factors[0], factors[1], bias, result, NULL, &err);
    return cuda.ops->matmul_run_beside(piece->matmul, stream, factors[0], factors[1], bias, left, result,
                                       NULL, &err);
}

/* As one span, whose bytes are those of both factors and the result. */
static void run(struct piece *piece)
{
    const struct matmul_desc *d = &piece->desc;
    const uint64_t bytes =
        (d->m * d->k + d->k * d->n) * fsdp_dtype_size(d->dtype) + d->m * d->n * fsdp_dtype_size(d->c_dtype);
    enum fsdp_status status;

    if (piece->refused)
        return;
    device.ops->begin_span(stream, piece->name, bytes);
    status = run_product(piece);
    if (status == FSDP_OK)
        run_after(piece);
    device.ops->end_span(stream);
    piece->refused = status == FSDP_ERR_UNSUPPORTED;
    if (!piece->refused)
        require(status);
}

static void make_product(struct piece *piece)
{
    size_t scratch_bytes;
    const enum fsdp_status status =
        cuda.ops->matmul_create(&cuda, &piece->desc, &piece->matmul, &scratch_bytes, &err);

    piece->refused = status == FSDP_ERR_UNSUPPORTED;
    if (!piece->refused)
        require(status);
}

/* The table leaves the first step out: in it libraries load their code, and what is refused at the call is
 * found. */
static void run_all(const char *model)
{
    int n_timed = 0;

    for (int i = 0; i < n_pieces; i++)
        make_product(&pieces[i]);
    for (int step = 0; step < 2; step++) {
        device.ops->begin_step(&device);
        for (int i = 0; i < n_pieces; i++)
            for (int n = 0; n < (step == 0 ? 1 : RUNS); n++)
                run(&pieces[i]);
        require(device.ops->synchronize(stream, &err));
    }
    for (int i = 0; i < n_pieces; i++) {
        if (pieces[i].refused)
            printf("skip - time of %s: cuBLASLt refuses it\n", pieces[i].name);
        n_timed += !pieces[i].refused;
        cuda.ops->matmul_destroy(pieces[i].matmul);
    }
    printf("ok - time of %d products of %s\n", n_timed, model);
}

int main(int argc, char **argv)
{
    struct model model = { 0 };

    (void)setenv("FSDP_CUDA_EPILOGUES", "all", 0); /* every way there is */
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (argc == 2 && strcmp(argv[1], models[i].name) == 0)
            model = models[i];
    if (model.name == NULL) {
        fprintf(stderr, "usage: product_time 124m|1558m|7b\n");
        return 2;
    }
    if (getenv("FSDP_TEST_EMULATED_GPU") != NULL) {
        model.rows = 24, model.dim = 16, model.wide = 32;
        model.padded = model.padded != model.vocab ? 40 : 37, model.vocab = 37;
    }
    setenv("FSDP_CUDA_PROFILE", "1", 1);
    open_device();
    require(open_row(&cuda));
    list(&model);
    make_memory(&model);
    run_all(model.name);
    numerics_close(&cuda);
    close_device();
    return 0;
}
