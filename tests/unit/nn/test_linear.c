/*
 * The last linear of a bfloat16 model, whose output is float32: its gradient is rounded once, every element
 * of it, where it lies. All numbers are such that float32 sums of bfloat16 products are exact.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/nn/nn.h"
#include "tests/unit/engine/must.h"

enum { SEQ = 37, IN = 16, OUT = 1031 }; /* more elements than are narrowed at once, and no multiple of it */

struct buffers {
    uint16_t x[SEQ * IN], weight[OUT * IN], dx[SEQ * IN];
    float y[SEQ * OUT], dy[SEQ * OUT], dweight[OUT * IN];
};

static int value_at(size_t i, int most)
{
    return (int)(i * 2654435761u % 4093u) % (2 * most + 1) - most;
}

static uint16_t narrow(float value)
{
    return bf16_of_f32(value);
}

static void fill(struct buffers *b)
{
    for (size_t i = 0; i < SEQ * IN; i++)
        b->x[i] = narrow((float)value_at(i + 3, 4));
    for (size_t i = 0; i < OUT * IN; i++)
        b->weight[i] = narrow((float)value_at(i + 5, 1));
    for (size_t i = 0; i < SEQ * OUT; i++)
        b->dy[i] = (float)value_at(i + 7, 3) * (1 + 0x1p-12f); /* the last bits are what rounding takes off */
}

static float sum_y(const struct buffers *b, size_t row, size_t j)
{
    float sum = 0;

    for (size_t k = 0; k < IN; k++)
        sum += bf16_to_f32(b->x[row * IN + k]) * bf16_to_f32(b->weight[j * IN + k]);
    return sum;
}

static float sum_dweight(const struct buffers *b, size_t j, size_t k)
{
    float sum = 0;

    for (size_t row = 0; row < SEQ; row++)
        sum += (float)value_at(row * OUT + j + 7, 3) * bf16_to_f32(b->x[row * IN + k]);
    return sum;
}

static uint16_t sum_dx(const struct buffers *b, size_t row, size_t k)
{
    float sum = 0;

    for (size_t j = 0; j < OUT; j++)
        sum += (float)value_at(row * OUT + j + 7, 3) * bf16_to_f32(b->weight[j * IN + k]);
    return narrow(sum);
}

static void run(struct numerics *numerics, const struct graph_op *op, struct buffers *b)
{
    const size_t scratch =
        op->forward_scratch > op->backward_scratch ? op->forward_scratch : op->backward_scratch;
    struct device device;
    struct nn_run run = { .numerics = numerics,
                          .device = &device,
                          .input = { b->x },
                          .params = { b->weight },
                          .output = b->y,
                          .d_output = b->dy,
                          .d_input = { b->dx },
                          .d_param = { b->dweight },
                          .d_param_dtype = { FSDP_F32 },
                          .scratch = aligned_alloc(64, (scratch + 64) / 64 * 64) };
    struct fsdp_err err = { 0 };

    must(device_open(&device, &(struct device_config){ .name = "cpu" }, &err), &err);
    must(device.ops->stream_create(&device, &run.stream, false, &err), &err);
    must(nn_forward(&run, op, &err), &err);
    must(nn_backward(&run, op, &err), &err);
    device.ops->stream_destroy(run.stream);
    device_close(&device);
    free(run.scratch);
}

static void expect_exact(const struct buffers *b)
{
    for (size_t row = 0; row < SEQ; row++)
        for (size_t j = 0; j < OUT; j++)
            cr_assert(b->y[row * OUT + j] == sum_y(b, row, j), "y %zu, %zu", row, j);
    for (size_t j = 0; j < OUT; j++)
        for (size_t k = 0; k < IN; k++)
            cr_assert(b->dweight[j * IN + k] == sum_dweight(b, j, k), "dweight %zu, %zu: %g", j, k,
                      b->dweight[j * IN + k]);
    for (size_t row = 0; row < SEQ; row++)
        for (size_t k = 0; k < IN; k++)
            cr_assert(b->dx[row * IN + k] == sum_dx(b, row, k), "dx %zu, %zu", row, k);
}

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_call(fsdp_module_child(self, "before"), x));
}

Test(nn_linear, the_gradient_of_logits_is_rounded_once_where_it_lies)
{
    const struct graph_input input = { .dtype = FSDP_F32, .batch = 1, .seq = SEQ, .features = IN };
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    const struct fsdp_fully_shard_options options = { .mp_policy = &mp };
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    static struct buffers b;
    struct nn_kernels kernels;
    struct numerics numerics;
    struct graph graph;
    struct fsdp_err err = { 0 };
    struct graph_op *op;

    mp.param_dtype = FSDP_BF16;
    fsdp_linear(root, "before", IN, IN, false); /* so that a gradient of the input is wanted */
    fsdp_linear(root, "output", IN, OUT, false);
    must(fsdp_fully_shard(root, &options, &err), &err);
    must(numerics_open(&numerics, &(struct numerics_config){ .threads = 2, .name = "auto" }, &err), &err);
    nn_kernels_init(&kernels, &numerics);
    must(graph_record(&graph, root, &input, true, &err), &err);
    must(nn_prepare(&kernels, &graph, &err), &err);
    op = graph.ops[graph.n_ops - 1];
    cr_expect(op->output->dtype == FSDP_F32 && op->inputs[0]->dtype == FSDP_BF16);
    cr_expect(op->takes_bf16 == numerics.bf16_products);
    if (op->takes_bf16) {
        cr_expect_not(op->converts, "on copies");
        fill(&b);
        run(&numerics, op, &b);
        expect_exact(&b);
    }
    graph_fini(&graph);
    nn_kernels_fini(&kernels);
    numerics_close(&numerics);
    fsdp_module_destroy(root);
}
