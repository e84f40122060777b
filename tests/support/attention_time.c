/* Our attention and cuDNN's side by side on one GPU: how far their numbers are apart, and the time of each. Linked with libfsdp.
 * FSDP_TEST_EMULATED_GPU: one small shape, whose times mean nothing. "ok", "not ok" or "skip" lines, and the times behind "#".
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/device/plugin.h"
#include "shard_runtime/numerics/numerics.h"

enum { PARTS = 3, WARM_UPS = 3, RUNS = 20 };

/* Both round D, dS and the results to bfloat16, in another order of sums: twice what each is allowed against float32. */
static const double allowed = 4e-2;

static const struct shape {
    const char *name;
    struct attention_desc shape;
} shapes[] = {
    { "GPT-2 124m, batch 16", { .batch = 16, .seq = 1024, .heads = 12, .head_dim = 64, .causal = true } },
    { "GPT-2 1558m, batch 4", { .batch = 4, .seq = 1024, .heads = 25, .head_dim = 64, .causal = true } },
    { "heads of 128, 4096 positions",
      { .batch = 2, .seq = 4096, .heads = 16, .head_dim = 128, .causal = true } },
    { "tiny", { .batch = 1, .seq = 33, .heads = 2, .head_dim = 64, .causal = true } },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, TINY = N_SHAPES - 1 };

static struct device device;
static struct device_stream *stream;
static const struct plugin *plugin;
static int n_failed;

static void require(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status == FSDP_OK)
        return;
    printf("not ok - attention side by side: %s\n", err->message);
    exit(1);
}

static void *alloc(size_t size_bytes)
{
    struct fsdp_err err = { 0 };
    void *memory;

    require(device.ops->alloc(&device, size_bytes, &memory, &err), &err);
    return memory;
}

static void synchronize(void)
{
    struct fsdp_err err = { 0 };

    require(device.ops->synchronize(stream, &err), &err);
}

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* out and the gradients of q, k and v side by side, as float32; the caller's to free. */
struct result {
    float *numbers;
    size_t n;
    double forward_ms, backward_ms;
};

struct memory {
    uint16_t *qkv, *dout, *out, *dqkv;
    float *lse;
    size_t n; /* elements of out */
};

static void time_runs(struct numerics *row, const struct attention_desc *shape, const struct memory *memory,
                      struct result *result)
{
    const size_t features = shape->heads * shape->head_dim;
    const struct fused_attention_desc desc = { .shape = *shape,
                                               .dtype = FSDP_BF16,
                                               .scale = 1.0f / sqrtf((float)shape->head_dim),
                                               .q_stride = PARTS * features,
                                               .k_stride = PARTS * features,
                                               .v_stride = PARTS * features,
                                               .out_stride = features };
    struct fused_attention_forward forward = { .q = memory->qkv,
                                               .k = memory->qkv + features,
                                               .v = memory->qkv + 2 * features,
                                               .out = memory->out,
                                               .lse = memory->lse };
    struct fused_attention_backward backward = { .q = forward.q,
                                                 .k = forward.k,
                                                 .v = forward.v,
                                                 .out = memory->out,
                                                 .dout = memory->dout,
                                                 .lse = memory->lse,
                                                 .dq = memory->dqkv,
                                                 .dk = memory->dqkv + features,
                                                 .dv = memory->dqkv + 2 * features };
    struct fused_attention *attention;
    struct fsdp_err err = { 0 };
    size_t bytes[2];
    double began_ms = 0;

    require(row->ops->attention_create(row, &desc, &attention, &bytes[0], &bytes[1], &err), &err);
    forward.scratch = alloc(bytes[0]);
    backward.scratch = alloc(bytes[1]);
    for (int i = -WARM_UPS; i < RUNS; i++) {
        if (i == 0)
            synchronize(), began_ms = now_ms();
        require(row->ops->attention_forward(attention, stream, &forward, &err), &err);
    }
    synchronize();
    result->forward_ms = (now_ms() - began_ms) / RUNS;
    for (int i = -WARM_UPS; i < RUNS; i++) {
        if (i == 0)
            synchronize(), began_ms = now_ms();
        require(row->ops->attention_backward(attention, stream, &backward, &err), &err);
    }
    synchronize();
    result->backward_ms = (now_ms() - began_ms) / RUNS;
    row->ops->attention_destroy(attention);
    device.ops->free(&device, forward.scratch, bytes[0]);
    device.ops->free(&device, backward.scratch, bytes[1]);
}

static void fetch(float *to, const uint16_t *from, size_t n)
{
    uint16_t *narrow = malloc(n * sizeof *narrow);

    device.ops->copy(stream, narrow, from, n * sizeof *narrow, DEVICE_COPY_FROM);
    synchronize();
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(narrow[i]);
    free(narrow);
}

