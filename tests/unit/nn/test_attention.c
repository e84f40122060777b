/*
 * Attention by either way: which one is prepared for the instruction set that the numerics names, and that
 * both compute the same. The instruction set is pretended; the products are this machine's.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/nn/nn.h"
#include "tests/unit/engine/must.h"

enum { SEQ = 128, HEADS = 2, DIM = 32, N = SEQ * DIM, N_RESULTS = 4 };

/* The output, and the gradients of q, k and v. */
struct results {
    uint16_t of[N_RESULTS][N];
};

/* Numbers of size 1 that no two places share. */
static void fill(uint16_t *x, uint32_t seed)
{
    for (uint32_t i = 0; i < N; i++)
        x[i] = bf16_of_f32((float)((i + seed * 7919u) * 2654435761u >> 8) * 0x1p-23f - 1.0f);
}

static void run(struct numerics *numerics, const struct graph_op *op, struct results *out)
{
    static uint16_t q[N], k[N], v[N], dout[N];
    const size_t scratch =
        op->forward_scratch > op->backward_scratch ? op->forward_scratch : op->backward_scratch;
    struct device device;
    struct nn_run run = { .numerics = numerics,
                          .device = &device,
                          .input = { q, k, v },
                          .output = out->of[0],
                          .d_output = dout,
                          .d_input = { out->of[1], out->of[2], out->of[3] },
                          .saved = { aligned_alloc(64, (op->saved_bytes[0] + 64) / 64 * 64) },
                          .scratch = aligned_alloc(64, (scratch + 64) / 64 * 64) };
    struct fsdp_err err = { 0 };

    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    fill(dout, 4);
    must(device_open(&device, &(struct device_config){ .name = "cpu" }, &err), &err);
    must(device.ops->stream_create(&device, &run.stream, false, &err), &err);
    must(nn_forward(&run, op, &err), &err);
    must(nn_backward(&run, op, &err), &err);
    device.ops->stream_destroy(run.stream);
    device_close(&device);
    free(run.saved[0]);
    free(run.scratch);
}

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "attention"), fsdp_call(fsdp_module_child(self, "before"), x));
}

/* Is it fused, of `dtype`, on such a CPU? With `out` it is run as well. */
static bool is_fused(struct numerics *numerics, enum ways_isa isa, enum fsdp_dtype dtype, bool causal,
                     struct results *out)
{
    const struct graph_input input = { .dtype = FSDP_F32, .batch = 1, .seq = SEQ, .features = DIM };
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    const struct fsdp_fully_shard_options options = { .mp_policy = &mp };
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct graph_op *op = NULL;
    struct nn_kernels kernels;
    struct graph graph;
    struct fsdp_err err = { 0 };
    bool fused;

    mp.param_dtype = dtype;
    numerics->isa = isa;
    fsdp_linear(root, "before", DIM, DIM, false);
    fsdp_attention(root, "attention", DIM, HEADS, causal, 0);
    must(fsdp_fully_shard(root, &options, &err), &err);
    nn_kernels_init(&kernels, numerics);
    must(graph_record(&graph, root, &input, true, &err), &err);
    must(nn_prepare(&kernels, &graph, &err), &err);
    for (size_t i = 0; i < graph.n_ops; i++)
        if (strcmp(graph.ops[i]->kind->name, "attention") == 0)
            op = graph.ops[i];
    cr_assert_not_null(op);
    cr_assert(!op->converts && op->takes_bf16 == (dtype == FSDP_BF16));
    fused = op->attention != NULL;
    if (out != NULL)
        run(numerics, op, out);
    graph_fini(&graph);
    nn_kernels_fini(&kernels);
    fsdp_module_destroy(root);
    return fused;
}

/* Both round each product to bfloat16, whose steps are 2^-8 of a number, but not the same sums in between. */
static void expect_close(const struct results *a, const struct results *b)
{
    for (int r = 0; r < N_RESULTS; r++) {
        double difference = 0, size = 0;

        for (size_t i = 0; i < N; i++) {
            const double one = (double)bf16_to_f32(a->of[r][i]), other = (double)bf16_to_f32(b->of[r][i]);

            difference += (one - other) * (one - other);
            size += one * one;
        }
        cr_expect(size > 0 && sqrt(difference / size) < 0x1p-7, "result %d: %g", r, sqrt(difference / size));
    }
}

Test(nn_attention, the_way_goes_by_the_instruction_set)
{
    struct numerics numerics;
    struct fsdp_err err = { 0 };
    bool native;

    must(numerics_open(&numerics, &(struct numerics_config){ .threads = 2, .name = "auto" }, &err), &err);
    native = numerics.bf16_products && numerics.ops->attention_create != NULL;
    for (int causal = 0; native && causal < 2; causal++) {
        static struct results fused, whole;

        cr_expect(is_fused(&numerics, WAYS_ISA_AVX512_BF16, FSDP_BF16, causal != 0, &fused));
        cr_expect_not(is_fused(&numerics, WAYS_ISA_AMX_BF16, FSDP_BF16, causal != 0, &whole));
        cr_expect(is_fused(&numerics, WAYS_ISA_AMX_BF16, FSDP_F32, causal != 0, NULL));
        expect_close(&fused, &whole);
    }
    numerics_close(&numerics);
    if (!native)
        cr_skip_test("no bfloat16 products on this CPU");
}