static struct numerics open_row(const char *choice, struct fsdp_err *err)
{
    struct numerics row;

    setenv("FSDP_CUDA_ATTENTION", choice, 1);
    if (numerics_open(&row,
                      &(struct numerics_config){ .threads = 1, .row = plugin->numerics, .device = &device },
                      err) != FSDP_OK)
        row.ops = NULL;
    return row;
}

static struct result measure(struct numerics *row, const struct attention_desc *shape,
                             const struct memory *memory)
{
    struct result result = { .n = (1 + PARTS) * memory->n };

    result.numbers = malloc(result.n * sizeof(float));
    time_runs(row, shape, memory, &result);
    fetch(result.numbers, memory->out, memory->n);
    fetch(result.numbers + memory->n, memory->dqkv, PARTS * memory->n);
    return result;
}

static double apart(const struct result *a, const struct result *b)
{
    double most = 0, size = 1;

    for (size_t i = 0; i < a->n; i++) {
        const double d = fabs((double)a->numbers[i] - (double)b->numbers[i]);

        size = fabs((double)b->numbers[i]) > size ? fabs((double)b->numbers[i]) : size;
        most = isnan(d) || d > most ? d : most;
    }
    return most / size;
}

static uint16_t *fill(uint64_t key, size_t n)
{
    float *numbers = malloc(n * sizeof *numbers);
    uint16_t *narrow = malloc(n * sizeof *narrow), *memory = alloc(n * sizeof *memory);

    rng_fill_normal(key, 0, numbers, n, 1.0f);
    for (size_t i = 0; i < n; i++)
        narrow[i] = bf16_of_f32(numbers[i]);
    device.ops->copy(stream, memory, narrow, n * sizeof *narrow, DEVICE_COPY_TO);
    synchronize();
    free(numbers), free(narrow);
    return memory;
}

static void compare(const struct shape *at, struct numerics *ours, struct numerics *theirs)
{
    const size_t n = at->shape.batch * at->shape.seq * at->shape.heads * at->shape.head_dim,
                 n_lse = at->shape.batch * at->shape.heads * at->shape.seq;
    const struct memory memory = { .qkv = fill(1, PARTS * n),
                                   .dout = fill(2, n),
                                   .out = alloc(n * sizeof(uint16_t)),
                                   .dqkv = alloc(PARTS * n * sizeof(uint16_t)),
                                   .lse = alloc(n_lse * sizeof(float)),
                                   .n = n };
    const struct result a = measure(ours, &at->shape, &memory), b = measure(theirs, &at->shape, &memory);
    const double far = apart(&a, &b);

    if (far <= allowed)
        printf("ok - attention of %s: cuDNN's numbers are ours\n", at->name);
    else
        printf("not ok - attention of %s: cuDNN's numbers are ours: off by %g\n", at->name, far);
    n_failed += !(far <= allowed);
    printf("# attention of %s: forward ours %.3f ms, cuDNN %.3f ms; backward ours %.3f ms, cuDNN %.3f ms\n",
           at->name, a.forward_ms, b.forward_ms, a.backward_ms, b.backward_ms);
    device.ops->free(&device, memory.qkv, PARTS * n * sizeof(uint16_t));
    device.ops->free(&device, memory.dout, n * sizeof(uint16_t));
    device.ops->free(&device, memory.out, n * sizeof(uint16_t));
    device.ops->free(&device, memory.dqkv, PARTS * n * sizeof(uint16_t));
    device.ops->free(&device, memory.lse, n_lse * sizeof(float));
    free(a.numbers), free(b.numbers);
}

int main(void)
{
    const struct device_config config = { .name = "cuda", .plugin = &plugin };
    const bool emulated = getenv("FSDP_TEST_EMULATED_GPU") != NULL;
    struct fsdp_err err = { 0 };
    struct numerics ours, theirs;

    /* A process that hangs and is killed leaves the lines that it printed. */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    require(device_open(&device, &config, &err), &err);
    require(device.ops->stream_create(&device, &stream, false, &err), &err);
    ours = open_row("ours", &err);
    require(err.status, &err);
    theirs = open_row("cudnn", &err);
    if (theirs.ops == NULL)
        printf("skip - attention side by side: %s\n", err.message);
    for (int i = emulated ? TINY : 0; theirs.ops != NULL && i < (emulated ? N_SHAPES : TINY); i++)
        compare(&shapes[i], &ours, &theirs);
    numerics_close(&theirs);
    numerics_close(&ours);
    device.ops->stream_destroy(stream);
    device_close(&device);
    return n_failed > 0;
}
